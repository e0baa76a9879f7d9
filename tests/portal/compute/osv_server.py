"""A server on the loopback interface that speaks the documented API of OSV."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class OsvServer:
    """Advisories by package and version, and the questions that arrived."""

    def __init__(self) -> None:
        self.vulnerable: dict[tuple[str, str], list[str]] = {}
        self.advisories: dict[str, dict[str, Any]] = {}
        self.asked: list[tuple[str, str]] = []
        self.requests = 0
        self.status = 200
        self.raw: bytes | None = None
        self.page_size = 100
        self.url = ""

    def add(self, name: str, version: str, id_: str, **fields: Any) -> None:
        """Add an advisory about one version."""
        self.vulnerable.setdefault((name, version), []).append(id_)
        fixed = fields.pop("fixed", [])
        events = [{"introduced": "0"}, *({"fixed": each} for each in fixed)]
        self.advisories[id_] = {
            "id": id_,
            "summary": f"Summary of {id_}",
            "affected": [
                {
                    "package": {"name": name, "ecosystem": "PyPI"},
                    "ranges": [
                        {"type": "GIT", "events": [{"introduced": "0"}, {"fixed": "0a1b2c3d"}]},
                        {"type": "ECOSYSTEM", "events": events},
                    ],
                },
                {
                    "package": {"name": name, "ecosystem": "npm"},
                    "ranges": [{"type": "ECOSYSTEM", "events": [{"fixed": "99.0.0"}]}],
                },
            ],
        } | fields

    def batch(self, queries: list[dict[str, Any]]) -> dict[str, Any]:
        """Answer POST /v1/querybatch."""
        results = []
        for query in queries:
            pin = (query["package"]["name"], query["version"])
            assert query["package"]["ecosystem"] == "PyPI"
            self.asked.append(pin)
            start = int(query.get("page_token") or 0)
            ids = self.vulnerable.get(pin, [])
            page = ids[start : start + self.page_size]
            result: dict[str, Any] = {}
            if page:
                result["vulns"] = [{"id": id_, "modified": "2026-01-01T00:00:00Z"} for id_ in page]
            if start + self.page_size < len(ids):
                result["next_page_token"] = str(start + self.page_size)
            results.append(result)
        return {"results": results}


@contextmanager
def osv_server() -> Iterator[OsvServer]:
    """Run one."""
    osv = OsvServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self, document: object) -> None:
            osv.requests += 1
            body = osv.raw if osv.raw is not None else json.dumps(document).encode()
            status = 404 if document is None and osv.status == 200 else osv.status
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            assert self.path == "/v1/querybatch"
            self.answer(osv.batch(body["queries"]))

        def do_GET(self) -> None:
            self.answer(osv.advisories.get(self.path.removeprefix("/v1/vulns/")))

        def log_message(self, *_arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    osv.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield osv
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
