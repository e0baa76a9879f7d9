"""Services for nodes, tiers, quotas and environments."""
