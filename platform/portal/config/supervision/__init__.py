"""Start several processes, keep them running, show one log, leave nothing behind.

Independent of Django and Slipway's settings: `portal.config.up` defines the processes. The
supervisor alone imports it, so it stays small.
"""
