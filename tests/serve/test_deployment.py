"""The examples in docs/serve/ say what the server and the lock files say."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
HERE = ROOT / "docs" / "serve"


def test_every_metric_of_the_dashboard_exists(http: httpx.Client) -> None:
    http.post("/embed", json={"inputs": "a river"}).raise_for_status()
    lines = http.get("/metrics").text.splitlines()
    known = {re.split(r"[ {]", line)[0] for line in lines if not line.startswith("#")}
    types = [line.split()[2:4] for line in lines if line.startswith("# TYPE")]
    known |= {name for name, _ in types}  # those without a value yet
    ends = {"histogram": ("_bucket", "_sum", "_count"), "counter": ("_total",)}
    known |= {name + end for name, kind in types for end in ends.get(kind, ())}
    board = json.loads((HERE / "grafana.json").read_text("utf-8"))
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    used = {name for one in asked for name in re.findall(r"\b(?:te|bertsmith|process)_\w+", one)}
    assert len(used) > 15
    assert used <= known, used - known
    titles = [panel["title"] for panel in board["panels"]]
    assert len({*titles}) == len(titles)
    hpa = documents("kubernetes.yaml")["HorizontalPodAutoscaler"]["spec"]
    assert hpa["metrics"][0]["pods"]["metric"]["name"] in known


def documents(name: str) -> dict[str, Any]:
    content = yaml.safe_load_all((HERE / name).read_text("utf-8"))
    return {one["kind"]: one for one in content}


def test_kubernetes_agrees_with_the_server_and_the_image(http: httpx.Client) -> None:
    objects = documents("kubernetes.yaml")
    pod = objects["Deployment"]["spec"]["template"]["spec"]
    container = pod["containers"][0]
    probes = [container[name] for name in ("startupProbe", "readinessProbe", "livenessProbe")]
    for path in {probe["httpGet"]["path"] for probe in probes}:
        assert http.get(path).status_code == 200
    docker = (HERE / "Dockerfile").read_text("utf-8")
    assert f"USER {pod['securityContext']['runAsUser']}\n" in docker
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    drain = int(container["args"][container["args"].index("--drain") + 1])
    assert pod["terminationGracePeriodSeconds"] >= drain + 60 + 10
    compose = yaml.safe_load((HERE / "compose.yaml").read_text("utf-8"))
    assert compose["services"]["bertsmith"]["read_only"] is True


def test_the_cpu_image_has_the_torch_of_the_lock() -> None:
    pinned = re.search(r"torch==([\d.]+)\+cpu", (ROOT / "requirements-torch-cpu.lock").read_text())
    assert pinned is not None
    docker = (HERE / "Dockerfile").read_text("utf-8")
    assert f'"torch=={pinned[1]}" \\\n        --index-url "${{TORCH_INDEX:?' in docker


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
def test_the_unit_is_valid(tmp_path: Path) -> None:
    unit = (HERE / "bertsmith.service").read_text("utf-8")
    copy = tmp_path / "bertsmith.service"
    copy.write_text(unit.replace("/opt/bertsmith/bin/bertsmith", "/bin/true"), "utf-8")
    done = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not shutil.which("nginx"), reason="needs nginx")
def test_the_configuration_of_nginx_is_valid(tmp_path: Path) -> None:
    words = ["nginx", "-p", tmp_path, "-c", HERE / "nginx.conf", "-t"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
