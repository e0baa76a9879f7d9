"""The same saved by several people at one moment, as when a portal comes back: all are kept."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection, connections

from tests.personas import Api, Personas, json_of
from tests.portal.notebooks.notebooks import code, notebook, send

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite lets one write at a time"),
]
_SAME = notebook(code("print('the portal died')", count=1, prints="the portal died\n"))
_EACH = 5
# A write takes so long, as on a machine that has much to do.
_DAWDLE_S = 0.05


def _dawdle(
    execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]
) -> Any:
    answer = execute(sql, params, many, context)
    if sql.startswith("INSERT"):
        time.sleep(_DAWDLE_S)
    return answer


def test_the_same_saved_at_one_moment_is_a_version_for_each(people: Personas) -> None:
    together = threading.Barrier(_EACH)

    def save(number: int) -> Any:
        try:
            with connection.execute_wrapper(_dawdle):
                together.wait()
                return send(Api.of(people.bob), f"same-{number}.ipynb", _SAME)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(_EACH) as pool:
        answers = list(pool.map(save, range(_EACH)))
    assert [answer.status_code for answer in answers] == [200] * _EACH, [
        answer.content for answer in answers
    ]
    sources = {json_of(answer)["latest"]["source_digest"] for answer in answers}
    assert len(sources) == 1
    for number, answer in enumerate(answers):
        where = f"projects/vision/notebook-files/{json_of(answer)['id']}/versions/1/content"
        assert Api.of(people.bob).get(where).content == _SAME, number
