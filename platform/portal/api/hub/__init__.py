"""The API of the Hub and of notebook servers, by `slipway.schemas.notebook_servers`."""
