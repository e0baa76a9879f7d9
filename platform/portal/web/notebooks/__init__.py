"""Pages of notebook servers, files and runs."""
