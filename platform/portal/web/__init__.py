"""The pages: layout, components, home, settings pages, live updates, static files."""
