"""The picker of environments: those of the project, with packages, Python and build state."""

from django import forms

from portal.accounts.models import Project
from portal.compute.models import EnvironmentVersion, NamedEnvironment
from portal.compute.services.named_environments import (
    BuildSummary,
    build_summaries,
    latest_versions,
    resolve_environment,
)
from portal.core.errors import InvalidInput
from slipway.schemas.environments import INSTALLATION

BUILD_LABELS = {
    BuildSummary.READY: "built",
    BuildSummary.BUILDING: "building",
    BuildSummary.FAILED: "build failed",
    BuildSummary.NOT_BUILT: "not built yet",
}
BUILD_TONES = {
    BuildSummary.READY: "ok",
    BuildSummary.BUILDING: "warn",
    BuildSummary.FAILED: "bad",
    BuildSummary.NOT_BUILT: "",
}
MODEL_PACKAGES = "Packages that came with the model"
_OF_INSTALLATION = "Environment of the installation"
Choice = tuple[str, str]


class EnvironmentField(forms.CharField):
    """A named environment of the project. The service that uses it checks that it exists."""

    def __init__(self, *, help_text: str) -> None:
        super().__init__(
            label="Environment",
            required=False,
            max_length=60,
            help_text=help_text,
            widget=forms.Select,
        )


def offer_environments(
    form: forms.Form, project: Project, *, automatic: str = "", installation: bool = True
) -> None:
    """Fill the picker of a form that is about to be shown.

    `automatic` are the words for no choice, in which `{}` is the default of the project. Without
    them no choice is the environment of the installation, which is else a choice of its own unless
    `installation` is False.
    """
    field = form.fields["environment"]
    assert isinstance(field.widget, forms.Select)  # noqa: S101  (declared by the form)
    environments = NamedEnvironment.objects.filter(project=project).active().order_by("name")
    versions = latest_versions(environments)
    chosen = _numbered_version(project, str(form["environment"].value() or ""))
    shown = [versions[named.pk] for named in environments]
    summaries = build_summaries(
        project, [it.environment_id for it in (*shown, *filter(None, [chosen]))]
    )

    def choice(version: EnvironmentVersion, value: str) -> Choice:
        packages = f"{version.packages} package{'' if version.packages == 1 else 's'}"
        build = BUILD_LABELS[summaries[version.environment_id]]
        python = version.environment.python or "of conda"
        return value, f"{version.reference} · {packages} · Python {python} · {build}"

    # The latest version has its name as the value, unless the form names it by its number.
    own = [
        choice(it, it.reference if it == chosen else it.named.name)
        for it in (*([chosen] if chosen and chosen not in shown else []), *shown)
    ]
    default = next((named.name for named in environments if named.is_default), None)
    general: list[Choice] = [("", _OF_INSTALLATION)]
    if automatic:
        general = [("", automatic.format(default or "that of the installation"))]
        if installation:
            general.append((INSTALLATION, _OF_INSTALLATION))
    choices: list[Choice | tuple[str, list[Choice]]] = [*general]
    if own:
        choices.append(("Environments of the project", own))
    field.widget.choices = choices


def _numbered_version(project: Project, reference: str) -> EnvironmentVersion | None:
    """Return the version that a form names by its number."""
    if "@" not in reference:
        return None
    try:
        return resolve_environment(project=project, reference=reference)
    except InvalidInput:
        return None
