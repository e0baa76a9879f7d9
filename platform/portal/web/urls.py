"""Addresses of the pages."""

from django.urls import path

from portal.web.views.home import home
from portal.web.views.invitations import invitation

urlpatterns = [
    path("", home, name="home"),
    path("invitations/<str:secret>", invitation, name="invitation"),
]
