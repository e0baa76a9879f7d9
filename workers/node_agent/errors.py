"""What can go wrong in an agent.

AgentError               the agent itself cannot go on; said to the person who started it
StartError               one task cannot start; becomes the end of that task
PortalError              a call to the portal did not succeed
├── PortalUnreachable    no answer, or one that says to try later: repeat it
├── PortalRefused        the portal understood and said no
└── StaleEpoch           the task has moved on: kill what runs of it, report no more
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
    """The portal said no."""

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(f"{status} {code}: {detail}")
        self.status = status
        self.code = code


class StaleEpoch(PortalError):
    """The attempt is over for the portal."""
