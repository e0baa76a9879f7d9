"""What everything costs: metering, budgets, forecasts, idle waste, rent or buy."""
