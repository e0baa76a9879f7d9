"""A notebook server: JupyterLab in a workload, signed in through the Hub, honest about its work."""

import os
import sys

# It builds parsers of a format that no schema of Jupyter uses, for as long as all the rest of the
# import takes; jsonschema does without it.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
# Without it the Hub's package would load its older, larger kind of server.
os.environ.setdefault("JUPYTERHUB_SINGLEUSER_EXTENSION", "1")
