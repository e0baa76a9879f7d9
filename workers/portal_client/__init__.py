"""The HTTP client with which agents, gateways, replicas, labs and the Hub call the portal."""
