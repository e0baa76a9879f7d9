"""Room for the heart: lifecycle, queue, placement, leases, gangs, logs and exit reasons."""
