"""Known vulnerabilities of named environments: asked in the background, read from rows."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from pytest_django import Settings

from portal.accounts.models import Project
from portal.compute.models import NamedEnvironment, PackageCheck
from portal.compute.services.environments import accept_build_report
from portal.compute.services.named_environments import archive_named_environment
from portal.compute.tasks import check_packages
from portal.core.clock import frozen, now
from slipway.schemas.agent import EnvironmentReport
from tests.personas import Api, Personas, json_of
from tests.portal.compute.osv_server import OsvServer, osv_server
from tests.portal.workloads.machines import Machine, make_machine

PATH = "projects/vision/named-environments"
LOCKED = "jinja2==3.1.2\npillow==9.0.0\nsix==1.17.0"


@pytest.fixture
def osv(settings: Settings) -> Iterator[OsvServer]:
    """A database that the operator names."""
    with osv_server() as server:
        settings.SLIPWAY_VULNERABILITIES_URL = f"{server.url}/"
        yield server


@pytest.fixture
def machine(people: Personas) -> Machine:
    """A node that builds."""
    return make_machine("lab-1", cpus=2, gib=8)


@pytest.fixture
def bob(people: Personas) -> Api:
    """A contributor of the project."""
    return Api.of(people.bob)


def build(
    bob: Api, machine: Machine, project: Project, name: str = "trees", **changes: str
) -> dict[str, Any]:
    """Create an environment and have it built."""
    values = {"requirements": "jinja2\npillow\nsix", "locked": LOCKED} | changes
    body = {"name": name, "requirements": values["requirements"]}
    answer = bob.post(PATH, body)
    assert answer.status_code == 201, answer.content
    report = EnvironmentReport(build=1, state="ready", locked=values["locked"], log_offset=0)
    accept_build_report(
        node=machine.node, project=project, digest=json_of(answer)["digest"], report=report
    )
    return audit(bob, name)


def audit(api: Api, name: str = "trees", number: int = 1) -> dict[str, Any]:
    answer = api.get(f"{PATH}/{name}/versions/{number}")
    assert answer.status_code == 200, answer.content
    result: dict[str, Any] = json_of(answer)["audit"]
    return result


def test_vulnerabilities_of_exact_versions_are_shown(
    bob: Api, people: Personas, machine: Machine, osv: OsvServer
) -> None:
    osv.add("jinja2", "3.1.2", "PYSEC-2024-1", aliases=["CVE-2024-1"], fixed=["3.1.3", "2.11.3"])
    osv.add(
        *("jinja2", "3.1.2", "GHSA-aaaa-bbbb-cccc"),
        aliases=["CVE-2024-1"],
        fixed=["3.1.3"],
    )
    osv.add("pillow", "9.0.0", "PYSEC-2022-2", summary="", details="First line\nSecond\x1b[31m")
    osv.add("pillow", "9.0.0", "PYSEC-2022-3", withdrawn="2023-01-01T00:00:00Z")
    pending = build(bob, machine, people.vision)
    assert pending["state"] == "pending"
    assert "3 of 3 packages have not been checked yet" in pending["reason"]
    assert osv.requests == 0, "a request of a page asks nobody"
    check_packages()
    checked = audit(bob)
    assert (checked["state"], checked["packages"], checked["reason"]) == ("checked", 3, "")
    assert checked["checked_at"]
    first, second = checked["vulnerabilities"]
    assert first == {
        "package": "jinja2",
        "version": "3.1.2",
        "id": "PYSEC-2024-1",
        "aliases": ["CVE-2024-1", "GHSA-aaaa-bbbb-cccc"],
        "summary": "Summary of PYSEC-2024-1",
        "fixed": ["3.1.3"],
        "link": "https://osv.dev/vulnerability/PYSEC-2024-1",
    }
    assert (second["id"], second["summary"], second["fixed"]) == ("PYSEC-2022-2", "First line", [])


def test_an_answer_is_good_for_a_day_and_for_all_environments(
    bob: Api, people: Personas, machine: Machine, osv: OsvServer
) -> None:
    osv.page_size = 1
    for number in range(3):
        osv.add("six", "1.17.0", f"PYSEC-2026-{number}")
    build(bob, machine, people.vision)
    check_packages()
    assert len(audit(bob)["vulnerabilities"]) == 3
    assert set(osv.asked) == {("jinja2", "3.1.2"), ("pillow", "9.0.0"), ("six", "1.17.0")}
    requests = osv.requests
    other = build(bob, machine, people.vision, "forest", requirements="six", locked="six==1.17.0")
    assert other["state"] == "checked"
    check_packages()
    assert osv.requests == requests
    osv.vulnerable.clear()
    with frozen(now() + timedelta(hours=25)):
        check_packages()
    assert audit(bob)["vulnerabilities"] == []
    archive_named_environment(named=NamedEnvironment.objects.get(name="trees"))
    with frozen(now() + timedelta(days=60)):
        check_packages()
        check_packages()
    assert set(PackageCheck.objects.values_list("name", flat=True)) == {"six"}


@pytest.mark.parametrize("kind", ["status", "not_json", "wrong", "down"])
def test_a_database_that_does_not_answer_is_asked_again_later(
    bob: Api,
    people: Personas,
    machine: Machine,
    osv: OsvServer,
    settings: Settings,
    kind: str,
) -> None:
    build(bob, machine, people.vision)
    if kind == "status":
        osv.status = 503
    elif kind == "down":
        settings.SLIPWAY_VULNERABILITIES_URL = "http://127.0.0.1:9"
    else:
        osv.raw = b"<html>" if kind == "not_json" else b'{"results": []}'
    check_packages()
    failed = audit(bob)
    assert failed["state"] == "failed"
    assert "database was asked, but it" in failed["reason"]
    requests = osv.requests
    check_packages()
    assert osv.requests == requests
    osv.status, osv.raw = 200, None
    settings.SLIPWAY_VULNERABILITIES_URL = osv.url
    with frozen(now() + timedelta(minutes=6)):
        check_packages()
    assert audit(bob)["state"] == "checked"


def test_the_page_says_what_is_known(
    bob: Api, people: Personas, machine: Machine, osv: OsvServer
) -> None:
    osv.add(
        "six", "1.17.0", "PYSEC-2026-1", aliases=["CVE-2026-1"], fixed=["1.17.1"], summary="<b>"
    )
    build(bob, machine, people.vision)
    browser = Client()
    browser.force_login(people.mia)

    def page() -> str:
        answer = browser.get("/p/vision/environments/trees")
        assert answer.status_code == 200
        return answer.content.decode()

    assert "Not checked yet. 3 of 3 packages have not been checked yet." in page()
    osv.status = 503
    check_packages()
    assert "Could not be checked. The vulnerability database was asked, but it responds" in page()
    osv.status = 200
    with frozen(now() + timedelta(minutes=6)):
        check_packages()
    text = page()
    assert "Newer versions fix 1 of 1: raise them in a new version." in text
    for part in ("six 1.17.0", "CVE-2026-1", "1.17.1", "&lt;b&gt;", "slipway env audit trees@1"):
        assert part in text
    assert 'href="https://osv.dev/vulnerability/PYSEC-2026-1"' in text


def test_old_answers_stay_while_the_database_is_away(
    bob: Api, people: Personas, machine: Machine, osv: OsvServer
) -> None:
    osv.add("six", "1.17.0", "PYSEC-2026-1")
    build(bob, machine, people.vision)
    check_packages()
    osv.status = 500
    with frozen(now() + timedelta(hours=25)):
        check_packages()
    failed = audit(bob)
    assert (failed["state"], failed["packages"]) == ("failed", 3)
    assert "status 500" in failed["reason"]
    assert len(failed["vulnerabilities"]) == 1


def test_no_private_name_is_sent(
    bob: Api, people: Personas, machine: Machine, osv: OsvServer, settings: Settings
) -> None:
    settings.SLIPWAY_PACKAGE_INDEXES = "https://packages.example.org"
    extra = "--extra-index" + "-url https://packages.example.org/wheels\n"
    private = build(
        *(bob, machine, people.vision, "own"),
        requirements=f"{extra}own-tools",
        locked="own-tools==1.0\nsix==1.0",
    )
    assert private["state"] == "not_checked"
    assert "names may be private" in private["reason"]
    settings.SLIPWAY_VULNERABILITIES_EXCEPT = "acme-* Inner"
    build(
        *(bob, machine, people.vision, "mixed"),
        requirements="acme-tools\ninner\nsix",
        locked="acme-tools==1.0\ninner==2.0\nsix==1.17.0",
    )
    build(bob, machine, people.vision, "gone", requirements="old", locked="old==1.0")
    archive_named_environment(named=NamedEnvironment.objects.get(name="gone"))
    check_packages()
    assert osv.asked == [("six", "1.17.0")]
    assert set(PackageCheck.objects.values_list("name", flat=True)) == {"six"}
    mixed = audit(bob, "mixed")
    assert (mixed["state"], mixed["packages"]) == ("checked", 1)
    assert "2 packages with names that an administrator excepts" in mixed["reason"]


def test_off_sends_nothing(
    bob: Api, people: Personas, machine: Machine, osv: OsvServer, settings: Settings
) -> None:
    settings.SLIPWAY_VULNERABILITIES_URL = "off"
    off = build(bob, machine, people.vision)
    assert (off["state"], off["vulnerabilities"]) == ("not_checked", [])
    assert "switched these checks off" in off["reason"]
    check_packages()
    assert osv.requests == 0


def test_what_has_no_exact_versions_says_so(
    bob: Api, people: Personas, machine: Machine, osv: OsvServer
) -> None:
    bob.post(PATH, {"name": "new", "requirements": "six"})
    assert "not known before it is built" in audit(bob, "new")["reason"]
    built = build(bob, machine, people.vision, requirements="sources", locked="")
    assert "some packages are not wheels of an index" in built["reason"]
    check_packages()
    assert osv.requests == 0


def test_hostile_answers_stay_text(
    bob: Api, people: Personas, machine: Machine, osv: OsvServer
) -> None:
    osv.add(
        *("six", "1.17.0", "PYSEC-2026-1"),
        summary="<script>alert(1)</script>\u202e" + "x" * 5000,
        aliases=["CVE-1", "<b>", 7, "x" * 500],
        affected=[{"package": None}, "nothing", {"package": {"name": "six"}, "ranges": [{}]}],
    )
    osv.vulnerable[("six", "1.17.0")].append("../../v1/secrets")
    build(bob, machine, people.vision)
    check_packages()
    (vulnerability,) = audit(bob)["vulnerabilities"]
    assert vulnerability["aliases"] == ["CVE-1"]
    assert "\u202e" not in vulnerability["summary"]
    assert len(vulnerability["summary"]) <= 300
    assert vulnerability["fixed"] == []
