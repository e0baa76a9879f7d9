"""Throughput and latency of serving, compared with other Python model servers.

    .venv/bin/python bench/serving.py [--seconds 3] [--rounds 3] [--starts 3] [--peers mosec]
        [--turns 5] [--no-encoder] [--no-creation] [--json]

Slipway runs as deployed: gateway and replica as two processes, with keys, limits, capture and the
shipper to Parquet. Every server is pinned to core 0, and wrk to core 1. All serve the same
TorchScript module, the digits MLP. Each peer is installed into its own virtual environment outside
the repository (SLIPWAY_BENCH_CACHE) and configured as in its own docs (`serving_peers/`). Both
servers of a pair run at the same time and get load in turns, because the speed of a shared machine
varies. A ratio is the median of the ratios of consecutive loads, and figures are medians over all
loads. The speed differs by up to 15 % from one start of the processes to another, so the best peers
at each concurrency are measured again with further starts of both sides (`--starts`). For `p99` and
`added latency` less is better.

encoder_vs_bare_model   a 6-layer, 384-wide transformer encoder through gateway and replica,
                        compared with the bare module at the same batch size, on the same core
added_latency_*         latency that gateway and replica add to the bare forward pass: p50 and p99
                        at half the throughput of concurrency 64, minus those of the bare module on
                        the same core at the same request rate, in turns
merged_vs_unmerged_*    batching mode `rows` (proven by golden rows), compared with `requests`
overload_goodput        successful responses per second with three times as many clients as are
                        admitted, compared with as many as are admitted
start_to_first_prediction_vs_mlflow   from the start of the processes to the first prediction
create_to_first_prediction_*   from creating an endpoint in a running Slipway: serving_creation.py
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "platform"), str(ROOT)]

from bench.needs import DEVELOPMENT, require, require_cores, require_programs  # noqa: E402  (the path comes first)

require([*DEVELOPMENT, "torch", "onnx", "mlflow"])

import torch  # noqa: E402

from bench.serving_creation import creation_cases  # noqa: E402
from bench.serving_figures import (  # noqa: E402
    CONCURRENCY,
    Cases,
    Load,
    Loads,
    Pair,
    best_peers,
    case,
    comparison_cases,
    middles,
    p50_ms,
    p99_ms,
)
from bench.serving_peers.launch import PACKAGES, PEERS, command_of, save_mlflow  # noqa: E402
from bench.serving_peers.modules import ROW, WORDS, build_models  # noqa: E402
from slipway.schemas.serving import (  # noqa: E402
    BatchingMode,
    Datatype,
    EndpointLimits,
    FieldSpec,
    GoldenPrediction,
    ModelFormat,
    Rate,
    Signature,
)
from tests.workers.serving import KEY, Plane, key_route, plane  # noqa: E402

START_WITHIN_S = 120
OVERLOAD_STARTS = 2
SETTLED_AFTER_S = 2.0
VERSUS_BOUND = "ms, beside the bound"
DIGIT = [int(value) for value in ROW]
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


# Load through our server, and of the bare module.
Halves = tuple[Load, Load]


@dataclass
class Target:
    """A server under load: its port, and the path, body and headers of requests."""

    port: int
    path: str
    body: str
    headers: dict[str, str] = field(default_factory=dict)

    def is_ready(self) -> bool:
        """Return whether a request succeeds."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{self.path}",
            self.body.encode(),
            {"Content-Type": "application/json"} | self.headers,
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as response:  # noqa: S310
                return bool(response.status == 200)
        except OSError:
            return False

    def load(self, folder: Path, concurrency: int, seconds: float, pause_ms: float = 0) -> Load:
        """Run wrk on core 1, at full speed or with a random pause before each request."""
        lua = folder / "wrk.lua"
        headers = {"Content-Type": "application/json"} | self.headers
        lines = ['wrk.method = "POST"', f"wrk.body = [==[{self.body}]==]"]
        lines += [f'wrk.headers["{name}"] = "{value}"' for name, value in headers.items()]
        if pause_ms:
            lines.append(f"function delay() return math.random(0, {round(2 * pause_ms)}) end")
        lua.write_text("\n".join(lines) + "\n")
        output = subprocess.run(
            [
                *("taskset", "-c", "1", "wrk", "-t1", f"-c{concurrency}", f"-d{seconds:g}s"),
                *("--timeout", "30s", "--latency", "-s", str(lua)),
                f"http://127.0.0.1:{self.port}{self.path}",
            ],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        refused = re.search(r"Non-2xx or 3xx responses: (\d+)", output)
        rate = re.search(r"Requests/sec:\s+([\d.]+)", output)
        assert rate is not None, output
        return Load(
            float(rate[1]),
            percentile(output, "50"),
            percentile(output, "99"),
            int(refused[1]) if refused else 0,
        )


def percentile(output: str, name: str) -> float:
    """Parse a latency percentile from the output of wrk, in milliseconds."""
    units = {"us": 0.001, "ms": 1.0, "s": 1000.0, "m": 60_000.0}
    match = re.search(rf"\s{name}%\s+([\d.]+)(us|ms|s|m)", output)
    assert match is not None, output
    return float(match[1]) * units[match[2]]


def measure(
    targets: list[Target],
    folder: Path,
    rounds: int,
    seconds: float,
    concurrencies: Sequence[int] = CONCURRENCY,
) -> list[Loads]:
    """Put load on the targets in turns, at each concurrency, after a warm-up each time.

    The warm-up lets deferred work of earlier loads finish, such as writing Parquet, so that it
    counts only for the load that caused it.
    """
    results: list[Loads] = [{concurrency: [] for concurrency in concurrencies} for _ in targets]
    for _ in range(rounds):
        for concurrency in concurrencies:
            for target, loads in zip(targets, results, strict=True):
                target.load(folder, concurrency, min(seconds, SETTLED_AFTER_S))
                loads[concurrency].append(target.load(folder, concurrency, seconds))
    return results


@contextmanager
def pinned() -> Iterator[None]:
    """Run processes that are started in the block on core 0 with one thread."""
    before, environment = os.sched_getaffinity(0), dict(os.environ)
    os.sched_setaffinity(0, {0})
    os.environ.update(ONE_THREAD)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
        os.environ.clear()
        os.environ.update(environment)


def signature(kind: str) -> Signature:
    """Return the signature of a model."""
    datatype = Datatype.INT64 if kind == "encoder" else Datatype.FP32
    return Signature(inputs=[FieldSpec(name="x", datatype=datatype, shape=[-1, 64])])


@contextmanager
def serve_slipway(
    file: Path, kind: str, limits: EndpointLimits, *, mode: BatchingMode | None = None
) -> Iterator[tuple[Plane, Target, float]]:
    """Serve a module by gateway and replica. Also yields the seconds to the first prediction."""
    row = WORDS if kind == "encoder" else ROW
    body = json.dumps({"inputs": [row]}, separators=(",", ":"))
    with torch.inference_mode():
        tensor = torch.tensor([row])
        expected = torch.jit.load(str(file))(tensor).tolist()  # type: ignore[no-untyped-call]
    with plane() as servers:
        started = time.perf_counter()
        with pinned():
            replica = servers.replica(
                format=ModelFormat.TORCHSCRIPT,
                model_dir=str(file.parent),
                entry=file.name,
                signature=signature(kind),
                golden=[GoldenPrediction(request={"inputs": [row]}, predictions=expected)],
                batching={"max_rows": 8 if kind == "encoder" else 64, "mode": mode},
            )
            servers.start_gateway()
        rate = Rate(per_s=1_000_000, burst=1_000_000)
        servers.serve(replica, limits=limits, keys=[key_route(KEY, rate=rate)])
        target = Target(
            servers.port, "/v1/digits/predict", body, {"Authorization": f"Bearer {KEY}"}
        )
        assert target.is_ready()
        yield servers, target, time.perf_counter() - started


GENEROUS = EndpointLimits(
    max_in_flight=4096, max_queue_ms=60_000, rate=Rate(per_s=1_000_000, burst=1_000_000)
)


@contextmanager
def peer_server(peer: str, folder: Path, file: Path) -> Iterator[tuple[Target, float]]:
    """Start a peer on core 0. Also yields the seconds to its first prediction."""
    # Some peers need several ports, and some cannot bind one that was in use just before.
    port = 20_000 + (os.getpid() + 16 * list(PACKAGES).index(peer)) % 20_000
    command, path, body = command_of(peer, folder, port)
    target = Target(port, path, body)
    environment = os.environ | ONE_THREAD
    environment |= {
        "BENCH_MODEL": "mlp",
        "BENCH_FILE": str(file),
        "BENCH_PORT": str(port),
        "PYTHONPATH": str(PEERS),
        "BENTOML_DO_NOT_TRACK": "true",
        "PYTHONWARNINGS": "ignore",
        "PATH": f"{Path(command[0]).parent}{os.pathsep}{os.environ['PATH']}",
    }
    log = folder / f"{peer}.log"
    with log.open("wb") as out:
        started = time.perf_counter()
        child = subprocess.Popen(
            ["taskset", "-c", "0", *command],
            env=environment,
            cwd=folder,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            while not target.is_ready():
                if child.poll() is not None or time.perf_counter() - started > START_WITHIN_S:
                    raise RuntimeError(f"{peer} did not start: {log.read_text()[-1500:]}")
                time.sleep(0.02)
            yield target, time.perf_counter() - started
        finally:
            for number in (signal.SIGTERM, signal.SIGKILL):
                try:
                    os.killpg(child.pid, number)
                    child.wait(5)
                except (ProcessLookupError, subprocess.TimeoutExpired):
                    continue


ALONE = """
import json, random, statistics, sys, time, torch
torch.set_num_threads(1)
module = torch.jit.load(sys.argv[1]).eval()
batch = torch.tensor(json.loads(sys.argv[2]), dtype=getattr(torch, sys.argv[3]))
seconds, rate = float(sys.argv[4]), float(sys.argv[5])
with torch.inference_mode():
    for _ in range(10):
        module(batch)
    took, due = [], time.perf_counter()
    until = due + seconds
    while due < until or len(took) < 10:
        while time.perf_counter() < due:
            pass
        module(batch)
        done = time.perf_counter()
        took.append((done - due) * 1000)
        due = due + random.expovariate(rate) if rate else time.perf_counter()
percentiles = statistics.quantiles(took, n=100)
print(statistics.mean(took), percentiles[49], percentiles[98])
"""


def forward(
    file: Path, rows: list[list[int]], dtype: str, seconds: float, rate: float = 0
) -> tuple[float, Load]:
    """Run the bare module on core 0. Returns the mean latency in ms, and percentiles.

    Requests follow one another, or arrive randomly at `rate` per second. The latency then includes
    the time that a request waits for earlier ones.
    """
    command = ["taskset", "-c", "0", sys.executable, "-c", ALONE, str(file)]
    output = subprocess.run(
        [*command, json.dumps(rows), dtype, str(seconds), str(rate)],
        env=os.environ | ONE_THREAD,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    mean, p50, p99 = map(float, output.split())
    return mean, Load(rate, p50, p99)


def encoder_cases(file: Path, folder: Path, turns: int, seconds: float) -> Cases:
    """Compare the served encoder with the bare module at the same batch size."""
    span_s = max(4.0, seconds)
    alone, served = [], []
    with serve_slipway(file, "encoder", GENEROUS) as (_, target, _):
        target.load(folder, 16, 2.0)
        # Alternate, because the speed of a shared machine changes from minute to minute.
        for _ in range(turns):
            alone.append(8000 / forward(file, [WORDS] * 8, "int64", span_s)[0])
            # At concurrency 16 one batch runs while another waits.
            served.append(target.load(folder, 16, 2 * span_s).rps)
    return {"encoder_vs_bare_model": case(served, alone, "rows/s")}


def batching_cases(file: Path, folder: Path, turns: int, seconds: float) -> Cases:
    """Compare merged requests, as golden rows allow, with unmerged ones."""
    with (
        serve_slipway(file, "mlp", GENEROUS) as (_, merged, _),
        serve_slipway(file, "mlp", GENEROUS, mode=BatchingMode.REQUESTS) as (_, alone, _),
    ):
        pair = Pair(*measure([merged, alone], folder, turns, seconds, [16, 64]))
    return {
        f"merged_vs_unmerged_at_{number}": pair.case(number, lambda load: load.rps, "answers/s")
        for number in (16, 64)
    }


def overload_cases(file: Path, folder: Path, turns: int, seconds: float) -> Cases:
    """Measure the goodput with three times as many clients as are admitted."""
    limits = EndpointLimits(max_in_flight=64, max_queue_ms=60_000)
    settled_s = min(seconds, SETTLED_AFTER_S)
    admitted: list[float] = []
    good: list[float] = []
    for _ in range(min(turns, OVERLOAD_STARTS)):
        with serve_slipway(file, "mlp", limits) as (_, target, _):
            for _ in range(turns):
                target.load(folder, 64, settled_s)
                admitted.append(target.load(folder, 64, seconds).rps)
                target.load(folder, 192, settled_s)
                load = target.load(folder, 192, seconds)
                good.append(load.rps - load.refused / seconds)
    return {"overload_goodput": case(good, admitted, "answers/s")}


def at_half_throughput(
    target: Target, file: Path, folder: Path, rounds: int, seconds: float
) -> list[Halves]:
    """Return the load at half the throughput of concurrency 64, and that of the bare module.

    Both get the same request rate, in turns.
    """
    settled_s = min(seconds, SETTLED_AFTER_S)
    results = []
    for _ in range(rounds):
        # Half of the maximum rate: each of 64 clients sends a request every 128 / rate seconds.
        # It pauses before the request, and waits for the response.
        turn_ms = 128_000 / target.load(folder, 64, seconds).rps
        waits_ms = target.load(folder, 64, settled_s, turn_ms).p50_ms
        served = target.load(folder, 64, seconds, turn_ms - waits_ms)
        results.append((served, forward(file, [DIGIT], "float32", seconds, served.rps)[1]))
    return results


def measure_slipway(
    file: Path, folder: Path, rounds: int, seconds: float
) -> tuple[Loads, list[Halves], float]:
    """Return the loads of Slipway, those at half throughput, and the seconds of a start."""
    with serve_slipway(file, "mlp", GENEROUS) as (_, target, took):
        (loads,) = measure([target], folder, rounds, seconds)
        return loads, at_half_throughput(target, file, folder, rounds, seconds), took


def rerun_best_peers(
    pairs: dict[str, Pair], file: Path, folder: Path, rounds: int, seconds: float
) -> list[Halves]:
    """Measure the best peers with another start. Returns our loads at half throughput."""
    best = {number: set(best_peers(pairs, number)) for number in CONCURRENCY}
    half_loads: list[Halves] = []
    for name in sorted(set.union(*best.values())):
        concurrencies = [number for number in CONCURRENCY if name in best[number]]
        with (
            peer_server(name, folder, file) as (target, _),
            serve_slipway(file, "mlp", GENEROUS) as (_, own, _),
        ):
            pairs[name].add(Pair(*measure([own, target], folder, rounds, seconds, concurrencies)))
            if 64 in concurrencies:
                half_loads += at_half_throughput(own, file, folder, rounds, seconds)
    return half_loads


def latency_cases(half_loads: list[Halves], alone: list[Load], file: Path) -> Cases:
    """Return the latency that gateway and replica add, at half throughput and for one client."""
    cases: Cases = {}
    for label, figure, bound in (("p50", p50_ms, 1.0), ("p99", p99_ms, 3.0)):
        added = [figure(served) - figure(bare) for served, bare in half_loads]
        cases[f"added_latency_{label}_ms"] = case(added, [bound] * len(added), VERSUS_BOUND)
        served, bare = ([figure(loads[side]) for loads in half_loads] for side in (0, 1))
        cases[f"half_load_{label}_vs_bare_model"] = case(served, bare, "ms")
    mean_ms, _ = forward(file, [DIGIT], "float32", 3.0)
    added = [load.p50_ms - mean_ms for load in alone]
    cases["added_latency_alone_p50_ms"] = case(added, [1.0] * len(added), VERSUS_BOUND)
    return cases


def run(arguments: argparse.Namespace, folder: Path, report: Callable[[str], None]) -> Cases:
    """Run all measurements and return the cases."""
    models = build_models(folder)
    file = models["mlp"]
    started: dict[str, list[float]] = {"ours": []}
    pairs: dict[str, Pair] = {}
    own_loads: Loads = {number: [] for number in CONCURRENCY}
    half_loads: list[Halves] = []
    names = [name for name in arguments.peers.split(",") if name]
    if "mlflow" in names:
        save_mlflow(folder, file)
    for name in ["", *names, ""]:
        if not name:
            measured, paused, took = measure_slipway(
                file, folder, arguments.rounds, arguments.seconds
            )
            started["ours"].append(took)
            half_loads += paused
            for number, loads in measured.items():
                own_loads[number] += loads
            report(f"ours: {middles(measured)}, at half load: {paused}")
            continue
        try:
            with (
                peer_server(name, folder, file) as (target, took),
                serve_slipway(file, "mlp", GENEROUS) as (_, own, took_ours),
            ):
                started[name] = [took]
                started["ours"].append(took_ours)
                pair = Pair(*measure([own, target], folder, arguments.rounds, arguments.seconds))
                pairs[name] = pair
                report(f"{name}: {middles(pair.peer)}, ours: {middles(pair.ours)}")
        except (RuntimeError, subprocess.CalledProcessError) as error:
            report(f"{name}: not measured: {error}")
    for start in range(1, arguments.starts if pairs else 1):
        try:
            half_loads += rerun_best_peers(pairs, file, folder, arguments.rounds, arguments.seconds)
        except (RuntimeError, subprocess.CalledProcessError) as error:
            report(f"start {start + 1} of the best peers: not measured: {error}")
    cases = comparison_cases(pairs, started)
    cases |= latency_cases(half_loads, own_loads[1], file)
    cases |= batching_cases(file, folder, arguments.turns, arguments.seconds)
    cases |= overload_cases(file, folder, arguments.turns, arguments.seconds)
    if not arguments.no_encoder:
        cases |= encoder_cases(models["encoder"], folder, arguments.turns, arguments.seconds)
    if not arguments.no_creation:
        cases |= creation_cases(folder, rounds=arguments.rounds)
    return cases


def main() -> None:
    """Measure and print a table, or one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--starts", type=int, default=3)
    parser.add_argument("--turns", type=int, default=5, help="loads of the other cases")
    parser.add_argument("--peers", default=",".join(PACKAGES))
    parser.add_argument("--no-encoder", action="store_true")
    parser.add_argument("--no-creation", action="store_true")
    arguments = parser.parse_args()
    require_programs({"wrk": "wrk", "taskset": "util-linux"})
    require_cores({0, 1})
    with tempfile.TemporaryDirectory(prefix="bench-serving-") as name:
        cases = run(arguments, Path(name), lambda text: print(text, file=sys.stderr, flush=True))
    if arguments.json:
        print(json.dumps({"bench": "serving", "cases": cases}))
        return
    for label, figures in cases.items():
        sides = f"{figures['ours']:>12} {figures['peer']:>12}"
        print(f"{label:40} {sides} {figures['ratio']!s:>8}  {figures['unit']}")


if __name__ == "__main__":
    main()
