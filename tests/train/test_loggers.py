"""Loggers: what their own libraries read back, offline."""

import json
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from bertsmith.errors import BertsmithError
from bertsmith.finetuning import finetune
from bertsmith.train import Recipe, pretrain
from bertsmith.train.loggers import LoggedRun, Loggers, TensorBoard, check_loggers

Make = Callable[..., Recipe]
SETTINGS = {"train": {"steps": 12}, "evaluate": {"every": 5}}
RUN = LoggedRun(Path("unused"), "run", {"train": {"steps": 9}})


class Memory:
    """A logger of one's own, that fails when asked to."""

    def __init__(self, run: LoggedRun) -> None:
        self.run, self.rows = run, []
        self.fails, self.ended = False, None
        LAST.append(self)

    def start(self, step: int) -> None:
        self.started = step

    def log(self, step: int, numbers: Mapping[str, float], evaluated: bool) -> None:
        if self.fails:
            raise RuntimeError("the server is gone")  # of the library, not one of ours
        self.rows.append((step, dict(numbers), evaluated))

    def close(self, finished: bool) -> None:
        self.ended = finished
        if self.fails:
            raise RuntimeError("still gone")


class Refused(Memory):
    """A logger that leaves a file and cannot start."""

    def start(self, step: int) -> None:
        self.run.store("refused", "id")
        raise RuntimeError("no such server")


class Killed(Memory):
    """A logger at whose first step the run is interrupted."""

    def log(self, step: int, numbers: Mapping[str, float], evaluated: bool) -> None:
        raise KeyboardInterrupt


LAST: list[Any] = []


def test_a_run_is_logged_as_in_its_own_files(recipe: Make, tmp_path: Path) -> None:
    pretrain(recipe(**SETTINGS), tmp_path / "run", show="none", log=[Memory])
    logger, lines = LAST.pop(), (tmp_path / "run" / "log.jsonl").read_text().splitlines()
    assert (logger.started, logger.ended, logger.run.name) == (0, True, "run")
    assert logger.run.settings["train"]["steps"] == 12
    for line, (step, numbers, evaluated) in zip(map(json.loads, lines), logger.rows, strict=True):
        assert (line.pop("step"), "loss" not in line) == (step, evaluated)
        plain = {name: value for name, value in line.items() if isinstance(value, int | float)}
        assert plain.items() <= numbers.items()
        assert ("tokens_per_second" in numbers) is not evaluated


def test_a_logger_that_fails_ends_no_run() -> None:
    said: list[str] = []
    with Loggers([Memory, Memory], RUN, said.append) as loggers:
        first, second = LAST[-2:]
        first.fails = True
        for step in (1, 2):
            loggers.log(
                {"step": step, "loss": 1.0, "skipped": "text"}, {"seconds": 0.5, "tokens": 8}
            )
        second.fails = loggers.finished = True
    assert said == [
        "Memory stopped logging: the server is gone",
        "Memory stopped logging: still gone",
    ]
    assert (first.ended, second.ended) == (False, True)
    numbers = {"loss": 1.0, "tokens_per_second": 16.0}
    assert second.rows == [(1, numbers, False), (2, numbers, False)]


@pytest.mark.parametrize("branch", [False, True])
def test_a_logger_that_cannot_start_leaves_nothing(
    recipe: Make, tmp_path: Path, branch: bool
) -> None:
    """Those before it are closed, and the corrected command is not refused."""
    origin = None
    if branch:
        pretrain(recipe(**SETTINGS), origin := tmp_path / "origin", show="none")
    made = recipe(train={"steps": 14})
    with pytest.raises(BertsmithError, match=r"^Refused: no such server$"):
        pretrain(made, tmp_path / "run", branch=origin, show="none", log=[Memory, Refused])
    assert LAST[-2].ended is False
    assert not (tmp_path / "run").exists()
    with pytest.raises(KeyboardInterrupt):
        pretrain(made, tmp_path / "run", branch=origin, show="none", log=[Killed])
    before = set((tmp_path / "run").iterdir())
    with pytest.raises(BertsmithError, match=r"^Refused: no such server$"):
        pretrain(made, tmp_path / "run", resume=True, show="none", log=[Refused])
    assert before <= set((tmp_path / "run").iterdir())  # what is resumed stays


def test_mistakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BertsmithError, match="unknown logger 'tensorbord'; did you mean tensorboa"):
        check_loggers(["tensorbord"])
    monkeypatch.setattr("bertsmith.train.loggers.find_spec", lambda name: None)
    with pytest.raises(BertsmithError, match=r'wandb is missing: pip install "bertsmith\[wandb\]"'):
        check_loggers(["wandb"])
    with pytest.raises(BertsmithError, match="give it a place with out"):
        finetune("bertsmith-small", "rows.csv", log=[Memory])


def test_tensorboard_drops_steps_that_are_run_again(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")

    def run(folder: Path, steps: Iterable[int], loss: float) -> None:
        events = TensorBoard(LoggedRun(folder, "", {}))
        for step in steps:
            events.log(step, {"loss": loss}, False)
            if step == 8:
                events.log(step, {"held_out_masked_lm": loss}, True)
        events.close(True)

    def losses(folder: Path, key: str = "loss") -> list[tuple[int, float]]:
        found = accumulator.EventAccumulator(str(folder / "tensorboard")).Reload().Scalars(key)
        return [(one.step, one.value) for one in found]

    run(tmp_path / "one", range(1, 10), 1.0)
    run(tmp_path / "one", range(6, 9), 2.0)  # killed, and resumed from step 5
    assert losses(tmp_path / "one") == [(step, 1.0 + (step > 5)) for step in range(1, 9)]
    assert losses(tmp_path / "one", "held_out_masked_lm") == [(8, 2.0)]
    run(tmp_path / "two", [1, 2, 3, 4, 5, 3, 4], 1.0)  # rolled back to step 2
    assert losses(tmp_path / "two") == [(step, 1.0) for step in range(1, 5)]
    again = TensorBoard(LoggedRun(tmp_path / "two", "", {}))  # step 4 stays, to be evaluated again
    again.log(4, {"held_out_masked_lm": 1.0}, True)
    again.close(True)
    assert losses(tmp_path / "two")[-1] == (4, 1.0)


@pytest.mark.slow
def test_mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file store, opened by MLflow; a resumed run goes on under the same id."""
    mlflow = pytest.importorskip("mlflow")
    from mlflow.exceptions import MlflowException

    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "store").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    settings = {"train": {"steps": 9}, "text": "x" * 600, "held_out": {"(b)": "path"}}
    about = LoggedRun(tmp_path / "run", "a run", settings)
    for steps, finished in ((range(1, 4), False), (range(3, 6), True)):
        with Loggers(["mlflow"], about, pytest.fail) as loggers:
            loggers.start(steps[0] - 1)
            for step in steps:
                loggers.log({"step": step, "loss": step / 2}, {"seconds": 1, "tokens": 5})
                row = {"held_out": 1.0, "held_out/(b)": 2.0, "loss": 9}
                loggers.log({"step": step, **row}, {"evaluated": True})
            loggers.finished = finished
    client = mlflow.MlflowClient()
    (run,) = client.search_runs([client.get_experiment_by_name("bertsmith").experiment_id])
    assert (run.info.run_name, run.info.status) == ("a run", "FINISHED")
    assert run.data.params["train.steps"] == "9"
    assert run.data.params["held_out._b_"] == "path"
    rates = {"loss": 2.5, "tokens_per_second": 5.0}
    assert run.data.metrics == {**rates, "held_out": 1.0, "held_out._b_": 2.0}
    found = [(one.step, one.value) for one in client.get_metric_history(run.info.run_id, "loss")]
    assert sorted(set(found)) == [(step, step / 2) for step in range(1, 6)]
    said: list[str] = []
    with Loggers(["mlflow"], about, said.append) as loggers:
        loggers.start(0)
        loggers.loggers[0].client.log_batch = Mock(side_effect=MlflowException("full"))  # type: ignore[attr-defined]
        loggers.log({"step": 1, "loss": 1.0}, {})
    assert said == ["MLflow stopped logging: full"]
    assert client.get_run(about.stored("mlflow")).info.status == "FAILED"


@pytest.mark.slow
def test_stores_of_mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without settings it writes a database; a store that it cannot open is a whole message."""
    pytest.importorskip("mlflow")
    monkeypatch.delenv("MLFLOW_ALLOW_FILE_STORE", raising=False)
    for place in ("nonsense://nowhere", (tmp_path / "store").as_uri()):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", place)
        with pytest.raises(BertsmithError) as caught:
            Loggers(["mlflow"], RUN).start(0)
        message = str(caught.value)
        assert message.startswith(f"MLflow cannot open {place}: set MLFLOW_TRACKING_URI to")
        assert "MLFLOW_TRACKING_URI=file:mlruns and MLFLOW_ALLOW_FILE_STORE=true" in message
        assert "\n" not in message
    pytest.importorskip("sqlalchemy")
    pytest.importorskip("alembic")
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    monkeypatch.chdir(tmp_path)
    with Loggers(["mlflow"], LoggedRun(tmp_path / "run", "a run", {}), pytest.fail) as loggers:
        loggers.start(0)
        loggers.log({"step": 1, "loss": 1.0}, {})
    assert (tmp_path / "mlflow.db").exists()


def records(data: bytes) -> Iterator[bytes]:
    """The records of a file of wandb, which has the layout of LevelDB's logs after 7 bytes."""
    place, parts = 7, b""
    while place < len(data):
        left = 32768 - place % 32768  # in a block, whose last bytes may be too few for a header
        if left < 7:
            place += left
            continue
        size, kind = struct.unpack("<HB", data[place + 4 : place + 7])
        parts, place = parts + data[place + 7 : place + 7 + size], place + 7 + size
        if kind in (1, 4):  # whole, or its last part
            yield parts
            parts = b""


def test_wandb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An offline run, whose records are read with wandb's own messages."""
    wandb = pytest.importorskip("wandb")
    from wandb.proto.wandb_internal_pb2 import Record

    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    about = LoggedRun(tmp_path / "run", "a run", {"train": {"steps": 9}})
    with Loggers(["wandb"], about, pytest.fail) as loggers:
        loggers.start(0)
        for step in range(1, 4):
            loggers.log({"step": step, "loss": step / 2}, {"seconds": 1, "tokens": 5})
        loggers.finished = True
    assert wandb.run is None
    wandb.teardown()  # its process has written all
    (path,) = (tmp_path / "run" / "wandb").glob("offline-run-*/*.wandb")
    rows, config, ended = [], {}, None
    for data in records(path.read_bytes()):
        record = Record.FromString(data)
        kind = record.WhichOneof("record_type")
        if kind == "run":
            name = record.run.display_name, record.run.project
            config |= {one.key: json.loads(one.value_json) for one in record.run.config.update}
        elif kind == "history":
            items = record.history.item
            rows.append({one.key or one.nested_key[0]: json.loads(one.value_json) for one in items})
        elif kind == "exit":
            ended = record.exit.exit_code
    assert name == ("a run", "bertsmith")
    assert config["train"] == {"steps": 9}
    assert [(row["step"], row["loss"]) for row in rows] == [(n, n / 2) for n in range(1, 4)]
    assert ended == 0
    assert about.stored("wandb") in path.name
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(BertsmithError, match=r"^WeightsAndBiases: "):
        Loggers(["wandb"], about).start(0)
