"""Views: nodes, pools, tiers and quotas."""
