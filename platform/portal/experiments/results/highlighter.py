"""Syntax highlighting. Lexers are regular expressions, which hostile text can keep busy."""

import json
from contextlib import suppress
from typing import Any

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name

LEXERS = {
    "py": "python",
    "json": "json",
    "jsonl": "json",
    "yaml": "yaml",
    "yml": "yaml",
    "toml": "toml",
    "cfg": "ini",
    "ini": "ini",
    "sh": "bash",
    "xml": "xml",
    "sql": "sql",
    "js": "javascript",
    "css": "css",
    "r": "r",
    "c": "c",
    "h": "c",
    "cpp": "cpp",
    "mlmodel": "yaml",
}


def highlighted(content: bytes, *, lexer: str) -> dict[str, Any]:
    """Return a text as HTML of spans with classes: all of the text in them is escaped.

    JSON is written anew, a value a line.
    """
    text = content.decode(errors="replace")
    if lexer == "json":
        with suppress(ValueError, RecursionError):
            text = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    return {"html": highlight(text, get_lexer_by_name(lexer), HtmlFormatter(nowrap=True))}
