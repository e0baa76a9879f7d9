"""Room for metering, prices, budgets and forecasts."""
