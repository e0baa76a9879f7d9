"""Forms of sweeps: a new one, which is a job with ranges, and more trials of one."""

from collections.abc import Callable
from typing import Any, TypeVar

from django import forms
from pydantic import ValidationError

from portal.core.validation_messages import validation_predicate
from portal.web.jobs.forms import NewJob, pairs
from slipway.parameter_spaces import (
    EXAMPLES,
    is_range,
    read_constraint,
    read_metric,
    read_space,
)
from slipway.schemas.sweeps import (
    MAX_ETA,
    MAX_MIN_VALUES,
    MAX_PARALLEL,
    MAX_TRIALS,
    Constraint,
    Metric,
    ParameterSpace,
    RepeatIn,
    SweepIn,
)
from slipway.schemas.training import JobIn

_Parsed = TypeVar("_Parsed")
_TEXT = {"autocomplete": "off", "spellcheck": "false"}
_ALGORITHMS = [
    ("tpe", "TPE"),
    ("tpe-multivariate", "Multivariate TPE"),
    ("random", "Random"),
    ("cma-es", "CMA-ES"),
    ("gp", "Gaussian process"),
    ("nsga-ii", "NSGA-II"),
    ("qmc", "Quasi-random (Sobol)"),
    ("grid", "Grid"),
]
_SCHEDULERS = [
    ("none", "None: every trial runs to its end"),
    ("asha", "ASHA"),
    ("hyperband", "Hyperband"),
    ("median", "Median"),
]
_OF_SWEEP = (
    *("metric", "goal", "algorithm", "trials", "parallel", "retries", "seed"),
    *("scheduler", "min_values", "eta", "other_metrics", "constraints", "warm_start"),
)
FRESH = {
    "goal": "max",
    "algorithm": "tpe",
    "trials": 20,
    "parallel": 2,
    "retries": 0,
    "seed": 0,
    "scheduler": "none",
    "min_values": 1,
    "eta": 3,
}


class NewSweep(NewJob):
    """New sweep: a job whose parameters may be ranges. `sweep` is the request once it is valid."""

    metric = forms.CharField(
        max_length=250,
        help_text="The name under which the script logs it. The last value of a run counts.",
        widget=forms.TextInput(attrs={**_TEXT, "placeholder": "accuracy"}),
    )
    goal = forms.ChoiceField(choices=[("max", "Maximize"), ("min", "Minimize")])
    other_metrics = forms.CharField(
        label="Further metrics",
        required=False,
        help_text="One per line: name:max or name:min. With several metrics the page shows the "
        "trials that no other one beats in all of them.",
        widget=forms.Textarea(attrs={**_TEXT, "rows": 2, "placeholder": "latency_ms:min"}),
    )
    constraints = forms.CharField(
        label="Constraints",
        required=False,
        help_text="One per line: a logged metric and its bound. A trial beyond it is never best.",
        widget=forms.Textarea(attrs={**_TEXT, "rows": 2, "placeholder": "size_mb<=20"}),
    )
    warm_start = forms.CharField(
        label="Warm start",
        required=False,
        help_text="One per line: the id of a sweep, or a filter of runs, from which the algorithm "
        "learns before the first trial.",
        widget=forms.Textarea(attrs={**_TEXT, "rows": 2, "placeholder": "metrics.accuracy > 0.5"}),
    )
    algorithm = forms.ChoiceField(
        choices=_ALGORITHMS,
        help_text="TPE, CMA-ES and Gaussian process learn from earlier trials. A grid tries all "
        "combinations.",
    )
    trials = forms.IntegerField(label="Trials", min_value=1, max_value=MAX_TRIALS)
    parallel = forms.IntegerField(label="Trials at once", min_value=1, max_value=MAX_PARALLEL)
    retries = forms.IntegerField(
        label="Retries",
        min_value=0,
        max_value=10,
        help_text="How often a failed trial is submitted again. It counts once.",
    )
    seed = forms.IntegerField(
        label="Seed",
        min_value=0,
        max_value=2**31 - 1,
        help_text="The same seed suggests the same values.",
    )
    scheduler = forms.ChoiceField(
        label="Early stopping",
        choices=_SCHEDULERS,
        help_text="Stops trials whose metric is worse than that of others. ASHA and Hyperband "
        "resume them from their checkpoint if others turn out worse.",
    )
    min_values = forms.IntegerField(
        label="First comparison after",
        min_value=1,
        max_value=MAX_MIN_VALUES,
        help_text="Values of the metric that a trial has logged.",
    )
    eta = forms.IntegerField(
        label="Eta",
        min_value=2,
        max_value=MAX_ETA,
        help_text="Of this many trials the best goes on, for this many times as long.",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.sweep: SweepIn | None = None
        self.ranges: dict[str, ParameterSpace] = {}
        self.fields["keep_failed_minutes"].label = "Keep a failed trial, in minutes"
        self.fields["keep_failed_minutes"].help_text = (
            "So that you can open a shell in it. One is kept at a time, beside those that run, "
            "and costs as while it runs. Empty: none."
        )
        params = self.fields["params"]
        params.required = True
        params.help_text = (
            "One per line: name=range, or name=value for the same value in all trials. " + EXAMPLES
        )
        params.widget.attrs |= {
            "rows": 4,
            "placeholder": "lr=loguniform(1e-4,1e-1)\nlayers=choice(2,4,8)",
        }

    def clean_params(self) -> dict[str, str]:
        """Read the ranges into `ranges`, and return the plain values."""
        self.ranges, plain = read_parameters(self.cleaned_data["params"])
        return plain

    def clean_other_metrics(self) -> list[Metric]:
        """Read one metric a line."""
        return _lines(self.cleaned_data["other_metrics"], read_metric, "name:max or name:min")

    def clean_constraints(self) -> list[Constraint]:
        """Read one constraint a line."""
        return _lines(self.cleaned_data["constraints"], read_constraint, "name<=20 or name>=0.9")

    def clean_warm_start(self) -> list[str]:
        """Read one source a line."""
        lines = self.cleaned_data["warm_start"].splitlines()
        return [line.strip() for line in lines if line.strip()]

    def clean(self) -> dict[str, Any]:
        """Build the request. Errors of the schema are next to their fields."""
        data = super().clean()
        if self.errors or self.payload is None:
            return data
        try:
            self.sweep = sweep_in(self.payload, self.ranges, data)
        except ValidationError as error:
            for fault in error.errors(include_input=False, include_url=False):
                field = str(fault["loc"][0]) if fault["loc"] else "params"
                text = fault["msg"].removeprefix("Value error, ")
                is_own = fault["type"] == "value_error"
                message = f"{text}." if is_own else f"This {validation_predicate(fault)}."
                self.add_error(field if field in self.fields else "params", message)
        return data

    def job_settings(self, data: dict[str, Any]) -> dict[str, Any]:
        """Return the clean values of the job alone."""
        return {name: value for name, value in data.items() if name not in _OF_SWEEP}


def _lines(text: str, parse: Callable[[str], _Parsed], form: str) -> list[_Parsed]:
    """Parse lines that are not empty, or raise ValidationError that says which form they need."""
    try:
        return [parse(line.strip()) for line in text.splitlines() if line.strip()]
    except ValueError as error:
        raise forms.ValidationError(f"{error} Write {form}.") from error


def sweep_in(job: JobIn, ranges: dict[str, ParameterSpace], data: dict[str, Any]) -> SweepIn:
    """Return the request of a sweep from clean values. Raises ValidationError of pydantic."""
    settings = {name: data[name] for name in _OF_SWEEP if name not in ("metric", "goal")}
    metric = {"name": data["metric"], "goal": data["goal"]}
    return SweepIn.model_validate(settings | {"job": job, "parameters": ranges, "metric": metric})


def read_parameters(text: str) -> tuple[dict[str, ParameterSpace], dict[str, str]]:
    """Return the ranges and the plain values of lines, or raise ValidationError."""
    values = pairs([line for line in text.splitlines() if line.strip()])
    ranges: dict[str, ParameterSpace] = {}
    for name, value in values.items():
        if is_range(value):
            try:
                ranges[name] = read_space(value)
            except ValueError as error:
                raise forms.ValidationError(f"{name[:80]}: {error} {EXAMPLES}") from error
    if not ranges:
        raise forms.ValidationError(f"No parameter has a range. {EXAMPLES}")
    return ranges, {name: value for name, value in values.items() if name not in ranges}


class RepeatForm(forms.Form):
    """Seeds with which a trial runs again. `requested` is the request once the form is valid."""

    requested: RepeatIn
    trial = forms.IntegerField(
        required=False, min_value=0, max_value=MAX_TRIALS, widget=forms.HiddenInput
    )
    seeds = forms.CharField(
        label="Seeds",
        required=False,
        max_length=300,
        help_text="Numbers with spaces between them; the next three if empty.",
        widget=forms.TextInput(attrs={**_TEXT, "placeholder": "1 2 3"}),
    )
    parameter = forms.CharField(
        label="Parameter",
        max_length=250,
        help_text="The name under which the script reads its seed.",
        widget=forms.TextInput(attrs=_TEXT),
    )

    def clean(self) -> dict[str, Any]:
        """Build the request. Errors of the schema are next to their fields."""
        data = super().clean() or {}
        if self.errors:
            return data
        try:
            seeds = [int(word) for word in data["seeds"].replace(",", " ").split()]
        except ValueError:
            self.add_error("seeds", "Write whole numbers with spaces between them.")
            return data
        try:
            self.requested = RepeatIn.model_validate(data | {"seeds": seeds})
        except ValidationError as error:
            for fault in error.errors(include_input=False, include_url=False):
                field = str(fault["loc"][0]) if fault["loc"] else "seeds"
                text = fault["msg"].removeprefix("Value error, ")
                is_own = fault["type"] == "value_error"
                self.add_error(
                    field, f"{text}." if is_own else f"This {validation_predicate(fault)}."
                )
        return data


class ExtensionForm(forms.Form):
    """More trials of a sweep."""

    trials = forms.IntegerField(
        label="Trials in all", min_value=1, max_value=MAX_TRIALS, help_text="The new total."
    )
