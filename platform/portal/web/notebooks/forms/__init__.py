"""Forms: notebook servers, files and runs."""
