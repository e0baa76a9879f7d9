"""Start several processes, keep them running, show one log, leave nothing behind.

Knows nothing of Django or of Slipway's settings: `portal.config.up` says what to run. Loaded by the
supervisor alone, so it stays small.
"""
