"""The API of gateways and replicas: `slipway.schemas.serving` is the contract."""
