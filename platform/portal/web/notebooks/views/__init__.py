"""Views: notebook servers, files and runs."""
