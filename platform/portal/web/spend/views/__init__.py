"""Views: spend and budgets."""
