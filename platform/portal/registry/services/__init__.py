"""Services of the registry for people and jobs."""
