"""Room for REST endpoints: revisions, traffic, keys, autoscaling."""
