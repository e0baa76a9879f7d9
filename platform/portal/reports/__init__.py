"""Reports: versioned pages of text with live charts, tables and other objects of a project."""
