"""Loggers: the numbers of a run in TensorBoard, Weights & Biases or MLflow, beside its own files.

A logger is a class like `Logger`: it is made with what a run is, `start`ed before its first step,
gets the numbers of every step and evaluation, and is closed. Only the first rank logs.
"""

import math
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol, Self

from bertsmith.errors import BertsmithError, nearest
from bertsmith.files import make_folder, one_line, write_json, writing
from bertsmith.foreign import read_table
from bertsmith.store import flat

PROJECT = "bertsmith"  # the project or experiment of runs, unless the library's own variable is set
WAIT, MANY = 2.0, 1000  # seconds and numbers after which MLflow's store is written
STORES = (  # that MLflow opens
    "set MLFLOW_TRACKING_URI to the address of a server; or, to write mlflow.db in this folder,"
    " leave it unset and `pip install alembic sqlalchemy`; or, to write plain files, set"
    " MLFLOW_TRACKING_URI=file:mlruns and MLFLOW_ALLOW_FILE_STORE=true"
)


@dataclass(frozen=True)
class LoggedRun:
    """What loggers know of a run."""

    folder: Path  # for files of loggers
    name: str
    settings: Mapping[str, Any]

    def stored(self, logger: str) -> str | None:
        """The id of the run in a logger, if an earlier process started it."""
        name = (read_table(self.folder / "loggers.json") or {}).get(logger)
        return name if isinstance(name, str) else None

    def store(self, logger: str, name: str) -> None:
        """Store it: a resumed run goes on under the same id."""
        path = self.folder / "loggers.json"
        with writing(path):
            self.folder.mkdir(parents=True, exist_ok=True)
        write_json(path, {**(read_table(path) or {}), logger: name})


NONE = LoggedRun(Path(), "", {})


class Logger(Protocol):
    """The interface of a logger."""

    def __init__(self, run: LoggedRun) -> None: ...

    def start(self, step: int) -> None:
        """The run begins, or goes on after a step."""

    def log(self, step: int, numbers: Mapping[str, float], evaluated: bool) -> None:
        """The numbers of a step, or of an evaluation after it; steps may be run again."""

    def close(self, finished: bool) -> None:
        """Nothing more comes."""


class TensorBoard:
    """TensorBoard's event files. Steps that are run again replace those shown before."""

    def __init__(self, run: LoggedRun) -> None:
        self.about, self.last = run, math.inf
        self.writer: Any = None

    def start(self, step: int) -> None:
        """Nothing: the first numbers show what is run again."""

    def log(self, step: int, numbers: Mapping[str, float], evaluated: bool) -> None:
        """Add scalars."""
        from torch.utils.tensorboard import SummaryWriter

        first = step + evaluated  # the evaluation of a step follows the step, which stays
        if first <= self.last:  # the first row of a run, also after a resume or a rollback
            self.close(True)
            self.writer = SummaryWriter(str(self.about.folder / "tensorboard"), purge_step=first)
        self.last = step
        for name, value in numbers.items():
            self.writer.add_scalar(name, value, step)

    def close(self, finished: bool) -> None:
        """Write what is left."""
        if self.writer is not None:
            self.writer.close()


class WeightsAndBiases:
    """A run of Weights & Biases, by whose environment variables it is set up (WANDB_MODE, ...)."""

    def __init__(self, run: LoggedRun) -> None:
        self.about = run
        self.run: Any = None

    def start(self, step: int) -> None:
        """Create the run, or go on with it."""
        import wandb

        known = self.about.stored("wandb") if step else None
        make_folder(self.about.folder)
        self.run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=self.about.name,
            dir=self.about.folder,
            config=dict(self.about.settings),
            id=known,
            resume="allow" if known else None,
            reinit="create_new",  # one that the person began is left alone
        )
        self.about.store("wandb", self.run.id)
        self.run.define_metric("*", step_metric="step")

    def log(self, step: int, numbers: Mapping[str, float], evaluated: bool) -> None:
        """Log the numbers over our own steps, since wandb's cannot be run again."""
        self.run.log({"step": step, **numbers})

    def close(self, finished: bool) -> None:
        """Wait until everything is sent or stored."""
        if self.run is not None:
            self.run.finish(exit_code=0 if finished else 1)


class MLflow:
    """A run of MLflow in the store that MLFLOW_TRACKING_URI names."""

    client: Any = None
    id = ""
    broken = False  # whether numbers were lost

    def __init__(self, run: LoggedRun) -> None:
        self.about, self.written = run, time.monotonic()
        self.waiting: list[Any] = []

    def start(self, step: int) -> None:
        """Create the run, or go on with it."""
        import mlflow
        from mlflow.entities import Param
        from mlflow.exceptions import MlflowException

        try:
            client = mlflow.MlflowClient()
        except MlflowException as error:
            place = mlflow.get_tracking_uri()
            message = f"MLflow cannot open {place}: {STORES} (MLflow: {one_line(error)})"
            raise BertsmithError(message) from error
        if (known := self.about.stored("mlflow") if step else None) is not None:
            client.update_run(known, status="RUNNING")
            self.client, self.id = client, known
            return
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        experiment = client.get_experiment_by_name(name)
        place = experiment.experiment_id if experiment else client.create_experiment(name)
        self.id = client.create_run(place, run_name=self.about.name).info.run_id
        self.client = client
        self.about.store("mlflow", self.id)
        settings = flat(self.about.settings).items()
        rows = [Param(allowed(key), str(value)[:500]) for key, value in settings]
        for first in range(0, len(rows), 100):
            client.log_batch(self.id, params=rows[first : first + 100])

    def log(self, step: int, numbers: Mapping[str, float], evaluated: bool) -> None:
        """Keep the numbers, and write them now and then: a server may be far away."""
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        self.waiting += [Metric(allowed(name), value, now, step) for name, value in numbers.items()]
        if len(self.waiting) > MANY or time.monotonic() - self.written > WAIT:
            self._write()

    def _write(self) -> None:
        rows, self.waiting = self.waiting, []  # those that cannot be written are not tried again
        self.broken = True
        for first in range(0, len(rows), MANY):
            self.client.log_batch(self.id, metrics=rows[first : first + MANY])
        self.broken, self.written = False, time.monotonic()

    def close(self, finished: bool) -> None:
        """Write what is left, and end the run."""
        if self.client is None:
            return
        try:
            if self.waiting:
                self._write()
        finally:
            ended = "FINISHED" if finished else "KILLED"
            self.client.set_terminated(self.id, "FAILED" if self.broken else ended)


def allowed(name: str) -> str:
    """A name that MLflow accepts; a slash would make it a folder in a store of files."""
    return re.sub(r"[^\w\-.: ]", "_", name.replace("/", "."))


LOGGERS: dict[str, Any] = {"tensorboard": TensorBoard, "wandb": WeightsAndBiases, "mlflow": MLflow}
LoggerNames = Sequence[str | Callable[[LoggedRun], Logger]]


def check_loggers(chosen: LoggerNames) -> None:
    """Refuse unknown loggers and those whose library is missing, before anything is written."""
    for name in chosen:
        if not isinstance(name, str):
            continue
        if name not in LOGGERS:
            raise BertsmithError(f"unknown logger {name!r:.60}{nearest(name, LOGGERS)}")
        spec = find_spec(name)
        if spec is None or spec.origin is None:  # a folder of this name is no package
            raise BertsmithError(f'{name} is missing: pip install "bertsmith[{name}]"')


class Loggers:
    """The loggers of a run; none by default. One that fails is left out, and the run goes on."""

    def __init__(
        self,
        chosen: LoggerNames = (),
        run: LoggedRun = NONE,
        say: Callable[[str], None] = lambda message: None,
    ) -> None:
        kinds = [LOGGERS[name] if isinstance(name, str) else name for name in chosen]
        self.loggers: list[Logger] = [kind(run) for kind in kinds]
        self.say, self.started, self.finished = say, False, False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for logger in self.loggers:
            try:
                logger.close(self.finished)
            except Exception as fault:  # noqa: BLE001 - libraries raise exceptions of any type
                self._report(logger, fault)

    def start(self, step: int) -> None:
        """The run begins, or goes on after a step."""
        for logger in self.loggers:
            try:
                logger.start(step)
            except BertsmithError:
                raise
            except Exception as error:
                raise BertsmithError(f"{type(logger).__name__}: {one_line(error)}") from error
        self.started = True

    def log(self, row: Mapping[str, Any], timing: Mapping[str, Any]) -> None:
        """The rows of a step or an evaluation, as they are written to the logs of a run."""
        evaluated = "evaluated" in timing
        numbers = {
            name: float(value)
            for name, value in row.items()
            if isinstance(value, int | float) and not isinstance(value, bool)
        }
        step = int(numbers.pop("step"))
        if evaluated:  # of fine-tuning: the mean of the losses of steps
            numbers.pop("loss", None)
        elif timing.get("seconds"):
            numbers["tokens_per_second"] = timing["tokens"] / timing["seconds"]
        for logger in list(self.loggers):
            try:
                logger.log(step, numbers, evaluated)
            except Exception as error:  # noqa: BLE001 - libraries raise exceptions of any type
                self._report(logger, error)
                self.loggers.remove(logger)
                with suppress(Exception):
                    logger.close(False)

    def _report(self, logger: Logger, error: Exception) -> None:
        self.say(f"{type(logger).__name__} stopped logging: {one_line(error)}")
