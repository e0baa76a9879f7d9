"""Settings of an agent, read once from the command line."""

import argparse
import os
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import workers
from slipway.schemas.backends import BACKENDS
from workers.launcher.logs import BOUND_BYTES
from workers.node_agent.allocation import AllocationSeat, forget_tokens, read_seat
from workers.node_agent.image_runtimes import TaskImage

_SIZE = re.compile(r"(\d+(?:\.\d+)?)(MiB|GiB|TiB)")
_UNITS: Final = {"MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,46}[a-z0-9])?")
DEFAULT_IMAGE: Final = "python:3.11-slim"
# Default requirements of tasks without their own.
DEFAULT_REQUIREMENTS: Final = Path(workers.__path__[0]).parent / "requirements" / "jobs.txt"


@dataclass(frozen=True)
class AgentSettings:
    """Settings of one agent. Paths are absolute.

    Tasks without an environment run with `python`, or else in an environment built from
    `requirements`. They never see the packages of the platform.
    """

    url: str
    data_dir: Path
    token_file: Path | None
    name: str
    labels: dict[str, str]
    python: Path | None = None
    requirements: Path = DEFAULT_REQUIREMENTS
    address: str | None = None
    backends: tuple[str, ...] = tuple(BACKENDS)
    isolation: str = "auto"
    hidden: tuple[str, ...] = ()
    user_range: tuple[int, int] | None = None
    cgroups: bool = True
    readable: tuple[str, ...] = ()
    pass_env: tuple[str, ...] = ()
    docker_socket: Path = Path("/var/run/docker.sock")
    docker_image: str = DEFAULT_IMAGE
    warm_limit: int = 3
    stop_tasks_on_exit: bool = False
    # The place in an allocation of another scheduler. `data_dir` contains one folder for each then.
    allocation: AllocationSeat | None = None
    # Socket for the container beside the agent's, in which the task of the allocation runs.
    task_container: Path | None = None
    # The image of the project that the task of the allocation runs in.
    image: TaskImage | None = None
    # Accounts of registries, in the form of Docker's config.json.
    registry_auth: Path | None = None
    # At most this much of the machine is offered.
    offered_cpu_millis: int | None = None
    offered_memory_bytes: int | None = None
    log_bound_bytes: int = BOUND_BYTES
    # Disk limit of one task, and the reserve that stays free. By default shares of the disk.
    task_disk_bytes: int | None = None
    disk_reserve_bytes: int | None = None

    @property
    def confine(self) -> bool:
        """True if tasks and builds are confined at all."""
        return self.isolation != "none"

    def passed(self) -> dict[str, str]:
        """Return the variables of the agent's own that tasks get."""
        return {name: os.environ[name] for name in self.pass_env if name in os.environ}


def default_name() -> str:
    """The host's name, made fit to be the name of a node."""
    slug = re.sub(r"[^a-z0-9]+", "-", socket.gethostname().lower()).strip("-")[:48].strip("-")
    return slug or "node"


def _label(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise argparse.ArgumentTypeError(f"{text!r} must have the form KEY=VALUE")
    return key, value


def _size(text: str) -> int:
    size = _SIZE.fullmatch(text)
    if size is None or not float(size[1]):
        raise argparse.ArgumentTypeError(f"{text!r} is not a size, such as 500MiB or 50GiB")
    return int(float(size[1]) * _UNITS[size[2]])


def _cpus(text: str) -> int:
    """Return thousandths of a CPU."""
    if not re.fullmatch(r"\d{1,5}(\.\d{1,3})?", text) or not float(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of CPUs, such as 1.5")
    return round(float(text) * 1000)


def _user_range(text: str) -> tuple[int, int]:
    first, separator, last = text.partition("-")
    if not (separator and first.isdigit() and last.isdigit()) or not 0 < int(first) < int(last):
        raise argparse.ArgumentTypeError(f"{text!r} is not FIRST-LAST, such as 200000-265535")
    return int(first), int(last) - int(first) + 1


def _node_name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise argparse.ArgumentTypeError(
            f"{text!r} must be 1 to 48 lower-case letters, digits and hyphens"
        )
    return text


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m workers.node_agent",
        description="The Slipway node agent: starts, monitors and stops tasks on this machine.",
    )
    add = parser.add_argument
    add("--url", required=True, help="address of the portal, for example http://127.0.0.1:8000")
    add("--token-file", type=Path, help="file with the one-time join token; needed the first time")
    add(
        "--data-dir",
        type=Path,
        required=True,
        help="data folder of this node; must survive restarts",
    )
    add("--name", type=_node_name, default=default_name(), help="name of the node (%(default)s)")
    add("--address", help="address for peers; detected by default")
    add("--label", type=_label, action="append", default=[], help="KEY=VALUE, may be repeated")
    add("--python", type=Path, help="interpreter of tasks without an environment")
    add(
        "--requirements",
        type=Path,
        default=DEFAULT_REQUIREMENTS,
        help="requirements of tasks without an environment",
    )
    add(
        "--backend",
        choices=tuple(BACKENDS),
        action="append",
        help="offer only these; may be repeated",
    )
    add(
        "--isolation",
        choices=("auto", "namespaces", "users", "shared", "none"),
        default="auto",
        help="isolation of projects; auto: the strongest that this machine permits",
    )
    add("--user-range", type=_user_range, help="FIRST-LAST: Unix users of projects, where root")
    add("--hide", action="append", default=[], help="folder hidden from tasks; may be repeated")
    add(
        "--no-cgroups",
        action="store_true",
        help="enforce limits by polling, without control groups",
    )
    add("--readable", action="append", default=[], help="path that tasks can read; may be repeated")
    add("--pass-env", action="append", default=[], help="environment variable to pass to tasks")
    add("--docker-socket", type=Path, default=AgentSettings.docker_socket)
    add("--docker-image", default=DEFAULT_IMAGE, help="base image of containers (%(default)s)")
    add("--warm-limit", type=int, default=3, help="at most this many warm processes (%(default)s)")
    add("--stop-tasks-on-exit", action="store_true", help="also stop tasks on SIGTERM")
    add("--allocation", type=_node_name, help="name of the allocation of a scheduler to run in")
    add("--allocation-grace", type=float, default=30.0, help="seconds it waits after its SIGTERM")
    add("--allocation-patience", type=float, default=900.0, help="seconds to wait for the portal")
    add("--task-container", type=Path, help="socket for the container that the task runs in")
    add("--image", help="image that the task runs in: REGISTRY/REPOSITORY@DIGEST")
    add("--image-python", default="python3", help="interpreter in it")
    add("--image-runtime", default="enroot", help="enroot or apptainer, or the path of either")
    add("--registry-auth", type=Path, help="file of accounts, like Docker's config.json, to push")
    add("--cpus", type=_cpus, help="offer at most so many CPUs, for example 1.5")
    add("--memory", type=_size, help="offer at most so much memory, for example 4GiB")
    add(
        "--log-bound-mib", type=int, default=BOUND_BYTES >> 20, help="maximum log size of each rank"
    )
    add("--task-disk", type=_size, help="disk limit per task, e.g. 50GiB; default: a quarter")
    add("--disk-reserve", type=_size, help="disk to keep free, e.g. 5GiB; default: 2 %% or 1 GiB")
    return parser


def _own_clone() -> tuple[str, ...]:
    """Return the clone of this code, if any: it may hold settings with passwords (`.env`)."""
    root = Path(__file__).resolve().parents[2]
    return (str(root),) if (root / "manage.py").is_file() else ()


def read_settings(arguments: Sequence[str]) -> AgentSettings:
    """Parse the command line. On an error in it print it and exit with status 2.

    Raises AgentError for an allocation whose variables are missing.
    """
    args = _parser().parse_args(arguments)
    seat = None
    if args.allocation:
        seat = read_seat(
            args.allocation,
            os.environ,
            grace_s=args.allocation_grace,
            patience_s=args.allocation_patience,
        )
        forget_tokens()
    return AgentSettings(
        url=args.url.rstrip("/"),
        data_dir=args.data_dir.absolute(),
        token_file=args.token_file,
        name=seat.node_name if seat is not None else args.name,
        # Not resolved: a virtual environment is recognised by the path of its interpreter.
        python=args.python.absolute() if args.python else None,
        requirements=args.requirements.absolute(),
        labels=dict(args.label),
        address=args.address,
        backends=tuple(args.backend or tuple(BACKENDS)),
        isolation=args.isolation,
        user_range=args.user_range,
        hidden=(*args.hide, *_own_clone()),
        cgroups=not args.no_cgroups,
        readable=tuple(args.readable),
        pass_env=tuple(args.pass_env),
        docker_socket=args.docker_socket,
        docker_image=args.docker_image,
        task_container=args.task_container,
        image=TaskImage(args.image_runtime, args.image, args.image_python) if args.image else None,
        registry_auth=args.registry_auth,
        warm_limit=args.warm_limit,
        stop_tasks_on_exit=args.stop_tasks_on_exit or seat is not None,
        allocation=seat,
        offered_cpu_millis=args.cpus,
        offered_memory_bytes=args.memory,
        log_bound_bytes=args.log_bound_mib << 20,
        task_disk_bytes=args.task_disk,
        disk_reserve_bytes=args.disk_reserve,
    )
