"""Benchmarks name what they need in one sentence, with exit code 2."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.run import SCRIPTS
from tests.live import ROOT


def run(*command: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | environ,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def assert_one_sentence(done: "subprocess.CompletedProcess[str]", *parts: str) -> None:
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    assert all(part in done.stderr for part in parts), done.stderr


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_benchmark_without_the_development_packages_names_them(name: str) -> None:
    # -S leaves the packages of the environment out.
    done = run(sys.executable, "-S", f"bench/{name}.py", "--json")
    assert_one_sentence(done, f"bench/{name}.py needs the development packages", "make setup-dev")


@pytest.mark.thorough
def test_serving_without_wrk_names_the_package(tmp_path: Path) -> None:
    done = run(sys.executable, "bench/serving.py", "--json", PATH=str(tmp_path))
    assert_one_sentence(done, "bench/serving.py needs wrk", "apt-get install", "wrk")


def test_readers_that_cannot_install_the_peers_name_the_other_way(tmp_path: Path) -> None:
    folder = tmp_path / "a file"
    folder.write_text("")
    done = run(sys.executable, "bench/readers.py", "--json", SLIPWAY_BENCH_CACHE=str(folder))
    assert done.returncode == 2, done.stdout + done.stderr
    assert "could not install the peers" in done.stderr
    assert "--no-peers" in done.stderr
    assert "Traceback" not in done.stderr


def test_datasets_larger_than_the_disk_are_refused() -> None:
    done = run(sys.executable, "bench/datasets.py", "--files", "1", "--gib", "1000000")
    assert_one_sentence(done, "bench/datasets.py needs 3000000 GiB of disk")


def test_a_script_that_needs_postgresql_names_the_installer(tmp_path: Path) -> None:
    """A copy looks for PostgreSQL in another folder, because this machine may have it."""
    script = (ROOT / "scripts" / "with-postgres").read_text(encoding="utf-8")
    copy = tmp_path / "with-postgres"
    copy.write_text(script.replace("/usr/lib/postgresql", str(tmp_path / "none")))
    path = tmp_path / "bin"
    path.mkdir()
    for program in ("bash", "sort", "tail", "dirname"):
        (path / program).symlink_to(Path("/usr/bin") / program)
    done = run("/usr/bin/bash", str(copy), "true", PATH=str(path))
    assert_one_sentence(done, "needs PostgreSQL", "scripts/install-integration")
