"""Room for nodes, hardware tiers, quotas, environments and the back ends that start processes."""
