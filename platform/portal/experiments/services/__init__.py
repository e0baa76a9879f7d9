"""What people may ask of experiments: put in the bin, take back, destroy, look at artifacts."""
