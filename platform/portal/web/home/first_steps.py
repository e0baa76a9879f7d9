"""First steps on Home: the steps a person has really done, and the next one.

Done steps are stored, so that Home asks about the others alone, and about none once all are done
or the person has hidden the list.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Exists, QuerySet
from django.urls import reverse

from portal.accounts.models import ApiToken, Project, User
from portal.accounts.principal import Principal
from portal.endpoints.models import Revision
from portal.experiments.models import Run
from portal.notebooks.kinds import KIND as NOTEBOOK
from portal.registry.models import VersionRecord
from portal.spend.models import Budget
from portal.training.models import Job
from portal.web.models import FirstSteps
from portal.workloads.models import Workload


@dataclass(frozen=True)
class Step:
    """A step of the list. `route` names the page to do it on, of a project if `in_project`."""

    key: str
    title: str
    words: str
    action: str
    route: str
    in_project: bool = True


STEPS = (
    Step(
        "project",
        "Create a project",
        "It holds notebooks, jobs, models and endpoints. Only members have access.",
        "New project",
        "project_new",
        in_project=False,
    ),
    Step(
        "notebook",
        "Launch a notebook",
        "JupyterLab on hardware you choose. An example notebook trains and logs a model.",
        "Launch a notebook",
        "project_notebook_new",
    ),
    Step(
        "run",
        "Run a job or log a run",
        "Submit a script, or log from any MLflow client. Metrics appear under Experiments.",
        "Train",
        "project_job_new",
    ),
    Step(
        "model",
        "Register a model",
        "Versions, stages and approvals of the models that your runs logged.",
        "Register a model",
        "project_model_register",
    ),
    Step(
        "endpoint",
        "Deploy an endpoint",
        "Serve a version of a model over HTTP, with rollback and autoscaling.",
        "Deploy",
        "project_endpoint_new",
    ),
    Step(
        "prediction",
        "Send a prediction",
        "Each endpoint has a page to try it and code to call it.",
        "Choose an endpoint",
        "project_endpoints",
    ),
    Step(
        "budget",
        "Set a budget",
        "Be alerted at 50, 80 and 100 %, or stop work at the limit.",
        "Set a budget",
        "budgets",
        in_project=False,
    ),
    Step(
        "token",
        "Use an API token",
        "For the command line, scripts and CI. This step is done with the first request.",
        "New token",
        "token_new",
        in_project=False,
    ),
)


@dataclass(frozen=True)
class StepLine:
    """A step as Home shows it. `url` is empty while the person has no project to do it in."""

    step: Step
    is_done: bool
    url: str


@dataclass(frozen=True)
class Guidance:
    """The list on Home. It has no lines once all steps are done, or while it is hidden."""

    lines: Sequence[StepLine] = ()
    is_hidden: bool = False

    @property
    def next(self) -> StepLine | None:
        """The first step that is not done."""
        return next((line for line in self.lines if not line.is_done), None)

    @property
    def done(self) -> int:
        """Number of steps that are done."""
        return sum(line.is_done for line in self.lines)


def guidance_for(principal: Principal, work_in: Project | None) -> Guidance:
    """Return the first steps of a person. Steps in a project lead to `work_in`.

    Stores the steps that were done since the last time.
    """
    user = principal.user
    stored = FirstSteps.objects.filter(user=user).first() or FirstSteps(user=user)
    if stored.hidden or len(stored.done) == len(STEPS):
        return Guidance(is_hidden=stored.hidden and len(stored.done) < len(STEPS))
    open_steps = [step.key for step in STEPS if step.key not in stored.done]
    if newly_done := _done_among(open_steps, principal):
        stored.done = [*stored.done, *newly_done]
        FirstSteps.objects.update_or_create(user=user, defaults={"done": stored.done})
    if len(stored.done) == len(STEPS):
        return Guidance()
    return Guidance([_line(step, step.key in stored.done, work_in) for step in STEPS])


def set_hidden(user: User, *, hidden: bool) -> None:
    """Hide the list from Home, or show it again."""
    FirstSteps.objects.update_or_create(user=user, defaults={"hidden": hidden})


def _line(step: Step, is_done: bool, work_in: Project | None) -> StepLine:
    if not step.in_project:
        return StepLine(step, is_done, reverse(step.route))
    url = reverse(step.route, args=[work_in.slug]) if work_in else ""
    return StepLine(step, is_done, url)


def _done_among(keys: list[str], principal: Principal) -> list[str]:
    """Return which steps were done, with two queries at most: runs are in another database."""
    user, projects = principal.user, principal.projects().live()
    evidence: dict[str, QuerySet[Any]] = {
        "project": projects,
        "notebook": Workload.objects.filter(submitted_by=user, kind=NOTEBOOK),
        "run": Job.objects.filter(workload__submitted_by=user),
        "model": VersionRecord.objects.filter(author=user),
        "endpoint": Revision.objects.filter(made_by=user),
        "prediction": Revision.objects.filter(endpoint__project__in=projects, answered__gt=0),
        "budget": Budget.objects.filter(made_by=user),
        "token": ApiToken.objects.filter(user=user, last_used_at__isnull=False),
    }
    flags = {f"has_{key}": Exists(evidence[key]) for key in keys}
    row: Any = User.objects.filter(pk=user.pk).values(**flags).get()
    done = [key for key in keys if row[f"has_{key}"]]
    if "run" in keys and "run" not in done and _has_logged(principal):
        done.append("run")
    return done


def _has_logged(principal: Principal) -> bool:
    ids = list(principal.projects().live().values_list("pk", flat=True))
    runs = Run.objects.filter(experiment__workspace__in=ids, user_id=principal.user.email)
    return runs.exists()
