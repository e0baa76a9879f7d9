"""Nodes, hardware tiers, quotas, environments and the back ends that start processes."""
