"""URLs: accounts: sign-in, own settings, people."""

from django.urls import path

from portal.web.account.views import people, profile, tokens

urlpatterns = [
    path("settings", profile.settings, name="settings"),
    path("settings/profile", profile.profile, name="profile"),
    path("settings/sessions", profile.sessions, name="sessions"),
    path("settings/sessions/end", profile.sessions_end, name="sessions_end"),
    path("settings/sessions/<int:session>/end", profile.session_end, name="session_end"),
    path("settings/tokens", tokens.tokens, name="tokens"),
    path("settings/tokens/new", tokens.token_new, name="token_new"),
    path("settings/tokens/<slug:token>/revoke", tokens.token_revoke, name="token_revoke"),
    path("settings/people", people.people, name="people"),
    path("settings/people/<slug:person>", people.person, name="person"),
    path("settings/people/<slug:person>/suspend", people.person_suspend, name="person_suspend"),
    path("settings/people/<slug:person>/change", people.person_change, name="person_change"),
]
