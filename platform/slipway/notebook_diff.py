"""Text differences of two notebooks, by nbdime."""

import io
from typing import Any

from nbdime import diff_notebooks
from nbdime.prettyprint import PrettyPrintConfig, pretty_print_diff


def diff_text(before: Any, after: Any) -> str:
    """Return the differences in sources, outputs and metadata, or an empty string."""
    value = diff_notebooks(before, after)
    if not value:
        return ""
    text = io.StringIO()
    config = PrettyPrintConfig(out=text, use_git=False, use_diff=False, use_color=False)
    pretty_print_diff(before, value, "", config)
    return text.getvalue()
