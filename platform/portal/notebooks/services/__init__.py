"""What a person may ask of notebooks."""
