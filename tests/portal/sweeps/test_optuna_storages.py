"""Logs of Optuna storages through the REST API: appended in order, validated, bounded."""

import json
from typing import Any

import pytest

from portal.sweeps.models import OptunaStorage
from slipway.schemas.accounts import Scope
from slipway.schemas.studies import (
    MAX_ENTRIES,
    MAX_ENTRIES_A_CALL,
    MAX_ENTRY_BYTES,
    MAX_SIZE_BYTES,
    MAX_STORAGES,
)
from tests.personas import Api, Personas, json_of

LOG = "projects/vision/optuna-storages/default/log"
TIME = "2026-11-30T10:00:00.000000+00:00"
FLOAT = json.dumps(
    {"name": "FloatDistribution", "attributes": {"low": 0.1, "high": 1, "log": True, "step": None}}
)
CHOICES = json.dumps(
    {"name": "CategoricalDistribution", "attributes": {"choices": ["adam", None, 3, True]}}
)


def entry(op_code: int, **fields: Any) -> str:
    """Return the JSON text of an operation of one worker."""
    return json.dumps({"op_code": op_code, "worker_id": "w-1", **fields})


def create_study(name: str = "digits") -> str:
    return entry(0, study_name=name, directions=[2])


def append(api: Api, *entries: str, path: str = LOG, key: str | None = None) -> Any:
    """Append entries that must be accepted. Returns the answer's body."""
    answer = api.post(path, {"entries": list(entries)}, key=key)
    assert answer.status_code == 201, answer.content
    return json_of(answer)


def refusal(api: Api, *entries: str) -> Any:
    answer = api.post(LOG, {"entries": list(entries)})
    assert answer.status_code in (409, 422), answer.content
    return json_of(answer)


@pytest.mark.postgres
def test_entries_get_consecutive_numbers_and_are_read_in_parts(people: Personas, bob: Api) -> None:
    assert bob.get(LOG).status_code == 404
    created = append(bob, create_study())
    assert (created["first"], created["length"]) == (0, 1)
    more = [entry(4, study_id=0, datetime_start=TIME) for _ in range(3)]
    assert append(bob, *more) == created | {"first": 1, "length": 4}
    vera = Api.of(people.vera)
    part = json_of(vera.get(f"{LOG}?from=1&limit=2"))
    assert [json.loads(text)["op_code"] for text in part["entries"]] == [4, 4]
    assert (part["next"], part["length"]) == (3, 4)
    assert json_of(vera.get(f"{LOG}?from=4"))["entries"] == []


@pytest.mark.postgres
def test_an_append_that_is_repeated_with_its_key_is_in_the_log_once(bob: Api) -> None:
    first = append(bob, create_study(), key="append-1")
    assert append(bob, create_study(), key="append-1") == first
    assert json_of(bob.get(LOG))["length"] == 1


def test_a_viewer_reads_a_contributor_writes_and_nobody_else_sees_it(
    people: Personas, bob: Api
) -> None:
    append(bob, create_study())
    vera, charlie = Api.of(people.vera), Api.of(people.charlie)
    assert vera.post(LOG, {"entries": [create_study()]}).status_code == 403
    theirs = "projects/other/optuna-storages/default/log"
    assert charlie.get(LOG).content != charlie.get(theirs).content  # ids of the requests
    assert charlie.get(LOG).status_code == charlie.get(theirs).status_code == 404
    assert charlie.post(LOG, {"entries": [create_study()]}).status_code == 404
    assert append(charlie, create_study("theirs"), path=theirs)["first"] == 0
    assert json_of(bob.get(LOG))["length"] == 1
    reader = Api.of(people.bob, scopes=[Scope.EXPERIMENTS_READ])
    assert reader.get(LOG).status_code == 200
    assert reader.post(LOG, {"entries": [create_study()]}).status_code == 403


GOOD = {
    "create_study": create_study(),
    "delete_study": entry(1, study_id=0),
    "study_user_attr": entry(2, study_id=0, user_attr={"a": [1, {"b": None}]}),
    "study_system_attr": entry(3, study_id=0, system_attr={"a": "ü"}),
    "create_trial": entry(4, study_id=0, datetime_start=TIME),
    "add_trial": entry(
        4,
        study_id=0,
        state=1,
        value=0.5,
        values=None,
        datetime_start=TIME,
        datetime_complete=TIME,
        distributions={"lr": FLOAT, "solver": CHOICES},
        params={"lr": 0.2, "solver": 3},
        user_attrs={},
        system_attrs={},
        intermediate_values={"1": 0.3, "2": float("nan")},
    ),
    "enqueue_trial": entry(4, study_id=0, state=4, datetime_start=None, value=None, values=None),
    "param": entry(5, trial_id=0, param_name="lr", param_value_internal=1, distribution=FLOAT),
    "run": entry(6, trial_id=0, state=0, values=None, datetime_start=TIME),
    "complete": entry(6, trial_id=0, state=1, values=[float("inf")], datetime_complete=TIME),
    "fail": entry(6, trial_id=0, state=3, values=None, datetime_complete=TIME),
    "report": entry(7, trial_id=0, step=3, intermediate_value=float("nan")),
    "user_attr": entry(8, trial_id=0, user_attr={"note": "x"}),
    "system_attr": entry(9, trial_id=0, system_attr={"fixed_params": {"lr": 0.1}}),
}


def test_what_optuna_writes_is_accepted(bob: Api) -> None:
    assert append(bob, *GOOD.values())["length"] == len(GOOD)
    stored = json_of(bob.get(LOG))["entries"]
    assert [json.loads(text)["op_code"] for text in stored] == [
        json.loads(text)["op_code"] for text in GOOD.values()
    ]


_WITHOUT_LOW = json.dumps({"name": "FloatDistribution", "attributes": {"high": 1}})
_TINY_STEP = json.dumps(
    {
        "name": "FloatDistribution",
        "attributes": {"low": 0, "high": 1e300, "log": False, "step": 1e-300},
    }
)
BAD = {
    "no JSON": ("{]", "0", "is not JSON"),
    "bottomless": ("[" * 5000, "0", "is not JSON"),
    "a list": ("[1, 2]", "0", "no operation"),
    "unknown": (entry(10), "0.op_code", "one of 0 to 9"),
    "a text": (entry("0"), "0.op_code", "one of 0 to 9"),  # type: ignore[arg-type]
    "no worker": (json.dumps({"op_code": 1, "study_id": 0}), "0.worker_id", "required"),
    "directions": (entry(0, study_name="a", directions=[5]), "0.directions", "1 or 2"),
    "name": (entry(0, study_name="a\0b", directions=[1]), "0.study_name", "U+0000"),
    "half": (entry(0, study_name="\ud800", directions=[1]), "0.study_name", "unicode"),
    "id": (entry(1, study_id="0"), "0.study_id", "integer"),
    "huge id": (entry(1, study_id=10**30), "0.study_id", "less than"),
    "two attributes": (entry(8, trial_id=0, user_attr={"a": 1, "b": 2}), "0.user_attr", "at most"),
    "deep": (
        entry(8, trial_id=0, user_attr={"a": json.loads("[" * 40 + "]" * 40)}),
        "0",
        "deeper than 32",
    ),
    "no start": (entry(4, study_id=0), "0.datetime_start", "required"),
    "start": (entry(4, study_id=0, datetime_start="now"), "0.datetime_start", "ISO 8601"),
    "zone": (entry(4, study_id=0, datetime_start="2026-11-30"), "0.datetime_start", "time zone"),
    "year": (
        entry(4, study_id=0, datetime_start="0001-01-01T00:00:00+00:00"),
        "0.datetime_start",
        "1970",
    ),
    "params": (entry(4, study_id=0, datetime_start=TIME, params={"lr": 1.0}), "0", "same names"),
    "both values": (
        entry(4, study_id=0, datetime_start=TIME, value=1.0, values=[1.0, 2.0]),
        "0",
        "both",
    ),
    "distribution": (
        entry(5, trial_id=0, param_name="lr", param_value_internal=1, distribution="{}"),
        "0.distribution",
        "no distribution",
    ),
    "low": (
        entry(5, trial_id=0, param_name="lr", param_value_internal=1, distribution=_WITHOUT_LOW),
        "0.distribution",
        "low",
    ),
    "step": (
        entry(5, trial_id=0, param_name="lr", param_value_internal=1, distribution=_TINY_STEP),
        "0.distribution",
        "not too small",
    ),
    "choice": (
        entry(5, trial_id=0, param_name="s", param_value_internal=4, distribution=CHOICES),
        "0",
        "one of 4 choices",
    ),
    "nan": (
        entry(5, trial_id=0, param_name="s", param_value_internal=float("nan"), distribution=FLOAT),
        "0",
        "finite",
    ),
    "state": (entry(6, trial_id=0, state=7, values=None), "0.state", "0, 1, 2, 3 or 4"),
    "no end": (entry(6, trial_id=0, state=3, values=None), "0", "datetime_complete"),
    "no value": (entry(6, trial_id=0, state=1, values=None, datetime_complete=TIME), "0", "values"),
    "intermediate": (entry(7, trial_id=0, step=1, intermediate_value="1"), "0.intermediate", ""),
}


@pytest.mark.parametrize("case", BAD)
def test_what_optuna_could_not_replay_is_refused_with_field_and_reason(bob: Api, case: str) -> None:
    text, field, reason = BAD[case]
    problem = refusal(bob, text)
    assert problem["code"] == "invalid_input"
    assert problem["field"].startswith(f"entries.{field}"), problem
    assert reason in problem["detail"], problem
    assert problem["next_step"]


def test_a_refused_entry_refuses_the_whole_call(bob: Api) -> None:
    problem = refusal(bob, create_study(), entry(11))
    assert problem["field"] == "entries.1.op_code"
    assert bob.get(LOG).status_code == 404


def test_an_entry_and_a_call_have_bounds(bob: Api) -> None:
    long = entry(8, trial_id=0, user_attr={"a": "x" * MAX_ENTRY_BYTES})
    assert "longer than 64 KiB" in refusal(bob, long)["detail"]
    # Escaped, half as many characters are too long.
    wide = json.dumps({"user_attr": {"a": "ü" * (MAX_ENTRY_BYTES // 4)}}, ensure_ascii=False)
    assert "longer than 64 KiB" in refusal(bob, wide)["detail"]
    too_many = [create_study()] * (MAX_ENTRIES_A_CALL + 1)
    assert refusal(bob, *too_many)["field"] == "entries"
    assert append(bob, *too_many[1:])["length"] == MAX_ENTRIES_A_CALL


def test_long_entries_come_in_parts(bob: Api) -> None:
    long = entry(8, trial_id=0, user_attr={"a": "x" * 60_000})
    for _ in range(8):
        append(bob, *[long] * 10)
    first = json_of(bob.get(LOG))
    assert 0 < first["next"] < first["length"] == 80
    rest = json_of(bob.get(f"{LOG}?from={first['next']}"))
    assert len(first["entries"]) + len(rest["entries"]) == 80


@pytest.mark.parametrize(
    "column", [{"length": MAX_ENTRIES}, {"size_bytes": MAX_SIZE_BYTES - 10}], ids=str
)
def test_a_full_storage_says_what_to_do(bob: Api, column: dict[str, int]) -> None:
    append(bob, create_study())
    OptunaStorage.objects.update(**column)
    problem = refusal(bob, create_study())
    assert problem["code"] == "storage_full"
    assert "slipway.optuna_storage(" in problem["next_step"]


def test_a_project_has_a_limited_number_of_storages_with_plain_names(
    people: Personas, bob: Api
) -> None:
    for number in range(MAX_STORAGES):
        OptunaStorage.objects.create(
            project=people.vision, created_by=people.bob, name=f"s{number}"
        )
    assert refusal(bob, create_study())["code"] == "too_many_storages"
    path = "projects/vision/optuna-storages/{}/log"
    append(bob, create_study(), path=path.format("s1"))
    answer = bob.post(path.format("No-Name"), {"entries": [create_study()]})
    assert (answer.status_code, json_of(answer)["field"]) == (422, "storage")


def test_creating_a_storage_is_audited(people: Personas, bob: Api) -> None:
    append(bob, create_study())
    append(bob, create_study("second"))
    events = json_of(Api.of(people.alice).get("projects/vision/audit"))["items"]
    created = [event for event in events if event["verb"] == "optuna_storage.create"]
    assert [event["actor"] for event in created] == ["bob@example.org"]
