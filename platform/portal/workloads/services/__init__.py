"""What users, upper rooms and agents may ask of workloads."""
