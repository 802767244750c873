"""Messages name settings as the reader knows them: in Python by keyword, in a shell by option."""

import pytest

from bertsmith.errors import BertsmithError, setting_name


@pytest.mark.parametrize(
    ("written", "python", "shell"),
    [
        (setting_name("hold_out"), "hold_out", "--hold-out"),
        (setting_name("overwrite", True), "overwrite=True", "--overwrite"),
        (setting_name("graphs", False), "graphs=False", "--no-graphs"),
        (setting_name("split", "test"), "split='test'", "--split test"),
        (setting_name("trained", "lora", "--train lora"), "trained='lora'", "--train lora"),
    ],
)
def test_each_reader_sees_their_own_name(written: str, python: str, shell: str) -> None:
    error = BertsmithError(f"x: use {written}, or {written}")
    assert str(error) == f"x: use {python}, or {python}"
    assert error.for_command_line() == f"x: use {shell}, or {shell}"


def test_foreign_text_is_still_spelled_out() -> None:
    error = BertsmithError(f"\x1b[31m: use {setting_name('out')}")
    assert str(error) == r"\x1b[31m: use out"
    assert error.for_command_line() == r"\x1b[31m: use --out"


def test_a_note_that_both_readers_see_has_both_names() -> None:
    error = BertsmithError(
        f"\x1b: use {setting_name('columns', {'text': 'NAME'}, '--column text=NAME')}"
    )
    expected = r"\x1b: use --column text=NAME (in Python columns={'text': 'NAME'})"
    assert error.for_everyone() == expected


def test_an_error_that_is_part_of_another_keeps_both_names() -> None:
    inner = BertsmithError(f"x: use {setting_name('hold_out')}")
    outer = BertsmithError(f"model: {inner.message}")
    assert str(outer) == "model: x: use hold_out"
    assert outer.for_command_line() == "model: x: use --hold-out"
