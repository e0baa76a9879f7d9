"""Next steps of failed programs, from the text of their errors. No Django, no I/O.

A reason such as `exit` covers every exception. These rules recognise the ones that come from how
Slipway runs a program: a variable that is only on its author's machine, a file that was not
submitted, a folder that cannot be written, a network that is closed, a tier without GPUs.
"""

import re
from dataclasses import dataclass

from slipway.schemas.accounts import NetworkRule
from slipway.schemas.truncation import shorten
from slipway.schemas.workloads import ReasonCode

# Reasons whose next step depends on the text of the error.
EXPLAINED_BY_TEXT = frozenset({ReasonCode.EXIT, ReasonCode.IMPORT_ERROR})
_QUOTED_CHARACTERS = 80
_TAIL_CHARACTERS = 4000

# `os.environ[...]` is the code that raises; a dictionary of the program is not a variable.
_ENVIRON = re.compile(r"<frozen os>|/os\.py\", line \d+, in __getitem__|environ\[")
_KEY_ERROR = re.compile(r"\bKeyError: ['\"]([A-Za-z_][A-Za-z0-9_]*)['\"]")
_CONSTANT = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)+\Z")
_NAMED_VARIABLES = (
    re.compile(
        r"environment variable[s:]* [`'\"]?([A-Z][A-Z0-9_]{2,})[`'\"]? "
        r"(?:is |was |must )?(?:not |be |missing|required)"
    ),
    re.compile(r"[`'\"]?([A-Z][A-Z0-9_]{2,})[`'\"]? (?:environment|env) (?:variable|var)\b"),
    re.compile(r"\b([A-Z][A-Z0-9]*_[A-Z0-9_]+) (?:is not set|not set|is missing|must be set)\b"),
)
_SERVICES = (
    (
        re.compile(r"wandb login|api_key not configured|No API key configured", re.IGNORECASE),
        "WANDB_API_KEY",
    ),
    (
        re.compile(r"GatedRepoError|gated repo|huggingface-cli login|hf auth login", re.IGNORECASE),
        "HF_TOKEN",
    ),
    (re.compile(r"401 Client Error.{0,80}huggingface\.co|RepositoryNotFoundError"), "HF_TOKEN"),
    (re.compile(r"kaggle\.json"), "KAGGLE_KEY"),
    (re.compile(r"NoCredentialsError|Unable to locate credentials"), "AWS_SECRET_ACCESS_KEY"),
)
_NO_FILE = re.compile(r"FileNotFoundError|No such file or directory|can't open file")
_DENIED = re.compile(r"PermissionError|Permission denied|Read-only file system")
_QUOTED = re.compile(r"['\"](?P<path>[^'\"\n]+)['\"]")
_NO_NETWORK = re.compile(
    r"Temporary failure in name resolution|Name or service not known|Network is unreachable"
    r"|Failed to resolve|NameResolutionError|getaddrinfo failed|couldn't connect to '?https?://"
    r"|LocalEntryNotFoundError|nodename nor servname|No route to host|Could not resolve host",
    re.IGNORECASE,
)
_NO_CUDA = re.compile(
    r"Torch not compiled with CUDA enabled|Found no NVIDIA driver|No CUDA GPUs are available"
    r"|torch\.cuda\.is_available\(\) is False|no GPUs found|have NCCL built in"
    r"|CUDA-capable device|CUDA is not available|cuda is not available|cudaErrorNoDevice"
    r"|Unable to initialize backend 'cuda'|invalid device ordinal|GPU is not available"
    r"|CUDA unknown error|libcuda\.so"
)
_OLD_CUDA = re.compile(
    r"no kernel image is available|driver version is insufficient|NVIDIA driver on your system is "
    r"too old|not compatible with the current PyTorch installation|CUDA error: invalid device fun"
)
_NO_TERMINAL = re.compile(r"EOFError: EOF when reading a line")
_EXCEPTION = re.compile(r"\b[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Warning)\b")


@dataclass(frozen=True)
class FailureContext:
    """The task that failed: its project and network, its GPUs, and the cheapest tier with GPUs."""

    project: str
    network: NetworkRule
    gpus: int
    gpu_tier: str | None


def failure_hint(message: str, log_tail: str, context: FailureContext) -> str:
    """Return what to do about an error of a program, in two or three sentences, or "" (unknown).

    `message` says how the task ended, and `log_tail` is the end of its log. The log alone decides
    if the message names no exception, as after `sys.exit(1)`.
    """
    tail = log_tail[-_TAIL_CHARACTERS:]
    texts = [message] if _EXCEPTION.search(message) else [message, tail]
    for text in texts:
        hint = (
            _cuda(text, context)
            or _variable(text, tail)
            or _network(text, context)
            or _permission(text)
            or _missing_file(text)
            or _terminal(text)
        )
        if hint:
            return hint
    return ""


def _variable(text: str, tail: str) -> str:
    match = _last(_KEY_ERROR, text)
    if match is not None:
        name = match[1]
        if _ENVIRON.search(tail):
            return _secret(name)
        if _CONSTANT.match(name):
            return f"If {name} is an environment variable: {_secret(name)}"
        return ""
    for pattern in _NAMED_VARIABLES:
        match = _last(pattern, text)
        if match is not None:
            return _secret(match[1])
    name = next((name for pattern, name in _SERVICES if pattern.search(text)), "")
    return _secret(name) if name else ""


def _secret(name: str) -> str:
    name = shorten(name, _QUOTED_CHARACTERS)
    return (
        f"Set it as a secret of the project, which jobs get as an environment variable: "
        f"slipway secret set {name}, or Secrets in the project's settings. Then submit again."
    )


def _missing_file(text: str) -> str:
    match = _last(_NO_FILE, text)
    if match is None:
        return ""
    path = _path_after(text, match.start())
    if path.startswith(("/", "~")):
        return (
            "A job cannot read files of your own machine. Submit the file with the code, or store "
            'it as a dataset: slipway dataset push, then --dataset NAME and slipway.dataset("NAME")'
            " in the script."
        )
    return (
        "It is not in the submitted folder: files that Git ignores are left out (--include adds "
        'them). Data belongs in a dataset: slipway dataset push, then slipway.dataset("NAME"). If '
        "the script writes the file, create its folder first."
    )


def _permission(text: str) -> str:
    match = _last(_DENIED, text)
    if match is None:
        return ""
    return (
        "A job may write in its working folder, such as outputs/, which is kept with its run; in "
        "TMPDIR, which is emptied at its end; and in SLIPWAY_PERSISTENT_DIR, for checkpoints. "
        "Write to a relative path instead."
    )


def _network(text: str, context: FailureContext) -> str:
    if _NO_NETWORK.search(text) is None:
        return ""
    if context.network == "platform":
        return (
            f"Tasks of project {context.project} reach nothing but Slipway. Store the data as a "
            "dataset, or ask an owner to open the network: slipway project edit "
            f"{context.project} --network open."
        )
    return (
        "The node could not reach that address. Check its name; if it is right, ask an "
        "administrator for the node's way out (DNS, firewall, proxy), or store the data as a "
        "dataset."
    )


def _cuda(text: str, context: FailureContext) -> str:
    if _OLD_CUDA.search(text):
        return (
            "The CUDA build of the installed packages does not fit the node's GPU or driver. Name "
            "a build that does in requirements.txt, or choose a tier with another GPU: slipway "
            "tier list."
        )
    if _NO_CUDA.search(text) is None:
        return ""
    if context.gpus:
        return (
            "The tier has a GPU, but the installed packages cannot use it. Name a CUDA build of "
            "them in requirements.txt, or ask an administrator to check the node's driver."
        )
    if context.gpu_tier is None:
        return (
            "No tier here has a GPU. Choose the device in the script (for example cuda if "
            "torch.cuda.is_available() else cpu, and the backend gloo instead of nccl)."
        )
    return (
        f"The tier of the job has no GPU. Submit again with --tier {context.gpu_tier}, or let the "
        "script run without one (the device cpu, and the backend gloo instead of nccl)."
    )


def _terminal(text: str) -> str:
    if _NO_TERMINAL.search(text) is None:
        return ""
    return "A job has no terminal to answer on. Pass the value as a parameter: --param NAME=VALUE."


def _path_after(text: str, start: int) -> str:
    """Return the file that an error names after `start`, or "" if it names none."""
    line = text[start:].splitlines()[0]
    match = _QUOTED.search(line)
    if match is not None:
        return match["path"].strip()
    return line.rpartition(": ")[2].strip()


def _last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    match = None
    for match in pattern.finditer(text):  # noqa: B007 - the last match counts
        pass
    return match
