"""URLs: monitoring."""

from django.urls import path

from portal.web.monitoring.views import labels, pages

urlpatterns = [
    path(
        "p/<slug:project>/endpoints/<slug:endpoint>/monitoring",
        pages.project_endpoint_monitoring,
        name="project_endpoint_monitoring",
    ),
    path(
        "p/<slug:project>/endpoints/<slug:endpoint>/monitoring/predictions",
        pages.project_endpoint_predictions,
        name="project_endpoint_predictions",
    ),
    path(
        "p/<slug:project>/endpoints/<slug:endpoint>/monitoring/predictions/export",
        pages.project_endpoint_predictions_export,
        name="project_endpoint_predictions_export",
    ),
    path(
        "p/<slug:project>/endpoints/<slug:endpoint>/monitoring/select",
        pages.project_endpoint_select,
        name="project_endpoint_select",
    ),
    path(
        "p/<slug:project>/endpoints/<slug:endpoint>/monitoring/labels",
        labels.project_endpoint_labels,
        name="project_endpoint_labels",
    ),
    path(
        "p/<slug:project>/endpoints/<slug:endpoint>/monitoring/watching",
        pages.project_endpoint_watching,
        name="project_endpoint_watching",
    ),
    path(
        "p/<slug:project>/endpoints/<slug:endpoint>/monitoring/channels",
        pages.project_endpoint_channel_new,
        name="project_endpoint_channel_new",
    ),
    path(
        "p/<slug:project>/endpoints/<slug:endpoint>/monitoring/channels/<slug:channel>/remove",
        pages.project_endpoint_channel_remove,
        name="project_endpoint_channel_remove",
    ),
    path(
        "p/<slug:project>/endpoints/<slug:endpoint>/monitoring/alerts/<slug:alert>/snooze",
        pages.project_endpoint_snooze,
        name="project_endpoint_snooze",
    ),
]
