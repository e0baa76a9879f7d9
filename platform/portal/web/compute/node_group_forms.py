"""Forms of administrators about node groups."""

from typing import Any

from django import forms

from portal.compute.models import NodeGroup
from portal.compute.models.node_groups import MAX_NODES
from portal.compute.provisioners import provisioner_kinds
from portal.compute.resources import GIB, Amount
from portal.web.compute.forms import MOST_CPUS, MOST_GIB, MOST_GPUS, nano_usd_of
from portal.web.compute.pool_forms import ALL, SOME, PoolSettings, setting_text
from slipway.schemas.money import dollars

_TEXT = {"autocomplete": "off", "spellcheck": "false"}
_MOST_GRACE_MINUTES = 7 * 24 * 60


def _provisioner_choices() -> list[tuple[str, str]]:
    return [(name, kind.label) for name, kind in sorted(provisioner_kinds().items())]


class NodeGroupSettings(PoolSettings):
    """The settings of a group that can change. `projects` is None for all of them once clean."""

    most_requests = None  # type: ignore[assignment]
    price_percent = None  # type: ignore[assignment]
    settings = forms.CharField(
        label="Settings of the provisioner",
        required=False,
        max_length=8000,
        help_text="One name=value per line.",
        widget=forms.Textarea(attrs={**_TEXT, "rows": 4, "placeholder": "region=eu-central-1"}),
    )
    min_nodes = forms.IntegerField(
        label="Least nodes",
        min_value=0,
        max_value=MAX_NODES,
        initial=0,
        help_text="So many are kept without work, and cost.",
    )
    max_nodes = forms.IntegerField(label="Most nodes", min_value=1, max_value=MAX_NODES, initial=4)
    max_starting = forms.IntegerField(
        label="Starting at once", min_value=1, max_value=MAX_NODES, initial=2
    )
    idle_minutes = forms.DecimalField(
        label="Release after minutes without work",
        min_value=0,
        max_value=_MOST_GRACE_MINUTES,
        decimal_places=2,
        initial=5,
    )
    join_minutes = forms.DecimalField(
        label="Give up a machine after minutes",
        min_value=0,
        max_value=24 * 60,
        decimal_places=2,
        initial=10,
        help_text="A machine that has not joined by then is released.",
    )
    price = forms.CharField(
        label="Price of a node-hour in dollars",
        max_length=24,
        help_text="From the request of a machine to its release. It applies to new machines.",
        widget=forms.TextInput(attrs={**_TEXT, "inputmode": "decimal", "placeholder": "1.01"}),
    )

    def clean_price(self) -> int:
        """Return nano-USD."""
        return nano_usd_of(self.cleaned_data["price"])

    def limits(self) -> dict[str, Any]:
        """Return the limits by the names of the service. Call it once clean."""
        data = self.cleaned_data
        return {
            "min_nodes": data["min_nodes"],
            "max_nodes": data["max_nodes"],
            "max_starting": data["max_starting"],
            "idle_grace_s": int(data["idle_minutes"] * 60),
            "join_within_s": int(data["join_minutes"] * 60),
        }


class NewNodeGroup(NodeGroupSettings):
    """New group: its name, provisioner and the size of a node, and what can change later."""

    name = forms.CharField(
        max_length=32,
        help_text="Nodes have it as a label, node-group=NAME; it cannot change.",
        widget=forms.TextInput(attrs={**_TEXT, "autofocus": True, "placeholder": "gpu"}),
    )
    provisioner = forms.ChoiceField(
        choices=_provisioner_choices,
        help_text="The service that makes its nodes; it cannot change.",
        widget=forms.Select,
    )
    cpus = forms.DecimalField(
        label="CPUs of a node", min_value=0, max_value=MOST_CPUS, decimal_places=3
    )
    memory_gib = forms.DecimalField(
        label="Memory of a node in GiB", min_value=0, max_value=MOST_GIB, decimal_places=3
    )
    gpus = forms.IntegerField(label="GPUs of a node", min_value=0, max_value=MOST_GPUS, initial=0)
    gpu_model = forms.CharField(
        label="GPU model",
        required=False,
        max_length=64,
        help_text="As the nodes will report it, for example A10G.",
        widget=forms.TextInput(attrs=_TEXT),
    )

    def clean(self) -> dict[str, Any]:
        """Build the resources."""
        data = super().clean()
        if not self.errors:
            data["amount"] = Amount(
                int(data["cpus"] * 1000), int(data["memory_gib"] * GIB), data["gpus"]
            )
        return data


def node_group_initial(group: NodeGroup, projects: list[str]) -> dict[str, Any]:
    """Return the initial values of the settings of a group, given the slugs of its projects."""
    return {
        "settings": "\n".join(
            f"{name}={setting_text(value)}" for name, value in sorted(group.settings.items())
        ),
        "min_nodes": group.min_nodes,
        "max_nodes": group.max_nodes,
        "max_starting": group.max_starting,
        "idle_minutes": f"{group.idle_grace_s / 60:g}",
        "join_minutes": f"{group.join_within_s / 60:g}",
        "price": dollars(group.nano_usd_per_hour).removeprefix("$"),
        "audience": ALL if group.is_for_all else SOME,
        "projects": "" if group.is_for_all else " ".join(projects),
    }
