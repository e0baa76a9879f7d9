"""JupyterHub for Slipway: it authenticates people and routes to servers, and nothing else."""

import sys

# This package builds parsers of a format that no Jupyter schema uses, which doubles the import
# time. jsonschema works without it.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
