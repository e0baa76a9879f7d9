"""Environment variables of a rank: those of torchrun and its folders. Nothing is inherited."""

from collections.abc import Mapping

from workers.launcher.gang import framework_variables
from workers.launcher.launch import Gang, Launch
from workers.launcher.network import interface_of
from workers.launcher.task_socket import VARIABLE

# Descriptor of a listening socket created outside the namespace, for servers without network.
LISTENER_VARIABLE = "SLIPWAY_LISTENER"
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Read by the interpreter, the C library or torch when they are loaded: a fork comes too late.
_READ_AT_START = (
    *("PYTHON", "LD_", "MALLOC_", "GLIBC_TUNABLES", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "TBB_"),
    *("DNNL_", "ONEDNN_", "ATEN_", "NPY_", "TORCH_LOGS", "TORCH_TRACE", "TORCH_COMPILE", "LC_"),
    *("TORCH_CPP_", "TORCH_SHOW_", "TORCH_DISTRIBUTED_DEBUG", "TORCHDYNAMO_", "TORCHINDUCTOR_"),
    *("PYTORCH_", "TORCH_FORCE_", "TORCH_ALLOW_", "TORCH_DEVICE_", "LANG", "CUDA_MODULE_LOADING"),
)
_OF_A_RANK = frozenset(
    {
        *("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE"),
        *("ROLE_NAME", "ROLE_RANK", "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
        *("TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS", "TORCHELASTIC_RUN_ID"),
        *("TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_ERROR_FILE", "TF_CONFIG"),
    }
)
_HARMLESS = frozenset({"PYTHONUNBUFFERED"})


def cold_start_variable(env: Mapping[str, str]) -> str:
    """Return the first variable that a warm process would read too late, or "" if there is none."""
    for name in sorted(env):
        if name.startswith(_READ_AT_START) and name not in _HARMLESS:
            return name
    return ""


def base_environment(launch: Launch) -> dict[str, str]:
    """Return the variables of every process of the task, before the project's own."""
    bin_dir = launch.python.rpartition("/")[0]
    env = {
        "PATH": f"{bin_dir}:{_SYSTEM_PATH}" if bin_dir else _SYSTEM_PATH,
        "HOME": launch.home_dir,
        "TMPDIR": launch.tmp_link or launch.tmp_dir,
        "USER": "slipway",
        "LOGNAME": "slipway",
        "SHELL": "/bin/sh",
        "LANG": "C.UTF-8",
        "SLIPWAY_PERSISTENT_DIR": launch.persistent_dir,
        "CUDA_VISIBLE_DEVICES": ",".join(launch.gpus),
        "OMP_NUM_THREADS": str(max(1, launch.cpu_millis // 1000 // launch.procs)),
    }
    if launch.cache_dir:
        env["SLIPWAY_CACHE"] = launch.cache_dir
    if launch.personal_dir:
        env["SLIPWAY_PERSONAL_DIR"] = launch.personal_dir
    env.update(launch.env)
    env[VARIABLE] = launch.contact_path
    return env


def rank_environment(launch: Launch, local_rank: int, gang: Gang) -> dict[str, str]:
    """Variables of one rank: torchrun's, word for word, and those of other frameworks.

    They win over the project's, because a wrong one would separate the ranks.
    """
    rank = launch.first_rank + local_rank
    meeting = gang.meeting
    env = base_environment(launch)
    loopback = not launch.is_gang
    interface = "lo" if loopback else interface_of(launch.address)
    if interface is not None:
        env.setdefault("GLOO_SOCKET_IFNAME", interface)
        if not loopback:
            env.setdefault("NCCL_SOCKET_IFNAME", interface)
    env.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1")
    tasks = str(-(-launch.world_size // launch.procs))
    env.update(
        {
            "RANK": str(rank),
            "LOCAL_RANK": str(local_rank),
            "WORLD_SIZE": str(launch.world_size),
            "LOCAL_WORLD_SIZE": str(launch.procs),
            "GROUP_RANK": str(launch.first_rank // launch.procs),
            "GROUP_WORLD_SIZE": tasks,
            "ROLE_NAME": "default",
            "ROLE_RANK": str(rank),
            "ROLE_WORLD_SIZE": str(launch.world_size),
            "MASTER_ADDR": meeting.address,
            "MASTER_PORT": str(meeting.port),
            "TORCHELASTIC_RESTART_COUNT": str(max(0, launch.epoch - 1)),
            "TORCHELASTIC_MAX_RESTARTS": "0",
            "TORCHELASTIC_RUN_ID": launch.workload_id,
            "TORCHELASTIC_USE_AGENT_STORE": str(meeting.agent_store),
            "TORCHELASTIC_ERROR_FILE": f"{launch.tmp_dir}/error-{rank}.json",
            **framework_variables(launch, rank, gang),
        }
    )
    return env


def without_contract(env: Mapping[str, str]) -> dict[str, str]:
    """The same without the variables of a rank, for programs that start ranks themselves."""
    return {name: value for name, value in env.items() if name not in _OF_A_RANK}
