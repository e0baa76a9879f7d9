"""Pages of spend and budgets."""
