"""URLs: projects and teams."""

from django.urls import path

from portal.web.projects.views import (
    invitations,
    members,
    notes,
    overview,
    projects,
    readmes,
    secrets,
    service_accounts,
    teams,
)

urlpatterns = [
    path("invitations/<slug:secret>", invitations.invitation, name="invitation"),
    path(
        "invitations/<slug:secret>/accept", invitations.invitation_accept, name="invitation_accept"
    ),
    path("projects", projects.projects, name="projects"),
    path("projects/new", projects.project_new, name="project_new"),
    path("p/<slug:project>", projects.project, name="project"),
    path(
        "p/<slug:project>/overview/results",
        overview.project_overview_results,
        name="project_overview_results",
    ),
    path(
        "p/<slug:project>/overview/spend",
        overview.project_overview_spend,
        name="project_overview_spend",
    ),
    path("p/<slug:project>/members", members.project_members, name="project_members"),
    path("p/<slug:project>/members/invite", members.project_invite, name="project_invite"),
    path("p/<slug:project>/members/<slug:user>/role", members.project_role, name="project_role"),
    path(
        "p/<slug:project>/members/<slug:user>/remove",
        members.project_remove,
        name="project_remove",
    ),
    path(
        "p/<slug:project>/invitations/<slug:invitation>/withdraw",
        members.project_uninvite,
        name="project_uninvite",
    ),
    path(
        "p/<slug:project>/service-accounts",
        service_accounts.project_service_accounts,
        name="project_service_accounts",
    ),
    path(
        "p/<slug:project>/service-accounts/new",
        service_accounts.project_service_account_new,
        name="project_service_account_new",
    ),
    path(
        "p/<slug:project>/service-accounts/<slug:account>",
        service_accounts.project_service_account,
        name="project_service_account",
    ),
    path(
        "p/<slug:project>/service-accounts/<slug:account>/edit",
        service_accounts.project_service_account_edit,
        name="project_service_account_edit",
    ),
    path(
        "p/<slug:project>/service-accounts/<slug:account>/disable",
        service_accounts.project_service_account_disable,
        name="project_service_account_disable",
    ),
    path(
        "p/<slug:project>/service-accounts/<slug:account>/enable",
        service_accounts.project_service_account_enable,
        name="project_service_account_enable",
    ),
    path(
        "p/<slug:project>/service-accounts/<slug:account>/delete",
        service_accounts.project_service_account_delete,
        name="project_service_account_delete",
    ),
    path(
        "p/<slug:project>/service-accounts/<slug:account>/tokens/new",
        service_accounts.project_service_token_new,
        name="project_service_token_new",
    ),
    path(
        "p/<slug:project>/service-accounts/<slug:account>/tokens/<slug:token_id>/revoke",
        service_accounts.project_service_token_revoke,
        name="project_service_token_revoke",
    ),
    path("p/<slug:project>/secrets", secrets.project_secrets, name="project_secrets"),
    path(
        "p/<slug:project>/secrets/write", secrets.project_secret_write, name="project_secret_write"
    ),
    path(
        "p/<slug:project>/secrets/<slug:name>/delete",
        secrets.project_secret_delete,
        name="project_secret_delete",
    ),
    path(
        "p/<slug:project>/notes/<slug:kind>/<slug:target>", notes.project_note, name="project_note"
    ),
    path("p/<slug:project>/readme", readmes.project_readme, name="project_readme"),
    path("p/<slug:project>/settings", projects.project_settings, name="project_settings"),
    path("p/<slug:project>/network", projects.project_network, name="project_network"),
    path("p/<slug:project>/archive", projects.project_archive, name="project_archive"),
    path("p/<slug:project>/restore", projects.project_restore, name="project_restore"),
    path("teams", teams.teams, name="teams"),
    path("teams/new", teams.team_new, name="team_new"),
    path("t/<slug:team>", teams.team, name="team"),
    path("t/<slug:team>/members", members.team_members, name="team_members"),
    path("t/<slug:team>/members/invite", members.team_invite, name="team_invite"),
    path("t/<slug:team>/members/<slug:user>/role", members.team_role, name="team_role"),
    path("t/<slug:team>/members/<slug:user>/remove", members.team_remove, name="team_remove"),
    path(
        "t/<slug:team>/invitations/<slug:invitation>/withdraw",
        members.team_uninvite,
        name="team_uninvite",
    ),
    path("t/<slug:team>/settings", teams.team_settings, name="team_settings"),
]
