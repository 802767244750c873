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
