"""Schedules of jobs and sweeps, and pipelines of steps that are jobs."""
