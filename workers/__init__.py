"""Every long-running process that is not the web."""
