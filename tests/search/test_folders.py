"""Folders of an index: what is left out, what is kept, folders that moved, large files."""

import errno
import json
import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertsmith.errors import BertsmithError
from bertsmith.search import embedding, update
from bertsmith.search.build import BuildSettings, update_folders
from bertsmith.search.database import current
from bertsmith.search.index import Index
from bertsmith.search.store import Store
from search.conftest import HashedWords


def names(index: Index) -> set[str]:
    with closing(Store.open(index.path)) as store:
        rows = store.database.execute("SELECT path FROM files").fetchall()
    return {Path(path).name for (path,) in rows}


def write(folder: Path, **texts: str) -> None:
    for name, text in texts.items():
        path = folder / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


# ------------------------------------------------------------------ folders that cannot be read


def test_an_empty_folder_keeps_its_files(index: Index, folder: Path) -> None:
    """A disk that is not mounted leaves an empty folder behind."""
    before = names(index)
    folder.rename(folder.with_name("away"))
    (folder / "mount").mkdir(parents=True)
    result = index.update()
    assert result.removed == 0
    assert "is its disk mounted?" in result.problems[0]["reason"]
    assert "drop it from the index, or move it" in result.problems[0]["reason"]
    assert names(index) == before
    assert index.drop(folder).removed == len(before)
    assert index.update().problems == []
    assert len(index) == 0


def test_an_unreadable_folder_keeps_its_files(
    index: Index, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, sub__one_dot_txt="Whales live in the sea.", sub__two_dot_txt="Elephants do not.")
    index.update()
    scandir, stat = os.scandir, Path.stat

    def refused(path: Any = ".") -> Any:
        if str(path).endswith("sub"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scandir(path)

    def failing(path: Path, **options: Any) -> os.stat_result:
        if path.name == "one.txt":
            raise OSError(errno.EIO, "Input/output error")
        return stat(path, **options)

    (folder / "dogs.txt").unlink()
    for module, name, fails, kept in ((os, "scandir", refused, 2), (Path, "stat", failing, 1)):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, fails)
            result = index.update()
        assert f"is kept (files: {kept})" in result.problems[0]["reason"]
        assert {"one.txt", "two.txt"} <= names(index)
    assert "dogs.txt" not in names(index)  # what is gone elsewhere is removed
    shutil.rmtree(folder / "sub")
    assert index.update().removed == 2


def test_a_missing_folder_does_not_stop_the_others(index: Index, tmp_path: Path) -> None:
    write(tmp_path, other__new_dot_txt="Whales.")
    index.update([tmp_path / "other"])
    shutil.move(tmp_path / "other", tmp_path / "gone")
    write(tmp_path, documents__later_dot_txt="Later.")
    result = index.update()
    assert result.added == 1
    assert "no such file or folder" in result.problems[0]["reason"]
    assert "new.txt" in names(index)
    shutil.move(tmp_path / "documents", tmp_path / "gone too")
    with pytest.raises(
        BertsmithError, match=r"no such file or folder; if it was moved: Index\.move"
    ) as gone:
        index.update()
    assert " --move " in gone.value.for_command_line()


# ------------------------------------------------------------------ folders that moved


def test_a_folder_that_moved(index: Index, folder: Path, encoder: HashedWords) -> None:
    before, texts = len(index), [hit.text for hit in index.search("cats fish", 20)]
    new = folder.with_name("moved")
    folder.rename(new)
    result = index.move(folder, new)
    assert (result.moved, result.removed) == (6, 0)
    assert index.about["roots"] == [str(new)]
    hits = index.search("cats fish", 20)
    assert [hit.text for hit in hits] == texts
    assert all(hit.file.startswith(str(new)) for hit in hits)
    encoder.calls = 0
    assert (index.update().unchanged, encoder.calls, len(index)) == (6, 0, before)
    index.check()
    with pytest.raises(BertsmithError, match=r"nowhere: not in the index .*its folders: .*moved"):
        index.move(folder.with_name("nowhere"), new)
    with pytest.raises(BertsmithError, match="no such file"):
        index.move(new, folder)


def test_a_moved_folder_that_is_added_is_reported(index: Index, folder: Path) -> None:
    new = folder.with_name("moved")
    folder.rename(new)
    result = index.update([new])
    assert [one["file"] for one in result.problems] == [str(folder)]
    reason = result.problems[0]["reason"]
    assert (
        f"copies (files: 6); if it was moved: bertsmith index --out {index.path} --move" in reason
    )
    hits = index.search("cats eat fish", 20)
    assert len({hit.text for hit in hits}) == len(hits)  # equal texts are listed once
    assert all(len(hit.also) == 1 for hit in hits)
    assert index.move(folder, new).removed == 6
    assert index.update().problems == []
    assert not index.search("cats eat fish")[0].also


# ------------------------------------------------------------------ what is left out


def test_gitignore(tmp_path: Path) -> None:
    """Nested files, negation, anchors and folders, as git reads them."""
    source = tmp_path / "repository" / "docs"
    write(tmp_path / "repository", _dot_git__HEAD="x", _dot_gitignore="*.log\nsecret/\n")
    write(
        source,
        _dot_gitignore="build/\n/top.txt\n*.tmp\n!kept.tmp\n[\n",
        build__page_dot_txt="a",
        top_dot_txt="b",
        sub__top_dot_txt="c",
        sub__x_dot_tmp="d",
        sub__kept_dot_tmp="e",
        sub__y_dot_log="f",
        sub__secret__z_dot_txt="g",
        deep___dot_gitignore="!wanted.log\nnot.txt\n",
        deep__wanted_dot_log="h",
        deep__not_dot_txt="i",
    )
    update_folders(tmp_path / "i", [source], BuildSettings(keywords_only=True))
    with Index.open(tmp_path / "i") as index:
        assert names(index) == {"top.txt", "kept.tmp", "wanted.log"}
        assert len(index.search("c e h")) == 3
        index.update([source / "build"])  # a folder that is named is read, though git ignores it
        assert "page.txt" in names(index)


def test_patterns_are_kept_with_their_folder(tmp_path: Path) -> None:
    source = tmp_path / "documents"
    write(source, a_dot_md="one", b_dot_csv="x\ntwo", drafts__c_dot_md="three", d_dot_key="four")
    settings = BuildSettings(keywords_only=True, exclude=["drafts/", "*.csv"])
    update_folders(tmp_path / "i", [source], settings)
    with Index.open(tmp_path / "i") as index:
        assert names(index) == {"a.md"}
        write(source, drafts__e_dot_md="five", f_dot_md="six")
        index.update()
        assert names(index) == {"a.md", "f.md"}
        assert "files and folders of `exclude`, left out: 2" in index.ledger.lines()
        index.update(exclude=["!*.key"])
        assert names(index) == {"a.md", "b.csv", "c.md", "d.key", "e.md", "f.md"}
        index.update(exclude=[""], include=["*.md"])
        assert names(index) == {"a.md", "c.md", "e.md", "f.md"}
        with pytest.raises(BertsmithError, match=r"a pattern is not one of \.gitignore"):
            index.update(exclude=["!"])


def test_secrets_bundles_and_pictures(tmp_path: Path) -> None:
    source = tmp_path / "documents"
    bundle = "var a=1;" * 1000
    picture = {"output_type": "display_data", "data": {"image/png": "iVBORw0KGgo" * 100}}
    cells = [
        {"cell_type": "markdown", "source": ["# Whales\n", "\n", "About whales."]},
        {"cell_type": "code", "source": "plot()", "outputs": [picture, {"text": ["42\n"]}]},
    ]
    write(
        source,
        _dot_env="PASSWORD=hunter2",
        production_dot_env="PASSWORD=hunter2",
        id_rsa="PASSWORD hunter2",
        server_dot_pem="PASSWORD hunter2",
        app_dot_min_dot_js="var a",
        bundle_dot_js=bundle,
        real_dot_js="function whales() {\n  return 'sea'\n}\n",
        notebook_dot_ipynb=json.dumps({"cells": cells}),
        page_dot_md=f"A picture: ![x](data:image/png;base64,{'QUJD' * 100})\n\nof whales",
    )
    update_folders(tmp_path / "i", [source], BuildSettings(keywords_only=True))
    with Index.open(tmp_path / "i") as index:
        assert names(index) == {"real.js", "notebook.ipynb", "page.md"}
        assert not index.search("PASSWORD hunter2 iVBORw0KGgo* QUJD*")
        hit = index.search("plot", kinds="notebook")[0]
        assert (hit.text, hit.place) == (
            "# Whales\n\nAbout whales.\n\nplot()\n\n42",
            f"{source / 'notebook.ipynb'}, cell 1",
        )
        index.update()
        assert set(index.ledger.lines()) == {
            "files that may hold passwords or keys, left out: 4",
            "minified files and source maps, left out: 2",
        }


# ------------------------------------------------------------------ equal passages


@pytest.mark.parametrize("mode", ["hybrid", "keywords", "vectors"])
def test_equal_passages_are_listed_once(index: Index, folder: Path, mode: str) -> None:
    for number in range(30):
        (folder / f"copy{number}.txt").write_text("The language of whales.")
    (folder / "other.txt").write_text("The language of whales and of other animals.")
    index.update()
    hits = index.search("the language of whales", 3, mode=mode)
    assert len({hit.text for hit in hits}) == len(hits) > 1
    assert len(hits[0].also) == 29
    documents = index.search("the language of whales", 40, mode=mode, by_document=True)
    assert sum(hit.text == "The language of whales." for hit in documents) == 30


# ------------------------------------------------------------------ large files, earlier versions


def test_an_interrupted_large_file_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("LARGE", 1000), ("COMMIT_PASSAGES", 20)):
        monkeypatch.setattr(update, name, value)
    for name in ("BATCH", "STEP"):
        monkeypatch.setattr(embedding, name, 10)
    folder, root = tmp_path / "documents", tmp_path / "i"
    lines = [f"Sentence {number} of a large file about the sea." for number in range(200)]
    write(folder, large_dot_txt="\n\n".join(lines), small_dot_txt="A small file.")

    class Stopped(HashedWords):
        def embed(self, texts: list[str]) -> np.ndarray:
            if self.calls >= 100:
                raise KeyboardInterrupt
            return super().embed(texts)

    with pytest.raises(KeyboardInterrupt):
        update_folders(root, [folder], BuildSettings(encoder=Stopped(), passage_size=60, overlap=0))
    encoder = HashedWords()
    with Index(root, model=encoder) as index:
        assert len(index) == 0  # a part of a file is never visible
        index.add(["A document in between"])
        encoder.calls = 0
        index.update()
        assert encoder.calls <= 201 - 80
        assert len(index) == 202
        index.check()
        write(folder, large_dot_txt="\n\n".join([*lines[:100], "Something new.", *lines[100:]]))
        encoder.calls = 0
        index.update()
        assert encoder.calls == 1
        assert index.search("sentence 150", mode="keywords")[0].text == lines[150]


def test_files_of_an_earlier_version_are_read_again(
    index: Index, folder: Path, encoder: HashedWords
) -> None:
    path = current(index.path) / "index.db"
    index.close()
    (path.parent / "index.sum").write_text("{}")
    database = sqlite3.connect(path)
    database.execute("DELETE FROM meta WHERE key IN ('reading', 'sum', 'patterns')")
    database.execute("DROP TABLE pending")
    database.commit()
    database.close()
    encoder.calls = 0
    with Index(index.path, model=encoder) as again:
        assert again.search("cats fish")
        assert (again.update().changed, encoder.calls) == (6, 1)
        assert again.update().unchanged == 6
        again.check()
    assert not (path.parent / "index.sum").exists()
