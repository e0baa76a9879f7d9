"""Room for the agent on each machine: starts, watches, stops and reports tasks."""
