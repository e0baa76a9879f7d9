"""A failed job names the way that works in Slipway: secret, dataset, folder, network, tier."""

from typing import Any

from portal.accounts.models import Project
from portal.workloads.models import Workload
from portal.workloads.scheduling import run_passes
from tests.personas import Api, Personas, json_of
from tests.portal.workloads.machines import finish, make_machine, make_tier, run, submit

_ENVIRON = """Traceback (most recent call last):
  File "train.py", line 3, in <module>
    token = os.environ["hf_key"]
            ~~~~~~~~~~^^^^^^^^^^
  File "<frozen os>", line 714, in __getitem__
    raise KeyError(key) from None
KeyError: 'hf_key'
"""


def _failed(people: Personas, message: str, tail: str = "", **changes: str) -> dict[str, str]:
    """Return the API's answer about a job that ended with this message."""
    make_machine()
    job: Workload = submit(people.vision, people.bob, make_tier())
    run_passes()
    run(job)
    report: dict[str, Any] = {
        "reason": "exit",
        "exit_code": 1,
        "message": message,
        "log_tail": tail,
    } | changes
    finish(job, **report)
    answer = Api.of(people.bob).get(f"projects/vision/workloads/{job.pk}")
    return dict(json_of(answer))


_STEPS = (
    ("KeyError: 'HF_TOKEN'", "slipway secret set HF_TOKEN"),
    ("UsageError: No API key configured. Use `wandb login`", "slipway secret set WANDB_API_KEY"),
    (
        "OpenAIError: pass api_key or set the OPENAI_API_KEY environment variable",
        "slipway secret set OPENAI_API_KEY",
    ),
    ("FileNotFoundError: [Errno 2] No such file or directory: 'data/a.csv'", "--include"),
    ("FileNotFoundError: [Errno 2] No such file or directory: '/data/mine/a'", "own machine"),
    ("PermissionError: [Errno 13] Permission denied: '/data'", "SLIPWAY_PERSISTENT_DIR"),
    ("OSError: [Errno 30] Read-only file system: '/mnt/out'", "outputs/"),
    ("ConnectError: [Errno -3] Temporary failure in name resolution", "ask an administrator"),
    ("AssertionError: Torch not compiled with CUDA enabled", "No tier here has a GPU"),
    ("ValueError: ProcessGroupNCCL is only supported with GPUs, no GPUs found!", "gloo"),
    ("EOFError: EOF when reading a line", "--param NAME=VALUE"),
    ("KeyError: 'label'", "Read the last lines of the log"),
    ("ValueError: bad rate", "Read the last lines of the log"),
)


def test_the_next_step_names_the_way_that_works(people: Personas) -> None:
    make_machine()
    tier, bob = make_tier(), Api.of(people.bob)
    for error, step in _STEPS:
        job = submit(people.vision, people.bob, tier)
        run_passes()
        run(job)
        finish(job, "exit", exit_code=1, message=f"Rank 0 exited with status 1: {error}")
        answer = json_of(bob.get(f"projects/vision/workloads/{job.pk}"))
        assert step in answer["next_step"], error
        assert not answer["next_step"].endswith("…"), error


def test_the_log_decides_what_the_message_does_not(people: Personas) -> None:
    answer = _failed(people, "Rank 0 exited with status 1: KeyError: 'hf_key'", _ENVIRON)
    assert answer["next_step"].startswith("Set it as a secret")
    tail = "requests.exceptions: Failed to resolve 'example.org'\n"
    Project.objects.filter(pk=people.vision.pk).update(network="platform")
    make_tier("gpu-1", gpus=1)
    job = submit(people.vision, people.bob, make_tier("other"))
    run_passes()
    run(job)
    finish(job, "exit", exit_code=1, message="Rank 0 exited with status 1: gave up", log_tail=tail)
    assert "slipway project edit vision --network open" in job.next_step


def test_a_job_without_gpu_is_sent_to_the_cheapest_tier_with_one(people: Personas) -> None:
    make_tier("gpu-8", gpus=8, nano_usd_per_hour=9_000_000)
    make_tier("gpu-1", gpus=1, nano_usd_per_hour=2_000_000)
    answer = _failed(
        people, "Rank 0 exited with status 1: RuntimeError: No CUDA GPUs are available"
    )
    assert "Submit again with --tier gpu-1" in answer["next_step"]
