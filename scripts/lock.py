"""Write the three lock files from pyproject.toml (needs `uv`).

requirements.lock            everything but torch
requirements-torch.lock      torch as the registry has it, and the CUDA packages it asks for
requirements-torch-cpu.lock  torch's CPU build, a tenth of the size, for machines that have it, and
                             Triton, whose interpreter runs the GPU kernels in tests

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
    "uv pip compile pyproject.toml --extra dev --constraints - --universal"
    " --fork-strategy fewest --generate-hashes --no-header --no-annotate --quiet"
)


def resolve() -> list[str]:
    """Return the pinned requirements, each with its lines of hashes."""
    done = subprocess.run(
        COMPILE.split(),
        cwd=ROOT,
        input=f"torch=={TORCH}\n",
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return re.findall(r"^\S.*\n(?: .*\n)*", done.stdout, re.MULTILINE)


def write(name: str, requirements: list[str]) -> None:
    """Write one lock file in the repository's root."""
    (ROOT / name).write_text(HEADER + "".join(requirements), encoding="utf-8")


def main() -> None:
    """Resolve once, write three files."""
    requirements = resolve()
    torch = [r for r in requirements if re.match(r"(torch|triton|cuda-.+|nvidia-.+)==", r)]
    hashes = [f" \\\n    --hash=sha256:{digest}" for digest in TORCH_CPU_HASHES]
    write("requirements.lock", [r for r in requirements if r not in torch])
    write("requirements-torch.lock", torch)
    triton = [r for r in torch if r.startswith("triton==")]
    write("requirements-torch-cpu.lock", [f"torch=={TORCH}+cpu", *hashes, "\n", *triton])


if __name__ == "__main__":
    main()
