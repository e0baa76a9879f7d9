"""Small stand-ins that speak as much of Ray and TensorFlow as a cluster needs to form."""

# Real Ray takes a minute to start on a busy machine. `tests/workers/node_agent/test_clusters.py`
# has a slow test with it, and `bench/frameworks.py` a row with TensorFlow.
INIT = """
import os, socket

def init(address=None, **options):
    global _head
    host, port = (address or os.environ["RAY_ADDRESS"]).rsplit(":", 1)
    _head = socket.create_connection((host, int(port))).makefile("rw")

def nodes():
    _head.write("count\\n")
    _head.flush()
    return [{"Alive": True}] * int(_head.readline())
"""
SCRIPTS = """
import os, socket, sys, threading, time

options = dict(item.lstrip("-").split("=") for item in sys.argv[2:] if "=" in item)
members = {"head"}

def serve(peer):
    with peer, peer.makefile("rw") as stream:
        for line in stream:
            if line == "count\\n":
                stream.write(f"{len(members)}\\n")
                stream.flush()
            else:
                members.add(line)

if "--head" in sys.argv:
    server = socket.create_server((options["node-ip-address"], int(options["port"])))
    while True:
        threading.Thread(target=serve, args=[server.accept()[0]], daemon=True).start()
elif os.path.exists("never-joins"):
    time.sleep(600)
else:
    host, port = options["address"].rsplit(":", 1)
    head = socket.create_connection((host, int(port)))
    head.sendall(f"{os.getpid()}\\n".encode())
    if os.path.exists("dies"):
        time.sleep(2)
        sys.exit("the object store is full")
    head.recv(1)
"""

# A dashboard that wants the token, and shows what it got.
DASHBOARD = """
import http.server, os, socket, sys

options = dict(item.lstrip("-").split("=") for item in sys.argv[1:] if "=" in item)

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        token = f"Bearer {os.environ['RAY_AUTH_TOKEN']}"
        is_known = self.headers.get_all("Authorization") == [token]
        body = f"{self.path} rank={os.environ.get('RANK')} {options['gcs-address']}".encode()
        self.send_response(200 if is_known else 401)
        self.end_headers()
        self.wfile.write(body if is_known else b"no token")

    def log_message(self, *_):
        pass

if os.path.exists("no-dashboard"):
    sys.exit("the port is taken")
http.server.HTTPServer((options["host"], int(options["port"])), Handler).serve_forever()
"""
TENSORFLOW = """
import json, os, socket

class Resolver:
    def __init__(self):
        config = json.loads(os.environ["TF_CONFIG"])
        self.task_type, self.task_id = config["task"]["type"], config["task"]["index"]
        self._cluster = config["cluster"]

    def cluster_spec(self):
        return self._cluster

class Server:
    def __init__(self, cluster, job_name, task_index, protocol):
        self._name = f"{job_name} {task_index}"
        host, port = cluster[job_name][task_index].rsplit(":", 1)
        self._listener = socket.create_server((host, int(port)))

    def join(self):
        while True:
            with self._listener.accept()[0] as peer:
                peer.sendall(self._name.encode())

class distribute:
    Server = Server

    class cluster_resolver:
        TFConfigClusterResolver = Resolver
"""


def project(script: str, *markers: str) -> dict[str, str]:
    """Return the files of a project with `script` and the stand-ins."""
    return {
        "train.py": script,
        "packages/ray/__init__.py": INIT,
        "packages/ray/scripts/__init__.py": "",
        "packages/ray/scripts/scripts.py": SCRIPTS,
        "packages/ray/dashboard/dashboard.py": DASHBOARD,
        "packages/tensorflow/__init__.py": TENSORFLOW,
        **dict.fromkeys(markers, ""),
    }


def dashboard_packages() -> dict[str, str]:
    """Return stand-ins for what `ray[default]` adds."""
    names = ("aiohttp", "aiohttp_cors", "grpc", "opencensus", "opentelemetry", "prometheus_client")
    return {f"packages/{name}/__init__.py": "" for name in names}
