"""Fixtures every test may use: personas and clients."""

import asyncio
import gc
import shutil
import signal
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.conf import settings
from django.db import connections
from django.test import TransactionTestCase
from pytest_django import DjangoDbBlocker

from portal.accounts.request_origin import Origin, origin_context
from portal.config.backends.sqlite.files import allow_creation
from portal.config.env import env
from portal.config.tracking_schema import create_for_tests, forget_connections
from portal.endpoints.ports import models, register_models
from tests import file_times, reruns
from tests.folders import PREFIX
from tests.live import live_portal
from tests.personas import Api, Personas, make_personas
from tests.portals import plain_portal
from tests.prepared import fill_in_memory, template_of_the_run

__all__ = ["live_portal", "plain_portal"]

# jsonschema works without this grammar, which each process of the tests would build for seconds.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]


def pytest_addoption(parser: pytest.Parser) -> None:
    """`pytest --refresh` writes the checked-in snapshots anew instead of comparing with them."""
    parser.addoption("--refresh", action="store_true", help="write the checked-in snapshots anew")


def pytest_configure(config: pytest.Config) -> None:
    """Let every test with a database use MLflow's too: each job has a run there.

    Hear the signals that a shell in the background, or nohup, makes its programs ignore. What is
    ignored here, the programs under test would ignore too, and wait for ever.
    """
    gc.set_threshold(100_000, 10, 10)
    for plugin in (reruns, file_times):
        config.pluginmanager.register(plugin, plugin.__name__)
    TransactionTestCase.databases = {"default", "tracking"}
    for number, handler in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGHUP, signal.SIG_DFL),
    ):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


@pytest.fixture(scope="module", autouse=True)
def _models_are_those_of_the_registry() -> Iterator[None]:
    """Let stand-ins for models, which some worlds register, end with the tests of their module."""
    before = models()
    yield
    register_models(before)


@pytest.fixture(autouse=True)
def _nobody_speaks_yet() -> Iterator[None]:
    """Let changes of a test be those of nobody, whoever signed in during the test before it."""
    with origin_context(Origin()):
        yield


@pytest.fixture(scope="session", autouse=True)
def _authorities_are_read_once() -> Iterator[None]:
    """Let clients of HTTP share the list of authorities: 30 ms of a processor for each otherwise.

    Tests make thousands of them, and ask again and again whether a process answers by now.
    """
    with pytest.MonkeyPatch.context() as patch:
        once = cache(httpx.create_ssl_context)
        patch.setattr("httpx._transports.default.create_ssl_context", once)
        yield


@pytest.fixture(scope="session", autouse=True)
def _append_only_tables_are_flushed() -> Iterator[None]:
    """Let Django empty all tables after a `transaction=True` test on PostgreSQL.

    Append-only tables refuse TRUNCATE to everybody; `replica` leaves triggers out for the flush.
    """
    operations = connections["default"].ops
    if connections["default"].vendor != "postgresql":
        yield
        return
    flush = operations.sql_flush

    def without_triggers(*args: Any, **options: Any) -> list[str]:
        return ["SET LOCAL session_replication_role = replica;", *flush(*args, **options)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(operations, "sql_flush", without_triggers)
        yield


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Let the collector of garbage look no more at the thousands of tests and all that is loaded.

    They stay until the end; walking through them again and again costs minutes.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def refresh(request: pytest.FixtureRequest) -> bool:
    """Whether this run writes the snapshots anew."""
    return bool(request.config.getoption("--refresh"))


def pytest_unconfigure(config: pytest.Config) -> None:
    """Leave no folder behind. Those of the processes of `-n` are in one, which the last removes."""
    folder = Path(settings.DATA_DIR)
    if folder.name.startswith(PREFIX):
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def django_db_modify_db_settings(django_db_modify_db_settings: None) -> None:
    """Let the test run's database have its tables from one that was made before."""
    for connection in connections.all():
        if connection.vendor == "sqlite":
            connection.settings_dict["TEST"]["MIGRATE"] = False
        else:
            connection.settings_dict["TEST"]["TEMPLATE"] = template_of_the_run(env().database_url)


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """Fill the test run's databases: ours, and that of MLflow, whose tables Django does not make.

    On PostgreSQL they are one, which Django tells MLflow's only if a test asks for it by name.
    A test that reads or writes them asks for the database by name:
    `pytest.mark.django_db(databases=["default", "tracking"])`.
    """
    allow_creation()  # of MLflow's file, which Django sets up only where a test asks for it
    with django_db_blocker.unblock():
        if connections["default"].vendor == "sqlite":
            connections["default"].ensure_connection()
            fill_in_memory(connections["default"].connection)
        else:
            made = connections["default"].settings_dict["NAME"]
            connections["tracking"].settings_dict["NAME"] = made
        create_for_tests(env().database_url)
    yield
    # The last test may have been one with a browser, whose loop counts as running until it is over.
    asyncio._set_running_loop(None)
    with django_db_blocker.unblock():
        forget_connections()


@pytest.fixture
def people(db: None) -> Personas:
    """Alice owns the project vision, Bob contributes, Vera views, Charlie is a stranger."""
    return make_personas()


@pytest.fixture
def api(db: None) -> Api:
    """A client of the REST API that speaks for nobody yet."""
    return Api()
