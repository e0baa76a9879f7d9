"""The name under which notebook servers are workloads."""

KIND = "notebook"
