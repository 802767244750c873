"""What is stored once and repeated often is read in portions of bounded size."""

from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from bertsmith.data.tables import HEAVY
from bertsmith.ledger import Ledger
from bertsmith.tasks.read import open_data, read_data


def test_long_repeated_rows_of_parquet_come_a_few_at_a_time(tmp_path: Path) -> None:
    length, count = 20_000, 2_000  # 40 MB of text in a file of a few KB
    path = tmp_path / "a.parquet"
    table = pyarrow.table({"text": ["word " * (length // 5)] * count, "id": list(range(count))})
    parquet.write_table(table, path)
    assert path.stat().st_size < 1 << 20
    numbers, share = [], 0.0
    for portion in open_data(path, "text").portions():
        assert len(portion.rows) * length <= HEAVY + length
        assert share < portion.share <= 1.0
        share = portion.share
        numbers += [row["id"] for row in portion.rows]
    assert numbers == list(range(count))


@pytest.mark.parametrize("first", ["cp1252", "utf-8"])
def test_one_encoding_for_two_files_garbles_neither(first: str, tmp_path: Path) -> None:
    """The option is for the file that needs it: UTF-8 is recognised."""
    rows = "text,label\ncafé,ä\nnaïve,b\n"
    (tmp_path / "a.csv").write_bytes(rows.encode(first))
    ledger = Ledger()
    dataset = read_data(tmp_path / "a.csv", encoding="cp1252", ledger=ledger)
    assert [one.text for one in dataset.examples] == ["café", "naïve"]
    assert dataset.labels == ("b", "ä")
    noted = {} if first == "cp1252" else {"files of UTF-8 text, read as such and not as cp1252": 1}
    assert ledger.counts == noted
