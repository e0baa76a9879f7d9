"""Notebooks as JupyterLab would save them, and how tests send them."""

import json
from typing import Any
from urllib.parse import quote

from django.http import HttpResponse

from tests.personas import Api

UPLOAD = "application/octet-stream"


def code(source: str, *, count: int | None = None, prints: str = "", **metadata: Any) -> Any:
    """A cell of code that has printed something."""
    outputs = [{"output_type": "stream", "name": "stdout", "text": [prints]}] if prints else []
    return {
        "cell_type": "code",
        "execution_count": count,
        "id": f"c{abs(hash(source)) % 10**8}",
        "metadata": metadata,
        "outputs": outputs,
        "source": source.splitlines(keepends=True),
    }


def words(source: str) -> Any:
    """A cell of words."""
    return {"cell_type": "markdown", "id": "w1", "metadata": {}, "source": [source]}


def notebook(*cells: Any) -> bytes:
    """A notebook, byte for byte as nbformat writes it."""
    document = {
        "cells": list(cells),
        "metadata": {"kernelspec": {"display_name": "P", "language": "python", "name": "python3"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return (json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()


def send(api: Api, path: str, content: bytes, *, project: str = "vision") -> HttpResponse:
    """Save a notebook."""
    where = f"projects/{project}/notebook-files?path={quote(path, safe='')}"
    return api.call("post", where, content, content_type=UPLOAD)
