"""The same steps on a Ray cluster of two nodes give the same bytes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bertsmith.corpus import engines, prepare
from bertsmith.errors import BertsmithError
from bertsmith.tokenizer import Tokenizer
from corpus.texts import documents, files, write

pytestmark = pytest.mark.slow
ray = pytest.importorskip("ray", reason="ray is an extra")


@pytest.fixture(scope="module")
def cluster() -> Iterator[object]:
    from ray.cluster_utils import Cluster

    memory = {"num_cpus": 1, "object_store_memory": 100 << 20, "include_dashboard": False}
    made = Cluster(initialize_head=True, head_node_args=memory)
    made.add_node(num_cpus=1, object_store_memory=100 << 20)
    ray.init(address=made.address, log_to_driver=False)
    yield made
    ray.shutdown()
    made.shutdown()


def test_two_nodes(
    cluster: object, words: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(ray.nodes()) == 2
    given = documents(400)
    source = write(tmp_path / "a.txt.xz", given)
    tests = [line for document in given[::40] for line in document]
    (tmp_path / "test.txt").write_text("\n".join(tests))
    options: dict[str, Any] = {"held_out": 0.1, "shard_tokens": 4000, "duplicates": "near"}
    options |= {"piece_bytes": 9000, "decontaminate": tmp_path / "test.txt"}
    local = prepare([source], words, tmp_path / "local", workers=0, **options)
    assert local.ledger["documents with 13 words in a row of test.txt, left out"] >= 5
    homes: set[str] = set()
    feed = engines._feed

    def watched(library: object, pieces: object, actors: list[object]) -> object:
        yield from feed(library, pieces, actors)
        where = [actor.__ray_call__.remote(node) for actor in actors]
        homes.update(ray.get(where))

    def node(_: object) -> str:
        import ray

        return str(ray.get_runtime_context().get_node_id())

    monkeypatch.setattr(engines, "_feed", watched)
    prepare([source], words, tmp_path / "ray", engine="ray", **options)
    assert files(tmp_path / "ray") == files(tmp_path / "local")
    assert len(homes) == 2, "both nodes worked"


def test_a_mistake_is_one_line(cluster: object, words: Tokenizer, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"caf\xe9\n")
    with pytest.raises(BertsmithError, match=r"a\.txt, line 1: the byte 0xe9 is not UTF-8"):
        prepare([tmp_path / "a.txt"], words, tmp_path / "out", engine="ray", workers=1)
