"""Forms of administrators about pools."""

import json
import re
from typing import Any

from django import forms

from portal.compute.engines import engine_kinds
from portal.compute.models import Pool
from portal.compute.models.pools import (
    DEFAULT_REQUESTS,
    FULL_PRICE,
    MAX_PRICE_PERCENT,
    MAX_REQUESTS,
)

_TEXT = {"autocomplete": "off", "spellcheck": "false"}
_SETTING_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
ALL, SOME = "all", "some"


def _engine_choices() -> list[tuple[str, str]]:
    kinds = sorted(engine_kinds().items(), key=lambda kind: kind[0] == "local")
    return [(name, kind.label) for name, kind in kinds]


class PoolSettings(forms.Form):
    """The settings of a pool that can change. `projects` is None for all of them once clean."""

    settings = forms.CharField(
        label="Settings of the engine",
        required=False,
        max_length=8000,
        help_text="One name=value per line. Values may be JSON: write a text that looks like a "
        'number in quotes, as in partition="2024".',
        widget=forms.Textarea(attrs={**_TEXT, "rows": 5, "placeholder": "partition=gpu"}),
    )
    most_requests = forms.IntegerField(
        label="Requests at once",
        min_value=1,
        max_value=MAX_REQUESTS,
        initial=DEFAULT_REQUESTS,
        help_text="Requests that wait or run there at a time. All others wait in Slipway, so that "
        "priorities and fair shares still decide.",
    )
    price_percent = forms.IntegerField(
        label="Price, in percent of the tier's price",
        min_value=0,
        max_value=MAX_PRICE_PERCENT,
        initial=FULL_PRICE,
        help_text="80 means that work costs 20 % less there than on own nodes. Work that runs "
        "keeps the price it started at.",
    )
    audience = forms.ChoiceField(
        label="Who may use it",
        choices=[(ALL, "All projects"), (SOME, "Only these projects")],
        initial=ALL,
        widget=forms.RadioSelect(attrs={"class": "form-check-input"}),
    )
    projects = forms.CharField(
        required=False,
        max_length=60_000,
        help_text="Their addresses, as in /p/churn-model, separated by spaces.",
        widget=forms.TextInput(attrs={**_TEXT, "placeholder": "churn-model vision"}),
    )

    def clean_settings(self) -> dict[str, Any]:
        """Read a setting from each line."""
        settings: dict[str, Any] = {}
        for line in self.cleaned_data["settings"].splitlines():
            if not line.strip():
                continue
            name, separator, text = line.partition("=")
            name = name.strip()
            if not separator or not _SETTING_NAME.fullmatch(name):
                raise forms.ValidationError(f"“{line[:40]}” must have the form name=value.")
            if name in settings:
                raise forms.ValidationError(f"{name} is there twice.")
            settings[name] = _setting_value(text.strip())
        return settings

    def clean(self) -> dict[str, Any]:
        """Read the slugs of projects, where the pool is not for all."""
        data = super().clean() or {}
        text = str(data.get("projects") or "")
        is_for_all = data.get("audience") == ALL
        if is_for_all and text.strip():
            self.add_error("projects", "Choose “Only these projects”, or leave this empty.")
        data["projects"] = None if is_for_all else text.replace(",", " ").split()
        return data


class NewPool(PoolSettings):
    """New pool: its name and engine, and what can change later."""

    name = forms.CharField(
        max_length=32,
        help_text="People choose it by this name; it cannot change.",
        widget=forms.TextInput(attrs={**_TEXT, "autofocus": True, "placeholder": "gpu"}),
    )
    engine = forms.ChoiceField(
        choices=_engine_choices,
        help_text="The scheduler that allocates its machines; it cannot change.",
        widget=forms.Select,
    )


def pool_initial(pool: Pool, projects: list[str]) -> dict[str, Any]:
    """Return the initial values of the settings of a pool, given the slugs of its projects."""
    return {
        "settings": "\n".join(setting_lines(pool)),
        "most_requests": pool.most_requests,
        "price_percent": pool.price_percent,
        "audience": ALL if pool.is_for_all else SOME,
        "projects": "" if pool.is_for_all else " ".join(projects),
    }


def setting_lines(pool: Pool) -> list[str]:
    """Return the settings of a pool as the form reads them, by name."""
    return [f"{name}={setting_text(value)}" for name, value in sorted(pool.settings.items())]


def _setting_value(text: str) -> Any:
    """Return the value of JSON, or the text itself where it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def setting_text(value: Any) -> str:
    """Return the value of a setting as the form reads it."""
    if isinstance(value, str) and _setting_value(value) == value:
        return value
    return json.dumps(value, ensure_ascii=False)
