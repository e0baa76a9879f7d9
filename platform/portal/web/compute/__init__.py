"""Pages of nodes, tiers and quotas."""
