"""URLs: models."""

from django.urls import path

from portal.web.registry.views import models, rules, versions

urlpatterns = [
    path("p/<slug:project>/models", models.project_models, name="project_models"),
    path(
        "p/<slug:project>/register-model",
        models.project_model_register,
        name="project_model_register",
    ),
    path("p/<slug:project>/models/<str:model>", models.project_model, name="project_model"),
    path(
        "p/<slug:project>/models/<str:model>/card",
        models.project_model_card,
        name="project_model_card",
    ),
    path(
        "p/<slug:project>/models/<str:model>/versions/<int:version>",
        versions.project_model_version,
        name="project_model_version",
    ),
    path(
        "p/<slug:project>/models/<str:model>/versions/<int:version>/batching",
        versions.project_model_batching,
        name="project_model_batching",
    ),
    path(
        "p/<slug:project>/models/<str:model>/versions/<int:version>/promote",
        versions.project_model_promote,
        name="project_model_promote",
    ),
    path(
        "p/<slug:project>/models/<str:model>/requests/<slug:request_id>/decide",
        versions.project_model_decide,
        name="project_model_decide",
    ),
    path("p/<slug:project>/registry-rules", rules.project_rules, name="project_rules"),
]
