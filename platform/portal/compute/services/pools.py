"""Services for pools, by administrators, and the choice of one for new work."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from django.db import IntegrityError, transaction

from portal.accounts import audit
from portal.accounts.models import Project
from portal.compute.engines import EngineKind, engine_kinds
from portal.compute.models import Pool, PoolProject
from portal.compute.models.pools import (
    DEFAULT_REQUESTS,
    FULL_PRICE,
    MAX_PRICE_PERCENT,
    MAX_REQUESTS,
)
from portal.core import clock
from portal.core.errors import Conflict, InvalidInput
from portal.core.text import clean_slug
from slipway.schemas.truncation import join_names

_NAME_CHARACTERS = 32
# The address of the page that creates a pool.
_RESERVED_NAME = "new"


def usable_pool(project: Project, name: str | None) -> Pool | None:
    """Return the pool that new work of a project names, None for the nodes of the installation.

    Raises InvalidInput. A pool for other projects does not exist.
    """
    if name is None:
        return None
    usable = Pool.objects.usable_by(project)
    pool = usable.filter(name=name).first()
    if pool is None:
        names = join_names(list(usable.order_by("name").values_list("name", flat=True)), 10)
        raise InvalidInput(
            f"There is no pool {name} for project {project.slug}, or it is closed.",
            code="no_such_pool",
            field="pool",
            next_step=f"Pools: {names}. Without a pool the nodes of the installation are used."
            if names
            else "Leave the pool out to use the nodes of the installation.",
        )
    return pool


def named_projects(slugs: Iterable[str]) -> list[Project]:
    """Return the live projects of these slugs. Raises InvalidInput for one that does not exist."""
    slugs = list(slugs)
    rows = {project.slug: project for project in Project.objects.live().filter(slug__in=slugs)}
    missing = [slug for slug in slugs if slug not in rows]
    if missing:
        raise InvalidInput(
            f"There is no project {missing[0]}.",
            code="no_such_project",
            field="projects",
            next_step="Name projects by the slug in their address.",
        )
    return list(rows.values())


def create_pool(
    *,
    name: str,
    engine: str,
    settings: Mapping[str, Any],
    most_requests: int = DEFAULT_REQUESTS,
    price_percent: int = FULL_PRICE,
    projects: Iterable[Project] | None = None,
) -> Pool:
    """Create a pool, for all projects unless some are given.

    Raises InvalidInput for an unknown engine or a wrong setting, Conflict for a taken name.
    """
    name = _clean_pool_name(name)
    cleaned = _kind(engine).clean(settings)
    _check_requests(most_requests)
    _check_price(price_percent)
    allowed = None if projects is None else list(projects)
    try:
        with transaction.atomic():
            pool = Pool.objects.create(
                name=name,
                engine=engine,
                settings=cleaned,
                most_requests=most_requests,
                price_percent=price_percent,
                is_for_all=allowed is None,
            )
            _allow(pool, allowed or [])
            audit.record(
                "pool.create",
                kind="pool",
                target=pool,
                label=name,
                after={"engine": engine, **_shown(pool)},
            )
    except IntegrityError as error:
        raise Conflict(
            f"A pool {name} already exists.",
            code="pool_name_taken",
            field="name",
            next_step="Choose another name, or change the existing pool.",
        ) from error
    return pool


def change_pool(
    *,
    pool: Pool,
    settings: Mapping[str, Any] | None = None,
    most_requests: int | None = None,
    price_percent: int | None = None,
    is_open: bool | None = None,
    projects: Iterable[Project] | None = None,
    is_for_all: bool | None = None,
) -> Pool:
    """Change a pool. What waits or runs there goes on. Raises InvalidInput.

    What runs keeps its price, and what waits starts at the new one.
    """
    if settings is not None:
        settings = _kind(pool.engine).clean(settings)
    if most_requests is not None:
        _check_requests(most_requests)
    if price_percent is not None:
        _check_price(price_percent)
    with transaction.atomic():
        pool = Pool.objects.select_for_update(no_key=True).get(pk=pool.pk)
        before = _shown(pool)
        if settings is not None:
            _refuse_other_proofs(pool, settings)
            pool.settings = dict(settings)
        if most_requests is not None:
            pool.most_requests = most_requests
        if price_percent is not None:
            pool.price_percent = price_percent
        if is_open is not None:
            pool.is_open = is_open
        if projects is not None:
            pool.is_for_all = False
            PoolProject.objects.filter(pool=pool).delete()
            _allow(pool, projects)
        elif is_for_all is not None:
            pool.is_for_all = is_for_all
        pool.save()
        after = _shown(pool)
        if after != before:
            changed = [field for field in after if after[field] != before[field]]
            audit.record(
                "pool.change",
                kind="pool",
                target=pool,
                label=pool.name,
                before={field: before[field] for field in changed},
                after={field: after[field] for field in changed},
            )
    return pool


def remove_pool(*, pool: Pool) -> None:
    """Remove a pool. Idempotent. Raises Conflict while something uses it."""
    with transaction.atomic():
        pool = Pool.objects.select_for_update(no_key=True).get(pk=pool.pk)
        if pool.removed_at is not None:
            return
        uses = uses_of_pool(pool)
        if uses:
            raise Conflict(
                " ".join(uses),
                code="pool_in_use",
                next_step="Close the pool and wait until it is empty, or end what uses it.",
            )
        pool.removed_at = clock.now()
        pool.is_open = False
        pool.save()
        audit.record("pool.remove", kind="pool", target=pool, label=pool.name)


# Rows of upper apps are found by the relation they have with a pool.
_USES: list[Callable[[Pool], str]] = []


def register_pool_use(use: Callable[[Pool], str]) -> None:
    """Register a function that returns how an upper app uses a pool, as a sentence, or ""."""
    _USES.append(use)


def uses_of_pool(pool: Pool) -> list[str]:
    """Return a sentence on each use of a pool."""
    return [text for text in (use(pool) for use in _USES) if text]


def _allow(pool: Pool, projects: Iterable[Project]) -> None:
    PoolProject.objects.bulk_create(PoolProject(pool=pool, project=project) for project in projects)


def _shown(pool: Pool) -> dict[str, Any]:
    """Return what the audit log tells of a pool. Settings of engines hold no secrets."""
    return {
        "settings": pool.settings,
        "most_requests": pool.most_requests,
        "price_percent": pool.price_percent,
        "is_open": pool.is_open,
        "projects": None
        if pool.is_for_all
        else sorted(pool.projects.values_list("slug", flat=True)),
    }


def _clean_pool_name(name: str) -> str:
    name = clean_slug(name, field="name")
    if len(name) > _NAME_CHARACTERS:
        raise InvalidInput(
            f"The name has {len(name)} characters; at most {_NAME_CHARACTERS} are allowed.",
            field="name",
            next_step="Shorten it.",
        )
    if name == _RESERVED_NAME:
        raise InvalidInput(
            f"The name {name} is the address of the page that creates a pool.",
            code="name_reserved",
            field="name",
            next_step="Choose another name.",
        )
    return name


def _refuse_other_proofs(pool: Pool, settings: Mapping[str, Any]) -> None:
    """Raise InvalidInput for a change between helpers of people and commands of Slipway.

    Accounts are the word of a person's helper where Slipway never acts as them. With commands it
    would.
    """
    kind = _kind(pool.engine)
    if kind.uses_helpers(pool.settings) != kind.uses_helpers(settings):
        raise InvalidInput(
            f"Pool {pool.name} cannot change between helpers of people and commands of Slipway: "
            "its accounts are proved in another way.",
            code="helper_is_fixed",
            field="settings",
            next_step="Create another pool with the other settings, and close this one.",
        )


def _kind(engine: str) -> EngineKind:
    kind = engine_kinds().get(engine)
    if kind is None:
        raise InvalidInput(
            f"There is no engine {engine}.",
            code="no_such_engine",
            field="engine",
            next_step=f"Engines: {join_names(sorted(engine_kinds()), 10)}.",
        )
    return kind


def _check_requests(most_requests: int) -> None:
    if not 1 <= most_requests <= MAX_REQUESTS:
        raise InvalidInput(
            f"most_requests is {most_requests}; it must be from 1 to {MAX_REQUESTS}.",
            field="most_requests",
            next_step="Choose how many requests may wait or run in the pool at once.",
        )


def _check_price(price_percent: int) -> None:
    if not 0 <= price_percent <= MAX_PRICE_PERCENT:
        raise InvalidInput(
            f"price_percent is {price_percent}; it must be from 0 to {MAX_PRICE_PERCENT}.",
            field="price_percent",
            next_step="Give the percentage of a tier's price that work in the pool costs.",
        )
