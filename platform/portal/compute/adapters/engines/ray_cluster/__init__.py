"""Pools of an existing Ray cluster, through its Jobs API."""
