"""A task over its limit ends the worker, because a thread cannot be killed."""

import subprocess
import sys

import pytest

from tests.processes import ROOT, clean_environment
from workers.control.watch import OVER_LIMIT_STATUS

_STUCK = """
import time
from celery import signals
from workers.control.watch import TaskWatch
TaskWatch(limit_s=0.5).connect()
class Task:
    def __init__(self, name): self.name = name
task = Task("room.quick")
signals.task_prerun.send(sender=task, task_id="1", task=task)
signals.task_postrun.send(sender=task, task_id="1", task=task, state="SUCCESS")
time.sleep(2)
print("quick ones are let be", flush=True)
task = Task("room.stuck")
signals.task_prerun.send(sender=task, task_id="2", task=task)
time.sleep(60)
"""


@pytest.mark.thorough
def test_a_task_over_its_limit_ends_the_worker_with_its_name_in_the_log() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _STUCK],
        cwd=ROOT,
        env=clean_environment()
        | {"PYTHONPATH": f"{ROOT / 'platform'}:{ROOT}", "PYTHONUNBUFFERED": "1"},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == OVER_LIMIT_STATUS
    assert "quick ones are let be" in done.stdout
    assert "task_over_limit" in done.stdout
    assert "room.stuck" in done.stdout
