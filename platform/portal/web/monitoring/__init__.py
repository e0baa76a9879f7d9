"""Pages of monitoring."""
