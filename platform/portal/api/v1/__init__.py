"""Version 1 of the REST API, one module per resource. Each operation calls one service."""
