"""Notebook files, their versions, and their runs as jobs. One file a noun."""

from portal.notebooks.models.files import Content, NotebookFile, NotebookRun, NotebookVersion

__all__ = ["Content", "NotebookFile", "NotebookRun", "NotebookVersion"]
