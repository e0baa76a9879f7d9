"""Endpoints in the words of the command line: revisions, replicas, rollouts."""

from slipway.schemas.endpoints import EndpointOut, RevisionOut, RolloutOut


def revision_text(revision: RevisionOut) -> str:
    """Return a revision as one line: model, state, share of the traffic, environment."""
    share = f"{revision.weight} %" + (" once resumed" if revision.state == "paused" else "")
    parts = [f"{revision.model} {revision.version}", revision.state, share]
    if revision.environment_version:
        parts.append(f"environment {revision.environment_version}")
    return f"{revision.number}: {', '.join(parts)}"


def replicas_text(endpoint: EndpointOut) -> str:
    """Return how many replicas there are, and between how many."""
    bounds = f"(between {endpoint.min_replicas} and {endpoint.max_replicas})"
    if endpoint.state == "paused":
        stopping = endpoint.replicas_ready
        return f"none while paused{f', {stopping} still stopping' if stopping else ''} {bounds}"
    return f"{endpoint.replicas_ready} of {endpoint.desired_replicas} ready {bounds}"


def progress_text(rollout: RolloutOut) -> str:
    """Return how far a rollout is."""
    steps = " → ".join(f"{percent} %" for percent in rollout.percents)
    return (
        f"revision {rollout.revision}, {rollout.plan.value.replace('_', ' ')} ({steps}), "
        f"{rollout.state.replace('_', ' ')}, step {rollout.step} of {len(rollout.percents)}"
    )
