"""What is packed, locked and listed."""

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from packaging.requirements import Requirement
from safetensors.numpy import load_file, save_file

from house.source import HOUSE, ROOT, imported, shown, tree_of

TREE = ROOT / "docs" / "architecture.md"
LOCKS = ["requirements.lock", "requirements-torch.lock", "requirements-torch-cpu.lock"]
LOCKS += ["requirements-docs.lock", "requirements-uv.lock"]
# What a model that comes with the package has at least, and how many bytes it has at most.
MODEL_FILES = {"README.md", "config.json", "model.safetensors", "special_tokens_map.json"}
MODEL_FILES |= {"tokenizer.json", "tokenizer_config.json"}


MODEL_BYTES = 50_500_000  # 25 M parameters in float16, and a tokenizer


def listed(readme: str) -> list[str]:
    """Return the files that the tree in docs/architecture.md lists, a line each.

    And the folders of which it lists no file.
    """
    blocks = re.findall(r"^```\w*\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)
    tree = next((block for block in blocks if "src/bertsmith/" in block), "")
    paths, folders = [], []  # folders: (indent, path) of those we are inside
    for line in tree.translate(str.maketrans("│├└─", "    ")).splitlines():
        entry = re.match(r"( *)([\w./-]+/|[\w-]+\.\w+)(?: |$)", line)
        if not entry:
            continue
        indent, name = len(entry[1]), entry[2]
        while folders and folders[-1][0] >= indent:
            folders.pop()
        inside = folders[-1][1] if folders else ""
        if paths and paths[-1] == inside:
            paths.pop()
        paths.append(inside + name)
        if name.endswith("/"):
            folders.append((indent, inside + name))
    root = "src/bertsmith/"
    return [path.removeprefix(root) for path in paths if path.startswith(root)]


def line_of(path: Path) -> str:
    """Return what stands for a file in the tree in docs/architecture.md: of a model, its folder."""
    parts = path.relative_to(HOUSE).parts
    return f"models/{parts[1]}/" if parts[0] == "models" and len(parts) > 2 else shown(path)


def unfit(model: Path) -> Iterator[str]:
    """Complain of a model that must not come with the package."""
    files = {path.relative_to(model).as_posix(): path for path in model.rglob("*")}
    yield from (f"no {name}" for name in sorted(MODEL_FILES - files.keys()))
    total = sum(path.stat().st_size for path in files.values() if path.is_file())
    if total > MODEL_BYTES:
        yield f"{total:,} bytes are too many"
    for name, weights in load_file(model / "model.safetensors").items():
        if weights.dtype != np.float16:
            yield f"{name} is stored as {weights.dtype}"
        if not np.isfinite(weights).all():
            yield f"{name} is not finite"


def bad_requirements(lock: str) -> Iterator[str]:
    """Complain of every line of a lock that is not a pinned requirement with its hashes."""
    pinned = re.compile(r"[\w.-]+==[\w.+!]+(?: ; [^#\\]+?)?(?: +--hash=sha256:[0-9a-f]{64})+")
    for line in lock.replace("\\\n", " ").splitlines():
        if "://" in line or not (line.startswith("#") or pinned.fullmatch(line)):
            yield line[:80]


def addresses(content: bytes) -> list[bytes]:
    """Return the folders of one machine, and the registry's hosts, that a file speaks of."""
    folder = b"/work" + b"/"
    needles = [b"/opt" + b"/wheels", b"/opt" + b"/pypi", b"pypi" + b".org", b"python" + b"hosted"]
    work = re.findall(rb"(?<![\w.~-])" + folder, content) if folder in content else []
    return work + [needle for needle in needles if needle in content]


def test_architecture_lists_every_file() -> None:
    unlisted = {"__init__.py", "py.typed"}
    files = [path for path in HOUSE.rglob("*") if path.is_file() and path.name not in unlisted]
    real = {line_of(path) for path in files if path.suffix != ".pyc"}
    in_tree = {name for name in listed(TREE.read_text("utf-8")) if Path(name).name not in unlisted}
    assert in_tree == real, "docs/architecture.md lists other files: run scripts/tree.py"


def test_models_are_small_and_whole() -> None:
    models = sorted((HOUSE / "models").iterdir())
    assert models
    assert {model.name: list(unfit(model)) for model in models} == {m.name: [] for m in models}


def test_a_wheel_has_every_file() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    patterns = project["tool"]["setuptools"]["package-data"]["bertsmith"]
    packed = {path for pattern in patterns for path in HOUSE.glob(pattern)}
    code = {".py", ".pyc"}
    files = {path for path in HOUSE.rglob("*") if path.is_file() and path.suffix not in code}
    assert sorted(map(shown, files - packed)) == []


@pytest.mark.parametrize("name", LOCKS)
def test_locks_are_pinned_and_hashed(name: str) -> None:
    lock = (ROOT / name).read_text("utf-8")
    assert list(bad_requirements(lock)) == []
    assert "==" in lock


def test_locks_hold_what_the_project_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    locks = "".join((ROOT / name).read_text("utf-8") for name in LOCKS)
    pins = dict(re.findall(r"^([\w.-]+)==(\S+)", locks, re.MULTILINE))
    extras = project["optional-dependencies"]
    for text in project["dependencies"] + extras["dev"] + extras["docs"]:
        wanted = Requirement(text)
        pin = pins.get(wanted.name.replace("_", "-"), "nothing")
        assert pin in wanted.specifier, f"{text} is wanted, {pin} locked: make lock"


def test_every_extra_is_used() -> None:
    """A package that an extra installs is imported somewhere in the house."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    names = [name for path in HOUSE.rglob("*.py") for _, name in imported(path, tree_of(path))]
    used = {name.split(".")[0] for name in names}
    used |= {".".join(name.split(".")[:3]) for name in names}
    modules = {
        "prometheus-client": "prometheus_client",
        "scikit-learn": "sklearn",
        "tensorboard": "torch.utils.tensorboard",
    }
    modules |= {"python-docx": "docx", "faiss-cpu": "faiss"}
    modules["opentelemetry-sdk"] = "opentelemetry.sdk.trace"
    modules["opentelemetry-exporter-otlp-proto-http"] = "opentelemetry.exporter.otlp"
    modules |= {"charset-normalizer": "charset_normalizer", "mlflow-skinny": "mlflow"}
    modules |= {"alembic": "mlflow", "sqlalchemy": "mlflow"}  # its databases
    # The site's packages are no modules of the house: mkdocs.yml names them.
    site = (ROOT / "mkdocs.yml").read_text("utf-8")
    named = {"mkdocs-material": "name: material", "mkdocstrings-python": "- mkdocstrings:"}
    used |= {package for package, line in named.items() if line in site}
    for extra, texts in project["optional-dependencies"].items():
        for name in (Requirement(text).name for text in texts if extra != "dev"):
            assert modules.get(name, name) in used, f"{extra}: nothing imports {name}"


def test_no_file_names_one_machine() -> None:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    files = [ROOT / name.decode() for name in done.stdout.split(b"\0") if name]
    found = {path: addresses(path.read_bytes()) for path in files if path.is_file()}
    assert {path: texts for path, texts in found.items() if texts} == {}


def test_readme_tree_is_read() -> None:
    tree = "src/bertsmith/\n  batch.py  one\n  model/    two\n    x.py    three\n"
    tree += "                more, e.g. of three\n  z.py      four\ntests/\n  t.py      five\n"
    assert listed(f"```\nls\n```\n```\n{tree}```\n") == ["batch.py", "model/x.py", "z.py"]
    tree = "src/bertsmith/\n  models/\n    one/   some\n    two/   more\n  z.py\ntests/\n"
    assert listed(f"```\n{tree}```\n") == ["models/one/", "models/two/", "z.py"]
    assert line_of(HOUSE / "models" / "one" / "1_Pooling" / "config.json") == "models/one/"


def test_unfit_models_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    half = np.ones(3, np.float16)
    save_file({"a": half}, tmp_path / "model.safetensors")
    for name in MODEL_FILES - {"model.safetensors"}:
        (tmp_path / name).touch()
    assert not list(unfit(tmp_path))
    broken = {"a": half * np.inf, "b": half.astype(np.float32)}
    save_file(broken, tmp_path / "model.safetensors")
    (tmp_path / "README.md").unlink()
    monkeypatch.setattr(sys.modules[__name__], "MODEL_BYTES", 10)
    no_card, large, *weights = unfit(tmp_path)
    assert no_card == "no README.md"
    assert large.endswith("bytes are too many")
    assert sorted(weights) == ["a is not finite", "b is stored as float32"]


@pytest.mark.parametrize(
    "line", ["torch", "torch==2.0", "--index-url x", "a==1 --hash=md5:0", "a>=1 --hash=sha256:0"]
)
def test_bad_locks_are_seen(line: str) -> None:
    assert list(bad_requirements(line + "\n"))


def test_machine_paths_are_seen() -> None:
    assert addresses(b"open('/work" + b"/main')")
    assert not addresses(b"docs/work/x and the /workshop")
