"""The `slipway` command: one file for each noun a person types."""
