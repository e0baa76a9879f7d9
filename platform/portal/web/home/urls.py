"""URLs: Home."""

from django.urls import path

from portal.web.home import views

urlpatterns = [
    path("", views.home, name="home"),
    path("first-steps", views.first_steps, name="first_steps"),
    path("notifications", views.notifications, name="notifications"),
    path("notifications/count", views.notifications_count, name="notifications_count"),
    path("notifications/card", views.notifications_card, name="notifications_card"),
    path(
        "p/<slug:project>/notifications/card",
        views.project_notifications_card,
        name="project_notifications_card",
    ),
    path(
        "invitations/mine/<slug:invitation>/accept",
        views.invitation_accept_own,
        name="invitation_accept_own",
    ),
]
