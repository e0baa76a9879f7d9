"""The API of node agents: a contract of its own (`slipway.schemas.agent`), a gate of its own."""
