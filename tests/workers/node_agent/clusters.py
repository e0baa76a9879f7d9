"""A small program that speaks as much of Ray's command line and API as a cluster needs to form."""

# Real Ray takes a minute to start on a busy machine. `tests/workers/node_agent/test_clusters.py`
# has a slow test with it.
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


def project(script: str, *markers: str) -> dict[str, str]:
    """Return the files of a project with `script` and the stand-in."""
    return {
        "train.py": script,
        "packages/ray/__init__.py": INIT,
        "packages/ray/scripts/__init__.py": "",
        "packages/ray/scripts/scripts.py": SCRIPTS,
        **dict.fromkeys(markers, ""),
    }
