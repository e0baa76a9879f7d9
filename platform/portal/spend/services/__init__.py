"""What people may ask of spend: budgets and prices."""
