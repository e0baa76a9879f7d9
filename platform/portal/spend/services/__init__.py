"""Services of spend: budgets and prices."""
