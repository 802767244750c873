"""What `bert.attention` gives: tokens as a reader knows them, weights, pages, arrays."""

import html
from pathlib import Path

import numpy as np
import pytest

from analysis.conftest import KINDS, Small
from bertsmith.analysis import AttentionPage, attention
from bertsmith.analysis import page as module
from bertsmith.analysis.maps import rollout
from bertsmith.errors import BertsmithError

TEXT = "Unbelievable playing,  in Kraków!"


@pytest.mark.parametrize("name", KINDS)
def test_tokens_are_the_text(name: str, small: Small) -> None:
    first, second = "Unbelievable playing, in Warsaw!", "The river flows."
    view = small(name).attention(first, second)
    for source, text in enumerate((first, second)):
        own = [token for token in view.tokens if token.source == source]
        spelled = "".join(" " * token.apart + token.text for token in own)
        assert spelled.replace("␣", "").split() == text.split()
    special = [token for token in view.tokens if token.source is None]
    assert len(special) == small(name).tokenizer.special_count(pair=True)
    assert all(token.text == token.token for token in special)
    assert view.maps().shape == (len(view.layers), len(view.heads), len(view), len(view))


def test_bytes_of_one_character_are_not_shown_twice(small: Small) -> None:
    tokens = small("roberta").attention("日").tokens
    assert [(token.text, token.apart) for token in tokens[1:3]] == [("日", True), ("Ĺ", False)]


def test_layers_and_heads_are_chosen(small: Small) -> None:
    bert = small()
    whole, part = bert.attention(TEXT), bert.attention(TEXT, layers=[2, 0], heads=[3])
    assert (part.layers, part.heads) == ((0, 2), (3,))
    assert np.abs(part.maps() - whole.maps()[[0, 2]][:, [3]]).max() <= 1e-6
    assert np.abs(part.rows([1, 4]) - part.maps()[:, :, [1, 4]]).max() <= 1e-6
    assert part.blocks(len(part)).shape == (2, 1, 1, 1)
    assert repr(part) == f"<attention of bert 3x32: {len(part)} tokens, 2 layers, 1 heads>"


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"layers": [3]}, "no layer 3: valid numbers are 0 to 2"),
        ({"heads": [-1]}, "no head -1: valid numbers are 0 to 3"),
        ({"heads": []}, "no head selected"),
    ],
)
def test_what_is_not_there_is_refused(
    options: dict[str, list[int]], fault: str, small: Small
) -> None:
    with pytest.raises(BertsmithError, match=fault):
        small().attention(TEXT, **options)


def test_bad_questions_are_refused(small: Small, tmp_path: Path) -> None:
    view = small().attention(TEXT)
    with pytest.raises(BertsmithError, match="no token 99"):
        view.rows([99])
    with pytest.raises(BertsmithError, match="block size must be at least 1, not 0"):
        view.blocks(0)
    with pytest.raises(BertsmithError, match="tokens 5 to 99 are out of range"):
        view.save(tmp_path / "page.html", range(5, 99))
    with pytest.raises(BertsmithError, match=r"must end in \.html or \.npz"):
        view.save(tmp_path / "page.pdf")
    with pytest.raises(BertsmithError, match="holds one view"):
        view.beside(view).save(tmp_path / "both.npz")
    with pytest.raises(BertsmithError, match="cannot be written"):
        view.save(tmp_path / "nowhere" / "page.html")
    with pytest.raises(BertsmithError, match="tokens, but the model reads"):
        small().attention("river " * 400)


def test_rollout_by_hand() -> None:
    first = np.array([[0.5, 0.5], [0.0, 1.0]], np.float32)
    second = np.array([[1.0, 0.0], [0.8, 0.2]], np.float32)
    half = [0.5 * one + 0.5 * np.eye(2) for one in (first, second)]
    assert np.allclose(rollout(np.stack([first, second])), [half[0], half[1] @ half[0]])
    seen = np.array([[1.0, 0.0], [0.0, 1.0]])  # of the first map, left to right
    assert np.allclose(rollout(first[None], causal=True)[0], seen)


def test_rollout_rows_sum_to_one(small: Small) -> None:
    view = small("modernbert").attention(TEXT)
    for causal in (False, True):
        passed = view.rollout(causal=causal)
        assert passed.shape == (4, len(view), len(view))
        assert np.abs(passed.sum(-1) - 1).max() <= 1e-5
        assert bool(np.triu(passed, 1).any()) != causal


def test_arrays(small: Small, tmp_path: Path) -> None:
    view = small().attention(TEXT, layers=[1])
    view.save(tmp_path / "maps.npz", range(2, 5))
    with np.load(tmp_path / "maps.npz") as stored:
        assert np.array_equal(stored["weights"], view.rows(range(2, 5)))
        assert stored["tokens"].tolist() == [token.text for token in view.tokens]
        assert [stored[name].tolist() for name in ("rows", "layers")] == [[2, 3, 4], [1]]


def test_in_a_notebook_it_is_a_frame(small: Small) -> None:
    view = small().attention("<b>river</b>")
    shown = view._repr_html_()
    assert shown.startswith('<iframe sandbox="allow-scripts" srcdoc="&lt;!doctype html')
    inside = shown.split('srcdoc="')[1].split('"')[0]
    assert html.unescape(inside) == view.page().html()


def test_text_cannot_leave_its_place(small: Small) -> None:
    page = (
        small().attention("</script><script>alert(1)</script><!-- {{maps}} & river").page().html()
    )
    assert page.count("<script>") == 1  # ours
    assert "<!--" not in page
    assert "alert(1)" not in page
    assert "connect-src" not in page  # default-src 'none' forbids it
    assert "default-src &#39;none&#39;" in page
    assert "unsafe" not in page.split("</head>")[0].split("<style>")[0]
    assert "://" not in page


def test_long_texts_are_shown_in_blocks(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LONGEST", 20)
    monkeypatch.setattr(module, "SIDE", 10)
    view = attention(small(), "the river flows through the garden " * 5)
    assert len(view) > 25
    overview, tokens = module._panes(view, None)
    assert (overview.unit, len(overview.tokens)) == (
        -(-len(view) // 10),
        -(-len(view) // overview.unit),
    )
    assert (tokens.first, len(tokens.tokens), tokens.partial) == (0, 10, True)
    assert (overview.rollout, tokens.rollout) == (True, False)
    later = module._panes(view, range(12, 20))[1]
    assert (later.first, later.tokens[0]["text"]) == (12, view.tokens[12].text)
    with pytest.raises(BertsmithError, match="25 tokens are too many for one page"):
        module._panes(view, range(25))


def test_a_page_holds_several_views(small: Small) -> None:
    one, other = small().attention(TEXT), small("modernbert").attention(TEXT)
    page = one.beside(other)
    assert isinstance(page, AttentionPage)
    assert "What bert 3x32 and modernbert 4x32 attend to" in page.html()
