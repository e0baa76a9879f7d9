"""How an operation of the agent API declares who may call it."""

from typing import Any

from django.http import HttpRequest

from portal.api.routing import Gate
from portal.core.policy import Policy


class AgentGate(Gate):
    """A gate behind which no person stands: the policy alone decides."""

    def __call__(self, request: HttpRequest) -> Any:
        """Return a truthy value to allow; raises one of our errors to refuse."""
        match = request.resolver_match
        self.policy.check(request, dict(match.kwargs) if match else {})
        return True


def agent_gate(policy: Policy) -> AgentGate:
    """Declare who may call an operation of the agent API."""
    return AgentGate(policy)
