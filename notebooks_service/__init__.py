"""JupyterHub for Slipway: it authenticates people and routes to servers, and nothing else."""

import sys

# It builds parsers of a format that no schema of Jupyter uses, for as long as all the rest of the
# import takes; jsonschema does without it.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
