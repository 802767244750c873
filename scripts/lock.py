"""Write the lock files from pyproject.toml (needs `uv`).

requirements.lock            everything but torch
requirements-torch.lock      torch as the registry has it, and the CUDA packages it asks for
requirements-torch-cpu.lock  torch's CPU build, a tenth of the size, for machines that have it, and
                             Triton, whose interpreter runs the GPU kernels in tests
requirements-uv.lock         uv, which installs the first in a fraction of pip's time
requirements-docs.lock       what `make docs` needs beyond the first, to build the site

Every package is pinned with the hashes of all its files, so that one lock serves every
Python and platform.
"""

import re
import subprocess
from pathlib import Path

TORCH = "2.13.0"
# Of torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl. The registry does not carry CPU
# builds: pip finds one only where it is shown a folder or an index that has it.
TORCH_CPU_HASHES = ["6746dbcbeb526eb61330b76b41ff1b4eb848951103a892eeb080dfa2b264667b"]

ROOT = Path(__file__).resolve().parent.parent
HEADER = "# Written by `make lock`; installed by pip with --no-deps and --require-hashes.\n"
COMPILE = (
    "uv pip compile --universal"
    " --fork-strategy fewest --generate-hashes --no-header --no-annotate --quiet"
)


def resolve(extra: str, constraints: str) -> list[str]:
    """Return the pinned requirements of an extra, each with its lines of hashes."""
    return compiled("pyproject.toml", "--constraints", "-", "--extra", extra, text=constraints)


def compiled(*arguments: str, text: str) -> list[str]:
    """Return what uv resolves, with `text` as its standard input."""
    done = subprocess.run(
        [*COMPILE.split(), *arguments],
        cwd=ROOT,
        input=text,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return re.findall(r"^\S.*\n(?: .*\n)*", done.stdout, re.MULTILINE)


def write(name: str, requirements: list[str]) -> None:
    """Write one lock file in the repository's root."""
    (ROOT / name).write_text(HEADER + "".join(requirements), encoding="utf-8")


def lock_docs(requirements: list[str]) -> None:
    """Write what the site needs beyond the other requirements, at the same versions."""
    pins = [r.partition(" \\")[0] for r in requirements]
    # What only Windows has there, such as colorama, the site needs everywhere.
    names = {r.partition("==")[0] for r in requirements if "win32" not in r.partition("\n")[0]}
    docs = resolve("docs", "\n".join(pins))
    write("requirements-docs.lock", [r for r in docs if r.partition("==")[0] not in names])


def main() -> None:
    """Resolve uv, the dev packages and those of the site, and write all files."""
    write("requirements-uv.lock", compiled("-", text="uv\n"))
    requirements = resolve("dev", f"torch=={TORCH}\n")
    lock_docs(requirements)
    torch = [r for r in requirements if re.match(r"(torch|triton|cuda-.+|nvidia-.+)==", r)]
    hashes = [f" \\\n    --hash=sha256:{digest}" for digest in TORCH_CPU_HASHES]
    write("requirements.lock", [r for r in requirements if r not in torch])
    write("requirements-torch.lock", torch)
    triton = [r for r in torch if r.startswith("triton==")]
    write("requirements-torch-cpu.lock", [f"torch=={TORCH}+cpu", *hashes, "\n", *triton])


if __name__ == "__main__":
    main()
