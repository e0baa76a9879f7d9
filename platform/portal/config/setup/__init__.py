"""Set-up of an installation: its state on disk, the steps, and the lock that serializes them."""
