"""What people, gateways and replicas may ask of this room, a verb-group a file."""
