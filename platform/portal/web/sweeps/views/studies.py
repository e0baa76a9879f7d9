"""The page of an Optuna study."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from portal.accounts.gates import gated_role
from portal.core.policy import guarded_by
from portal.sweeps.gates import OptunaStudyRole, gated_study
from portal.sweeps.models import OptunaTrial
from portal.web.base.list_query import Select, listing
from portal.web.sweeps.presenters import MOST_IN_SLICES
from portal.web.sweeps.studies import (
    StorageSummary,
    StudyFront,
    StudyStatus,
    StudyTrialRow,
    study_curve,
    study_slices,
    value_names,
)
from slipway.schemas.accounts import Role, Scope
from slipway.schemas.studies import OptunaTrialState

_STATES = [(state.value, state.value.capitalize()) for state in OptunaTrialState]


@guarded_by(OptunaStudyRole(Role.VIEWER, Scope.EXPERIMENTS_READ))
@require_safe
def project_optuna_study(request: HttpRequest, project: str, study: str) -> HttpResponse:
    """Show a study that people keep with Optuna: best value so far, parameters, trials."""
    row = gated_study(request)
    trials = OptunaTrial.objects.filter(study=row)
    if request.GET.get("state") in dict(_STATES):
        trials = trials.filter(state=request.GET["state"])
    shown = listing(request, trials, filters=(), selects=(Select("state", "State", _STATES),))
    status = StudyStatus.of_study(row)
    has_front = len(row.goals) > 1
    context: dict[str, Any] = {
        "study": row,
        "it": status,
        "is_active": status.is_active,
        "curve": "" if has_front else study_curve(row),
        "front": StudyFront.of(row) if has_front else None,
        "regions": "sweep-state" + (",sweep-front" if has_front else ""),
        "listing": shown,
        "region": "trials",
        "names": value_names(row),
        "rows": [StudyTrialRow.of(trial, len(row.goals)) for trial in shown.page.items],
        "area": "projects",
        "section": "sweeps",
    }
    if request.headers.get("HX-Request") != "true":
        context |= {
            "slices": study_slices(row),
            "most_in_slices": MOST_IN_SLICES,
            "storage": StorageSummary.around(row),
            "may_delete": gated_role(request).at_least(Role.CONTRIBUTOR),
        }
    return render(request, "web/sweeps/study.html", context)
