"""Install the peers, and start each as its own docs describe."""

import json
import os
import subprocess
import sys
from pathlib import Path

import torch

from bench.serving_peers.modules import ROW

PEERS = Path(__file__).parent
CACHE = Path(os.environ.get("SLIPWAY_BENCH_CACHE", Path.home() / ".cache" / "slipway-bench"))
PACKAGES = {
    "fastapi": ["fastapi", "uvicorn[standard]"],
    "litserve": ["litserve"],
    "bentoml": ["bentoml"],
    "mlserver": ["mlserver"],
    "mosec": ["mosec", "orjson"],
    "rayserve": ["ray[serve]"],
    # Also needs a Java runtime on the machine.
    "torchserve": ["torchserve", "torch-model-archiver", "setuptools<80", "pyyaml"],
    "mlflow": [],
}
# Command line of a peer, and the path and the body of its requests.
Start = tuple[list[str], str, str]


def python_of(peer: str) -> Path:
    """Return the Python of a peer, installed on first use. It shares only torch and numpy."""
    if not PACKAGES[peer]:
        return Path(sys.executable)
    folder = CACHE / peer
    ready = folder / ".ready"
    # Interpreters of the same version differ in speed, depending on how they were compiled.
    interpreter = f"{sys.base_prefix} {sys.version}"
    if not ready.exists() or ready.read_text() != interpreter:
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        subprocess.run([folder / "bin" / "pip", "install", "-q", *PACKAGES[peer]], check=True)
        ready.write_text(interpreter)
    site_packages = next((folder / "lib").glob("python3*/site-packages"))
    # Searched after the peer's own packages, which therefore have priority.
    (site_packages / "zz-shared.pth").write_text(str(Path(torch.__file__).parents[1]) + "\n")
    return folder / "bin" / "python"


def command_of(peer: str, folder: Path, port: int) -> Start:
    """Return the command line of a peer, and the path and body of requests."""
    tools = python_of(peer).parent
    row = json.dumps({"x": ROW}, separators=(",", ":"))
    match peer:
        case "fastapi":
            return [
                *(str(tools / "uvicorn"), "fastapi_app:app", "--port", str(port)),
                *("--no-access-log", "--log-level", "error", "--loop", "uvloop"),
                *("--http", "httptools", "--app-dir", str(PEERS)),
            ], *("/predict", row)
        case "litserve" | "rayserve":
            return [str(tools / "python"), str(PEERS / f"{peer}_app.py")], "/predict", row
        case "torchserve":
            settings = write_torchserve(folder / "torchserve", port, tools)
            return [
                *(str(tools / "torchserve"), "--start", "--foreground", "--ncs"),
                *("--disable-token-auth", "--models", "m=m.mar"),
                *("--model-store", str(settings.parent), "--ts-config", str(settings)),
            ], *("/predictions/m", row)
        case "bentoml":
            body = json.dumps({"x": [ROW]}, separators=(",", ":"))
            return [
                *(str(tools / "bentoml"), "serve", "bentoml_app:Service"),
                *("--host", "127.0.0.1", "--port", str(port), "--working-dir", str(PEERS)),
            ], *("/predict", body)
        case "mosec":
            return [
                *(str(tools / "python"), str(PEERS / "mosec_app.py"), "--address", "127.0.0.1"),
                *("--port", str(port), "--timeout", "30000", "--log-level", "error"),
            ], *("/inference", row)
        case "mlserver":
            write_mlserver(folder / "mlserver", port)
            tensor = {"name": "x", "shape": [1, 64], "datatype": "FP32", "data": ROW}
            body = json.dumps({"inputs": [tensor]}, separators=(",", ":"))
            command = [str(tools / "mlserver"), "start", str(folder / "mlserver")]
            return command, "/v2/models/m/infer", body
    body = json.dumps({"inputs": [ROW]}, separators=(",", ":"))
    return [
        *(str(tools / "mlflow"), "models", "serve", "-m", str(folder / "mlflow")),
        *("--env-manager", "local", "-h", "127.0.0.1", "-p", str(port), "--workers", "1"),
    ], *("/invocations", body)


def write_mlserver(folder: Path, port: int) -> None:
    """Write the settings of MLServer: one process, batching as in its docs."""
    folder.mkdir()
    settings = {
        "debug": False,
        "host": "127.0.0.1",
        "http_port": port,
        "parallel_workers": 0,
        "grpc_port": port + 1,
        "metrics_port": port + 2,
        "metrics_endpoint": None,
    }
    model = {
        "name": "m",
        "implementation": "mlserver_app.Predictor",
        "max_batch_size": 32,
        "max_batch_time": 0.002,
    }
    (folder / "settings.json").write_text(json.dumps(settings))
    (folder / "model-settings.json").write_text(json.dumps(model))


def write_torchserve(folder: Path, port: int, tools: Path) -> Path:
    """Write the archive and settings of TorchServe: one worker, batching as in its docs."""
    folder.mkdir()
    subprocess.run(
        [
            *(tools / "torch-model-archiver", "--model-name", "m", "--version", "1.0"),
            *("--handler", PEERS / "torchserve_handler.py", "--export-path", folder),
            *("--extra-files", PEERS / "model.py"),
        ],
        check=True,
        capture_output=True,
    )
    batching = {"m": {"1.0": _torchserve_model()}}
    lines = [
        f"inference_address=http://127.0.0.1:{port}",
        f"management_address=http://127.0.0.1:{port + 1}",
        f"metrics_address=http://127.0.0.1:{port + 2}",
        f"grpc_inference_port={port + 3}",
        f"grpc_management_port={port + 4}",
        "enable_envvars_config=true",
        "job_queue_size=1000",
        f"models={json.dumps(batching)}",
    ]
    settings = folder / "config.properties"
    settings.write_text("\n".join(lines) + "\n")
    return settings


def _torchserve_model() -> dict[str, object]:
    return {
        "defaultVersion": True,
        "marName": "m.mar",
        "minWorkers": 1,
        "maxWorkers": 1,
        "batchSize": 32,
        "maxBatchDelay": 2,
        "responseTimeout": 60,
    }


def save_mlflow(folder: Path, file: Path) -> None:
    """Save the model in the format of MLflow."""
    script = (
        f"import sys; sys.path.insert(0, {str(PEERS)!r}); import mlflow; "
        f"mlflow.pyfunc.save_model({str(folder / 'mlflow')!r}, pip_requirements=[], "
        f"python_model={str(PEERS / 'mlflow_model.py')!r})"
    )
    environment = os.environ | {
        "BENCH_MODEL": "mlp",
        "BENCH_FILE": str(file),
        "BENCH_PORT": "0",
        "PYTHONPATH": str(PEERS),
    }
    command = [sys.executable, "-c", script]
    subprocess.run(command, check=True, capture_output=True, env=environment)
