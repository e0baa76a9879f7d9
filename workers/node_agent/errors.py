"""Error classes of the agent.

AgentError               the agent cannot continue, reported to the person who started it
StartError               one task cannot start, recorded as the end of that task
PortalError              a call to the portal did not succeed
├── PortalUnreachable    no response, or one that asks to retry later: repeat the call
├── PortalRefused        the portal understood and refused
└── StaleEpoch           the task has moved on: kill its processes, report no more
"""

from slipway.schemas.workloads import ReasonCode


class AgentError(Exception):
    """The agent cannot run. The message says what to do."""


class StartError(Exception):
    """A task cannot start. The message is a sentence for its owner."""

    def __init__(self, message: str, reason: ReasonCode = ReasonCode.START_FAILED) -> None:
        super().__init__(message)
        self.reason = reason


class PortalError(Exception):
    """A call to the portal did not succeed."""


class PortalUnreachable(PortalError):
    """No usable response. The same call may be repeated."""


class PortalRefused(PortalError):
    """The portal refused the call."""

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(f"{status} {code}: {detail}")
        self.status = status
        self.code = code


class StaleEpoch(PortalError):
    """The attempt is over for the portal."""
