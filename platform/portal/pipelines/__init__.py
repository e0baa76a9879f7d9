"""Schedules: jobs and sweeps that start at the times of a cron expression."""
