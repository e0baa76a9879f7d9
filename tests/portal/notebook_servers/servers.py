"""Notebook servers for tests: a machine that starts them, a lab that reports, a Hub that opens."""

from typing import Any

from portal.core.ids import new_id
from portal.notebooks.models import Server
from portal.notebooks.services.hubs import admit_hub
from portal.workloads.models import Workload
from portal.workloads.scheduling import run_passes
from portal.workloads.tokens import token_of
from tests.personas import Api, json_of
from tests.portal.workloads.machines import Machine, finish, run

SERVERS = "projects/vision/notebooks/servers"
ADDRESS = "127.0.0.1:40123"


class Desk:
    """What one person does with notebooks, and what the processes around them say."""

    def __init__(self, api: Api, machine: Machine) -> None:
        self.api = api
        self.machine = machine
        self.hub = Api(admit_hub(name=new_id("h").lower().replace("_", "-")).secret)
        self.sequence = 0

    def launch(self, name: str = "desk", **changes: Any) -> dict[str, Any]:
        """Launch a server; answers how it is shown."""
        made = self.api.post(SERVERS, {"name": name, "tier": "small"} | changes)
        assert made.status_code == 201, made.content
        server: dict[str, Any] = json_of(made)
        return server

    def look(self, server: str) -> Any:
        """Answer how a server is shown."""
        return json_of(self.api.get(f"{SERVERS}/{server}"))

    def workload(self, server: str) -> Workload:
        """Answer the workload of the present start."""
        workload = Server.objects.select_related("workload").get(pk=server).workload
        assert workload is not None
        return workload

    def place(self, server: str) -> Workload:
        """Let the scheduler place it and the machine run it."""
        run_passes()
        workload = self.workload(server)
        run(workload)
        return self.workload(server)

    def report(self, server: str, **changes: Any) -> Any:
        """Let the lab of a server report; answers what it is told."""
        workload = self.workload(server)
        self.sequence += 1
        body = {"attempt": workload.epoch, "sequence": self.sequence, "address": ADDRESS}
        lab = Api(token_of(workload.pk, workload.epoch))
        return lab.post(f"/api/hub/v1/labs/{server}/reports", body | changes)

    def hub_servers(self) -> Any:
        """Answer what the Hub is told."""
        return json_of(self.hub.get("/api/hub/v1/servers"))

    def routed(self, server: str, start: str = "") -> Any:
        """Let the Hub say that it has opened the door."""
        if not start:
            start = json_of(self.hub.get(f"/api/hub/v1/servers/{server}"))["start"]
        return self.hub.post(f"/api/hub/v1/servers/{server}/routed", {"start": start})

    def ready(self, name: str = "desk", **changes: Any) -> str:
        """Launch a server and take it all the way; answers its id."""
        server = str(self.launch(name, **changes)["id"])
        self.place(server)
        assert self.report(server).status_code == 200
        assert self.routed(server).status_code == 200
        assert self.look(server)["state"] == "ready"
        return server

    def end(self, server: str, reason: str = "completed", **changes: Any) -> Any:
        """Let the machine report the end of a server."""
        finish(self.workload(server), reason, **changes)
        return self.look(server)
