"""What a person, or a job, may ask of the registry."""
