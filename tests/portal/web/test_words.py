"""Small words: moments, icons, browsers, sentences of the audit log."""

import ast
import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from django.conf import settings

from portal.accounts.models import AuditEvent, Project
from portal.api.mlflow.routes import ROUTES
from portal.endpoints.models import Endpoint
from portal.web.account.browsers import browser_of
from portal.web.audit.messages import KINDS, VERBS, describe_event
from portal.web.base import icons
from portal.web.base.dates import exact, lasting, relative_time
from portal.web.endpoints.presenters import snippets_of
from portal.web.templatetags.slipway import facts
from slipway.schemas.registry import Verdict

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("away", "words"),
    [
        (timedelta(seconds=-3), "just now"),
        (timedelta(seconds=9), "just now"),
        (timedelta(seconds=-10), "10 seconds ago"),
        (timedelta(seconds=-60), "1 minute ago"),
        (timedelta(minutes=-119), "1 hour ago"),
        (timedelta(days=7), "in 7 days"),
        (timedelta(days=7, seconds=-1), "in 7 days"),
        (timedelta(days=-45), "1 month ago"),
        (timedelta(days=-800), "2 years ago"),
    ],
)
def test_moments_are_told_relative_to_now(away: timedelta, words: str) -> None:
    assert relative_time(NOW + away, NOW) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (0.4, "< 1 s"), (1.9, "1 s"), (200, "3 min 20 s"), (86_400 * 2 + 60, "2 d 1 min")],
)
def test_what_took_less_than_a_second_did_not_take_none(seconds: float, words: str) -> None:
    assert lasting(seconds) == words


@pytest.mark.parametrize(
    ("example", "shown"),
    [
        ({"inputs": [[1, 2], [3, 4]]}, {"inputs": [[1, 2]]}),
        (
            {"instances": [{"x": 1}, {"x": 2}], "params": {}},
            {"instances": [{"x": 1}], "params": {}},
        ),
        (
            {"dataframe_split": {"columns": ["a"], "index": [0, 1], "data": [[1], [2]]}},
            {"dataframe_split": {"columns": ["a"], "index": [0], "data": [[1]]}},
        ),
        ({"inputs": {"a": [1, 2]}}, {"inputs": {"a": [1, 2]}}),
        (
            {"inputs": [{"name": "x", "data": [1]}, {"name": "y", "data": [2]}]},
            {"inputs": [{"name": "x", "data": [1]}, {"name": "y", "data": [2]}]},
        ),
    ],
)
def test_how_to_ask_an_endpoint_is_shown_with_one_row(example: object, shown: object) -> None:
    endpoint = Endpoint(name="digits", project=Project(slug="vision"))
    for _, heading, text in snippets_of(endpoint, json.dumps(example)):
        assert (json.dumps(shown) in text) == (heading != "Python")


def test_the_browser_keeps_moments_true_with_the_same_steps() -> None:
    script = Path(
        settings.SLIPWAY_ROOT, "platform/portal/web/static/slipway/moments.js"
    ).read_text()
    python = Path(settings.SLIPWAY_ROOT, "platform/portal/web/base/dates.py").read_text()
    steps = re.compile(r'"(second|minute|hour|day|month)"')
    assert steps.findall(script) == steps.findall(python)


def test_the_exact_moment_is_utc_to_the_second() -> None:
    assert exact(NOW) == "2026-11-20 12:00:00 UTC"


def test_every_chosen_icon_is_there_and_hidden_from_screen_readers() -> None:
    for name in icons.CHOSEN:
        assert 'aria-hidden="true"' in icons.svg(name)
        assert "<path" in icons.svg(name)


def test_every_icon_a_page_uses_is_chosen_and_none_is_chosen_in_vain() -> None:
    pages = Path(settings.SLIPWAY_ROOT, "platform/portal").rglob("*.html")
    code = Path(settings.SLIPWAY_ROOT, "platform/portal/web").rglob("*.py")
    drawn = {
        name
        for page in pages
        for name in re.findall(
            r'{% icon "([a-z0-9-]+)"|empty_icon="([a-z0-9-]+)"', page.read_text()
        )
        for name in name
        if name
    }
    named = {
        word
        for file in code
        if file.name != "icons.py"
        for word in re.findall(r'"([a-z0-9-]+)"', file.read_text())
    }
    assert drawn <= icons.CHOSEN
    assert drawn | named >= icons.CHOSEN


def test_an_icon_nobody_chose_is_a_mistake() -> None:
    with pytest.raises(icons.UnknownIcon):
        icons.svg("../../../etc/passwd")


@pytest.mark.parametrize(
    ("agent", "words"),
    [
        ("Mozilla/5.0 (X11; Linux x86_64; rv:1) Gecko Firefox/140.0", "Firefox on Linux"),
        ("Mozilla/5.0 (Macintosh; Mac OS X) Chrome/140 Safari/537", "Chrome on macOS"),
        ("Mozilla/5.0 (Windows NT 10) Chrome/140 Safari/537 Edg/140", "Edge on Windows"),
        ("python-httpx/0.28", "python-httpx"),
        ("", "Unknown browser"),
    ],
)
def test_a_browser_is_told_in_two_words(agent: str, words: str) -> None:
    assert browser_of(agent) == words


def test_every_verb_of_the_audit_log_has_a_sentence_without_gaps() -> None:
    for verb in VERBS:
        event = AuditEvent(verb=verb, target_label="thing", project_slug="vision", actor="a@x")
        assert "{" not in describe_event(event)


def test_a_verb_of_a_room_to_come_is_told_as_it_is_written() -> None:
    event = AuditEvent(verb="job.submit_again", target_label="train-7", actor="a@x")
    assert describe_event(event) == "submit again · job train-7"


def _calls_of_audit() -> list[ast.Call]:
    code = Path(settings.SLIPWAY_ROOT, "platform/portal").rglob("*.py")
    trees = [ast.parse(file.read_text()) for file in code]
    calls = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [
        call
        for call in calls
        if (isinstance(call.func, ast.Name) and call.func.id in ("_audit", "_record"))
        or (isinstance(call.func, ast.Attribute) and call.func.attr == "record")
    ]


def _texts(node: ast.AST) -> set[str]:
    values = {constant.value for constant in ast.walk(node) if isinstance(constant, ast.Constant)}
    return {text for text in values if isinstance(text, str)}


@pytest.mark.thorough
def test_every_verb_the_services_record_has_a_sentence() -> None:
    spelled = re.compile(r"[a-z_]+\.[a-z_]+")
    recorded = {
        text
        for call in _calls_of_audit()
        for text in (_texts(call.args[0]) if call.args else ())
        if spelled.fullmatch(text)
    }
    recorded |= {f"model.{verdict.value}" for verdict in Verdict}
    recorded |= {route.audit for route in ROUTES if route.audit}
    recorded |= {f"notebook.{origin}" for origin in ("save", "restore", "branch")}
    assert {"budget.create", "dataset.create", "model.override"} <= recorded
    assert recorded - set(VERBS) == set()


@pytest.mark.thorough
def test_the_audit_log_is_filtered_by_every_kind_the_services_record() -> None:
    kinds = {
        text
        for call in _calls_of_audit()
        for word in call.keywords
        if word.arg == "kind"
        for text in _texts(word.value)
        if text.isidentifier()
    }
    assert {"budget", "dataset_version"} <= kinds
    assert kinds - set(KINDS) == set()


def test_facts_of_an_event_are_told_as_pages_tell_them() -> None:
    shown = facts(
        {
            "limit_nano_usd": 50_000_000_000,
            "expires_at": "2027-02-20T20:17:56.236854+00:00",
            "stops": True,
            "tags": {"team": "vision"},
            "name": None,
        }
    )
    assert shown == [
        ("limit", "$50.00"),
        ("expires at", "2027-02-20 20:17:56 UTC"),
        ("stops", "yes"),
        ("tags", "team vision"),
        ("name", "nothing"),
    ]
