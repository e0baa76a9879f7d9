"""Forms of administrators about machines, tiers and quotas."""

from typing import Any

from django import forms
from django.utils.text import slugify
from pydantic import TypeAdapter, ValidationError

from portal.accounts.models import Project, Team
from portal.accounts.models.tenancy import Group
from portal.compute.resources import GIB, Amount
from portal.core.validation_messages import validation_predicate
from slipway.schemas.money import parse_dollars
from slipway.schemas.workloads import DEFAULT_DISCOUNT, MOST_DISCOUNT, Labels

_TEXT = {"autocomplete": "off", "spellcheck": "false"}
_LABELS: TypeAdapter[dict[str, str]] = TypeAdapter(Labels)
MOST_CPUS, MOST_GIB, MOST_GPUS = 10_000, 1_048_576, 1024


class Reason(forms.Form):
    """Reason for taking a node out of use."""

    reason = forms.CharField(
        required=False,
        max_length=200,
        help_text="Shown to people whose work waits for this node, for example “new disk”.",
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )


class JoinMachine(forms.Form):
    """A one-time token for one machine."""

    node = forms.CharField(
        label="Node name",
        required=False,
        max_length=48,
        help_text="Empty: the machine's own name. With the same name a node can join again.",
        widget=forms.TextInput(attrs={**_TEXT, "placeholder": "gpu-1"}),
    )
    expires_in_minutes = forms.TypedChoiceField(
        label="Token valid for",
        choices=((60, "1 hour"), (1440, "1 day"), (10_080, "7 days")),
        coerce=int,
        initial=60,
    )

    def clean_node(self) -> str | None:
        """Return the name, or nothing for any name."""
        return self.cleaned_data["node"].strip() or None


def _price(**attrs: str) -> forms.CharField:
    return forms.CharField(
        label="Price per hour, in dollars",
        max_length=24,
        widget=forms.TextInput(attrs={**_TEXT, "inputmode": "decimal", **attrs}),
    )


def _discount(**options: Any) -> forms.IntegerField:
    return forms.IntegerField(
        label="Discount for preemptible jobs, in percent",
        min_value=0,
        max_value=MOST_DISCOUNT,
        required=False,
        help_text="They may be moved for other work. It applies to what starts from now on.",
        **options,
    )


def nano_usd_of(text: str) -> int:
    """Return nano-USD of dollars as text. Raises ValidationError."""
    try:
        return parse_dollars(text)
    except ValueError as error:
        raise forms.ValidationError(str(error)) from error


class ChangePrice(forms.Form):
    """The price of a tier from now on."""

    price = _price()
    preemptible_discount = _discount()

    def clean_price(self) -> int:
        """Return nano-USD."""
        return nano_usd_of(self.cleaned_data["price"])


class NewTier(forms.Form):
    """New tier: the resources of one task, and its price per hour."""

    name = forms.CharField(
        max_length=100,
        help_text="The name people see, for example “One H100”.",
        widget=forms.TextInput(attrs={"autofocus": True, "autocomplete": "off"}),
    )
    slug = forms.CharField(
        label="Short name",
        required=False,
        max_length=48,
        help_text="Used in commands; it cannot change. Empty: generated from the name.",
        widget=forms.TextInput(attrs=_TEXT),
    )
    cpus = forms.DecimalField(
        label="CPUs",
        min_value=0,
        max_value=MOST_CPUS,
        decimal_places=3,
        help_text="0.5 is half a CPU.",
    )
    memory_gib = forms.DecimalField(
        label="Memory in GiB", min_value=0, max_value=MOST_GIB, decimal_places=3
    )
    gpus = forms.IntegerField(label="GPUs", min_value=0, max_value=MOST_GPUS, initial=0)
    gpu_model = forms.CharField(
        label="GPU model",
        required=False,
        max_length=64,
        help_text="As reported by the nodes. Empty: any model.",
        widget=forms.TextInput(attrs=_TEXT),
    )
    labels = forms.CharField(
        required=False,
        max_length=4000,
        help_text="One key=value per line. Only nodes with all of these labels run its tasks.",
        widget=forms.Textarea(attrs={**_TEXT, "rows": 2}),
    )
    price = _price(placeholder="0.12")
    preemptible_discount = _discount(initial=DEFAULT_DISCOUNT)

    def clean_price(self) -> int:
        """Return nano-USD."""
        return nano_usd_of(self.cleaned_data["price"])

    def clean_labels(self) -> dict[str, str]:
        """Read a line each."""
        lines = [line for line in self.cleaned_data["labels"].splitlines() if line.strip()]
        if bad := next((line for line in lines if "=" not in line), None):
            raise forms.ValidationError(f"“{bad[:40]}” must have the form key=value.")
        pairs = (line.partition("=") for line in lines)
        try:
            return _LABELS.validate_python({key.strip(): value.strip() for key, _, value in pairs})
        except ValidationError as error:
            raise forms.ValidationError(
                f"A label {validation_predicate(error.errors()[0])}."
            ) from error

    def clean(self) -> dict[str, Any]:
        """Build the resources."""
        data = super().clean() or {}
        data["slug"] = data.get("slug") or slugify(data.get("name", ""))[:48].strip("-")
        if not self.errors:
            data["amount"] = Amount(
                int(data["cpus"] * 1000), int(data["memory_gib"] * GIB), data["gpus"]
            )
        return data


class SetQuota(forms.Form):
    """Quota: the concurrent usage allowed to a project or team."""

    group = forms.CharField(
        label="Project or team",
        max_length=48,
        help_text="Its address, as in /p/churn-model.",
        widget=forms.TextInput(attrs={**_TEXT, "list": "groups"}),
    )
    cpus = forms.DecimalField(
        label="CPUs", required=False, min_value=0, max_value=1_000_000, decimal_places=3
    )
    gpus = forms.IntegerField(label="GPUs", required=False, min_value=0, max_value=1_000_000)
    running = forms.IntegerField(
        label="Concurrent workloads", required=False, min_value=0, max_value=1_000_000
    )
    weight = forms.FloatField(
        min_value=0.01,
        max_value=1000,
        initial=1,
        help_text="For fair sharing: 2 gets twice as much as 1.",
        widget=forms.NumberInput(attrs={"step": "any"}),
    )

    def clean_group(self) -> Group:
        """Return the project or team of that address."""
        slug = self.cleaned_data["group"].strip()
        project = (
            Project.objects.filter(slug=slug).first() or Team.objects.filter(slug=slug).first()
        )
        if project is None:
            raise forms.ValidationError("There is no project or team with that address.")
        return project

    def clean_cpus(self) -> int | None:
        """Return thousandths."""
        cpus = self.cleaned_data["cpus"]
        return None if cpus is None else int(cpus * 1000)
