"""Declaration of the policy of an agent API operation."""

from typing import Any

from django.http import HttpRequest

from portal.api.routing import Gate
from portal.core.policy import Policy


class AgentGate(Gate):
    """A gate for machines. Only the policy decides."""

    def __call__(self, request: HttpRequest) -> Any:
        """Return a truthy value to allow the request, or raise an error to refuse it."""
        match = request.resolver_match
        self.policy.check(request, dict(match.kwargs) if match else {})
        return True


def agent_gate(policy: Policy) -> AgentGate:
    """Declare who may call an operation of the agent API."""
    return AgentGate(policy)
