"""What people and the Hub may ask of notebooks."""
