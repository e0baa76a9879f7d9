"""The documentation as pages of the portal, rendered from the Markdown files of the source."""
