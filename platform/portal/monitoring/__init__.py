"""App for captured predictions, drift, quality and alerts."""
