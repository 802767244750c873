"""`push`: what arrives at a local stand-in of the hub, by huggingface_hub's own requests."""

import base64
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from shutil import copytree
from threading import Thread
from typing import Any

import pytest
from huggingface_hub import ModelCard, constants

from bertsmith import BertsmithError, push
from bertsmith.checkpoint import read

REPORT = {
    "task": "classification",
    "model": "google/bert_uncased",
    "scores": {"dev": {"count": 40, "accuracy": 0.875, "f1": 0.8, "mcc": None}, "test": None},
    "files": {"train": {"file": "train.csv"}, "dev": {"file": "reviews.csv"}},
}
CARD = "---\nlibrary_name: bertsmith\npipeline_tag: text-classification\n---\n\n# A model\n"


class Hub:
    """What the stand-in has: repositories, branches and files; and whom it lets in."""

    def __init__(self) -> None:
        self.private: dict[str, bool] = {}
        self.branches: dict[tuple[str, str], dict[str, bytes]] = {}
        self.objects: dict[str, bytes] = {}
        self.endpoint = ""

    def post(self, path: str, body: bytes) -> tuple[int, Any]:
        """Answer a POST request."""
        if path == "/api/validate-yaml":
            return 200, {"errors": [], "warnings": []}
        if path == "/api/repos/create":
            asked = json.loads(body)
            name = f"{asked.get('organization') or 'me'}/{asked['name']}"
            if name.startswith("other/"):
                return 403, {"error": "You don't have the rights to create a model here"}
            known = name in self.private
            if not known:
                self.private[name] = asked.get("private", asked.get("visibility") == "private")
                self.branches[name, "main"] = {}
            return (409 if known else 200), {"url": f"{self.endpoint}/{name}", "id": name}
        if path.endswith("/info/lfs/objects/batch"):
            found = json.loads(body)["objects"]
            actions = {"upload": lambda oid: {"href": f"{self.endpoint}/upload/{oid}"}}
            rows = [
                one | {"actions": {k: f(one["oid"]) for k, f in actions.items()}} for one in found
            ]
            return 200, {"transfer": "basic", "objects": rows}
        name, verb, revision = path.removeprefix("/api/models/").rsplit("/", 2)
        if verb == "branch":
            self.branches.setdefault((name, revision), {})
            return 200, {}
        if verb == "preupload":
            names = [one["path"] for one in json.loads(body)["files"]]
            kinds = [("regular", "lfs")[one.endswith(".safetensors")] for one in names]
            rows = zip(names, kinds, strict=True)
            return 200, {
                "files": [{"path": n, "uploadMode": k, "shouldIgnore": False} for n, k in rows]
            }
        assert verb == "commit"
        files = self.branches[name, revision]
        for line in map(json.loads, body.splitlines()):
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.objects[value["oid"]]
        return 200, {"commitUrl": f"{self.endpoint}/{name}/commit/abc", "commitOid": "abc"}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    made = Hub()

    class Answers(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None: ...

        def answer(self, status: int, content: Any) -> None:
            body = json.dumps(content).encode()
            self.send_response(status)
            for name, value in (
                ("Content-Length", len(body)),
                ("Content-Type", "application/json"),
            ):
                self.send_header(name, str(value))
            self.end_headers()
            self.wfile.write(body)

        def body(self) -> bytes:
            return self.rfile.read(int(self.headers["Content-Length"] or 0))

        def do_POST(self) -> None:
            body = self.body()
            known = self.headers["Authorization"] == "Bearer good"
            self.answer(*(made.post(self.path, body) if known else (401, {"error": "who is it?"})))

        def do_PUT(self) -> None:
            made.objects[self.path.rpartition("/")[2]] = self.body()
            self.answer(200, {})

        def do_GET(self) -> None:
            name = self.path.removeprefix("/api/models/").split("/revision/")[0]
            about = {"id": name, "private": made.private.get(name), "siblings": []}
            self.answer(200 if name in made.private else 404, about)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    made.endpoint = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr(constants, "ENDPOINT", made.endpoint)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
    monkeypatch.setenv("HF_TOKEN", "good")
    Thread(target=server.serve_forever, daemon=True).start()
    yield made
    server.shutdown()
    server.server_close()


@pytest.fixture
def model(made: Callable[..., Any], tmp_path: Path) -> Path:
    """A model directory with a report and a card."""
    folder = copytree(made("bert", "ForSequenceClassification").folder, tmp_path / "model")
    (folder / "report.json").write_text(json.dumps(REPORT))
    (folder / "report.html").write_text("secret reviews")
    (folder / "README.md").write_text(CARD)
    return Path(folder)


def test_model_card_and_scores_arrive(hub: Hub, model: Path, tmp_path: Path) -> None:
    done = push(model, "me/reviews", licence="mit")
    assert (done["private"], done["revision"], done["commit"]) == (True, "main", "abc")
    assert done["url"] == f"{hub.endpoint}/me/reviews"
    files = hub.branches["me/reviews", "main"]
    assert sorted(files) == sorted(done["files"])
    assert not {"report.html", "report.json"} & files.keys()
    there = tmp_path / "there"
    there.mkdir()
    for name, content in files.items():
        (there / name).write_bytes(content)
    assert read(there).report.lines() == read(model).report.lines()
    data = ModelCard.load(there / "README.md").data
    assert (data.license, data.library_name, data.base_model) == (
        "mit",
        *("bertsmith", "google/bert_uncased"),
    )
    found = [
        (one.task_type, one.dataset_name, one.dataset_split, one.metric_type, one.metric_value)
        for one in data.eval_results
    ]
    assert found == [
        ("text-classification", "reviews.csv", "dev", name, value)
        for name, value in (("accuracy", 0.875), ("f1", 0.8))
    ]
    assert data.model_name == "reviews"
    assert (model / "README.md").read_text() == CARD  # only what is uploaded has them


def test_branches_visibility_and_reports(hub: Hub, model: Path) -> None:
    first = push(model, "me/open", public=True, revision="v2", report=True)
    assert not first["private"]
    assert b"secret reviews" in hub.branches["me/open", "v2"].values()
    assert hub.branches["me/open", "main"] == {}
    assert [line.partition(":")[0] for line in first["notes"]] == ["no licence"]
    again = push(model, "me/open")  # it exists, and stays as it is
    assert not again["private"]


def test_a_pre_training_run(hub: Hub, model: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "recipe.toml").write_text("")
    with pytest.raises(BertsmithError, match="this run has not finished"):
        push(run, "me/bert")
    model.rename(run / "model")
    summary = {"finished": True, "held_out_masked_lm": 2.5, "steps": 9}
    (run / "summary.json").write_text(json.dumps(summary))
    push(run, "me/bert")
    card = ModelCard(hub.branches["me/bert", "main"]["README.md"].decode())
    (result,) = card.data.eval_results
    assert (result.task_type, result.metric_type, result.metric_value) == (
        *("fill-mask", "held_out_masked_lm"), 2.5
    )  # fmt: skip


def test_mistakes(hub: Hub, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder, repo, message in (
        (tmp_path / "nothing", "me/a", "no such directory"),
        (tmp_path, "me/a", "neither config.json nor adapter_config.json"),
        (model, "bert", "not the name of a repository: write USER/NAME"),
        (model, "me/a b", "not the name of a repository"),
        (model, "other/bert", r"refused \(403\): You don't have the rights"),
    ):
        with pytest.raises(BertsmithError, match=message):
            push(folder, repo)
    monkeypatch.setenv("HF_TOKEN", "bad")
    with pytest.raises(BertsmithError, match=r"refused \(401\): who is it\?: log in with"):
        push(model, "me/a")
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(BertsmithError, match="asks who you are: log in with `hf auth login`"):
        push(model, "me/a")
    assert not hub.private


@pytest.mark.slow
def test_the_verb_without_a_network(model: Path, hub: Hub) -> None:
    """The address comes from HF_ENDPOINT; mistakes are one line."""
    command = [sys.executable, "-m", "bertsmith", "push", str(model), "me/verb", "--json"]
    more = {"HF_HUB_DISABLE_XET": "1", "HF_TOKEN": "good", "HF_HUB_OFFLINE": "0"}
    done = subprocess.run(
        command,
        env={**os.environ, **more, "HF_ENDPOINT": hub.endpoint},
        capture_output=True,
        text=True,
    )
    assert json.loads(done.stdout)["url"] == f"{hub.endpoint}/me/verb", done.stderr
    assert hub.branches["me/verb", "main"]["config.json"] == (model / "config.json").read_bytes()
    gone = {**os.environ, **more, "HF_ENDPOINT": "http://127.0.0.1:9"}
    failed = subprocess.run(command, env=gone, capture_output=True, text=True)
    assert failed.returncode == 2
    assert failed.stderr.startswith("bertsmith: me/verb: the hub at http://127.0.0.1:9 cannot be")
    assert failed.stderr.count("\n") == 1
