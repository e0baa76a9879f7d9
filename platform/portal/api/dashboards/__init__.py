"""Dashboards of clusters, each at a host name of its own, for the browsers that opened them."""
