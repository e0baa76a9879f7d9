"""A Docker engine as a provisioner of machines."""
