"""What monitoring says about a rollout: whether the new revision predicts worse than it should."""

from portal.endpoints.models import Endpoint, Revision
from portal.endpoints.ports import Evidence
from portal.monitoring.alerting import quality_trouble
from portal.monitoring.models import DriftWindow
from portal.monitoring.monitor_settings import settings_of
from slipway.schemas.truncation import name_some

_SHOWN = 5


class MonitoringJudge:
    """Judges a new revision by what was measured of its predictions: rows of the database alone.

    Its outputs differing from the baseline speaks against it; so does measured quality. That
    inputs drift does not: the revision before would get the same.
    """

    def trouble_with(self, evidence: Evidence) -> str:
        """Return in a sentence why the revision has to go back, "" while nothing speaks for it."""
        endpoint = Endpoint.objects.get(pk=evidence.endpoint_id)
        chosen = settings_of(endpoint)
        revision = Revision.objects.filter(pk=evidence.revision_id).defer("served").first()
        if revision is None:
            return ""
        if chosen.watch_quality:
            for finding in quality_trouble(endpoint, revision, chosen):
                return finding.reason
        return self._outputs(evidence) if chosen.watch_outputs else ""

    def _outputs(self, evidence: Evidence) -> str:
        windows = DriftWindow.objects.filter(
            endpoint=evidence.endpoint_id,
            revision_id=evidence.revision_id,
            ends_at__gte=evidence.since,
        )
        last = windows.order_by("-ends_at").first()
        names = [name for name in last.drifted if name.startswith("out.")] if last else []
        if not names or last is None or any(name.startswith("in.") for name in last.drifted):
            return ""
        shown = name_some([name.removeprefix("out.") for name in names], _SHOWN)
        return (
            f"Its outputs differ from the baseline in two windows in a row ({shown}), while its "
            "inputs do not."
        )
