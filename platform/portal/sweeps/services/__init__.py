"""Services of sweeps."""
