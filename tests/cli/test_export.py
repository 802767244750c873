"""`bertsmith export`: as a page; ONNX is tested where it is made."""

from pathlib import Path

import pytest

from bertsmith.errors import BertsmithError
from cli.conftest import Run


def test_a_page(run: Run, model: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    shown = run("export", model, "--html", page)
    assert "panels: masked_lm, similarity; open the file in a browser" in shown.out
    html = page.read_text("utf-8")
    assert f"<title>{model.name}</title>" in html
    assert "worker-src blob:; img-src data:" in html
    assert "connect-src" not in html
    row = run("export", model, "--html", page, "--dtype", "float16", "--json").rows[0]
    assert row["bytes"] == page.stat().st_size
    assert (row["dtype"], row["panels"]) == ("float16", ["masked_lm", "similarity"])


def test_a_page_with_its_own_examples(run: Run, model: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    run("export", model, "--html", page, "--example", "Is <b> safe?")
    assert "Is \\u003cb\\u003e safe?" in page.read_text("utf-8")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "--onnx DIRECTORY or --html FILE"),
        (("--onnx", "a", "--html", "b.html"), "one of the two"),
        (("--onnx", "a", "--dtype", "int8"), "--dtype is for --html"),
        (("--onnx", "a", "--example", "b"), "--example is for --html"),
        (("--html", "a.html", "--overwrite"), "--overwrite is for --onnx"),
        (("--html", "a.txt"), "a.txt: the explorer is an HTML file"),
        (("--html", "/dev/null/a.html"), "a.html"),
    ],
)
def test_wrong_options(options: tuple[str, ...], message: str, run: Run, model: Path) -> None:
    with pytest.raises(BertsmithError, match=message) as refusal:
        run("export", model, *options)
    assert "\n" not in str(refusal.value)
