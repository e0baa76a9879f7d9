"""What every room stands on: errors, ids, clock, pagination, events, policy. No tables."""
