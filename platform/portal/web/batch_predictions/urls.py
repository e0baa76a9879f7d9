"""URLs: batch predictions."""

from django.urls import path

from portal.web.batch_predictions.views import creation, pages

_ALL = "p/<slug:project>/batch-predictions"
urlpatterns = [
    path(_ALL, pages.project_batch_predictions, name="project_batch_predictions"),
    path(f"{_ALL}/new", creation.project_batch_prediction_new, name="project_batch_prediction_new"),
    path(
        f"{_ALL}/quote",
        creation.project_batch_prediction_quote,
        name="project_batch_prediction_quote",
    ),
    path(
        f"{_ALL}/<slug:batch_prediction>",
        pages.project_batch_prediction,
        name="project_batch_prediction",
    ),
]
