"""Services of this app for people, gateways and replicas, one file for each group of verbs."""
