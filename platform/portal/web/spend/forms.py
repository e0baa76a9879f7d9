"""Forms about budgets, prices of bare resources, and renting or buying."""

from dataclasses import fields
from typing import Any

from django import forms

from portal.accounts.models import Project, Team
from portal.spend.rates import RESOURCES
from portal.spend.rent_vs_buy import Assumptions
from slipway.schemas.money import parse_dollars
from slipway.schemas.spend import BudgetIn, BudgetPeriod

_TEXT = {"autocomplete": "off", "spellcheck": "false"}
_MOST_HOURS = 24 * 7
_UNITS = {
    "cpu": "One CPU",
    "memory": "One GiB of memory",
    "gpu": "One GPU",
    "storage": "One GB stored",
}


class Dollars(forms.CharField):
    """An amount in dollars, cleaned to nano-USD."""

    def __init__(self, *, required: bool = True, **settings: Any) -> None:
        widget = forms.TextInput(attrs={**_TEXT, "inputmode": "decimal"})
        super().__init__(max_length=24, widget=widget, required=required, **settings)

    def clean(self, value: Any) -> int | None:
        """Return nano-USD, None for nothing."""
        text = str(super().clean(value))
        if not text:
            return None
        try:
            return parse_dollars(text)
        except ValueError as error:
            raise forms.ValidationError(str(error)) from error


class SetBudget(forms.Form):
    """A new limit for a project, a team or a person."""

    group = forms.CharField(
        label="Project or team",
        required=False,
        max_length=48,
        help_text="Its address, as in /p/churn-model.",
        widget=forms.TextInput(attrs={**_TEXT, "list": "groups"}),
    )
    person = forms.EmailField(
        label="Or a person", required=False, help_text="E-mail address; administrators only."
    )
    limit = Dollars(label="Limit in dollars")
    period = forms.ChoiceField(
        label="For",
        choices=((BudgetPeriod.MONTH.value, "each month"), (BudgetPeriod.TOTAL.value, "all time")),
    )
    stops = forms.BooleanField(
        label="At the limit, refuse new starts and stop running work", required=False, initial=True
    )
    counts_exempt = forms.BooleanField(label="Stop endpoints too", required=False)

    def clean(self) -> dict[str, Any]:
        """Build the request for the service, as `payload`."""
        data = super().clean() or {}
        if bool(data.get("group")) == bool(data.get("person")):
            self.add_error("group", "Enter a project, a team or a person.")
        if self.errors:
            return data
        slug = data["group"].strip()
        is_team = not Project.objects.filter(slug=slug).exists() and Team.objects.filter(slug=slug)
        try:
            data["payload"] = BudgetIn(
                project=slug if slug and not is_team else None,
                team=slug if is_team else None,
                person=data["person"] or None,
                period=BudgetPeriod(data["period"]),
                limit_nano_usd=data["limit"],
                stops=data["stops"],
                counts_exempt=data["counts_exempt"],
            )
        except ValueError:
            self.add_error("group", "The limit must be more than 0, and the address a short name.")
        return data


class ChangeBudget(forms.Form):
    """Another limit, or what happens at it."""

    limit = Dollars(label="Limit in dollars")
    stops = forms.BooleanField(
        label="At the limit, refuse new starts and stop running work", required=False
    )
    counts_exempt = forms.BooleanField(label="Stop endpoints too", required=False)

    def clean_limit(self) -> int:
        """Require a limit above zero."""
        limit: int = self.cleaned_data["limit"]
        if limit < 1:
            raise forms.ValidationError("The limit must be more than 0.")
        return limit


class Override(forms.Form):
    """Letting everything pass for a while."""

    hours = forms.FloatField(
        min_value=0,
        max_value=_MOST_HOURS,
        initial=1,
        help_text="0 ends the override.",
        widget=forms.NumberInput(attrs={"step": "any"}),
    )
    reason = forms.CharField(max_length=300, help_text="Recorded in the audit log.")


class RatesForm(forms.Form):
    """The prices of bare resources, from now on."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        for name in RESOURCES:
            self.fields[name] = Dollars(label=f"{_UNITS[name]}, dollars per hour")


# Labels and hints of the assumptions.
_ASSUMPTIONS = {
    "rent_per_hour": ("Rent ($/h)", "Of one such machine."),
    "used_hours": ("Machine hours per month", "Filled in from your usage."),
    "price": ("Purchase price ($)", "Of one complete machine."),
    "watts": ("Power draw (W)", "Average; the machine is always on."),
    "power_per_kwh": ("Electricity ($/kWh)", ""),
    "power_overhead": ("Cooling overhead (PUE)", "1.4 is 40 % more."),
    "hosting_per_month": ("Hosting ($/month)", "Rack, network and insurance."),
    "staff_hours_per_month": ("Operator hours per month", ""),
    "staff_per_hour": ("Operator cost ($/h)", ""),
    "interest_percent": ("Interest (%/year)", "On the capital."),
    "months": ("Depreciation (months)", ""),
    "rest_percent": ("Residual value (%)", "Of the price, after the depreciation."),
    "failing_percent": ("Downtime (%)", "Share of hours lost to faults and repairs."),
    "most_percent": (
        "Max utilisation (%)",
        "Share of the remaining hours you can use; a queue never fills a machine completely.",
    ),
}


class RentOrBuy(forms.Form):
    """Every assumption of the comparison, each with what it means."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        for field in fields(Assumptions):
            is_months = field.name == "months"
            kind = forms.IntegerField if is_months else forms.FloatField
            label, hint = _ASSUMPTIONS[field.name]
            self.fields[field.name] = kind(
                label=label,
                min_value=1 if is_months or field.name == "price" else 0,
                max_value=120 if is_months else 100 if "percent" in field.name else 10**9,
                help_text=hint,
                widget=forms.NumberInput(attrs={"step": "any"}),
            )
