"""Foundations of every app: errors, ids, clock, pagination, events, policy."""
