"""Monitoring's judgement of a rollout: drift of the outputs and measured quality."""

from portal.endpoints.models import Endpoint, Revision
from portal.endpoints.ports import Evidence
from portal.monitoring.alerting import quality_alerts
from portal.monitoring.models import DriftWindow
from portal.monitoring.monitor_settings import settings_of
from slipway.schemas.truncation import join_names

_SHOWN = 5


class MonitoringJudge:
    """Judges a new revision by measurements of its predictions. Only the database is read.

    Outputs that differ from the baseline count against it, and so does measured quality. Drifting
    inputs do not: the previous revision would get the same ones.
    """

    def rollback_reason(self, evidence: Evidence) -> str:
        """Return the reason to roll the revision back as a sentence, or "" if there is none."""
        endpoint = Endpoint.objects.get(pk=evidence.endpoint_id)
        chosen = settings_of(endpoint)
        revision = Revision.objects.filter(pk=evidence.revision_id).defer("served").first()
        if revision is None:
            return ""
        if chosen.watch_quality:
            for finding in quality_alerts(endpoint, revision, chosen):
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
        shown = join_names([name.removeprefix("out.") for name in names], _SHOWN)
        return (
            f"Its outputs differ from the baseline in two windows in a row ({shown}), while its "
            "inputs do not."
        )
