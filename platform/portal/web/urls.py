"""Addresses of the pages."""

from django.urls import path

from portal.web.views import (
    audit,
    home,
    invitations,
    members,
    palette,
    people,
    profile,
    projects,
    secrets,
    streams,
    teams,
    tokens,
)

urlpatterns = [
    path("", home.home, name="home"),
    path("palette", palette.palette, name="palette"),
    path("events", streams.events, name="events"),
    path("invitations/<slug:secret>", invitations.invitation, name="invitation"),
    path(
        "invitations/<slug:secret>/accept", invitations.invitation_accept, name="invitation_accept"
    ),
    path(
        "invitations/mine/<slug:invitation>/accept",
        home.invitation_accept_own,
        name="invitation_accept_own",
    ),
    path("projects", projects.projects, name="projects"),
    path("projects/new", projects.project_new, name="project_new"),
    path("p/<slug:project>", projects.project, name="project"),
    path("p/<slug:project>/events", streams.project_events, name="project_events"),
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
    path("p/<slug:project>/secrets", secrets.project_secrets, name="project_secrets"),
    path(
        "p/<slug:project>/secrets/write", secrets.project_secret_write, name="project_secret_write"
    ),
    path(
        "p/<slug:project>/secrets/<slug:name>/delete",
        secrets.project_secret_delete,
        name="project_secret_delete",
    ),
    path("p/<slug:project>/audit", audit.project_audit, name="project_audit"),
    path("p/<slug:project>/settings", projects.project_settings, name="project_settings"),
    path("p/<slug:project>/archive", projects.project_archive, name="project_archive"),
    path("p/<slug:project>/restore", projects.project_restore, name="project_restore"),
    path("teams", teams.teams, name="teams"),
    path("teams/new", teams.team_new, name="team_new"),
    path("t/<slug:team>", teams.team, name="team"),
    path("t/<slug:team>/events", streams.team_events, name="team_events"),
    path("t/<slug:team>/members", members.team_members, name="team_members"),
    path("t/<slug:team>/members/invite", members.team_invite, name="team_invite"),
    path("t/<slug:team>/members/<slug:user>/role", members.team_role, name="team_role"),
    path("t/<slug:team>/members/<slug:user>/remove", members.team_remove, name="team_remove"),
    path(
        "t/<slug:team>/invitations/<slug:invitation>/withdraw",
        members.team_uninvite,
        name="team_uninvite",
    ),
    path("t/<slug:team>/audit", audit.team_audit, name="team_audit"),
    path("t/<slug:team>/settings", teams.team_settings, name="team_settings"),
    path("settings", profile.settings, name="settings"),
    path("settings/profile", profile.profile, name="profile"),
    path("settings/sessions", profile.sessions, name="sessions"),
    path("settings/sessions/end", profile.sessions_end, name="sessions_end"),
    path("settings/sessions/<int:session>/end", profile.session_end, name="session_end"),
    path("settings/tokens", tokens.tokens, name="tokens"),
    path("settings/tokens/new", tokens.token_new, name="token_new"),
    path("settings/tokens/<slug:token>/revoke", tokens.token_revoke, name="token_revoke"),
    path("settings/audit", audit.audit, name="audit"),
    path("settings/people", people.people, name="people"),
    path("settings/people/<slug:person>", people.person, name="person"),
    path("settings/people/<slug:person>/suspend", people.person_suspend, name="person_suspend"),
    path("settings/people/<slug:person>/change", people.person_change, name="person_change"),
]
