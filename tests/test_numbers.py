"""One checked reader for numbers: whatever it is given, a number in range or one clear line."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertsmith.errors import BertsmithError
from bertsmith.numbers import counted, parse_number, parse_whole, real_number, whole_number

ANYTHING = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.from_regex(r"[+-]?[0-9.eE_]{1,6}", fullmatch=True)
    | st.lists(st.integers())
)


@given(ANYTHING)
def test_every_value_is_a_finite_number_or_an_error_of_one_line(value: object) -> None:
    for read in (whole_number, real_number):
        number = message = None
        try:
            number = read(value, "the size", low=-10)
        except BertsmithError as error:
            message = str(error)
        if message is None:
            assert number is not None
            assert math.isfinite(number)
            assert number >= -10
        else:
            assert "\n" not in message
            assert len(message) < 200


@given(st.integers(-(10**15), 10**15))
def test_whole_numbers_are_read_as_they_are_written(number: int) -> None:
    assert parse_whole(str(number)) == parse_whole(number) == number


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_floats_are_read_as_python_writes_them(number: float) -> None:
    assert parse_number(repr(number)) == number


@pytest.mark.parametrize("value", ["²", "٣", "1_000", "nan", "inf", "1e400", "9" * 5000, "", True])
def test_what_python_reads_as_a_number_and_people_do_not_is_none(value: object) -> None:
    assert parse_whole(value) is None
    assert parse_number(value) is None


@pytest.mark.parametrize(("value", "number"), [("3.0", None), (3.0, 3), (" 4 ", 4), (3.5, None)])
def test_whole(value: object, number: int | None) -> None:
    assert parse_whole(value) == number


def test_errors_say_what_is_expected() -> None:
    with pytest.raises(BertsmithError, match=r"epochs is 'many', not a whole number from 1 up"):
        whole_number("many", "epochs", low=1)
    with pytest.raises(BertsmithError, match=r"rate is 2\.0, not a number from 0 to 1"):
        real_number(2.0, "rate", 0, 1)


def test_counts_with_their_nouns() -> None:
    counts = [counted(number, "row") for number in (0, 1, 2, 2000)]
    assert counts == ["0 rows", "1 row", "2 rows", "2,000 rows"]
