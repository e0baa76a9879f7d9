"""What a person may ask of datasets."""
