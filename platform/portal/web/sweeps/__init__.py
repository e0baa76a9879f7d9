"""Pages of sweeps."""
