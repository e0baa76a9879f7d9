"""Tiny runs of the benchmarks, for the tests that show that each works."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass

from tests.live import ROOT
from tests.processes import database_of_its_own


@dataclass(frozen=True)
class Smoke:
    """The arguments of a tiny run, and some of its cases."""

    arguments: str
    cases: set[str]

    def check(self, name: str) -> None:
        """Run the script as a process and check its line of JSON, but not its figures.

        Some scripts fill the database that they are given, so each is given an empty one.
        """
        with database_of_its_own(empty=True) as database_url:
            database = {"DATABASE_URL": database_url} if database_url else {}
            done = subprocess.run(
                [sys.executable, f"bench/{name}.py", "--json", *self.arguments.split()],
                cwd=ROOT,
                env=os.environ | {"PYTHONWARNINGS": "ignore"} | database,
                capture_output=True,
                text=True,
                timeout=500,
                check=False,
            )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-5000:]
        report = json.loads(done.stdout.splitlines()[-1])
        assert report["bench"] == name
        assert self.cases <= set(report["cases"]), report
        for case in report["cases"].values():
            assert {"ours", "peer", "ratio", "unit"} <= set(case), case
            assert isinstance(case["ours"], int | float), case


# In `make test-integration`.
QUICK = {
    "readers": Smoke("--no-peers", {"wrong_files_Slipway"}),
    "drift": Smoke("--models 1 --trials 1 --no-peer", {"false_alarm_rate", "power_0.3sd"}),
    "scheduler": Smoke("--sizes 100", {"decision_ms_100"}),
    "relay": Smoke("--mib 1 --rounds 1 --streams 20", {"download", "upload", "round_trip_p50"}),
    "portal": Smoke(
        "--rounds 2 --projects 3 --users 5 --events 20 --only /settings",
        {"GET /settings/audit", "GET /settings/people"},
    ),
    "runs": Smoke(
        "--rounds 2 --runs 20 --points 50", {"compare_200_curves", "first_paint", "history_100k"}
    ),
    "agent": Smoke("--mib 4 --forks 1", {"output_four_ranks", "wish_to_running_warm"}),
    "sweeps": Smoke("--sizes 10", {"suggest_ms_10"}),
}
# A complete platform, often beside its peers, minutes each: in `make test-slow`.
SLOW = {
    "datasets": Smoke("--files 3 --gib 0 --peer-mib 1", {"memory_3_files"}),
    "monitoring": Smoke("--rounds 1 --predictions 480 --days 1", {"memory", "month: by id"}),
    "strategies": Smoke("ddp --rounds 1 --steps 1 --seconds 0.1", {"ddp"}),
    "footprint": Smoke(
        "--without node gateway notebooks tracking --idle-seconds 0.5",
        {"all_pss", "first_start", "redis_ready_again"},
    ),
    "logs": Smoke(
        "--rate 1 --seconds 4 --flood-seconds 0.2", {"flood_without_loss", "rate_without_loss"}
    ),
    "launch": Smoke(
        "--rounds 1 --steps 10", {"recovery_vs_warm_start", "submit_to_first_step_warm"}
    ),
    "spend": Smoke("--rounds 1 --leases 40 --running 3 --projects 2", {"view_p95_ms_1m_leases"}),
    "tracking": Smoke(
        "--rounds 1 --runs 40 --points 320 --databases sqlite", {"log_metric_sqlite"}
    ),
    "frameworks": Smoke("--rows scikit_learn --jobs-only", {"rows_unmodified"}),
    "engines": Smoke(
        "--rounds 1 --only slurm slurm_poll --poll-size 20",
        {"slurm_submit_to_first_step", "slurm_look_20", "slurm_round_20"},
    ),
    "engine_recovery": Smoke("--rounds 1 --only undisturbed", {"recovery_undisturbed"}),
    "engine_poll": Smoke("--size 20 --rounds 2", {"slurm_look_20", "slurm_round_20"}),
    "searches": Smoke("--no-peers --configurations 3", {"asha_compute_vs_random"}),
    "storage": Smoke("--mib 1", {"portal up", "portal down"}),
    "environments": Smoke(
        "--packages 2 --rounds 1", {"empty_cache_2_packages", "warm", "warm_after_restart"}
    ),
    "notebooks": Smoke("--rounds 1 --servers 1 --no-peer --no-browser", {"click_to_server_ready"}),
    "monitoring_live": Smoke(
        "--rate 50 --seconds 2 --rounds 1 --settle-seconds 1", {"predictions p50 while watched"}
    ),
    "monitoring_load": Smoke("--predictions 2000 --seconds 1 --rounds 1 --days 1", set()),
    "serving": Smoke(
        "--seconds 1 --rounds 1 --starts 1 --turns 1 --peers mosec --no-encoder --no-creation",
        {"added_latency_p50_ms"},
    ),
}
