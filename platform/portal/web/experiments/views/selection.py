"""The runs that a form has selected, and the page that it returns to."""

from django.contrib import messages
from django.http import HttpRequest, QueryDict
from django.urls import reverse

from portal.accounts.models import Project
from portal.core.errors import InvalidInput
from slipway.schemas.experiments import MOST_COMPARED

MOST_RUNS = 200
RUN_ID_CHARACTERS = 32
_MOST_DIGITS = 10
_LONGEST_QUERY = 8_000


def chosen_runs(request: HttpRequest) -> list[str]:
    """Return the chosen runs. Raises InvalidInput where there are too many to change at once."""
    chosen = _sent_runs(request)
    if len(chosen) > MOST_RUNS:
        raise InvalidInput(
            f"{len(chosen)} runs are selected; at most {MOST_RUNS} can be changed at once.",
            field="run",
            next_step="Nothing was changed. Select fewer runs, and repeat for the others.",
        )
    return [run_id for run_id in chosen if _is_id(run_id)]


def compared_ids(request: HttpRequest) -> list[str]:
    """Return the ids of the runs that an address compares, MOST_COMPARED at most."""
    chosen = dict.fromkeys(request.GET.getlist("run"))
    return [run_id for run_id in list(chosen)[:MOST_COMPARED] if _is_id(run_id)]


def _sent_runs(request: HttpRequest) -> list[str]:
    return list(dict.fromkeys(request.POST.getlist("run")))


def warn_of_unchanged(request: HttpRequest, changed: int, state: str) -> None:
    """Warn about the number of chosen runs that were not changed."""
    chosen = len(_sent_runs(request))
    if not chosen:
        messages.warning(request, "No run is selected.")
    elif chosen > changed:
        others = chosen - changed
        verb = "is" if others == 1 else "are"
        messages.warning(request, f"{others} of the {chosen} selected runs {verb} {state}.")


def return_url(request: HttpRequest, project: Project) -> str:
    """Return the page the form was sent from: a run, or a list by its experiment and query."""
    chosen = _sent_runs(request)
    if request.POST.get("from") == "run" and len(chosen) == 1 and _is_id(chosen[0]):
        return reverse("project_run", args=[project.slug, chosen[0]])
    experiment = request.POST.get("experiment", "")
    if experiment.isascii() and experiment.isdigit() and len(experiment) <= _MOST_DIGITS:
        address = reverse("project_experiment", args=[project.slug, int(experiment)])
    else:
        address = reverse("project_runs", args=[project.slug])
    query = QueryDict(request.POST.get("query", "")[:_LONGEST_QUERY], mutable=True)
    if request.POST.get("stage") == "deleted":
        query["stage"] = "deleted"
    return f"{address}?{query.urlencode()}" if query else address


def _is_id(text: str) -> bool:
    return len(text) == RUN_ID_CHARACTERS and text.isascii() and text.isalnum()
