"""Endpoints in tests: models, replicas that report, gateways that ask, and time that passes."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import orjson
from django.http import HttpResponse
from django.test import Client

from portal.core import clock
from portal.core.errors import InvalidInput
from portal.endpoints.models import Endpoint, Replica, Revision, Rollout
from portal.endpoints.ports import Evidence, ServedFile, ServedModel
from portal.endpoints.reconciler import reconcile_all
from portal.workloads.models import Lease, Workload
from portal.workloads.scheduling import run_passes
from portal.workloads.tokens import token_of
from slipway.schemas.serving import LATENCY_BOUNDS_MS, BatchingReport
from tests.personas import Api, json_of
from tests.portal.workloads.machines import Machine, finish, leases_of, run, unix_ms

CONTENT = b"weights"
GOOD = len(LATENCY_BOUNDS_MS) + 1


class Models:
    """A source of models with one called digits."""

    def __init__(self) -> None:
        self.latest = 2
        self.batching: list[tuple[str, BatchingReport]] = []

    def find(self, *, project_id: str, model: str, version: str | None) -> ServedModel:
        """Return a version of digits; raises InvalidInput for any other."""
        if model != "digits" or (version or "1") not in map(str, range(1, 10)):
            raise InvalidInput(f"There is no {model} {version}.", field="version")
        return ServedModel(
            model=model,
            version=version or str(self.latest),
            format="mlflow",
            files=(ServedFile(path="model.pkl", sha256="a" * 64, size_bytes=7, place="here"),),
            golden=({"request": {"instances": [[1]]}, "predictions": [1]},),
        )

    def read(self, *, project_id: str, file: ServedFile) -> Iterator[bytes]:
        """Yield the bytes."""
        yield CONTENT

    def note_batching(
        self, *, project_id: str, served: ServedModel, report: BatchingReport
    ) -> None:
        """Keep it."""
        self.batching.append((served.version, report))


class Judge:
    """A judge that says what it is told to."""

    def __init__(self) -> None:
        self.says = ""
        self.evidence: list[Evidence] = []

    def rollback_reason(self, evidence: Evidence) -> str:
        """Say it."""
        self.evidence.append(evidence)
        return self.says


def histogram(at_ms: float, count: int) -> dict[str, Any]:
    """Return a histogram of so many predictions that took so long."""
    counts = [0] * GOOD
    place = next((i for i, b in enumerate(LATENCY_BOUNDS_MS) if at_ms <= b), GOOD - 1)
    counts[place] = count
    return {"counts": counts, "sum_ms": at_ms * count}


class GatewayClient:
    """A gateway as the portal sees it."""

    def __init__(self, secret: str, boot_id: str = "boot-1") -> None:
        self.secret = secret
        self.boot_id = boot_id
        self.sequence = 0
        self.totals: dict[str, dict[str, Any]] = {}

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> HttpResponse:
        """Send one request to the gateways' API."""
        answer: Any = Client().generic(
            method,
            f"/api/gateway/v1/{path}",
            b"" if body is None else orjson.dumps(body),
            content_type="application/json",
            headers={"Authorization": f"Bearer {self.secret}"} | headers,
        )
        response: HttpResponse = answer
        return response

    def snapshot(self) -> Any:
        """Return what to serve."""
        response = self.call("GET", "snapshot")
        assert response.status_code == 200, response.content
        return json_of(response)

    def route(self, name: str = "digits") -> Any:
        """Return what to serve of one endpoint; None when it is not among them."""
        endpoints = self.snapshot()["endpoints"]
        return next((endpoint for endpoint in endpoints if endpoint["name"] == name), None)

    def weights(self, name: str = "digits") -> dict[str, int]:
        """Return the weight of each version that is routed."""
        return {
            revision["model_version"]: revision["weight"]
            for revision in self.route(name)["revisions"]
        }

    def did(
        self,
        endpoint_id: str,
        revision_id: str,
        *,
        answered: int = 0,
        failed: int = 0,
        at_ms: float = 2.0,
        **more: Any,
    ) -> None:
        """Report that so much more has happened to a revision."""
        total = self.totals.setdefault(
            revision_id, {"answered": 0, "failed": 0, "latency": histogram(1, 0)}
        )
        grown = histogram(at_ms, answered + failed)
        total["answered"] += answered
        total["failed"] += failed
        total["latency"] = {
            "counts": [
                a + b for a, b in zip(total["latency"]["counts"], grown["counts"], strict=True)
            ],
            "sum_ms": total["latency"]["sum_ms"] + grown["sum_ms"],
        }
        counts = {"revision_id": revision_id} | total | more
        self.report(endpoints=[{"endpoint_id": endpoint_id, "revisions": [counts]}])

    def report(self, *, sequence: int | None = None, **parts: Any) -> None:
        """Send a report."""
        self.sequence = self.sequence + 1 if sequence is None else sequence
        body = {
            "gateway": "gateway",
            "boot_id": self.boot_id,
            "sequence": self.sequence,
            "snapshot_version": self.snapshot()["version"],
            "sent_unix_ms": unix_ms(),
        }
        response = self.call("POST", "reports", body | parts)
        assert response.status_code == 204, response.content


class Lab:
    """The endpoints of the project vision, and hands that let time and replicas go on."""

    def __init__(self, api: Api, machine: Machine) -> None:
        self.api = api
        self.machine = machine

    def create(self, **changes: Any) -> Any:
        """Create the endpoint digits of version 1."""
        body = {"name": "digits", "model": "digits", "version": "1", "tier": "small"} | changes
        made = self.api.post("projects/vision/endpoints", body)
        assert made.status_code == 201, made.content
        return json_of(made)

    def serving(self, **changes: Any) -> Any:
        """Create the endpoint digits and let it serve."""
        self.create(**changes)
        self.settle()
        endpoint = self.show()
        assert endpoint["state"] == "serving", endpoint
        return endpoint

    def do(self, verb: str, body: Any = None, *, status: int | None = None) -> Any:
        """Post to the endpoint digits."""
        response = self.api.post(f"projects/vision/endpoints/digits/{verb}", body or {})
        assert response.status_code == status if status else response.status_code < 300, (
            response.content
        )
        return json_of(response)

    def promote(self, version: str, *, status: int | None = None, **plan: Any) -> Any:
        """Promote a version of digits."""
        body = {"model": "digits", "version": version, "plan": plan or {"bake_s": 60}}
        return self.do("promote", body, status=status)

    def show(self) -> Any:
        """Show the endpoint digits."""
        return json_of(self.api.get("projects/vision/endpoints/digits"))

    def revision(self, number: int) -> Any:
        """Show one of its revisions."""
        return next(
            revision for revision in self.show()["revisions"] if revision["number"] == number
        )

    def story(self) -> str:
        """Tell its story, newest line first."""
        events = json_of(self.api.get("projects/vision/endpoints/digits/events"))
        return "\n".join(event["message"] for event in events["items"])

    def ids(self, number: int) -> tuple[str, str]:
        """Return the ids of the endpoint and of one of its revisions."""
        endpoint = Endpoint.objects.present().get(name="digits")
        return endpoint.pk, endpoint.revisions.get(number=number).pk

    def replicas(self, number: int) -> list[Replica]:
        """Return the living replicas of a revision."""
        alive = Replica.objects.alive().filter(revision_id=self.ids(number)[1])
        return list(alive.select_related("workload").order_by("pk"))

    def look_after(self) -> None:
        """Let the control task run."""
        reconcile_all()
        run_passes()

    def start_replicas(self) -> None:
        """Let the nodes start what waits, without a report from the model server."""
        self.look_after()
        for replica in Replica.objects.alive():
            if replica.workload is not None and replica.workload.state == "placed":
                run(replica.workload)

    def settle(self) -> None:
        """Let every replica that starts become ready, and stopped ones end, until all is calm."""
        for _ in range(4):
            before = self._states()
            self.start_replicas()
            for replica in Replica.objects.alive():
                if replica.is_pending:
                    self.report(replica, "ready", address="127.0.0.1:9000")
            for workload in Workload.objects.filter(state="stopping"):
                finish(workload, "user")
            self.look_after()
            if self._states() == before:
                break

    def _states(self) -> list[tuple[object, ...]]:
        """Return all that looking after endpoints may change."""
        return [
            *Endpoint.objects.order_by("pk").values_list("pk", "state"),
            *Revision.objects.order_by("pk").values_list("pk", "state", "weight"),
            *Replica.objects.order_by("pk").values_list("pk", "state"),
            *Rollout.objects.order_by("pk").values_list("pk", "state", "step"),
            *Workload.objects.order_by("pk").values_list("pk", "state"),
        ]

    def report(self, replica: Replica, state: str, **fields: Any) -> HttpResponse:
        """Let a replica report, with the token of its workload."""
        workload = replica.workload
        assert workload is not None
        body = {
            "replica_id": replica.pk,
            "revision_id": replica.revision_id,
            "state": state,
            "sent_unix_ms": unix_ms(),
        }
        gateway = GatewayClient(token_of(workload.pk, leases_of(workload)[0].epoch))
        return gateway.call("POST", f"replicas/{replica.pk}/reports", body | fields)

    def crash(self, replica: Replica) -> None:
        """Let a replica's process die."""
        assert replica.workload is not None
        finish(replica.workload, "signal", message="killed by SIGKILL")
        self.look_after()

    @contextmanager
    def later(self, **passed: float) -> Iterator[None]:
        """Let time pass: everything inside happens that much later than now."""
        with clock.frozen(clock.now() + timedelta(**passed)):
            running = Lease.objects.open().values_list("task_id", "epoch")
            self.machine.running = set(running)
            self.machine.beat()
            yield
