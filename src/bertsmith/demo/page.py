"""The page of the journey: one HTML file that needs nothing else, and no network."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from html import escape
from importlib.resources import files

from bertsmith.demo import drawing
from bertsmith.demo.forging import Lesson, Round
from bertsmith.demo.story import Story
from bertsmith.demo.tuning import Shown, Tuned, Words

MOMENTS = 6  # columns of the table of guesses
PUBLISHED = 1_000_000 * 256 * 512  # tokens that BERT was trained on: steps, sequences, length


def page(story: Story) -> str:
    """The whole file. It has no script, and nothing but its own style may act in it."""
    style = _asset("demo.css")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    sections = [_head(story), _met(story), _tokens(story), _pretraining(story), _tuning(story)]
    sections += [_inside(story), _next(story)]
    filled = {"policy": policy, "style": style, "body": "\n".join(sections)}
    parts = _asset("demo.html").split("{{")
    ends = [part.split("}}", 1) for part in parts[1:]]
    return parts[0] + "".join(filled[name] + rest for name, rest in ends)


def _head(story: Story) -> str:
    words = story.pretraining.lesson.recent[0]
    tiles = (
        (f"{story.reading.characters / 1e6:.1f} M", f"characters of {story.reading.source}"),
        (
            f"{story.pretraining.parameters / 1e6:.2f} M",
            f"numbers in a BERT of {story.pretraining.layers} layers",
        ),
        (f"{words:.0%}", "of hidden words guessed at the end of pre-training"),
        (f"{story.seconds / 60:.1f} min", "from text to this page, on a CPU"),
    )
    shown = "".join(f"<li><b>{escape(big)}</b>{escape(small)}</li>" for big, small in tiles)
    return (
        "<header><h1>A BERT, from text to what it knows</h1>"
        "<p>All that you see here, but for the first part, was made on this machine, a few minutes "
        f'ago, from text that was already on it.</p><ul class="tiles">{shown}</ul></header>'
    )


def _met(story: Story) -> str:
    met = story.met
    rows = "".join(
        _guess_row(sentence, [[guess] for guess in ranked])
        for sentence, ranked in zip(met.sentences, met.guesses, strict=True)
    )
    heads = "".join(f"<th>{name}</th>" for name in ("best guess", "second", "third"))
    near = "".join(
        f"<li>{escape(one.text)} → <mark>{escape(one.nearest)}</mark> "
        f"<small>{one.cosine:.2f}</small></li>"
        for one in met.near
    )
    body = (
        f'<div class="wide"><table class="guesses"><tr><th></th>{heads}</tr>{rows}</table></div>'
        f'<h3>Of seven other sentences, the nearest</h3><ul class="plain">{near}</ul>'
    )
    meaning = MEETING.format(name=met.name, size=f"{met.parameters / 1e6:.0f}")
    return _section(1, "Meet a trained BERT", meaning, body)


def _tokens(story: Story) -> str:
    meaning = TOKENS.format(size=f"{story.reading.vocabulary:,}")
    picture = f'<div class="wide">{drawing.embedding(story.reading.pieces)}</div>'
    return _section(2, "Words become tokens", meaning, picture)


def _pretraining(story: Story) -> str:
    lesson = story.pretraining.lesson
    loss = drawing.curves({"loss": lesson.curve}, "loss on hidden words, over the run", "")
    right = drawing.curves(
        {
            "words": [(share, words) for share, words, _ in lesson.accuracy],
            "pairs": [(share, pairs) for share, _, pairs in lesson.accuracy],
        },
        "share that is right, over the run",
        "%",
    )
    held = story.pretraining.summary.get("held_out_masked_lm_accuracy")
    unseen = "" if held is None else f" Of documents that it never saw, it guesses {held:.0%}."
    often = PUBLISHED // max(lesson.tokens, 1) // 1000 * 1000
    counts = (
        f"It read {lesson.tokens:,} tokens in {lesson.seconds:.0f} seconds; the published BERT "
        f"read {often:,} times as many.{unseen}"
    )
    body = f'<div class="side">{loss}{right}</div>{_guesses(lesson)}<p class="soft">{counts}</p>'
    return _section(3, "Pre-training", PRETRAINING, body)


def _guesses(lesson: Lesson) -> str:
    """The best guess for each mask at some moments, darker where the model was surer."""
    moments = _moments(lesson.rounds)
    head = "".join(f"<th>{one.seconds:.0f} s</th>" for one in moments)
    rows = [
        _guess_row(sentence, [one.guesses[number] for one in moments])
        for number, sentence in enumerate(lesson.sentences)
    ]
    return (
        f'<div class="wide"><table class="guesses"><tr><th>best guess after</th>{head}</tr>'
        f"{''.join(rows)}</table></div>"
    )


def _guess_row(sentence: str, cells: Sequence[Sequence[tuple[str, float]]]) -> str:
    """A sentence with a gap, and a cell for each list of guesses: its best, on hover all of it."""
    filled = []
    for ranked in cells:
        token, score = ranked[0]
        others = ", ".join(f"{t} {s:.0%}" for t, s in ranked)
        filled.append(
            f'<td class="sure-{min(9, int(score * 10))}" title="{escape(others)}">'
            f"{escape(token)}</td>"
        )
    before, _, after = escape(sentence).partition("[MASK]")
    return f"<tr><th>{before}<mark>?</mark>{after}</th>{''.join(filled)}</tr>"


def _moments(rounds: Sequence[Round]) -> list[Round]:
    """A few moments, more of them early, when most changes."""
    if len(rounds) <= MOMENTS:
        return list(rounds)
    last = len(rounds) - 1
    places = {round(last * (number / (MOMENTS - 1)) ** 1.5) for number in range(MOMENTS)}
    return [rounds[place] for place in sorted(places)]


def _tuning(story: Story) -> str:
    kind = "part of the text" if story.reading.own else "area of the library"
    names = "names" if story.reading.own else "names in code"
    most = max(story.reading.areas.values())
    areas = drawing.bars([(n, c, f"{c:,}") for n, c in story.reading.areas.items()], most)
    classifier = (
        f"<h3>Which {kind} is it from?</h3>"
        f"{_beside(story.tuning.classifier, 'texts; share that is right')}"
        f"{_texts(story.tuning.texts)}{_report(story.tuning.classifier)}"
    )
    right = f"of all words {story.tuning.tagger.accuracy:.1%} are right"
    tagger = (
        f"<h3>Which words are {names}?</h3>"
        f"{_beside(story.tuning.tagger, f'sentences; F1 of the {names}; {right}')}"
        f"{_words(story.tuning.words)}{_report(story.tuning.tagger)}"
    )
    return _section(
        4,
        "Fine-tuning",
        TUNING,
        f'<div class="side"><div>{classifier}</div><div>{tagger}</div></div>'
        f"<details><summary>How many items there are of each {kind}</summary>{areas}</details>",
    )


def _beside(tuned: Tuned, what: str) -> str:
    always, own = tuned.sides
    rows = [
        (f"always “{tuned.baseline_label}”", always, f"{always:.1%}"),
        ("fine-tuned", own, f"{own:.1%}"),
    ]
    counts = f"{tuned.learned_from:,} to learn from, {tuned.held_out:,} held-out"
    return drawing.bars(rows) + f'<p class="soft">{counts} {escape(what)}</p>'


def _texts(shown: Sequence[Shown]) -> str:
    rows = []
    for one in shown:
        kind = "good" if one.gold == one.said else "bad"
        gold = "" if one.gold == one.said else f" <small>is {escape(one.gold)}</small>"
        rows.append(
            f'<li>{escape(one.text)} <mark class="{kind}">{escape(one.said)} {one.sure:.0%}</mark>'
            f"{gold}</li>"
        )
    return f'<ul class="plain">{"".join(rows)}</ul>'


def _words(sentences: Sequence[Words]) -> str:
    kinds = {(True, True): "good", (True, False): "missed", (False, True): "bad"}
    lines = []
    for one in sentences:
        words = [
            f'<mark class="{kinds[gold, said]}">{escape(word)}</mark>'
            if (gold, said) in kinds
            else escape(word)
            for word, gold, said in one.words
        ]
        lines.append(f"<li>{' '.join(words)}</li>")
    legend = (
        '<p class="soft"><mark class="good">found</mark> <mark class="missed">missed</mark> '
        '<mark class="bad">imagined</mark></p>'
    )
    return f'<ul class="plain">{"".join(lines)}</ul>{legend}'


def _report(tuned: Tuned) -> str:
    return f'<p><a href="{tuned.folder}/report.html">The full report, with every error</a></p>'


def _inside(story: Story) -> str:
    looked = story.inside.looked
    head = (
        f"<h3>Layer {looked.layer}, head {looked.head}: of all, it looks furthest</h3>"
        f"{drawing.heads(looked)}"
        '<p><a href="attention.html">All layers and heads, to play with</a></p>'
    )
    groups = "".join(
        f"<h4>{one.count} times beside {escape(', '.join(one.words[:5]))}</h4><ul class='plain'>"
        + "".join(f"<li>{escape(text)}</li>" for text in one.examples)
        + "</ul>"
        for one in story.inside.groups
    )
    word = escape(story.inside.word)
    senses = (
        f"<h3>“{word}” in two groups</h3><p>In the table of tokens the word has one vector, but "
        "after the encoder each occurrence has its own. By nothing but these vectors:</p>"
        f'{groups}<p><a href="senses.html">All occurrences as points</a></p>'
        if story.inside.word
        else ""
    )
    return _section(
        5,
        "Looking inside",
        INSIDE,
        f'<div class="side"><div>{head}</div><div>{senses}</div></div>',
    )


def _next(story: Story) -> str:
    lines = "\n".join(escape(command) for command in story.commands)
    return (
        f"<section><h2>Now you</h2><p>In the folder that this demo was started in:</p>"
        f"<pre>{lines}</pre>"
        '<p class="soft">This model had little time: <code>bertsmith recipes</code> lists what to '
        "do with an hour, or a GPU; any published BERT opens in the same way.</p></section>"
    )


def _section(number: int, title: str, meaning: str, body: str) -> str:
    return (
        f'<section><h2><span class="number">{number}</span>{escape(title)}</h2>'
        f'<p class="meaning">{escape(meaning)}</p>{body}</section>'
    )


def _asset(name: str) -> str:
    return (files("bertsmith.demo") / "assets" / name).read_text("utf-8")


MEETING = (
    "{name} comes with the package, which made it from Wikipedia's text: a BERT of {size} million "
    "numbers. It fills gaps with what it has read (darker: surer), and sentences on one subject "
    "get vectors that are near each other. All that follows shows how such a model is made, on a "
    "smaller one."
)
TOKENS = (
    "A WordPiece vocabulary of {size} tokens was learned from the text: frequent words are one "
    "token, rare ones are spelled in pieces that begin with ##. What the encoder reads is, for "
    "each token, the sum of three vectors: which token it is, which of two sentences it is in, "
    "and where."
)
PRETRAINING = (
    "One token in five is hidden, and the model learns to guess it from what stands on both "
    "sides; beside that it learns to tell whether a second sentence followed the first (chance "
    "is 50%, and it comes later). Nobody labelled anything: the text itself says what is right."
)
TUNING = (
    "A fresh layer is put on top of the pre-trained model, and both learn from labels, which "
    "come from the text itself. Scores are counted on items that were held out; the baseline "
    "says always what is most frequent."
)
INSIDE = (
    "In each layer several heads decide, for each token, which others it takes something from: "
    "a row shows where a token looks. (As there was so little time, heads began by looking at "
    "neighbours; from there on they learned.) So the vector of a word comes to depend on its "
    "sentence."
)
