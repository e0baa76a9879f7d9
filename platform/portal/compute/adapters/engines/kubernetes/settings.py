"""Settings of a pool in Kubernetes, each of them a line of text."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Final, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

_NAME: Final = r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?"
_LABEL: Final = r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)"
_KEY: Final = rf"({_NAME}/)?{_LABEL}"
_NAMESPACE: Final = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_PROJECT: Final = "{project}"
# A namespace has 63 characters at most, and the slug of a project 48.
_AROUND_PROJECT: Final = 15
# Of a person, and the name that Kubernetes knows them by.
_PERSON: Final = re.compile(
    r"(?P<email>[^\s,=@]{1,64}@[^\s,=@]{1,190})=(?P<account>[A-Za-z0-9][A-Za-z0-9._:@/#+-]{0,63})"
)
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


def _project_pattern(text: str) -> str:
    """Refuse a pattern whose namespaces would not be valid, or not different for each project."""
    around = text.split(_PROJECT)
    if text and (len(around) != 2 or not re.fullmatch(_NAMESPACE, "p".join(around))):
        raise ValueError("it must be such as slipway-{project}")
    if len("".join(around)) > _AROUND_PROJECT and text:
        raise ValueError(f"it must have at most {_AROUND_PROJECT} characters beside {{project}}")
    return text


def _people(text: str) -> str:
    """Refuse a table that names a person twice, or an account of the cluster itself."""
    emails = []
    for item in _items(text):
        match = _PERSON.fullmatch(item)
        if not match:
            raise ValueError(f"{item[:60]!r} is not EMAIL=USER")
        if match["account"].startswith("system:"):
            raise ValueError(f"{match['account']} is an account of the cluster, and of no person")
        emails.append(match["email"].lower())
    if twice := next((email for email in emails if emails.count(email) > 1), ""):
        raise ValueError(f"{twice} has two accounts")
    return text


_Name = Annotated[str, _matching(_NAME, "a name of lower-case letters, digits, dots and hyphens")]
_Label = Annotated[str, _matching(_KEY, "a key such as nvidia.com/gpu")]
_Word = Annotated[str, _matching(r"[!-~]{1,253}", "one word without spaces")]
_Folder = Annotated[str, _matching(_PATH, "an absolute path")]


class KubernetesSettings(BaseModel):
    """Settings of a pool. `folder`, `python` and `task_python` are in the image.

    Without `kubeconfig` the portal itself runs in the cluster, and uses the account of its pod.
    With `project_namespace` each project has a namespace of its own. With `as_person` pods are
    created as the person of the table `people`.
    """

    model_config = ConfigDict(extra="forbid")

    image: Annotated[
        str,
        _matching(r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,400}", "the name of an image"),
        AfterValidator(_required("an image with Python and Slipway")),
    ] = Field(default="", validate_default=True)
    namespace: Annotated[str, _matching(_NAMESPACE, "the name of a namespace")] = "default"
    project_namespace: Annotated[str, AfterValidator(_project_pattern)] = ""
    kubeconfig: _Folder = ""
    context: _Word = ""
    impersonate: _Word = ""
    as_person: bool = False
    people: Annotated[str, AfterValidator(_people)] = ""
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

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.project_namespace and self.namespace != "default":
            raise ValueError("namespace and project_namespace exclude each other")
        if self.as_person and self.impersonate:
            raise ValueError("as_person and impersonate exclude each other")
        if self.as_person and not self.people:
            raise ValueError("as_person needs people, such as people=alice@example.org=alice")
        if self.people and not self.as_person:
            raise ValueError("people needs as_person=true")
        return self

    def namespace_of(self, project: str) -> str:
        """Return the namespace of the work of a project, given its slug."""
        return self.project_namespace.replace(_PROJECT, project) or self.namespace

    @property
    def accounts(self) -> dict[str, str]:
        """Return the names that Kubernetes knows people by, by their address of e-mail."""
        matches = [_PERSON.fullmatch(item) for item in _items(self.people)]
        return {match["email"].lower(): match["account"] for match in matches if match}

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
