"""Search over passages of Wikipedia: build rate, query times, disk, memory, updates.

    python benchmarks/search.py --model MODEL --passages 100000 --rate-model all-MiniLM --rate 300

Articles of the Wikipedia extract become one text file each, until the index holds `--passages`
passages of about 1,000 characters. Measured: the first run, a run without changes, one after 1%
of the files changed, peak memory of each (a process each), disk, and p50 and p99 of 200 queries
(random sentences of the text) by keywords, vectors and hybrid in one warm process. `--rate N`
embeds N passages with `--rate-model` here and with sentence-transformers' `encode`, the same
weights, threads and dtype, in turns; the best of each counts. `--model` decides the time of the
first run: say which it was when numbers are quoted.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import platform
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--model", default="bertsmith-small")
parser.add_argument("--passages", type=int, default=100_000)
parser.add_argument("--size", type=int, default=1000, help="characters of a passage")
parser.add_argument("--queries", type=int, default=200)
parser.add_argument("--rate-model", default="")
parser.add_argument("--rate", type=int, default=0, help="passages for the comparison of rates")
parser.add_argument("--turns", type=int, default=2)
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--dtype", default="float32")
parser.add_argument("--data", type=Path, default=Path("../shared/data"))
parser.add_argument("--folder", type=Path, help="keep documents and index here")
parser.add_argument("--out", type=Path, default=Path("benchmarks/results/search.json"))
parser.add_argument("--worker", default="", help=argparse.SUPPRESS)
options = parser.parse_args()
os.environ["OMP_NUM_THREADS"] = str(options.threads)


def articles() -> Any:
    """Titles and texts, until the reader stops."""
    archives = sorted((options.data / "corpus_enwiki_extract").glob("*.xz"))
    for path in archives:
        with lzma.open(path, "rt", encoding="utf-8") as stream:
            lines: list[str] = []
            for line in stream:
                if line.strip():
                    lines.append(line.strip())
                elif lines:
                    yield lines
                    lines = []
            if lines:
                yield lines


def write_documents(folder: Path) -> list[str]:
    """Files that hold about as many passages as asked for, 100 articles in a folder."""
    folder.mkdir(parents=True)
    characters, sentences = 0, []
    for number, lines in enumerate(articles()):
        place = folder / f"{number // 100:04}"
        place.mkdir(exist_ok=True)
        text = "\n\n".join(lines)
        (place / f"{number:06}.txt").write_text(text, "utf-8")
        characters += len(text)
        if number % 7 == 0:
            sentences.append(" ".join(max(lines, key=len).split(". ")[0].split()[:12]))
        if characters > options.passages * options.size * 0.78:
            break
    return sentences


def child(job: str, place: Path) -> dict[str, Any]:
    command = [sys.executable, __file__, "--worker", job, "--folder", str(place)]
    command += ["--model", options.model, "--size", str(options.size)]
    command += ["--threads", str(options.threads), "--dtype", options.dtype]
    command += ["--rate-model", options.rate_model, "--data", str(options.data)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def peak() -> int:
    """The peak of resident memory in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def work(job: str, place: Path) -> dict[str, Any]:
    """One measurement in a process of its own."""
    import torch

    torch.set_num_threads(options.threads)
    if job in ("ours", "theirs"):
        return rate(job, place)
    from bertsmith.search.build import BuildSettings, update_folders
    from bertsmith.search.index import Index

    if job == "queries":
        index = Index.open(place / "index")
        queries = json.loads((place / "queries.json").read_text())
        times: dict[str, Any] = {}
        begin = time.perf_counter()
        index.search(queries[0])
        times["first_seconds"] = round(time.perf_counter() - begin, 3)
        for mode in ("keywords", "vectors", "hybrid"):
            spent = []
            for query in queries:
                begin = time.perf_counter()
                index.search(query, mode=mode)
                spent.append(1000 * (time.perf_counter() - begin))
            spent.sort()
            half, last = spent[len(spent) // 2], spent[int(len(spent) * 0.99)]
            times[mode] = {"p50_ms": round(half, 1), "p99_ms": round(last, 1)}
        return {**times, "passages": len(index), "peak_mb": peak()}
    settings = BuildSettings(model=options.model, size=options.size, overlap=options.size // 8)
    begin = time.perf_counter()
    update = update_folders(place / "index", [place / "documents"], settings)
    spent = time.perf_counter() - begin
    content = {k: v for k, v in update.to_dict().items() if k not in ("problems", "repaired")}
    return {**content, "seconds": round(spent, 2), "peak_mb": peak()}


def rate(job: str, place: Path) -> dict[str, Any]:
    """Passages a second, by bertsmith or by sentence-transformers."""
    texts = json.loads((place / "texts.json").read_text())
    if job == "ours":
        from bertsmith.search.encoder import TextEncoder, search_prompts

        encoder = TextEncoder(
            options.rate_model, "cpu", options.dtype, prompts=search_prompts(options.rate_model)
        )
        encoder.embed(texts[:8])
        begin = time.perf_counter()
        encoder.embed(texts)
    else:
        import torch
        from sentence_transformers import SentenceTransformer

        kwargs = {"dtype": getattr(torch, options.dtype)}
        model = SentenceTransformer(options.rate_model, device="cpu", model_kwargs=kwargs)
        model.encode(texts[:8])
        begin = time.perf_counter()
        model.encode(texts, batch_size=32, normalize_embeddings=True)
    spent = time.perf_counter() - begin
    return {"passages_per_second": round(len(texts) / spent, 2)}


def main() -> None:
    place = options.folder or Path(tempfile.mkdtemp())
    report: dict[str, Any] = {
        "machine": cpu(),
        "threads": options.threads,
        "load_average": os.getloadavg()[0],
        "model": Path(options.model).name,
        "passage_size": options.size,
    }
    rng = random.Random(0)
    if options.passages:
        sentences = write_documents(place / "documents")
        (place / "queries.json").write_text(json.dumps(rng.choices(sentences, k=options.queries)))
        report["first_run"] = child("update", place)
        report["run_without_changes"] = child("update", place)
        files = sorted((place / "documents").rglob("*.txt"))
        for path in rng.sample(files, max(1, len(files) // 100)):
            path.write_text(path.read_text("utf-8") + "\n\nA new paragraph at the end.\n", "utf-8")
        report["run_after_1_percent_changed"] = child("update", place)
        report["share_of_first_run"] = round(
            report["run_after_1_percent_changed"]["seconds"] / report["first_run"]["seconds"], 4
        )
        report["queries"] = child("queries", place)
        size = sum(path.stat().st_size for path in (place / "index").rglob("*") if path.is_file())
        report["disk_bytes_per_passage"] = round(size / report["queries"]["passages"])
    if options.rate:
        texts = []
        for lines in articles():
            texts += [" ".join(lines)[start : start + options.size] for start in (0, 5000)]
            if len(texts) >= 40 * options.rate:
                break
        texts = rng.sample([text for text in texts if text], options.rate)
        place.mkdir(exist_ok=True, parents=True)
        (place / "texts.json").write_text(json.dumps(texts))
        rates: dict[str, list[float]] = {"ours": [], "theirs": []}
        for _ in range(options.turns):
            for job in rates:
                rates[job].append(child(job, place)["passages_per_second"])
        report["rate"] = {
            "passages": options.rate,
            "model": Path(options.rate_model).parent.name or options.rate_model,
            "dtype": options.dtype,
            "bertsmith": rates["ours"],
            "sentence_transformers": rates["theirs"],
            "ratio_of_best": round(max(rates["ours"]) / max(rates["theirs"]), 3),
        }
    former = json.loads(options.out.read_text()) if options.out.exists() else {}
    options.out.write_text(json.dumps({**former, **report}, indent=2) + "\n")
    print(json.dumps(report, indent=2))


def cpu() -> str:
    """The processor by name."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if sys.platform == "linux" else []
    names = [line.split(": ")[1] for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.processor()}, {os.cpu_count()} cores"


if __name__ == "__main__":
    if options.worker:
        print(json.dumps(work(options.worker, options.folder)))
    else:
        main()
