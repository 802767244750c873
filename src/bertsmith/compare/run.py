"""`compare`: run all parts that are not finished, in parallel processes, then write the report."""

import multiprocessing
import os
from collections.abc import Callable, Generator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import ExitStack, closing
from multiprocessing import connection, parent_process
from pathlib import Path
from threading import Thread
from typing import Any

from bertsmith.checkpoint import locate, read_config
from bertsmith.compare.budget import Cost, cost_of
from bertsmith.compare.parts import ComparisonPart, PartStore, parts_of
from bertsmith.compare.report import report_page
from bertsmith.compare.results import results_of, timings_of
from bertsmith.compare.spec import Spec
from bertsmith.compare.summary import loss_terms
from bertsmith.compare.tasks import finetune_settings
from bertsmith.compare.work import PartRunner, PartStopped, on_gpu
from bertsmith.corpus import Corpus
from bertsmith.errors import BertsmithError, nearest, setting_name
from bertsmith.files import finite, write_json, write_text, writing
from bertsmith.folders import check_output
from bertsmith.settings import taking
from bertsmith.settings.comparing import ComparisonSettings
from bertsmith.store import WorkFolder
from bertsmith.tasks.registry import task_named
from bertsmith.train.building import built, examples_of, open_corpus

Say = Callable[[str], None]


@taking(ComparisonSettings)
def compare(
    spec: Spec, out: str | Path, *, say: Say = lambda line: None, **given: Any
) -> dict[str, Any]:
    """Train, fine-tune and score all variants of a spec; return the content of results.json.

    A folder with an unfinished comparison is continued: finished parts are not run again. `only`
    names the variants to run, `merge` folders whose finished parts are copied. With `texts=False`
    the report shows no examples. `jobs` is the number of processes.
    """
    own, out = ComparisonSettings(**given), Path(out)
    check_output(out)
    for name in own.only:
        if name not in spec.variants:
            raise BertsmithError(f"unknown variant {name!r}{nearest(name, spec.variants)}")
    _check(spec)
    with writing(out):
        (out / "parts").mkdir(parents=True, exist_ok=True)
    parts = parts_of(spec, tuple(own.only))
    chosen = dict.fromkeys(part.variant for part in parts)
    with ExitStack() as stack:
        for variant in chosen:  # other processes may run other variants in the same folder
            stack.enter_context(WorkFolder(out / "parts" / variant).held())
        for other in own.merge:
            say(f"{other}: {PartStore(out / 'parts').merge(Path(other))} parts taken")
        costs = {name: _costs(spec, name, out, name in chosen) for name in spec.variants}
        worker = PartRunner(spec, costs, out)
        for part in parts:
            worker.store.demand_inputs(part, worker.inputs(part))
        write_text(out / "spec.toml", spec.toml())
        todo = [part for part in parts if worker.store.read(part) is None]
        if len(todo) < len(parts):
            say(f"{len(parts) - len(todo)} of {len(parts)} parts are finished")
        if todo:
            say(f"{len(todo)} parts to run; each is reported when it ends")
        jobs = own.jobs or (1 if on_gpu(spec) else max(1, (os.cpu_count() or 1) // spec.threads))
        with closing(_run_parts(worker, todo, jobs)) as finished:
            for number, part in enumerate(finished, 1):
                say(f"[{number}/{len(todo)}] {_described(worker, part)}")
    results, timings = finite(results_of(worker)), finite(timings_of(worker))
    write_json(out / "results.json", results)
    write_json(out / "timings.json", timings)
    write_text(out / "report.html", report_page(worker, results, timings, own.texts))
    return dict(results)


def _check(spec: Spec) -> None:
    trained = [name for name, part in spec.variants.items() if part.recipe]
    if trained and not spec.corpus:
        way_out = setting_name("set corpus", option="give --data, or set corpus")
        raise BertsmithError(f"no corpus to pre-train {trained[0]} on: {way_out} in the spec")
    for name, part in spec.variants.items():
        try:
            if part.model:
                read_config(locate(part.model))
            elif part.recipe:
                recipe = spec.recipe(name)
                assert recipe is not None
                corpus = open_corpus(recipe)
                model = built(recipe, corpus.tokenizer, device="meta")
                for length, _, _ in recipe.lengths():
                    examples_of(recipe, corpus, length, model.checkpoint.config.segments)
        except BertsmithError as error:
            where = f"variants.{name}: "
            raise BertsmithError(f"{where}{error.message.removeprefix(where)}") from error
    checker = PartRunner(spec, {}, Path())
    static = [name for name, part in spec.variants.items() if part.static]
    for name in spec.tasks:
        splits = checker.splits(name)
        finetune_settings(spec, name, splits)
        if static and not task_named(splits.train.task).fits_static:
            raise BertsmithError(
                f"variants.{static[0]}: static vectors cannot be fine-tuned for"
                f" {splits.train.task} (tasks.{name})"
            )


def _costs(spec: Spec, variant: str, out: Path, runs: bool) -> dict[str, Cost]:
    """What each budget buys a variant.

    Steps that fit into minutes depend on the machine: they are measured once, where the variant
    first `runs`, and stored; a comparison that is continued or merged uses the same.
    """
    variant = spec.variants[variant].static or variant
    recipe = spec.recipe(variant)
    if recipe is None:
        return {}
    tokenizer = Corpus.open(Path(spec.corpus)).tokenizer
    work = WorkFolder(out / "parts" / variant)
    stored, costs = work.finished("steps") or {}, {}
    for kind in spec.budget.kinds():
        amount = getattr(spec.budget, kind)
        known = stored.get(kind)
        if kind == "minutes" and isinstance(known, dict) and known.get("amount") == amount:
            try:
                costs[kind] = Cost(**known["cost"])
            except (LookupError, TypeError) as error:
                raise BertsmithError(f"{work.file('steps')}: damaged; remove it") from error
        elif kind != "minutes" or runs:
            costs[kind] = cost_of(recipe, tokenizer, kind, amount, f"variants.{variant}")
    if runs:
        steps = {
            kind: {"amount": getattr(spec.budget, kind), "cost": vars(cost)}
            for kind, cost in costs.items()
        }
        work.finish("steps", steps)
    return costs


# ------------------------------------------------------------------ parts in parallel processes


def _run_parts(
    worker: PartRunner, parts: list[ComparisonPart], jobs: int
) -> Generator[ComparisonPart, None, None]:
    """Run parts, `jobs` at once; yield each when it is finished."""
    if jobs == 1 or len(parts) < 2:
        for part in parts:
            worker.run(part)
            yield part
        return
    pool = ProcessPoolExecutor(
        min(jobs, len(parts)),
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_begin,
    )
    waiting, running = list(parts), dict[Future[bool], ComparisonPart]()
    try:
        while waiting or running:
            unfinished = {*waiting, *running.values()}
            ready = [part for part in waiting if not unfinished & {*part.needs(worker.spec)}]
            for part in ready[: max(0, jobs - len(running))]:
                waiting.remove(part)
                running[pool.submit(_run, worker, part)] = part
            ended, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in ended:
                part = running.pop(future)
                if not future.result():
                    raise PartStopped
                yield part
    finally:
        pool.shutdown(wait=True, cancel_futures=True)  # interrupted runs save their state


def _begin() -> None:
    """Let a process that runs parts end with the one that started it."""
    if (parent := parent_process()) is not None:
        Thread(target=_follow, args=(parent.sentinel,), daemon=True).start()


def _follow(sentinel: int) -> None:
    connection.wait([sentinel])
    os._exit(1)


def _run(worker: PartRunner, part: ComparisonPart) -> bool:
    """Run a part in this process; False if a signal stopped it."""
    try:
        worker.run(part)
    except KeyboardInterrupt:
        return False
    return True


def _described(worker: PartRunner, part: ComparisonPart) -> str:
    content = worker.store.read(part) or {"result": {}, "measured": {}}
    result, seconds = content["result"], content["measured"].get("seconds", 0.0)
    text = part.key.replace("/", " ")
    if part.task:
        score = result.get("test", result.get("dev"))
        text += "" if score is None else f": {score:.4f}"
    elif result.get("held_out"):
        losses = result["held_out"][-1]
        text += ": held-out "
        text += ", ".join(f"{name} {losses[name]:.3f}" for name in loss_terms(losses))
    return f"{text} ({seconds:.0f} s)"
