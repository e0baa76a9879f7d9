"""The forms of the pages, one file a noun, and how they are drawn and carried out."""
