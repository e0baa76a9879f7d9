"""App for hosted notebooks, their file history and idle rules."""
