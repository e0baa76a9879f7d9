"""Approval requests, and decisions about them."""

from collections.abc import Collection

from django.db import IntegrityError, transaction
from django.db.models import QuerySet

from portal.accounts import audit
from portal.accounts.models import Project, User
from portal.accounts.models.service_accounts import operator_ids
from portal.core.errors import Conflict, Forbidden, NotFound
from portal.registry.approval_mails import mail_deciders, mail_requester
from portal.registry.catalog import find_model
from portal.registry.models import PromotionRequest, VersionRecord
from portal.registry.promotion_gates import Target
from portal.registry.records import line_of
from portal.registry.services.actors import Actor, require_maintainer
from portal.registry.services.promotions import plan_promotion
from slipway.schemas.registry import RequestState, Verdict


def request_approval(
    *, project: Project, model: str, number: int, target: Target, by: Actor, note: str = ""
) -> PromotionRequest:
    """Request the approval of a promotion. Raises Conflict if it was requested already."""
    plan = plan_promotion(project=project, model=model, number=number, target=target)
    if plan.is_at_target:
        raise Conflict(plan.sentence, code="already_there", next_step="Nothing to do.")
    try:
        with transaction.atomic():
            request = PromotionRequest.objects.create(
                record=plan.record,
                kind=target.kind,
                target=target.name,
                note=note,
                requested_by=by.user,
            )
            _audit("model.request", project, request)
            mail_deciders(project, request)
    except IntegrityError as error:
        raise Conflict(
            f"Approval of version {number} for the {target} is already requested.",
            code="asked_already",
            next_step="Wait for a maintainer, or withdraw the request.",
        ) from error
    return request


def requests_of(
    project: Project, model: str, number: int | None = None
) -> QuerySet[PromotionRequest]:
    """Return the requests about a model, or one of its versions, newest first."""
    line = line_of(find_model(project.pk, model))
    rows = PromotionRequest.objects.complete().filter(record__line=line)
    if number is not None:
        rows = rows.filter(record__number=number)
    return rows


def decide(
    *, project: Project, model: str, request_id: str, verdict: Verdict, by: Actor, note: str = ""
) -> PromotionRequest:
    """Approve, reject or withdraw a request.

    Only a maintainer who is neither the author of the version nor the requester may approve or
    reject, nor has used a service account that is one of them. The requester or a maintainer may
    withdraw it.
    """
    line = line_of(find_model(project.pk, model))
    rows = PromotionRequest.objects.complete().select_related("record__author")
    request = rows.filter(pk=request_id, record__line=line).first() if line else None
    if request is None:
        raise NotFound
    if verdict is Verdict.WITHDRAW:
        return _withdraw(project, request, by)
    require_maintainer(project, by, to="decide on promotions")
    _refuse_own(request, by.user)
    moved = PromotionRequest.objects
    with transaction.atomic():
        if verdict is Verdict.APPROVE:
            done = moved.approve(request.pk, by=by.user, note=note)
        else:
            done = moved.reject(request.pk, by=by.user, note=note)
        if not done:
            raise _decided(request)
        request = rows.get(pk=request.pk)
        _audit(f"model.{verdict.value}", project, request)
        mail_requester(project, request)
    return request


def open_requests(lines: Collection[str]) -> list[PromotionRequest]:
    """Return the open requests for versions of these lines (by id), oldest first."""
    requests = PromotionRequest.objects.complete().filter(state=RequestState.OPEN)
    return list(requests.filter(record__line__in=lines).order_by("pk"))


def is_own_work(request: PromotionRequest, author_id: str | None, user: User) -> bool:
    """Return True if somebody else has to decide about a request, and not this person."""
    sources = [key for key in (request.requested_by_id, author_id) if key]
    return user.pk in sources or user.pk in operator_ids(sources)


def _refuse_own(request: PromotionRequest, user: User) -> None:
    author: User | None = request.record.author
    if author is not None and author.pk == user.pk:
        why = "You registered this version"
    elif request.requested_by_id == user.pk:
        why = "You requested this promotion"
    elif is_own_work(request, author.pk if author else None, user):
        why = "It comes from a service account that you have used"
    else:
        return
    raise Forbidden(
        f"{why}; somebody else must decide.",
        code="own_work",
        next_step="Ask another maintainer of the project.",
    )


def _withdraw(project: Project, request: PromotionRequest, by: Actor) -> PromotionRequest:
    if request.requested_by_id != by.user.pk:
        require_maintainer(project, by, to="withdraw somebody else's request")
    with transaction.atomic():
        if not PromotionRequest.objects.move(request.pk, RequestState.WITHDRAWN):
            raise _decided(request)
        request = PromotionRequest.objects.complete().get(pk=request.pk)
        _audit("model.withdraw", project, request)
    return request


def _decided(request: PromotionRequest) -> Conflict:
    state = PromotionRequest.objects.values_list("state", flat=True).get(pk=request.pk)
    return Conflict(
        f"The request is already {state}.",
        code="request_decided",
        next_step="Create a new request if you still need it.",
    )


def _audit(verb: str, project: Project, request: PromotionRequest) -> None:
    record: VersionRecord = request.record
    audit.record(
        verb,
        kind="promotion_request",
        target=request,
        label=f"{record.line.name} version {record.number}",
        project=project,
        after={request.kind: request.target, "state": str(request.state)},
    )
