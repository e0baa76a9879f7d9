"""Services of monitoring for people and the API."""
