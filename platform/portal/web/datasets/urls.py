"""URLs: datasets."""

from django.urls import path

from portal.web.datasets import views

urlpatterns = [
    path("p/<slug:project>/datasets", views.project_datasets, name="project_datasets"),
    path("p/<slug:project>/datasets/new", views.project_dataset_new, name="project_dataset_new"),
    path("p/<slug:project>/datasets/<str:dataset>", views.project_dataset, name="project_dataset"),
    path(
        "p/<slug:project>/datasets/<str:dataset>/begin",
        views.project_dataset_begin,
        name="project_dataset_begin",
    ),
    path(
        "p/<slug:project>/datasets/<str:dataset>/delete",
        views.project_dataset_delete,
        name="project_dataset_delete",
    ),
    path(
        "p/<slug:project>/datasets/<str:dataset>/restore",
        views.project_dataset_restore,
        name="project_dataset_restore",
    ),
    path(
        "p/<slug:project>/datasets/<str:dataset>/v/<str:version>",
        views.project_dataset_version,
        name="project_dataset_version",
    ),
    path(
        "p/<slug:project>/datasets/<str:dataset>/v/<str:version>/commit",
        views.project_dataset_commit,
        name="project_dataset_commit",
    ),
    path(
        "p/<slug:project>/datasets/<str:dataset>/v/<str:version>/delete",
        views.project_dataset_version_delete,
        name="project_dataset_version_delete",
    ),
    path(
        "p/<slug:project>/datasets/<str:dataset>/v/<str:version>/restore",
        views.project_dataset_version_restore,
        name="project_dataset_version_restore",
    ),
]
