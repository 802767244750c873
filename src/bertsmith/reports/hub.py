"""`push`: a model directory → a repository of the Hugging Face hub, with card and scores."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertsmith.checkpoint.locate import HUB_ID, built_in
from bertsmith.checkpoint.lora import CONFIG as ADAPTER
from bertsmith.errors import BertsmithError
from bertsmith.files import one_line, reading
from bertsmith.foreign import read_json, read_table
from bertsmith.tasks.registry import task_named

if TYPE_CHECKING:
    from huggingface_hub import EvalResult

REPORTS = ("report.html", "report.json", "ledger.json", "distill.json")  # examples may be in them
TOKEN = "log in with `hf auth login`, or set HF_TOKEN"
HELD_OUT = "held-out text of the corpus"


def push(
    run: str | Path,
    repo: str,
    *,
    public: bool = False,
    revision: str | None = None,
    licence: str | None = None,
    report: bool = False,
    message: str = "Upload with bertsmith",
) -> dict[str, Any]:
    """Upload a model directory, or the model of a pre-training run, to a repository of the hub.

    A new repository is private unless `public`; that of an existing one stays as it is. `revision`
    is a branch, made if it is new. The card is README.md with `licence` and, from the report of the
    run, its scores in the hub's metadata (model-index). Reports are left out unless `report`: they
    show examples of the data. Returns the address, the commit and the names of the files.
    """
    from huggingface_hub import CommitOperationAdd, HfApi, get_token

    folder, scores = _model(Path(run))
    if "/" not in repo or not HUB_ID.fullmatch(repo):
        raise BertsmithError(f"{repo!r:.120} is not the name of a repository: write USER/NAME")
    left_out = ("README.md", *(() if report else REPORTS))
    paths = (path for path in folder.rglob("*") if path.is_file() and path.name[0] != ".")
    files = sorted(path for path in paths if path.name not in left_out)
    card = card_text(folder, repo.rpartition("/")[2], licence, scores).encode()
    if get_token() is None:
        raise BertsmithError(f"the hub asks who you are: {TOKEN}")
    api, notes = HfApi(), _notes(folder, card)
    with hub_errors(repo, api.endpoint):
        repository = api.create_repo(repo, private=not public, exist_ok=True)
        if revision is not None:
            api.create_branch(repository.repo_id, branch=revision, exist_ok=True)
        operations = [CommitOperationAdd("README.md", card)]
        operations += [CommitOperationAdd(str(one.relative_to(folder)), one) for one in files]
        commit = api.create_commit(
            repository.repo_id, operations, commit_message=message, revision=revision
        )
        private = bool(api.model_info(repository.repo_id, revision=revision).private)
    return {
        "url": str(repository),
        "commit": commit.oid,
        "revision": revision or "main",
        "private": private,
        "files": [one.path_in_repo for one in operations],
        "notes": notes,
    }


def card_text(folder: Path, name: str, licence: str | None, scores: list[EvalResult]) -> str:
    """The model card of a directory, with a licence and scores in its metadata."""
    from huggingface_hub import ModelCard

    path = folder / "README.md"
    with reading(path):
        text = path.read_text("utf-8") if path.is_file() else "---\nlibrary_name: bertsmith\n---\n"
    try:
        card = ModelCard(text)
    except ValueError as error:
        raise BertsmithError(f"{path}: {one_line(str(error))}") from error
    data: Any = card.data
    data.license = licence or data.get("license")
    base = (read_table(folder / "report.json") or {}).get("model", "")
    if re.fullmatch(r"[\w-]+/[\w.-]+", base) and base not in built_in() and not Path(base).exists():
        data.base_model = data.get("base_model") or base
    if scores:
        data.model_name, data.eval_results = name, scores
        data.metrics = list(dict.fromkeys(score.metric_type for score in scores))
    return str(card)


def _model(run: Path) -> tuple[Path, list[EvalResult]]:
    if not run.is_dir():
        raise BertsmithError(f"{one_line(run)}: no such directory")
    if (run / "recipe.toml").is_file():
        summary = read_table(run / "summary.json") or {}
        if not summary.get("finished") or not (run / "model").is_dir():
            raise BertsmithError(f"{run}: this run has not finished: it has no model yet")
        kinds = {name: v for name, v in summary.items() if name.startswith(("held_out", "pseudo"))}
        return run / "model", list(_results("fill-mask", HELD_OUT, "", kinds))
    if not any((run / name).is_file() for name in ("config.json", ADAPTER)):
        raise BertsmithError(f"{run}: no model: it has neither config.json nor {ADAPTER}")
    content = read_table(run / "report.json") or {}
    results: list[EvalResult] = []
    for split, scores in (content.get("scores") or {}).items():
        file = content["files"].get(split, {}).get("file", split)
        results += _results(task_named(content["task"]).hub_tag, file, split, scores or {})
    return run, results


def _results(kind: str, data: str, split: str, scores: Mapping[str, Any]) -> Iterator[EvalResult]:
    from huggingface_hub import EvalResult

    about: Any = {"task_type": kind, "dataset_type": Path(data).stem, "dataset_name": data}
    about["dataset_split"] = split or None
    for name, value in scores.items():
        if name != "count" and isinstance(value, int | float) and math.isfinite(value):
            yield EvalResult(metric_type=name, metric_value=value, **about)


def _notes(folder: Path, card: bytes) -> list[str]:
    notes = []
    if b"\nlicense:" not in card:
        notes.append("no licence: others may not use the model; name one as `licence`")
    if (folder / ADAPTER).is_file():
        base = str(read_json(folder / ADAPTER).get("base_model_name_or_path"))
        if not HUB_ID.fullmatch(base) or Path(base).exists():
            notes.append(f"the adapter belongs to {base!r:.120}, which others cannot open")
    return notes


@contextmanager
def hub_errors(repo: str, endpoint: str) -> Iterator[None]:
    """Raise errors of the hub or the network as one line."""
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    # The base error of its HTTP library, which differs between releases.
    network: Any = HfHubHTTPError.__bases__[0]
    try:
        yield
    except HfHubHTTPError as error:
        status = error.response.status_code if error.response is not None else 0
        why = one_line(error.server_message or str(error).strip().partition("\n")[0])[:300]
        advice = f": {TOKEN}" if status == 401 else ""
        raise BertsmithError(f"{repo}: the hub refused ({status}): {why}{advice}") from error
    except HFValidationError as error:
        raise BertsmithError(f"{repo}: {one_line(str(error))[:300]}") from error
    except (network, OSError) as error:
        why = one_line(str(error)) or type(error).__name__
        raise BertsmithError(f"{repo}: the hub at {endpoint} cannot be reached ({why})") from error
