"""Amazon EC2 as a provisioner of machines."""
