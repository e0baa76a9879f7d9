"""Jobs on a live Slipway, as a person submits and follows them over the network."""

import io
import tarfile
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import httpx

from tests.processes import wait_for

_NONE: Mapping[str, str] = MappingProxyType({})


class Jobs:
    """The jobs of a project over the REST API, for a person who may run them.

    `poll_s` is how often it looks; benches look seldom, so as not to measure themselves.
    """

    def __init__(self, api: httpx.Client, *, project: str = "vision", poll_s: float = 0.02) -> None:
        self.api = api
        self._project = f"/projects/{project}"
        self._poll_s = poll_s

    def snapshot(self, script: str, *, files: Mapping[str, str] = _NONE) -> str:
        """Upload one script, with files beside it; answers the digest."""
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as tar:
            for name, text in {"train.py": script, **files}.items():
                entry = tarfile.TarInfo(name)
                entry.size = len(text.encode())
                tar.addfile(entry, io.BytesIO(text.encode()))
        sent = self.api.post(
            f"{self._project}/snapshots",
            content=packed.getvalue(),
            headers={"Content-Type": "application/octet-stream"},
        )
        assert sent.is_success, sent.text
        return str(sent.json()["digest"])

    def submit(self, script: str, *, files: Mapping[str, str] = _NONE, **changes: Any) -> str:
        """Submit one script, with files beside it; answers the job's id."""
        snapshot = self.snapshot(script, files=files)
        body = {"script": "train.py", "snapshot": snapshot, **changes}
        made = self.api.post(f"{self._project}/jobs", json=body)
        assert made.is_success, made.text
        return str(made.json()["workload"]["id"])

    def look(self, job: str) -> Any:
        """Answer the job as it is now; None while the portal is away."""
        try:
            response = self.api.get(f"{self._project}/jobs/{job}")
        except httpx.TransportError:
            return None
        return response.json() if response.is_success else None

    def state(self, job: str) -> str:
        """Answer how the job stands; empty while the portal is away."""
        details = self.look(job)
        return str(details["workload"]["state"]) if details else ""

    def wait_for(self, job: str, *states: str, within_s: float = 60) -> str:
        """Wait until the job is in one of the states; answers which."""

        def look() -> str:
            state = self.state(job)
            return state if state in states else ""

        try:
            return wait_for(look, f"{states}", within_s=within_s, every_s=self._poll_s)
        except AssertionError as error:
            raise AssertionError(f"{error}: {self.look(job)}") from None

    def end_of(self, job: str, *, within_s: float = 60) -> Any:
        """Wait for the end of the job; answers its workload."""
        self.wait_for(job, "succeeded", "failed", "stopped", "lost", within_s=within_s)
        return self.look(job)["workload"]

    def log(self, job: str, rank: int = 0) -> str:
        """Answer the log of a rank so far."""
        return self.api.get(f"{self._project}/workloads/{job}/log", params={"rank": rank}).text

    def whole_log(self, job: str, rank: int = 0) -> str:
        """Wait for the last line of a rank that has ended; answers its log."""

        def look() -> httpx.Response | None:
            path = f"{self._project}/workloads/{job}/log"
            answer = self.api.get(path, params={"rank": rank})
            complete = answer.headers.get("X-Slipway-Complete") == "true"
            return answer if answer.is_success and complete else None

        answer = wait_for(look, f"end of the log of rank {rank}", within_s=30)
        assert answer is not None
        return answer.text

    def pid(self, job: str) -> int:
        """Wait for the process id a script printed first."""

        def look() -> int:
            words = self.log(job).split()
            return int(words[words.index("pid") + 1]) if "pid" in words[:-1] else 0

        return wait_for(look, "a process id in the log", within_s=30)
