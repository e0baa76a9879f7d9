"""Cost management: metering, budgets, forecasts, idle resources, rent or buy."""
