"""Views: nodes, tiers and quotas."""
