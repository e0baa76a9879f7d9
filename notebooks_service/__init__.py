"""JupyterHub for Slipway: it signs people in, opens doors to servers, and holds nothing else."""
