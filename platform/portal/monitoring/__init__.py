"""Room for captured predictions, drift, quality and alerts."""
