"""Database models of the app, one module per noun."""

from portal.accounts.models.audit import AuditEvent
from portal.accounts.models.credentials import ApiToken, ProjectSecret
from portal.accounts.models.invitations import Invitation
from portal.accounts.models.mail import OutboxMail
from portal.accounts.models.people import User
from portal.accounts.models.readmes import ObjectNote, ProjectReadme
from portal.accounts.models.service_accounts import ServiceAccount, ServiceAccountOperator
from portal.accounts.models.tenancy import Membership, Project, Team

__all__ = [
    "ApiToken",
    "AuditEvent",
    "Invitation",
    "Membership",
    "ObjectNote",
    "OutboxMail",
    "Project",
    "ProjectReadme",
    "ProjectSecret",
    "ServiceAccount",
    "ServiceAccountOperator",
    "Team",
    "User",
]
