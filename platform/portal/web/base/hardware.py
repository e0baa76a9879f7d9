"""The hardware picker: the tiers on offer, with price, free capacity and why one would wait."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from django import forms

from portal.accounts.models import Project
from portal.compute.models import Tier
from portal.compute.services.tiers import default_tier
from portal.workloads.feasibility import need_of
from portal.workloads.growth_reasons import growth_estimate
from portal.workloads.placement import Capacity
from portal.workloads.scheduling import read_sites


@dataclass(frozen=True)
class TierOption:
    """A tier to choose, with the number of tasks that fit now and why a task would wait."""

    tier: Tier
    free: int
    wait_reason: str


class TierPicker(forms.Widget):
    """Radio buttons, one for each tier."""

    template_name = "web/forms/tiers.html"
    use_fieldset = True

    def __init__(self, attrs: dict[str, Any] | None = None) -> None:
        super().__init__(attrs)
        self.options: list[TierOption] = []

    def get_context(self, name: str, value: Any, attrs: dict[str, Any] | None) -> dict[str, Any]:
        """Add the options to the context of the template."""
        return super().get_context(name, value, attrs) | {"options": self.options}


class TierField(forms.CharField):
    """The slug of a tier. The service that starts the work checks that it is on offer."""

    widget = TierPicker

    def __init__(self, *, required: bool = True) -> None:
        super().__init__(
            label="Tier",
            required=required,
            max_length=48,
            error_messages={"required": "Choose a tier."},
        )


def default_slug(offered: Sequence[Tier]) -> str:
    """Return the slug of the tier that forms of jobs and notebooks choose first, "" without one."""
    tier = default_tier(offered)
    return tier.slug if tier else ""


def offer_tiers(form: forms.Form, project: Project, tiers: Iterable[Tier]) -> None:
    """Fill the hardware picker of a form that is about to be shown."""
    picker = form.fields["tier"].widget
    assert isinstance(picker, TierPicker)  # noqa: S101  (declared by the form)
    capacity = Capacity(read_sites())
    picker.options = [_option(capacity, project, tier) for tier in tiers]


def _option(capacity: Capacity, project: Project, tier: Tier) -> TierOption:
    need = need_of(project, tier)
    free = capacity.count_of(need, project=project.pk)
    if free:
        return TierOption(tier, free, "")
    if any(site.suits(need) for site in capacity.sites):
        return TierOption(tier, free, "waits for running work to end")
    if growth_estimate(project, need, 1):
        return TierOption(tier, free, "a node starts for it")
    return TierOption(tier, free, "no ready node fits it")
