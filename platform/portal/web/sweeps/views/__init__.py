"""Views of sweeps."""
