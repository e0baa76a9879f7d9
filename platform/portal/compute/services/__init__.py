"""What may be done with nodes, tiers, quotas and environments."""
