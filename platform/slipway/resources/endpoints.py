"""Endpoints: create, promote, roll back, pause, scale, try out, and their keys."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from slipway.connection import Answer, Connection
from slipway.pages import Pages
from slipway.resources.monitoring import Monitoring
from slipway.resources.requests import build
from slipway.schemas.base import PageOf, RequestSchema
from slipway.schemas.endpoints import (
    EndpointChange,
    EndpointEventOut,
    EndpointIn,
    EndpointKeyCreated,
    EndpointKeyIn,
    EndpointKeyOut,
    EndpointOut,
    LimitsIn,
    Plan,
    PlanKind,
    Promote,
    Reason,
    ReplicaOut,
    RequestRate,
    RollbackRules,
    RolloutOut,
    TrafficPoint,
    TryIn,
    TryOut,
)
from slipway.schemas.training import LOG_READ_BYTES


class EndpointKeys:
    """Keys that clients of an endpoint ask for predictions with."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def list(self, endpoint: str, *, project: str) -> Pages[EndpointKeyOut]:
        """List the keys, newest first, without their text."""
        return Pages(self._connection, (*_path(project, endpoint), "keys"), PageOf[EndpointKeyOut])

    def create(
        self,
        endpoint: str,
        name: str,
        *,
        project: str,
        scopes: Sequence[str] | None = None,
        expires_in_days: int | None = None,
        rate_per_s: float | None = None,
        burst: int | None = None,
    ) -> EndpointKeyCreated:
        """Create a key. Its text is in this response and is never shown again.

        `scopes` are `predict` (the default) and `read`. With `rate_per_s` at most so many requests
        a second, `burst` of them at once.
        """
        rate = None
        if rate_per_s is not None:
            rate = build(RequestRate, per_s=rate_per_s, burst=burst or max(1, round(rate_per_s)))
        body = build(
            EndpointKeyIn,
            name=name,
            scopes=[*scopes] if scopes is not None else None,
            expires_in_days=expires_in_days,
            rate=rate,
        )
        segments = (*_path(project, endpoint), "keys")
        return self._connection.fetch(EndpointKeyCreated, "POST", *segments, body=body)

    def revoke(self, endpoint: str, key: str, *, project: str) -> None:
        """Revoke a key by its id. Gateways refuse it within seconds."""
        self._connection.send("DELETE", *_path(project, endpoint), "keys", key)


class Endpoints:
    """The endpoints of a project. `endpoint` is the name of one."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.keys = EndpointKeys(connection)
        self.monitoring = Monitoring(connection)

    def list(
        self, *, project: str, search: str | None = None, state: str | None = None
    ) -> Pages[EndpointOut]:
        """List endpoints, newest first. `search` looks in their names and those of models."""
        segments = ("projects", project, "endpoints")
        query = {"q": search, "state": state}
        return Pages(self._connection, segments, PageOf[EndpointOut], query)

    def get(self, endpoint: str, *, project: str) -> EndpointOut:
        """Return one endpoint: its state and the reason, its revisions, the rollout under way."""
        return self._connection.fetch(EndpointOut, "GET", *_path(project, endpoint))

    def create(
        self,
        endpoint: str,
        model: str,
        *,
        project: str,
        version: str | int | None = None,
        environment: str | None = None,
        tier: str | None = None,
        pool: str | None = None,
        min_replicas: int | None = None,
        max_replicas: int | None = None,
        target_concurrency: int | None = None,
        target_queue_ms: float | None = None,
        warm_minutes: int | None = None,
        fallback: str | None = None,
        limits: LimitsIn | Mapping[str, Any] | None = None,
        rules: RollbackRules | Mapping[str, Any] | None = None,
        capture: str | None = None,
    ) -> EndpointOut:
        """Create an endpoint that serves a model version: a number or an alias, else the latest.

        `environment` is one of the project, such as `vision` or `vision@3`, in place of the
        packages that came with the model. In a `pool` another scheduler allocates the nodes.
        `tier` is the cheapest unless given. More replicas start when each has more than
        `target_concurrency` requests at once or they wait longer than `target_queue_ms`.
        `fallback` is `standby` unless given: while no revision with traffic has a replica, a warm
        former one answers, and each answer says so. `off`: 503 with Retry-After.
        """
        body = build(
            EndpointIn,
            name=endpoint,
            model=model,
            version=None if version is None else str(version),
            environment=environment,
            tier=tier,
            pool=pool,
            min_replicas=min_replicas,
            max_replicas=max_replicas,
            target_concurrency=target_concurrency,
            target_queue_ms=target_queue_ms,
            warm_minutes=warm_minutes,
            fallback=fallback,
            limits=limits,
            rules=rules,
            capture=capture,
        )
        segments = ("projects", project, "endpoints")
        return self._connection.fetch(EndpointOut, "POST", *segments, body=body)

    def scale(
        self,
        endpoint: str,
        *,
        project: str,
        min_replicas: int | None = None,
        max_replicas: int | None = None,
        target_concurrency: int | None = None,
        target_queue_ms: float | None = None,
        warm_minutes: int | None = None,
    ) -> EndpointOut:
        """Change the number of replicas, the scale-up targets, and how long warm replicas stay.

        `warm_minutes` is for the replicas of a revision that was replaced. 0 stops them at once.
        """
        body = build(
            EndpointChange,
            min_replicas=min_replicas,
            max_replicas=max_replicas,
            target_concurrency=target_concurrency,
            target_queue_ms=target_queue_ms,
            warm_minutes=warm_minutes,
        )
        return self._connection.fetch(EndpointOut, "PATCH", *_path(project, endpoint), body=body)

    def change(
        self,
        endpoint: str,
        *,
        project: str,
        limits: LimitsIn | Mapping[str, Any] | None = None,
        rules: RollbackRules | Mapping[str, Any] | None = None,
        capture: str | None = None,
        fallback: str | None = None,
    ) -> EndpointOut:
        """Change admission limits, automatic rollback rules, and what is stored.

        `fallback` says what answers while no revision with traffic has a replica: `standby`, `off`.
        """
        body = build(EndpointChange, limits=limits, rules=rules, capture=capture, fallback=fallback)
        return self._connection.fetch(EndpointOut, "PATCH", *_path(project, endpoint), body=body)

    def promote(
        self,
        endpoint: str,
        *,
        project: str,
        model: str | None = None,
        version: str | int | None = None,
        revision: int | None = None,
        environment: str | None = None,
        plan: Plan | PlanKind | str | None = None,
        percents: Sequence[int] | None = None,
        bake_s: float | None = None,
        shadow_percent: float | None = None,
    ) -> RolloutOut:
        """Serve another version, or an earlier `revision`, by a plan.

        `environment` is one of the project, in place of the packages that came with the model.
        `plan` is `all_at_once`, `canary` (its steps in `percents`) or `shadow`. Each step lasts
        `bake_s` seconds, in which trouble takes all traffic back. Raises Conflict while another
        rollout is under way.
        """
        body = build(
            Promote,
            model=model,
            version=None if version is None else str(version),
            revision=revision,
            environment=environment,
            plan=plan_of(plan, percents, bake_s, shadow_percent),
        )
        return self._act(RolloutOut, endpoint, project, "promote", body)

    def rollback(self, endpoint: str, *, project: str, reason: str | None = None) -> EndpointOut:
        """Roll back to the previous revision, at once while that is still warm."""
        body = build(Reason, reason=reason)
        return self._act(EndpointOut, endpoint, project, "rollback", body)

    def pause(self, endpoint: str, *, project: str, reason: str | None = None) -> EndpointOut:
        """Stop the replicas. The endpoint answers 503 with the reason until it is resumed."""
        return self._act(EndpointOut, endpoint, project, "pause", build(Reason, reason=reason))

    def resume(self, endpoint: str, *, project: str) -> EndpointOut:
        """Start the replicas again."""
        return self._act(EndpointOut, endpoint, project, "resume", None)

    def delete(self, endpoint: str, *, project: str) -> EndpointOut:
        """Delete it: its replicas finish what they work on, then its name is free."""
        return self._connection.fetch(EndpointOut, "DELETE", *_path(project, endpoint))

    def try_out(self, endpoint: str, request: Mapping[str, Any], *, project: str) -> TryOut:
        """Request a prediction through the portal, without a key. `request` as `/invocations`."""
        return self._act(TryOut, endpoint, project, "try", build(TryIn, request=dict(request)))

    def rollouts(self, endpoint: str, *, project: str) -> Pages[RolloutOut]:
        """List the rollouts, newest first."""
        return Pages(self._connection, (*_path(project, endpoint), "rollouts"), PageOf[RolloutOut])

    def replicas(self, endpoint: str, *, project: str) -> Sequence[ReplicaOut]:
        """Return the replicas that live or ended lately, newest first."""
        return self._connection.fetch_list(ReplicaOut, *_path(project, endpoint), "replicas")

    def logs(self, workload: str, *, project: str) -> Iterator[bytes]:
        """Yield the log of a replica, named by its workload, as it is so far."""
        offset = 0
        while True:
            query = {"offset": offset, "limit": LOG_READ_BYTES}
            segments = ("projects", project, "workloads", workload, "log")
            before = offset
            with self._connection.stream(*segments, query=query) as body:
                for piece in body:
                    offset += len(piece)
                    yield piece
            if offset == before:
                return

    def events(self, endpoint: str, *, project: str) -> Pages[EndpointEventOut]:
        """List the events, newest first: each step and why it was taken."""
        return Pages(
            self._connection, (*_path(project, endpoint), "events"), PageOf[EndpointEventOut]
        )

    def traffic(
        self, endpoint: str, *, project: str, minutes: int | None = None
    ) -> Sequence[TrafficPoint]:
        """Return requests a second, latency and errors by the minute, oldest first."""
        segments = (*_path(project, endpoint), "traffic")
        return self._connection.fetch_list(TrafficPoint, *segments, query={"minutes": minutes})

    def page(self, endpoint: str, *, project: str) -> str:
        """Return the address of the endpoint's page."""
        return f"{self._connection.url}/p/{project}/endpoints/{endpoint}"

    def _act(
        self,
        shape: type[Answer],
        endpoint: str,
        project: str,
        verb: str,
        body: RequestSchema | None,
    ) -> Answer:
        return self._connection.fetch(shape, "POST", *_path(project, endpoint), verb, body=body)


def plan_of(
    plan: Plan | PlanKind | str | None,
    percents: Sequence[int] | None = None,
    bake_s: float | None = None,
    shadow_percent: float | None = None,
) -> Plan | None:
    """Return the requested plan, None without one, or raise InvalidInput."""
    if isinstance(plan, Plan):
        return plan
    if plan is None and percents is None and bake_s is None and shadow_percent is None:
        return None
    kind = plan or (PlanKind.CANARY if percents else None)
    return build(
        Plan,
        kind=kind,
        percents=[*percents] if percents is not None else None,
        bake_s=bake_s,
        shadow_percent=shadow_percent,
    )


def _path(project: str, endpoint: str) -> tuple[str, str, str, str]:
    return ("projects", project, "endpoints", endpoint)
