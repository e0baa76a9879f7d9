"""The API of node agents, with its own contract (`slipway.schemas.agent`) and its own gate."""
