"""What a person may ask of training."""
