"""URLs: documentation."""

from django.urls import path

from portal.web.docs import views

urlpatterns = [
    path("docs", views.docs, name="docs"),
    path("docs/<slug:page>", views.docs_page, name="docs_page"),
]
