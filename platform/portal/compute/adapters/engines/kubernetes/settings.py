"""Settings of a pool in Kubernetes, each of them a line of text."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

_NAME: Final = r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?"
_LABEL: Final = r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)"
_KEY: Final = rf"({_NAME}/)?{_LABEL}"
_PATH: Final = r"/[A-Za-z0-9._/+-]{1,500}"
_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_PAIR: Final = re.compile(rf"(?P<key>{_KEY})=(?P<value>{_LABEL}?)")
_TOLERATION: Final = re.compile(
    rf"(?P<key>{_KEY})(?P<equal>=(?P<value>{_LABEL}?))?(:(?P<effect>{'|'.join(_EFFECTS)}))?"
)
_VOLUME: Final = re.compile(rf"(?P<claim>{_NAME}):(?P<path>{_PATH})(?P<read_only>:ro)?")


@dataclass(frozen=True)
class Toleration:
    """Taint of nodes that pods accept. Without a value any, without an effect all."""

    key: str
    value: str | None
    effect: str


@dataclass(frozen=True)
class Volume:
    """A PersistentVolumeClaim that pods mount."""

    claim: str
    path: str
    is_read_only: bool


def _matching(pattern: str, description: str) -> AfterValidator:
    def check(text: str) -> str:
        if text and not re.fullmatch(pattern, text):
            raise ValueError(f"it must be {description}")
        return text

    return AfterValidator(check)


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _listing(pattern: re.Pattern[str], description: str) -> AfterValidator:
    def check(text: str) -> str:
        for item in _items(text):
            if not pattern.fullmatch(item):
                raise ValueError(f"{item[:60]!r} is not {description}")
        return text

    return AfterValidator(check)


def _required(what: str) -> Callable[[str], str]:
    def check(text: str) -> str:
        if not text:
            raise ValueError(f"it must name {what}")
        return text

    return check


_Name = Annotated[str, _matching(_NAME, "a name of lower-case letters, digits, dots and hyphens")]
_Label = Annotated[str, _matching(_KEY, "a key such as nvidia.com/gpu")]
_Word = Annotated[str, _matching(r"[!-~]{1,253}", "one word without spaces")]
_Folder = Annotated[str, _matching(_PATH, "an absolute path")]


class KubernetesSettings(BaseModel):
    """Settings of a pool. `folder`, `python` and `task_python` are in the image.

    Without `kubeconfig` the portal itself runs in the cluster, and uses the account of its pod.
    """

    model_config = ConfigDict(extra="forbid")

    image: Annotated[
        str,
        _matching(r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,400}", "the name of an image"),
        AfterValidator(_required("an image with Python and Slipway")),
    ] = Field(default="", validate_default=True)
    namespace: Annotated[
        str, _matching(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", "the name of a namespace")
    ] = "default"
    kubeconfig: _Folder = ""
    context: _Word = ""
    impersonate: _Word = ""
    service_account: _Name = ""
    portal_url: Annotated[
        str, _matching(r"https?://[^\s]{1,200}", "an address that begins with https:// or http://")
    ] = ""
    folder: _Folder = "/var/lib/slipway"
    python: Annotated[
        str, _matching(rf"{_PATH}|[A-Za-z0-9._+-]{{1,100}}", "an interpreter in the image")
    ] = "python"
    task_python: _Folder = ""
    user_id: Annotated[int, Field(ge=1, le=2**31 - 2)] = 10002
    volumes: Annotated[str, _listing(_VOLUME, "CLAIM:/path or CLAIM:/path:ro")] = ""
    node_selector: Annotated[str, _listing(_PAIR, "KEY=VALUE")] = ""
    tolerations: Annotated[
        str, _listing(_TOLERATION, "KEY, KEY=VALUE or KEY=VALUE:EFFECT (NoSchedule, NoExecute)")
    ] = ""
    priority_class: _Name = ""
    scheduler: _Name = ""
    queue: _Name = ""
    gang_seconds: Annotated[int, Field(ge=5, le=86_400)] = 300
    gpu_resource: _Label = "nvidia.com/gpu"
    gpu_label: _Label = ""
    pull_secrets: Annotated[str, _listing(re.compile(_NAME), "the name of a Secret")] = ""

    @property
    def selected_labels(self) -> dict[str, str]:
        """Return the labels that nodes must have."""
        pairs = [_PAIR.fullmatch(item) for item in _items(self.node_selector)]
        return {pair["key"]: pair["value"] for pair in pairs if pair}

    @property
    def tolerated(self) -> list[Toleration]:
        """Return the taints that pods accept."""
        matches = [_TOLERATION.fullmatch(item) for item in _items(self.tolerations)]
        return [
            Toleration(
                match["key"], match["value"] if match["equal"] else None, match["effect"] or ""
            )
            for match in matches
            if match
        ]

    @property
    def mounted(self) -> list[Volume]:
        """Return the claims that pods mount."""
        matches = [_VOLUME.fullmatch(item) for item in _items(self.volumes)]
        return [
            Volume(match["claim"], match["path"], bool(match["read_only"]))
            for match in matches
            if match
        ]

    @property
    def secrets(self) -> list[str]:
        """Return the Secrets with which nodes pull the image."""
        return _items(self.pull_secrets)
