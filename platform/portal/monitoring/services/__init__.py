"""What people may ask of monitoring."""
