"""`deploy/`: the images are what they promise, and compose.yaml is a platform that works.

One test, because two workers of a run would build and start everything twice.
"""

import base64
import json
import os
import re
import signal
import ssl
from pathlib import Path

import httpx
import pytest

from tests.integration.deploy.engine import (
    DASHBOARD,
    HOSTS,
    NODE,
    PLATFORM,
    Engine,
    Installation,
    installed,
)
from tests.jobs import Jobs
from tests.processes import ROOT, wait_for

# Builds images from nothing.
pytestmark = [pytest.mark.deploy, pytest.mark.timeout(3600)]
SERVED = ("portal", "control", "tracking", "gateway", "notebooks", "relay")
EVERY_SERVICE = ("database", "redis", "storage", *SERVED, "front", "node-1", "node-2")
BOUNDS = {PLATFORM: 1_600_000_000, NODE: 2_600_000_000}
_STARTS_WITHIN_S = 300.0
_COMPILERS = ("cc", "c++", "cpp", "gcc", "gcc-12", "g++", "clang", "ld", "make", "as")


def test_images_and_compose_file_make_a_platform_on_which_the_demo_passes(
    engine: Engine, tmp_path: Path
) -> None:
    for image in (PLATFORM, NODE):
        _an_image_has_no_compiler_no_root_and_nothing_of_its_build(engine, image)
    _the_platform_has_no_torch_and_the_node_no_portal(engine)
    _a_process_that_was_not_let_in_says_what_to_do(engine)
    with installed(engine, tmp_path) as installation:
        for service in EVERY_SERVICE:
            _becomes_healthy(installation, service)
        _nothing_near_user_code_reaches_what_holds_the_data(installation)
        _a_stranger_signs_in_over_tls(installation)
        _the_whole_demo_passes_against_it(engine, installation)
        _a_shell_opens_in_a_running_job(installation)
        for service in ("portal", "gateway", "node-1"):
            _what_is_killed_comes_back(installation, service)


def _an_image_has_no_compiler_no_root_and_nothing_of_its_build(engine: Engine, image: str) -> None:
    script = "id -u; for name in {}; do command -v $name; done; ls /build /build-access; true"
    output = engine.docker(
        "run", "--rm", "--network", "none", "--entrypoint", "sh", image, "-c",
        script.format(" ".join(_COMPILERS)) + " 2>/dev/null",
    )  # fmt: skip
    assert output.split() in (["10001"], ["10002"])
    details = engine.inspect(image)
    assert details["Size"] < BOUNDS[image]
    assert details["Config"]["User"] == "slipway"
    assert details["Config"]["Healthcheck"]["Test"][0] == "CMD"
    history = engine.docker("history", "--no-trunc", "--format", "{{.CreatedBy}}", image)
    assert "build-access" not in history
    assert "PIP_" not in str(details["Config"]["Env"])


def _the_platform_has_no_torch_and_the_node_no_portal(engine: Engine) -> None:
    for image, absent in ((PLATFORM, "import torch"), (NODE, "import portal")):
        tried = f"python -c '{absent}' 2>&1 || echo absent"
        output = engine.docker("run", "--rm", "--entrypoint", "sh", image, "-c", tried)
        assert output.split()[-1] == "absent"


def _a_process_that_was_not_let_in_says_what_to_do(engine: Engine) -> None:
    started = "SLIPWAY_PROCESS=gateway python manage.py run 2>&1; echo status $?"
    output = engine.docker("run", "--rm", "--entrypoint", "sh", PLATFORM, "-c", started)
    assert "has no token in /data/gateway/token; run `manage.py prepare --for-up`" in output
    assert "status 2" in output


def _becomes_healthy(installation: Installation, service: str) -> None:
    wait_for(
        lambda: installation.health(service) == "healthy",
        f"health of {service}",
        within_s=_STARTS_WITHIN_S,
        every_s=0.5,
    )


def _nothing_near_user_code_reaches_what_holds_the_data(installation: Installation) -> None:
    tried = (
        "import socket, sys\n"
        "for name, port in (('database', 5432), ('redis', 6379), ('storage', 9000)):\n"
        "    try: socket.create_connection((name, port), 2)\n"
        "    except OSError: print('away', end=' ')\n"
    )
    for service in ("gateway", "notebooks", "node-1"):
        output = installation.compose("exec", "-T", service, "python", "-c", tried)
        assert output.split() == ["away"] * 3, service
        variables = str(installation.container(service)["Config"]["Env"])
        assert "DATABASE_URL" not in variables
        assert "REDIS_URL" not in variables


def _a_stranger_signs_in_over_tls(installation: Installation) -> None:
    with _browser(installation) as browser:
        response = _sign_in(browser, installation)
        assert response.status_code == httpx.codes.FOUND
        home = browser.get(response.headers["Location"])
        assert home.is_success or home.is_redirect
        cookies = response.headers.get_list("Set-Cookie")
        assert any("slipway_session" in cookie and "Secure" in cookie for cookie in cookies)
        assert "max-age" in browser.get("/account/login").headers["Strict-Transport-Security"]
    with _browser(installation, HOSTS[2]) as client:
        assert client.post("/v1/nothing/invocations", json={}).status_code == 401
    with _browser(installation, DASHBOARD) as browser:
        refused = browser.get("/")
        assert (refused.status_code, "dashboard" in refused.text) == (403, True), refused.text


def _the_whole_demo_passes_against_it(engine: Engine, installation: Installation) -> None:
    email, password = _first_administrator(installation)
    trusted = "/etc/ssl/slipway/authorities.crt"
    environment = {
        "DEMO_ADMINISTRATOR": f"{email}:{password}",
        "SSL_CERT_FILE": trusted,
        "REQUESTS_CA_BUNDLE": trusted,
        "PYTHONPATH": "/app/platform:/app",
    }
    given = [part for name, value in environment.items() for part in ("--env", f"{name}={value}")]
    shown = [
        part
        for source, target in (
            (ROOT / "scripts", "/app/scripts"),
            (ROOT / "examples", "/app/examples"),
            (installation.folder / "trust", "/etc/ssl/slipway"),
        )
        for part in ("--volume", f"{source}:{target}:ro")
    ]
    name = f"{installation.name}_demo"
    try:
        output = engine.docker(
            "run", "--name", name, "--network", f"{installation.name}_work", *given, *shown,
            "--entrypoint", "python", PLATFORM,
            "scripts/demo.py", "--exit", "--url", installation.url(HOSTS[0]),
        )  # fmt: skip
    finally:
        engine.docker("rm", "--force", name)
    assert "All steps succeeded." in output, output
    assert f"{installation.url(HOSTS[0])}/p/demo/jobs/wl_" in output
    answered = re.search(r"predictions: +([0-9]+) of 200 digits right", output)
    assert answered
    assert int(answered[1]) >= 180


def _a_shell_opens_in_a_running_job(installation: Installation) -> None:
    with _browser(installation) as browser:
        _sign_in(browser, installation)
        scopes = ["projects:read", "projects:write", "workloads:read", "workloads:write"]
        form = {"name": "shells", "preset": "custom", "scopes": scopes, "expires_in_days": "1"}
        page = browser.get("/settings/tokens/new").text
        token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page)
        assert token
        origin = installation.url(HOSTS[0])
        headers = {"Origin": origin, "Referer": f"{origin}/settings/tokens/new"}
        form |= {"csrfmiddlewaretoken": token[1]}
        made = browser.post("/settings/tokens/new", data=form, headers=headers)
        shown = re.search(r'id="token-secret">([^<]+)<', made.text)
        assert shown, made.text[:2000]
    with _browser(installation) as api:
        api.base_url = api.base_url.join("/api/v1")
        api.headers["Authorization"] = f"Bearer {shown[1]}"
        api.post("/projects", json={"name": "shells"}).raise_for_status()
        jobs = Jobs(api, project="shells", poll_s=0.5)
        job = jobs.submit("import time; time.sleep(600)", keep=[])
        jobs.wait_for(job, "running", within_s=180)
        shells = f"/projects/shells/jobs/{job}/shells"
        shell = api.post(shells, json={"rank": 0}).raise_for_status().json()["id"]
        typed = base64.b64encode(b"echo $((40 + 2))-answers\n").decode()
        output = ""
        with api.stream("GET", f"{shells}/{shell}/output") as stream:
            for line in stream.iter_lines():
                if line.startswith("event: ready"):
                    body = {"offset": 0, "data": typed}
                    api.put(f"{shells}/{shell}/input", json=body).raise_for_status()
                if line.startswith("data:"):
                    text = json.loads(line.removeprefix("data:")).get("output", "")
                    output += base64.b64decode(text).decode()
                if "42-answers" in output or line.startswith("event: end"):
                    break
        assert "42-answers" in output
        api.post(f"/projects/shells/jobs/{job}/cancel").raise_for_status()


def _what_is_killed_comes_back(installation: Installation, service: str) -> None:
    _becomes_healthy(installation, service)
    before = installation.container(service)
    os.kill(before["State"]["Pid"], signal.SIGKILL)
    wait_for(
        lambda: (
            installation.container(service)["RestartCount"] > before["RestartCount"]
            and installation.health(service) == "healthy"
        ),
        f"{service} after a kill",
        within_s=120.0,
        every_s=0.5,
    )
    if service == "portal":
        with _browser(installation) as browser:
            assert browser.get("/readyz").json()["ready"]


def _browser(installation: Installation, host: str = HOSTS[0]) -> httpx.Client:
    """Return a client of the published port, by the name of a host that no resolver here knows."""
    trusted = ssl.create_default_context(cafile=str(installation.folder / "trust/authority.crt"))

    def name(request: httpx.Request) -> None:
        request.headers["Host"] = f"{host}:{installation.port}"
        request.extensions["sni_hostname"] = host

    return httpx.Client(
        base_url=f"https://127.0.0.1:{installation.port}",
        verify=trusted,
        timeout=30,
        trust_env=False,
        event_hooks={"request": [name]},
    )


def _first_administrator(installation: Installation) -> tuple[str, str]:
    log = installation.compose("logs", "--no-color", "prepare")
    email = re.search(r"first administrator: (\S+)", log)
    password = re.search(r"password: +(\S+)", log)
    assert email
    assert password, log
    return email[1], password[1]


def _sign_in(browser: httpx.Client, installation: Installation) -> httpx.Response:
    email, password = _first_administrator(installation)
    page = browser.get("/account/login")
    assert page.is_success, page.text[:500]
    token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page.text)
    assert token
    origin = installation.url(HOSTS[0])
    return browser.post(
        "/account/login",
        data={"csrfmiddlewaretoken": token[1], "login": email, "password": password},
        headers={"Origin": origin, "Referer": f"{origin}/account/login"},
    )
