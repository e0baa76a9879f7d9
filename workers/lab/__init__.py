"""A notebook server: JupyterLab in a workload, signed in through the Hub, honest about its work."""

import os
import sys

# This package builds parsers of a format that no Jupyter schema uses, which doubles the import
# time. jsonschema works without it.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
# Otherwise the Hub's package would load its older, larger implementation of the server.
os.environ.setdefault("JUPYTERHUB_SINGLEUSER_EXTENSION", "1")
