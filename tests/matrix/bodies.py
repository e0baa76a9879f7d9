"""A valid body for every operation that takes one, so that who may act really acts."""

from collections.abc import Callable
from typing import Any

from portal.accounts.models import User
from portal.experiments.models import Run
from tests.checkpoints import make_packed
from tests.matrix.batched import BATCHES
from tests.matrix.kept_notebooks import content_of
from tests.matrix.node_groups import NODE_GROUPS
from tests.matrix.pipelines import PIPELINES
from tests.matrix.pool_helpers import HELPERS
from tests.matrix.reported import VERSION
from tests.matrix.searched import METRIC, PARAMETERS, SEARCHES
from tests.matrix.service_accounts import TOKENS_AND_ACCOUNTS
from tests.matrix.work import FACTS, STEP, beat, code
from tests.matrix.world import World
from tests.model_files import artifacts_folder
from tests.personas import PASSWORD

Body = dict[str, Any] | bytes
_SHELLS = "/api/v1/projects/{project}/jobs/{job}/shells"
Maker = Callable[[World, User | None], Body]


def _accept(world: World, user: User | None) -> Body:
    return {"token": world.links[user.pk] if user else "A" * 40}


def _sign_in(_world: World, user: User | None) -> Body:
    return {"login": user.email if user else "nobody@example.org", "password": PASSWORD}


def _job(world: World, _user: User | None) -> Body:
    return {"snapshot": world.own["snapshot"], "script": "train.py", "tier": "cpu-small"}


def _sweep(world: World, user: User | None) -> Body:
    return {"job": _job(world, user), "parameters": PARAMETERS, "metric": METRIC}


def _schedule(world: World, _user: User | None) -> Body:
    return {"name": "weekly", "cron": "0 3 * * SUN", "job": world.own["workload"]}


def _schedule_by_form(world: World, _user: User | None) -> Body:
    return {
        "name": "weekly",
        "template": world.own["workload"],
        "cron": "0 3 * * SUN",
        "zone": "Europe/Berlin",
        "missed": "skip",
        "overlap": "queue",
    }


def _runs(world: World, _user: User | None) -> Body:
    return {"runs": [world.own["run"]]}


def _runs_to_tag(world: World, _user: User | None) -> Body:
    return {"runs": [world.own["run"]], "tags": {"team": "vision"}}


def _runs_to_move(world: World, _user: User | None) -> Body:
    return {"runs": [world.own["run"]], "experiment": int(world.own["experiment"])}


def _one_run_to_tag(world: World, _user: User | None) -> Body:
    return {"run": world.own["run"], "tag_name": "team", "tag_value": "vision"}


def _one_run_to_move(world: World, _user: User | None) -> Body:
    return {"run": world.own["run"], "to": world.own["experiment"]}


def _one_run(world: World, _user: User | None) -> Body:
    return {"run": world.own["run"]}


def _task(world: World) -> dict[str, Any]:
    return {"task_id": world.own["task"], "epoch": int(world.own["epoch"])}


def _join(world: World, _user: User | None) -> Body:
    fields = FACTS.model_dump(mode="json")
    return {"join_token": world.secrets["join"], "name": "newcomer", "facts": fields}


def _beat(world: World, _user: User | None) -> Body:
    return beat([_task(world)])


def _reports(world: World, _user: User | None) -> Body:
    step = {"sequence": 3, "kind": "progress", "at_unix_ms": 1, "step": 10}
    return {"reports": [_task(world) | step]}


def _samples(world: World, _user: User | None) -> Body:
    use = {"at_unix_ms": 1, "cpu_percent": 50, "memory_bytes": 1}
    return {"samples": [_task(world) | use]}


_REASON = {"reason": "new memory"}
_PREDICTIONS = "/api/v1/projects/{project}/endpoints/{endpoint}"
_MONITORING = f"{_PREDICTIONS}/monitoring"
_MONITORING_PAGE = "/p/{project}/endpoints/{endpoint}/monitoring"


def _new_job_by_form(world: World, _user: User | None) -> dict[str, Any]:
    return {
        "snapshot": world.own["snapshot"],
        "script": "train.py",
        "tier": world.own["tier"],
        "nodes": "1",
        "procs": "1",
        "max_attempts": "3",
        "priority": "0",
    }


def _new_sweep_by_form(world: World, user: User | None) -> Body:
    return {
        **_new_job_by_form(world, user),
        "params": "lr=uniform(0.1,1)",
        "metric": "accuracy",
        "goal": "max",
        "algorithm": "random",
        "trials": "4",
        "parallel": "2",
        "retries": "0",
        "seed": "0",
        "scheduler": "none",
        "min_values": "1",
        "eta": "3",
    }


def _new_desk_by_form(world: World, _user: User | None) -> Body:
    return {"name": "new-desk", "tier": world.own["tier"], "idle_minutes": "60"}


def _register_by_form(world: World, _user: User | None) -> Body:
    run = Run.objects.filter(pk=world.own["run"]).first()
    if run is not None:  # where many act at once, somebody may have emptied the trash
        place = (run.artifact_uri or "").removeprefix("mlflow-artifacts:/").strip("/")
        folder = artifacts_folder() / place / "model"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "MLmodel").write_text("flavors: {}\n")
    return {"name": "new-model", "run": world.own["run"], "path": "model"}


_REPORT = {"title": "New report", "blocks": [{"kind": "text", "text": "Words."}]}
_REPORT_BY_FORM = {"title": "New report", "blocks": '[{"kind": "text", "text": "Words."}]'}
_NOTEBOOK = "/api/v1/projects/{project}/notebook-files/{notebook}"
_WORKSPACE = "/api/v1/projects/{project}/workspace-files"
_NOTEBOOK_RUN = "/api/v1/projects/{project}/notebook-runs/{job}"
_NOTEBOOK_PAGE = "/p/{project}/notebooks/files/{notebook}"
_INVITE_BY_FORM = {"email": "new@example.org", "role": "viewer", "expires_in_days": "7"}
_MODEL_PAGE = "/p/{project}/models/{model}/versions/{version}"
_ENDPOINT_PAGE = "/p/{project}/endpoints/{endpoint}"
_NEW_ENDPOINT_BY_FORM = {
    "name": "fresh",
    "model": "digits",
    "tier": "served",
    "min_replicas": "1",
    "max_replicas": "1",
}
_MODEL_VERSION = "/api/v1/projects/{project}/models/{model}/versions/{version}"
_VERSION = "/api/v1/projects/{project}/datasets/{dataset}/versions/{version}"
# By verb and template. JSON for the API; a form for a page.
_POOL = {"most_requests": "5", "price_percent": "100", "audience": "all"}
BODIES: dict[tuple[str, str], Body | Maker] = {
    **TOKENS_AND_ACCOUNTS,
    ("POST", "/api/v1/projects"): {"name": "New project"},
    ("PATCH", "/api/v1/projects/{project}"): {"name": "Renamed"},
    ("PUT", "/api/v1/projects/{project}/readme"): {"text": "# New", "version": 0},
    ("PUT", "/api/v1/projects/{project}/notes/{kind}/{target}"): {"text": "# New", "version": 0},
    ("PATCH", "/api/v1/projects/{project}/members/{user_id}"): {"role": "viewer"},
    ("POST", "/api/v1/projects/{project}/invitations"): {
        "email": "new@example.org",
        "role": "viewer",
    },
    ("PUT", "/api/v1/projects/{project}/secrets/{name}"): {"value": "new"},
    ("POST", "/api/v1/projects/{project}/files"): b"bytes of a file",
    ("POST", "/api/v1/projects/{project}/files/signed-url"): {"name": "b.csv"},
    ("POST", "/api/v1/files/{file_id}/signed-url"): {"expires_in_seconds": 60},
    ("PUT", "/api/v1/files/{file_id}/content"): b"bytes of a file",
    ("POST", "/api/v1/projects/{project}/datasets"): {"name": "new-data"},
    ("PATCH", "/api/v1/projects/{project}/datasets/{dataset}"): {"description": "Better."},
    ("POST", f"{_VERSION}/files"): {"files": [{"path": "a", "size_bytes": 0, "pieces": []}]},
    ("POST", "/api/v1/projects/{project}/datasets/{dataset}/pieces"): bytes.fromhex(
        # SHA-256 of one letter, its length, the letter: a piece nobody misses.
        "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881" + "00" * 7 + "0178"
    ),
    ("POST", f"{_VERSION}/append"): b"one piece",
    ("POST", f"{_VERSION}/commit"): {"allow_bad_rows": False},
    ("POST", f"{_VERSION}/uses"): {"run": "0123456789abcdef"},
    ("POST", "/api/v1/projects/{project}/datasets/{dataset}/versions"): {"note": "More."},
    ("POST", "/api/v1/teams"): {"name": "New team"},
    ("PATCH", "/api/v1/teams/{team}"): {"name": "Renamed"},
    ("PATCH", "/api/v1/teams/{team}/members/{user_id}"): {"role": "viewer"},
    ("POST", "/api/v1/teams/{team}/invitations"): {"email": "new@example.org", "role": "viewer"},
    ("POST", "/api/v1/invitations/accept"): _accept,
    ("PATCH", "/api/v1/users/{user_id}"): {"is_active": False},
    ("POST", "/api/v1/projects/{project}/snapshots"): code("print('a new one')"),
    ("POST", "/api/v1/projects/{project}/notebook-files"): content_of("a new one"),
    ("POST", f"{_NOTEBOOK}/restore"): {"version": 1},
    ("POST", f"{_NOTEBOOK}/branch"): {"path": "branch.ipynb"},
    ("POST", f"{_NOTEBOOK}/verify"): {"version": 1},
    ("POST", f"{_NOTEBOOK}/run"): {"params": {"rate": "0.5"}},
    ("PUT", f"{_NOTEBOOK_RUN}/output"): content_of("what came of it"),
    ("PUT", f"{_NOTEBOOK_RUN}/report"): {
        "passed": True,
        "code_cells": 1,
        "ran": 1,
        "duration_s": 0.5,
    },
    ("POST", "/api/v1/projects/{project}/jobs"): _job,
    ("POST", "/api/v1/projects/{project}/jobs/quote"): _job,
    ("POST", _SHELLS): {"rank": 0},
    ("PUT", f"{_SHELLS}/{{shell}}/input"): {"offset": 0, "data": "bHMK"},
    ("PUT", f"{_SHELLS}/{{shell}}/size"): {"rows": 24, "columns": 80},
    ("POST", "/api/v1/projects/{project}/jobs/{job}/clone"): {"name": "again"},
    ("POST", "/api/v1/projects/{project}/sweeps"): _sweep,
    **PIPELINES,
    ("POST", "/api/v1/projects/{project}/schedules"): _schedule,
    ("POST", "/api/v1/hooks/{hook}"): {"ref": "main"},
    ("POST", "/api/v1/projects/{project}/schedules/preview"): {"cron": "0 2 * * *", "zone": "UTC"},
    ("PATCH", "/api/v1/projects/{project}/schedules/{schedule}"): {"cron": "0 4 * * *"},
    ("POST", "/api/v1/projects/{project}/sweeps/quote"): _sweep,
    **SEARCHES,
    **BATCHES,
    ("PATCH", "/api/v1/projects/{project}/runs/{run}"): {"tags": {"team": "vision"}},
    ("POST", "/api/v1/projects/{project}/runs/tag"): _runs_to_tag,
    ("POST", "/api/v1/projects/{project}/runs/move"): _runs_to_move,
    ("POST", "/api/v1/projects/{project}/runs/delete"): _runs,
    ("POST", "/api/v1/projects/{project}/runs/restore"): _runs,
    ("POST", "/api/v1/projects/{project}/views"): {"name": "new", "query": "q=first"},
    ("POST", "/api/v1/projects/{project}/models"): {"name": "new-model"},
    ("PATCH", "/api/v1/projects/{project}/models/{model}"): {"card": "# New"},
    ("POST", "/api/v1/projects/{project}/models/{model}/versions"): {
        "source": "mlflow-artifacts:/1/model"
    },
    ("PUT", f"{_MODEL_VERSION}/batching"): {"mode": "requests"},
    ("PUT", f"{_MODEL_VERSION}/golden"): {"inputs": [1], "outputs": [2]},
    ("POST", f"{_MODEL_VERSION}/evaluations"): {
        "metric": "accuracy",
        "dataset": "digits:3",
        "value": 0.5,
    },
    ("POST", f"{_MODEL_VERSION}/promote"): {"stage": "Archived"},
    ("POST", f"{_MODEL_VERSION}/requests"): {"stage": "Archived"},
    ("POST", "/api/v1/projects/{project}/models/{model}/requests/{request_id}/decision"): {
        "verdict": "reject"
    },
    ("PUT", "/api/v1/projects/{project}/registry-rules"): {
        "stages": ["Development", "Staging", "Production", "Archived"],
        "revision": 0,
    },
    ("POST", "/api/v1/projects/{project}/workloads/{workload}/stop"): {"message": "Enough."},
    ("POST", "/api/v1/projects/{project}/named-environments"): {
        "name": "fresh",
        "requirements": "numpy==2.3.5",
    },
    ("PATCH", "/api/v1/projects/{project}/named-environments/{environment}"): {
        "description": "For trees."
    },
    ("POST", "/api/v1/projects/{project}/named-environments/{environment}/versions"): {
        "requirements": "numpy==2.3.5"
    },
    ("POST", "/p/{project}/default-environment"): {"environment": "packages-of-alice"},
    ("POST", "/p/{project}/new-environment"): {"name": "fresh", "requirements": "numpy==2.3.5"},
    ("POST", "/p/{project}/environments/{environment}/version"): {"requirements": "numpy==2.3.5"},
    ("POST", "/p/{project}/environments/{environment}/edit"): {"description": "For trees."},
    ("PUT", "/api/v1/projects/{project}/default-environment"): {"environment": "packages-of-alice"},
    ("POST", "/api/v1/projects/{project}/environments"): {"requirements": "numpy==2.3.5"},
    ("POST", "/api/v1/projects/{project}/endpoints"): {"name": "fresh", "model": "digits"},
    ("PATCH", "/api/v1/projects/{project}/endpoints/{endpoint}"): {"max_replicas": 2},
    ("POST", "/api/v1/projects/{project}/endpoints/{endpoint}/promote"): {"version": "3"},
    ("POST", "/api/v1/projects/{project}/endpoints/{endpoint}/rollback"): {"reason": "Slow."},
    ("POST", "/api/v1/projects/{project}/endpoints/{endpoint}/pause"): {"reason": "Enough."},
    ("POST", "/api/v1/projects/{project}/endpoints/{endpoint}/try"): {
        "request": {"instances": [[1.0]]}
    },
    ("POST", "/api/v1/projects/{project}/endpoints/{endpoint}/keys"): {"name": "shop"},
    ("PATCH", f"{_MONITORING}/settings"): {"keep_days": 30},
    ("POST", f"{_MONITORING}/alerts/{{alert}}/snooze"): {"hours": 1},
    ("POST", f"{_MONITORING}/channels"): {"kind": "slack", "target": "https://example.org/hook"},
    ("POST", f"{_PREDICTIONS}/labels"): {"labels": [{"own_id": "order-1", "value": 3}]},
    ("POST", f"{_PREDICTIONS}/selections"): {"dataset": "from-predictions"},
    ("POST", f"{_PREDICTIONS}/erasures"): {"own_id": "order-1"},
    ("POST", f"{_MONITORING_PAGE}/watching"): {"keep_days": "30"},
    ("POST", f"{_MONITORING_PAGE}/channels"): {
        "kind": "slack",
        "target": "https://example.org/hook",
    },
    ("POST", f"{_MONITORING_PAGE}/select"): {"dataset": "by-form"},
    ("POST", "/api/v1/projects/{project}/notebooks/servers"): {"name": "new-desk"},
    ("POST", "/api/v1/projects/{project}/notebooks/servers/quote"): {"name": "new-desk"},
    ("PATCH", "/api/v1/projects/{project}/notebooks/servers/{server}"): {
        "idle_minutes": 45,
        "daily_stop": "20:00",
        "days": ["mon"],
    },
    ("POST", "/p/{project}/notebooks/servers/{server}/edit"): {
        "idle_minutes": "45",
        "daily_stop": "20:00",
        "days": "mon",
    },
    ("POST", "/api/hub/v1/servers/{server}/routed"): {"start": "wl_1.1"},
    ("POST", "/api/hub/v1/servers/{server}/trouble"): {"start": "wl_1.1", "why": "no proxy"},
    ("POST", "/api/hub/v1/labs/{server}/reports"): {
        "attempt": 1,
        "sequence": 1,
        "address": "127.0.0.1:1",
    },
    ("POST", "/p/{project}/notebooks/new"): _new_desk_by_form,
    ("POST", "/p/{project}/notebooks/quote"): _new_desk_by_form,
    ("POST", "/api/v1/tiers"): {
        "name": "Large",
        "slug": "large",
        "resources": {"cpu_millis": 4000, "memory_bytes": 2**30},
        "nano_usd_per_hour": 1,
    },
    ("POST", "/api/v1/pools"): {"name": "new-twin", "engine": "local"},
    ("PATCH", "/api/v1/pools/{pool}"): {"most_requests": 5},
    **NODE_GROUPS,
    **HELPERS,
    ("POST", "/api/v1/budgets"): {"project": "vision", "limit_nano_usd": 5, "period": "total"},
    ("PATCH", "/api/v1/budgets/{budget}"): {"limit_nano_usd": 10**12 + 1},
    ("POST", "/api/v1/budgets/{budget}/override"): {"hours": 1, "reason": "a demo"},
    ("PUT", "/api/v1/spend/rates/{resource}"): {"nano_usd_per_hour": 7},
    ("PATCH", "/api/v1/tiers/{tier}"): {"nano_usd_per_hour": 5},
    ("PUT", "/api/v1/quotas/projects/{project}"): {"running": 5},
    ("PUT", "/api/v1/quotas/teams/{team}"): {"running": 5},
    ("POST", "/api/v1/nodes/join-tokens"): {"expires_in_minutes": 5},
    ("PATCH", "/api/v1/nodes/{node}"): {"mixes_projects": True},
    ("POST", "/api/v1/nodes/{node}/cordon"): _REASON,
    ("POST", "/api/v1/nodes/{node}/drain"): _REASON,
    ("POST", "/api/agent/v1/join"): _join,
    ("POST", "/api/agent/v1/heartbeat"): _beat,
    ("POST", "/api/agent/v1/reports"): _reports,
    ("PUT", "/api/agent/v1/logs/{task_id}/{epoch}/{rank}"): b"more of the log",
    ("PUT", "/api/agent/v1/checkpoints/{task_id}/{epoch}/{step}"): make_packed(STEP),
    ("POST", "/api/agent/v1/environments/{digest}/reports"): {
        "state": "ready",
        "log_offset": 0,
        "log": "done",
    },
    ("POST", "/api/agent/v1/samples"): _samples,
    ("POST", "/api/agent/v1/file-requests/{request_id}/reports"): {
        "state": "ended",
        "answer": {"ok": True},
    },
    ("PUT", "/api/agent/v1/file-requests/{request_id}/content"): b"a file",
    ("POST", f"{_WORKSPACE}/content"): b"a file",
    ("PUT", f"{_WORKSPACE}/folders"): {"path": "data"},
    ("PATCH", _WORKSPACE): {"path": "data", "target": "other"},
    ("POST", "/projects/new"): {"name": "New project"},
    ("POST", "/p/{project}/settings"): {"name": "Renamed"},
    ("POST", "/api/v1/projects/{project}/reports"): _REPORT,
    ("PUT", "/api/v1/projects/{project}/reports/{report}"): _REPORT | {"version": VERSION},
    ("POST", "/api/v1/projects/{project}/reports/{report}/versions/{number}/restore"): {
        "version": VERSION
    },
    ("POST", "/p/{project}/reports/new"): _REPORT_BY_FORM,
    ("POST", "/p/{project}/reports/{report}/edit"): _REPORT_BY_FORM | {"version": str(VERSION)},
    ("POST", "/p/{project}/reports/{report}/restore"): {
        "number": str(VERSION),
        "version": str(VERSION),
    },
    ("POST", "/p/{project}/readme"): {"text": "# New", "version": "0"},
    ("POST", "/p/{project}/notes/{kind}/{target}"): {"text": "# New", "version": "0"},
    ("POST", "/p/{project}/models/{model}/card"): {"card": "# New"},
    ("POST", "/p/{project}/register-model"): _register_by_form,
    ("POST", f"{_MODEL_PAGE}/promote"): {"do": "promote"},
    ("POST", "/p/{project}/models/{model}/requests/{request_id}/decide"): {"verdict": "reject"},
    ("POST", "/p/{project}/registry-rules"): {
        "do": "gates",
        "kind": "stage",
        "name": "Archived",
        "signature": "on",
        "better": "higher",
    },
    ("POST", "/p/{project}/new-endpoint"): _NEW_ENDPOINT_BY_FORM,
    ("POST", "/p/{project}/new-endpoint/quote"): _NEW_ENDPOINT_BY_FORM,
    ("POST", f"{_ENDPOINT_PAGE}/promote"): {
        "model": "digits",
        "version": "3",
        "plan": "all_at_once",
        "bake_minutes": "1",
    },
    ("POST", f"{_ENDPOINT_PAGE}/change"): {
        "min_replicas": "1",
        "max_replicas": "2",
        "target_concurrency": "8",
        "target_queue_ms": "50",
        "warm_minutes": "5",
        "fallback": "standby",
        "max_body_mib": "1",
        "max_in_flight": "9",
        "timeout_s": "5",
        "capture": "on",
    },
    ("POST", f"{_ENDPOINT_PAGE}/try"): {"request": '{"inputs": [[1]]}'},
    ("POST", f"{_ENDPOINT_PAGE}/keys/new"): {"name": "shop", "scope": "predict"},
    ("POST", "/p/{project}/archive"): {"confirm": "vision"},
    ("POST", "/p/{project}/members/invite"): _INVITE_BY_FORM,
    ("POST", "/p/{project}/members/{user}/role"): {"role": "viewer"},
    ("POST", "/p/{project}/secrets/write"): {"name": "NEW_KEY", "value": "new"},
    ("POST", "/p/{project}/runs/tag"): _one_run_to_tag,
    ("POST", "/p/{project}/runs/move"): _one_run_to_move,
    ("POST", "/p/{project}/runs/{run}/edit"): {"name": "renamed"},
    ("POST", "/first-steps"): {"hidden": "yes"},
    ("POST", "/p/{project}/views"): {"name": "new", "query": "q=first"},
    ("POST", "/p/{project}/runs/delete"): _one_run,
    ("POST", "/p/{project}/runs/restore"): _one_run,
    ("POST", "/p/{project}/datasets/new"): {"name": "made-by-form"},
    ("POST", f"{_NOTEBOOK_PAGE}/restore"): {"version": "1"},
    ("POST", f"{_NOTEBOOK_PAGE}/branch"): {"path": "branch.ipynb"},
    ("POST", f"{_NOTEBOOK_PAGE}/run"): {"tier": "cpu-small"},
    ("POST", f"{_NOTEBOOK_PAGE}/quote"): {"tier": "cpu-small"},
    ("POST", "/p/{project}/jobs/new"): _new_job_by_form,
    ("POST", "/p/{project}/jobs/quote"): _new_job_by_form,
    ("POST", "/p/{project}/schedules/new"): _schedule_by_form,
    ("POST", "/p/{project}/schedules/preview"): {"cron": "0 2 * * *", "zone": "UTC"},
    ("POST", "/p/{project}/schedules/{schedule}/edit"): _schedule_by_form,
    ("POST", "/p/{project}/sweeps/new"): _new_sweep_by_form,
    ("POST", "/p/{project}/sweeps/quote"): _new_sweep_by_form,
    ("POST", "/p/{project}/sweeps/{sweep}/extend"): {"trials": "50"},
    ("POST", "/p/{project}/sweeps/{sweep}/repeat"): {"parameter": "seed"},
    ("POST", "/p/{project}/jobs/code"): b"print('by form')",
    ("POST", "/p/{project}/network"): {"network": "platform"},
    ("POST", "/teams/new"): {"name": "New team"},
    ("POST", "/t/{team}/settings"): {"name": "Renamed"},
    ("POST", "/t/{team}/members/invite"): _INVITE_BY_FORM,
    ("POST", "/t/{team}/members/{user}/role"): {"role": "viewer"},
    ("POST", "/settings/profile"): {"name": "Somebody"},
    ("POST", "/settings/sessions/end"): {"keep": "this"},
    ("POST", "/settings/people/{person}/change"): {"do": "promote"},
    ("POST", "/settings/nodes/join"): {"node": "gpu-9", "expires_in_minutes": "60"},
    ("POST", "/settings/nodes/{node}/change"): {"do": "cordon"},
    ("POST", "/settings/pools/new"): {"name": "new-pool", "engine": "local", **_POOL},
    ("POST", "/settings/pools/{pool}"): _POOL | {"settings": "helper=true"},
    ("POST", "/settings/pools/{pool}/change"): {"do": "close"},
    ("POST", "/settings/tiers/new"): {
        "name": "New tier",
        "cpus": "1",
        "memory_gib": "1",
        "gpus": "0",
        "price": "0.5",
    },
    ("POST", "/settings/tiers/{tier}"): {"price": "0.7"},
    ("POST", "/spend/prices"): {"cpu": "1", "memory": "1", "gpu": "1", "storage": "1"},
    ("POST", "/spend/budgets"): {"group": "vision", "limit": "5", "period": "total"},
    ("POST", "/spend/budgets/{budget}"): {"limit": "1001", "stops": "on"},
    ("POST", "/settings/quotas"): {"group": "vision", "weight": "1"},
    ("POST", "/account/login"): _sign_in,
    ("POST", "/account/password/reset"): {"email": "nobody@example.org"},
    ("POST", "/account/password/change"): {
        "oldpassword": PASSWORD,
        "password1": "another-long-phrase",
        "password2": "another-long-phrase",
    },
}
# What has to stand behind the path, by verb and template.
QUERIES = {
    ("GET", f"{_MODEL_PAGE}/promote"): "?stage=Production",
    ("HEAD", f"{_MODEL_PAGE}/promote"): "?stage=Production",
    ("POST", f"{_MODEL_PAGE}/promote"): "?stage=Archived",
    ("GET", "/api/v1/tiers/{tier}/price-effect"): "?nano_usd_per_hour=5",
    ("POST", "/p/{project}/jobs/code"): "?name=train.py",
    ("GET", "/p/{project}/reports/pick"): "?kind=run",
    ("HEAD", "/p/{project}/reports/pick"): "?kind=run",
    ("POST", "/api/v1/projects/{project}/files"): "?name=b.csv",
    ("POST", "/api/v1/projects/{project}/notebook-files"): "?path=new.ipynb",
    ("PUT", f"{_NOTEBOOK_RUN}/output"): "?path=output.ipynb",
    ("GET", f"{_MODEL_VERSION}/plan"): "?stage=Production",
    ("GET", "/api/v1/projects/{project}/lineage"): "?kind=version&id=model-of-alice/720001",
    ("GET", f"{_VERSION}/content"): "?path=a.bin",
    ("POST", f"{_VERSION}/append"): "?path=b.bin&offset=0&size_bytes=9",
    ("GET", "/api/v1/projects/{project}/environments/{digest}/log"): "?node=atlas",
    ("PUT", "/api/agent/v1/logs/{task_id}/{epoch}/{rank}"): "?offset=0",
    ("PUT", "/api/agent/v1/file-requests/{request_id}/content"): "?offset=0",
    ("POST", f"{_WORKSPACE}/content"): "?path=a.csv",
    ("DELETE", _WORKSPACE): "?path=a.csv",
}


def query_for(verb: str, template: str) -> str:
    """Return the query to send; empty where none is needed."""
    return QUERIES.get((verb, template), "")


def body_for(verb: str, template: str, world: World, user: User | None) -> Body:
    """Return the body to send; empty where none is known."""
    entry = BODIES.get((verb, template), {})
    return entry(world, user) if callable(entry) else entry
