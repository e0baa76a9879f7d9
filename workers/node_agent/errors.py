"""Error classes of the agent.

AgentError               the agent cannot continue, reported to the person who started it
StartError               one task cannot start, recorded as the end of that task
StaleEpoch               the task has moved on for the portal: kill its processes, report no more

Other failures of calls to the portal are in `workers.portal_client.client`.
"""

from slipway.schemas.workloads import ReasonCode
from workers.portal_client.client import PortalError


class AgentError(Exception):
    """The agent cannot run. The message says what to do."""


class StartError(Exception):
    """A task cannot start. The message is a sentence for its owner."""

    def __init__(self, message: str, reason: ReasonCode = ReasonCode.START_FAILED) -> None:
        super().__init__(message)
        self.reason = reason


class StaleEpoch(PortalError):
    """The attempt is over for the portal."""
