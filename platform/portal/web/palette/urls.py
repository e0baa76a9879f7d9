"""URLs: the command palette."""

from django.urls import path

from portal.web.palette import views

urlpatterns = [
    path("palette", views.palette, name="palette"),
]
