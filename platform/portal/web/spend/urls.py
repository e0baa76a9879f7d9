"""URLs: spend and budgets."""

from django.urls import path

from portal.web.spend.views import budgets, spend

urlpatterns = [
    path("p/<slug:project>/spend", spend.project_spend, name="project_spend"),
    path("p/<slug:project>/spend/export", spend.project_spend_export, name="project_spend_export"),
    path("spend", spend.spend, name="spend"),
    path("spend/month", spend.spend_month, name="spend_month"),
    path("spend/export", spend.spend_export, name="spend_export"),
    path("spend/installation", spend.spend_installation, name="spend_installation"),
    path("spend/prices", spend.spend_rates, name="spend_rates"),
    path("spend/rent-or-buy", spend.spend_rent_or_buy, name="spend_rent_or_buy"),
    path("spend/budgets", budgets.budgets, name="budgets"),
    path("spend/budgets/<slug:budget>", budgets.budget, name="budget"),
    path("spend/budgets/<slug:budget>/delete", budgets.budget_delete, name="budget_delete"),
]
