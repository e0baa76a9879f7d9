"""Cost of a sweep before it starts."""

from portal.accounts.models import Project, User
from portal.spend.presenters import with_cost
from portal.sweeps.services.sweeps import MAX_NOTE, trials_of
from portal.sweeps.services.warm_starts import warm_start_of
from portal.training.services.jobs import admission_request, quote_job
from slipway.schemas.sweeps import SweepIn, SweepQuote
from slipway.schemas.training import JobIn
from slipway.schemas.truncation import shorten


def quote_sweep(*, project: Project, by: User, spec: SweepIn) -> SweepQuote:
    """Return what a sweep would cost, in nano-USD. Nothing is started.

    Raises InvalidInput as the start of a sweep does. The snapshot may come later.
    """
    trials = trials_of(spec)
    job = spec.job.model_copy(update={"name": spec.name or spec.job.name})
    quote = quote_trials(project=project, by=by, job=job, trials=trials, parallel=spec.parallel)
    note = shorten(warm_start_of(project=project, requested=spec).note, MAX_NOTE)
    return quote.model_copy(update={"warm_start_note": note})


def quote_trials(
    *, project: Project, by: User, job: JobIn, trials: int, parallel: int
) -> SweepQuote:
    """Return what a number of trials like `job` would cost, at most `parallel` at once."""
    quote = with_cost(
        quote_job(project=project, spec=job),
        admission_request(project=project, by=by, spec=job),
    )
    parallel = min(parallel, trials)
    return SweepQuote(
        job=quote,
        trials=trials,
        parallel=parallel,
        nano_usd_per_hour=quote.nano_usd_per_hour * parallel,
        expected_nano_usd=quote.expected.nano_usd * trials if quote.expected else None,
    )
