"""URLs: the audit log."""

from django.urls import path

from portal.web.audit import views

urlpatterns = [
    path("p/<slug:project>/audit", views.project_audit, name="project_audit"),
    path("t/<slug:team>/audit", views.team_audit, name="team_audit"),
    path("settings/audit", views.audit, name="audit"),
]
