"""Endpoints, the revisions they serve, and their events."""

from typing import ClassVar

from django.db import models
from django.db.models import Q

from portal.accounts.models import Project, User
from portal.compute.models import EnvironmentVersion, Pool, Tier
from portal.core.models import IdField, Row
from portal.endpoints.lifecycle import EndpointState, RevisionState
from portal.endpoints.replica_count import Cap

_STATES = [state.value for state in EndpointState]
_REVISION_STATES = [state.value for state in RevisionState]


class EndpointQuerySet(models.QuerySet["Endpoint"]):
    """Queries of endpoints. Only `portal.endpoints.transitions` changes states."""

    def present(self) -> "EndpointQuerySet":
        """Endpoints that have not been deleted."""
        return self.exclude(state=EndpointState.DELETED)

    def of_project(self, project: Project) -> "EndpointQuerySet":
        """Endpoints of one project that are not deleted, with the relations that responses need."""
        return self.of_projects(Project.objects.filter(pk=project.pk))

    def of_projects(self, projects: models.QuerySet[Project]) -> "EndpointQuerySet":
        """Endpoints of several projects that are not deleted."""
        endpoints = self.present().filter(project__in=projects)
        return endpoints.select_related("project", "tier", "pool", "made_by")

    def matching(self, *, state: str = "", text: str = "") -> "EndpointQuerySet":
        """Filter by state and text. An empty filter matches all endpoints."""
        endpoints = self
        if state:
            endpoints = endpoints.filter(state=state)
        if text:
            endpoints = endpoints.filter(
                Q(name__icontains=text)
                | Q(pk__in=Revision.objects.filter(model__icontains=text).values("endpoint"))
            )
        return endpoints


class Endpoint(Row):
    """A name under which predictions are served.

    `desired_replicas` is the desired number of replicas of each live revision, which the autoscaler
    moves between `min_replicas` and `max_replicas`. A replaced revision stays warm for
    `warm_minutes`, and answers while no other can if `fallback` is `standby`. `rules` are the
    rollback rules of rollouts, `limits` the limits that gateways enforce. `reason` explains the
    state in a sentence. The three columns `capped_` are one value, `cap`: the load needs more
    replicas than `max_replicas`. Without a `pool` its replicas run on the nodes of the
    installation.
    """

    id = IdField("ep")
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="+")
    name = models.CharField(max_length=48)
    made_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    state = models.CharField(max_length=16, default=EndpointState.CREATING)
    reason = models.CharField(max_length=2000, blank=True)
    tier = models.ForeignKey(Tier, on_delete=models.PROTECT, related_name="+")
    pool = models.ForeignKey(
        Pool, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    min_replicas = models.PositiveSmallIntegerField(default=1)
    max_replicas = models.PositiveSmallIntegerField(default=1)
    target_concurrency = models.PositiveIntegerField(default=64)
    target_queue_ms = models.FloatField(default=100.0)
    warm_minutes = models.PositiveSmallIntegerField(default=15)
    fallback = models.CharField(max_length=8, default="standby")
    desired_replicas = models.PositiveSmallIntegerField(default=1)
    calm_since = models.DateTimeField(null=True, blank=True)
    scaled_at = models.DateTimeField(null=True, blank=True)
    capped_needs = models.PositiveIntegerField(default=0)
    capped_why = models.CharField(max_length=300, blank=True)
    capped_eased_at = models.DateTimeField(null=True, blank=True)
    limits = models.JSONField(default=dict)
    capture = models.CharField(max_length=8, default="on")
    rules = models.JSONField(default=dict)

    objects: ClassVar[EndpointQuerySet] = EndpointQuerySet.as_manager()  # type: ignore[assignment]

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.CheckConstraint(condition=Q(state__in=_STATES), name="endpoint_known_state"),
            models.CheckConstraint(
                condition=Q(min_replicas__gte=1, max_replicas__gte=models.F("min_replicas")),
                name="endpoint_replica_bounds",
            ),
            # The name is part of addresses at the gateway, which serves all projects.
            models.UniqueConstraint(
                fields=["name"], condition=~Q(state="deleted"), name="endpoint_name_taken"
            ),
        ]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["project", "-id"], name="endpoint_by_project"),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def status(self) -> EndpointState:
        """The state, as a value of the enum."""
        return EndpointState(self.state)

    @property
    def cap(self) -> Cap:
        """Excess of the load over `max_replicas`. Always empty unless the endpoint is serving."""
        if self.status != EndpointState.SERVING:
            return Cap()
        return Cap(self.capped_needs, self.capped_why, self.capped_eased_at)

    @cap.setter
    def cap(self, cap: Cap) -> None:
        self.capped_needs, self.capped_why = cap.needs, cap.why
        self.capped_eased_at = cap.eased_at

    @property
    def missing_replicas_reason(self) -> str:
        """Sentence about the cap, with the next step, or "" while the replicas are enough."""
        return self.cap.sentence(self.max_replicas)


class Revision(Row):
    """A model version as an endpoint serves it.

    `served` is what a replica needs to know of the model (`portal.endpoints.ports.ServedModel`).
    `failures` counts replicas that ended by their own fault since one was last ready. The next one
    starts at `next_start_at` at the earliest. `answered` and the other counters are totals since
    the revision was created, over all gateways. `environment_version` is the version of a named
    environment that it is served in, null for the model's own packages.
    """

    id = IdField("rev")
    endpoint = models.ForeignKey(Endpoint, on_delete=models.PROTECT, related_name="revisions")
    number = models.PositiveIntegerField()
    made_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    model = models.CharField(max_length=200)
    model_version = models.CharField(max_length=100)
    served = models.JSONField()
    environment_version = models.ForeignKey(
        EnvironmentVersion, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    signature = models.JSONField(null=True, blank=True)
    state = models.CharField(max_length=16, default=RevisionState.PREPARING)
    reason = models.CharField(max_length=2000, blank=True)
    weight = models.PositiveIntegerField(default=0)
    shadow_percent = models.FloatField(default=0.0)
    failures = models.PositiveSmallIntegerField(default=0)
    next_start_at = models.DateTimeField(null=True, blank=True)
    ready_at = models.DateTimeField(null=True, blank=True)
    standby_since = models.DateTimeField(null=True, blank=True)

    answered = models.BigIntegerField(default=0)
    refused = models.BigIntegerField(default=0)
    failed = models.BigIntegerField(default=0)
    fallback = models.BigIntegerField(default=0)
    captured = models.BigIntegerField(default=0)
    uncaptured = models.BigIntegerField(default=0)
    mirrored = models.BigIntegerField(default=0)
    unmirrored = models.BigIntegerField(default=0)
    differed = models.BigIntegerField(default=0)
    shadow_failed = models.BigIntegerField(default=0)
    counts = models.JSONField(default=list)

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.CheckConstraint(
                condition=Q(state__in=_REVISION_STATES), name="revision_known_state"
            ),
            models.UniqueConstraint(fields=["endpoint", "number"], name="revision_once_a_number"),
        ]

    def __str__(self) -> str:
        return f"revision {self.number}"

    @property
    def status(self) -> RevisionState:
        """The state, as a value of the enum."""
        return RevisionState(self.state)


class EndpointEvent(Row):
    """One event in the history of an endpoint."""

    id = IdField("epe")
    endpoint = models.ForeignKey(Endpoint, on_delete=models.CASCADE, related_name="events")
    kind = models.CharField(max_length=32)
    message = models.CharField(max_length=2000)

    class Meta(Row.Meta):
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["endpoint", "id"], name="endpoint_story"),
        ]
