"""Mails about approval requests: to those who can decide, and about the decision."""

from django.conf import settings
from django.urls import reverse

from portal.accounts.mail import queue_mail
from portal.accounts.models import Membership, Project, User
from portal.accounts.models.service_accounts import operator_ids
from portal.registry.models import PromotionRequest
from slipway.schemas.accounts import Role
from slipway.schemas.registry import RequestState

_DECIDERS = [role for role in Role if role.at_least(Role.MAINTAINER)]


def mail_deciders(project: Project, request: PromotionRequest) -> None:
    """Queue a mail to each person who can decide an open request."""
    members = Membership.objects.reaching(project).filter(role__in=_DECIDERS)
    involved = {pk for pk in (request.requested_by_id, request.record.author_id) if pk}
    involved |= operator_ids(involved)
    people = User.objects.people().filter(pk__in=members.values("user"), is_active=True)
    requester = request.requested_by.display_name
    for user in people.exclude(pk__in=involved):
        _mail(
            user,
            project,
            request,
            subject=f"{requester} requests approval of {_version(request)}",
            text=f"{requester} requests approval to promote {_version(request)} to the "
            f"{request.kind} {request.target}.",
            note=request.note,
        )


def mail_requester(project: Project, request: PromotionRequest) -> None:
    """Queue a mail to the requester about the decision."""
    if not request.requested_by.is_active or request.decided_by is None:
        return
    decision = "approved" if request.state == RequestState.APPROVED else "rejected"
    decider = request.decided_by.display_name
    _mail(
        request.requested_by,
        project,
        request,
        subject=f"{decider} {decision} {_version(request)}",
        text=f"{decider} {decision} the promotion of {_version(request)} to the {request.kind} "
        f"{request.target}.",
        note=request.decision_note,
    )


def _version(request: PromotionRequest) -> str:
    return f"{request.record.line.name} version {request.record.number}"


def _mail(
    user: User, project: Project, request: PromotionRequest, *, subject: str, text: str, note: str
) -> None:
    record = request.record
    arguments = (project.slug, record.line.name, record.number)
    page = f"{settings.SLIPWAY_URL}{reverse('project_model_version', args=arguments)}"
    body = "\n\n".join(part for part in (text, note, page) if part)
    queue_mail(to=user.email, subject=f"[{project.name}] {subject}", body=f"{body}\n")
