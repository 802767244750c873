"""The folder of a run: refused before the work where it cannot be written."""

from pathlib import Path

import pytest

from bertsmith.errors import BertsmithError
from bertsmith.train.folder import RunFolder


def test_a_name_that_no_disk_takes(tmp_path: Path) -> None:
    with pytest.raises(BertsmithError, match=r"cannot be written \(File name too long\)"):
        RunFolder(tmp_path / ("x" * 300)).make("")
    (tmp_path / "file").write_text("")
    with pytest.raises(BertsmithError, match="cannot be written"):
        RunFolder(tmp_path / "file" / "run").make("")
