"""URLs: event streams of open pages."""

from django.urls import path

from portal.web.streams import views

urlpatterns = [
    path("events", views.events, name="events"),
    path("p/<slug:project>/events", views.project_events, name="project_events"),
    path("t/<slug:team>/events", views.team_events, name="team_events"),
]
