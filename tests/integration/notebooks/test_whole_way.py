"""Launched, signed in to, worked in and stopped, through the real Hub, proxy and node."""

import json
import secrets
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

import slipway
from tests.notebooks import PASSWORD, SERVERS, Person, notebook_of, request_of
from tests.portals import RunningPortal
from tests.processes import clean_environment, wait_for

pytestmark = pytest.mark.integration

# A repository of the project's, cloned, changed and pushed to.
_GIT = (
    "cd $(mktemp -d -p .) && git init -q --bare shared.git && git clone -q shared.git copy"
    " && cd copy && echo 1 > one.txt"
    " && git add one.txt && git -c user.name=Bob -c user.email=bob@example.org commit -qm first"
    " && git push -q origin HEAD && echo pushed $(git -C ../shared.git rev-list --all --count)"
)


@pytest.mark.thorough
def test_the_whole_way(bob: Person) -> None:
    server = bob.ready("whole", idle_minutes=30)
    desk = bob.open(server)
    assert "jupyter-config-data" in desk.page.text
    assert str(desk.page.url).startswith(desk.base), "nobody was asked to sign in again"
    kernel = desk.kernel()
    output = desk.run(
        kernel,
        "import mlflow, slipway, os\n"
        "print(mlflow.get_tracking_uri(), os.environ['SLIPWAY_PROJECT'], os.getcwd())",
    )
    # What libraries warn of when they are imported stands there, too.
    assert any(
        "/mlflow vision " in line and line.endswith("/workspace") for line in output.splitlines()
    ), output
    # The first server of a project has found an example.
    assert desk.call("GET", "contents/welcome.ipynb").json()["type"] == "notebook"
    # The token of user code is good for the project, and is not the portal's session.
    output = desk.run(kernel, "print(slipway.Client().whoami().token.project)")
    assert output.strip() == "vision", output
    busy = "import time; print('begun', flush=True); time.sleep(3)"
    with desk.connect(kernel):
        desk.run(kernel, busy)
    assert "kernel" in bob.look(server)["why_alive"]
    desk.run(kernel, "open('kept.txt', 'w').write('as it was')")
    # A cell submits a job, in the person's name and the project's.
    output = desk.run(
        kernel,
        "open('hi.py', 'w').write('print(6 * 7)')\n"
        "print(slipway.train('hi.py', folder='.').workload.id)",
    )
    job = f"/projects/vision/jobs/{output.split()[-1]}"
    wait_for(
        lambda: bob.api.get(job).json()["workload"]["state"] == "succeeded",
        "the job of a cell",
        within_s=60,
    )
    output = desk.type(_GIT)
    assert "pushed 1" in output, output
    # A save is a version, and one that was made just before the end is not lost.
    path = f"kept-{secrets.token_hex(3)}.ipynb"
    saved = desk.call("PUT", f"contents/{path}", json=notebook_of("print('as it was')"))
    assert saved.is_success, saved.text
    assert bob.stop(server)["cost_nano_usd"] > 0
    file = bob.file(path)
    assert file, "the version is there before any other server has started"
    assert (file["latest"]["number"], file["latest"]["saved_by"]) == (1, "bob@example.org")

    bob.start(server)
    again = bob.open(server)
    assert again.run(again.kernel(), "print(open('kept.txt').read())").strip() == "as it was"
    bob.stop(server)


@pytest.mark.thorough
def test_a_cell_runs_as_a_job_and_shows_its_log(bob: Person) -> None:
    desk = bob.open(bob.ready("cells"))
    kernel = desk.kernel()
    cell = "import os\nprint('rank', os.environ['RANK'], 'of', os.environ['WORLD_SIZE'])"
    output = desk.run(kernel, f"%%slipway --procs 2 --no-code\n{cell}", within_s=180)
    assert "[0] rank 0 of 2" in output, output
    assert "[1] rank 1 of 2" in output, output
    output = desk.run(kernel, "%%slipway --no-code\nraise SystemExit(3)", within_s=180)
    assert "failed: " in output, output
    assert "Traceback" not in output, output


@pytest.mark.thorough
def test_what_pip_installs_survives_a_stop(bob: Person) -> None:
    server = bob.ready("layer")
    desk = bob.open(server)
    kernel = desk.kernel()
    package = (
        "from pathlib import Path\n"
        "home = Path('made-here'); home.mkdir(exist_ok=True)\n"
        "(home / 'pyproject.toml').write_text('[project]\\nname = \"made-here\"\\n"
        'version = "1"\\n[build-system]\\nrequires = []\\nbuild-backend = "back"\\n'
        'backend-path = ["."]\\n\')\n'
        "(home / 'back.py').write_text('''import zipfile\n"
        "def build_wheel(to, *_):\n"
        '    name = "made_here-1-py3-none-any.whl"\n'
        '    info = "made_here-1.dist-info"\n'
        '    with zipfile.ZipFile(f"{to}/{name}", "w") as out:\n'
        '        out.writestr("made_here.py", "SAYS = \'here\'")\n'
        '        out.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\\\\nName: made-here'
        '\\\\nVersion: 1\\\\n")\n'
        '        out.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\\\\nRoot-Is-Purelib: true'
        '\\\\nTag: py3-none-any\\\\n")\n'
        '        out.writestr(f"{info}/RECORD", "")\n'
        "    return name\n''')\n"
    )
    assert "Error" not in desk.run(kernel, package)
    output = desk.run(kernel, "!pip install --no-build-isolation --no-index ./made-here")
    assert "Successfully installed made-here-1" in output, output
    output = desk.type("slipway whoami")
    assert "bob@example.org" in output, output
    bob.stop(server)
    bob.start(server)
    again = bob.open(server)
    assert again.run(again.kernel(), "import made_here; print(made_here.SAYS)").strip() == "here"
    output = again.type("pip show made-here && git var GIT_AUTHOR_IDENT")
    assert "Name: made-here" in output, output
    assert "<bob@example.org>" in output, output
    bob.stop(server)


@pytest.mark.thorough
def test_nobody_else_gets_in_and_no_cookie_of_the_portal_does(
    running: RunningPortal, bob: Person
) -> None:
    server = bob.ready("private")
    desk = bob.open(server)
    of_notebooks = {
        cookie.name for cookie in bob.browser.cookies.jar if cookie.domain == "127.0.0.2"
    }
    of_portal = {cookie.name for cookie in bob.browser.cookies.jar if "localhost" in cookie.domain}
    assert of_portal, "the portal has cookies of its own"
    assert not of_notebooks & of_portal
    alice = Person(running, "alice", PASSWORD)
    assert alice.browser.get(f"{desk.base}/lab").status_code == 403
    assert alice.browser.get(f"{desk.base}/api/contents").status_code == 403
    assert httpx.get(f"{desk.base}/api/contents").status_code == 403
    # The token in a kernel opens nothing in the Hub but this server, and starts none.
    kernel = desk.kernel()
    asks = (
        "import os, urllib.request as u\n"
        "def ask(path, method='GET'):\n"
        "    token = os.environ['JUPYTERHUB_API_TOKEN']\n"
        "    url = os.environ['JUPYTERHUB_API_URL'] + path\n"
        "    try:\n"
        "        return u.urlopen(u.Request(url, method=method, data=b'{}' if method == 'POST' "
        "else None, headers={'Authorization': 'token ' + token})).status\n"
        "    except u.HTTPError as error:\n"
        "        return error.code\n"
        "user = os.environ['JUPYTERHUB_USER']\n"
        "print(ask('/users'), ask(f'/users/{user}/servers/other', 'POST'))"
    )
    assert desk.run(kernel, asks).strip() == "403 403"
    # An insecure address of the page's own: without the anti-forgery token nothing is taken.
    forged = bob.browser.post(f"{desk.base}/api/kernels", json={"name": "python3"})
    assert forged.status_code == 403
    # A program of Bob's gets in by a key, which opens nothing else and ends with the server.
    key = bob.api.post(f"{SERVERS}/{server}/key").json()
    token = {"Authorization": f"token {key['token']}"}
    assert httpx.get(f"{key['url']}api/contents", headers=token).is_success
    assert httpx.get(f"{bob.notebooks}/hub/api/users", headers=token).status_code == 403
    bob.stop(server)
    assert not httpx.get(f"{key['url']}api/contents", headers=token).is_success


def test_a_server_that_dies_says_why_and_starts_with_one_click(bob: Person) -> None:
    server = bob.ready("mortal")
    desk = bob.open(server)
    kernel = desk.kernel()
    with desk.connect(kernel) as channel:
        channel.send(request_of("import os; os.kill(os.getppid(), 9)", "die"))
        failed = bob.wait_for(server, "failed")
    assert "killed" in failed["explanation"].lower(), failed
    assert failed["next_step"]
    bob.start(server)
    bob.stop(server)


@pytest.mark.thorough
def test_a_schedule_is_changed_from_the_command_line(running: RunningPortal, bob: Person) -> None:
    server = bob.ready("timed", tier="desk", daily_stop="23:58")

    def run_command(*arguments: str) -> Any:
        done = subprocess.run(
            [sys.executable, "-m", "slipway", *arguments, "--project", "vision", "--json"],
            env=clean_environment()
            | {
                "SLIPWAY_URL": running.url,
                "SLIPWAY_TOKEN": running.tokens["bob"],
                "PYTHONPATH": str(Path(slipway.__file__).parents[1]),
            },
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    times = ("--daily-start", "00:01", "--days", "sat,sun", "--idle", "25")
    changed = run_command("notebook", "edit", server, *times)
    assert (changed["daily_start"], changed["daily_stop"]) == ("00:01", "23:58")
    assert (changed["days"], changed["idle_minutes"]) == (["sat", "sun"], 25)
    cleared = run_command("notebook", "edit", server, "--unscheduled")
    assert (cleared["daily_start"], cleared["daily_stop"], cleared["state"]) == (
        None,
        None,
        "ready",
    )
    bob.stop(server)
