"""The HTTP root of the REST API: routers, error mapping, OpenAPI."""
