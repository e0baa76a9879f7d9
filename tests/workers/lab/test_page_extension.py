"""The extension of JupyterLab that tells of stops, as JupyterLab finds it."""

import hashlib
import json

from workers.lab.notices import PAGE_EXTENSIONS


def test_browsers_notice_another_script() -> None:
    folder = PAGE_EXTENSIONS / "slipway-desk"
    described = json.loads((folder / "package.json").read_bytes())
    assert described["name"] == folder.name
    path, _, version = described["jupyterlab"]["_build"]["load"].partition("?v=")
    # JupyterLab lets browsers keep what an address holds for ever, so another script is another
    # address.
    digest = hashlib.sha256((folder / path).read_bytes()).hexdigest()[:12]
    assert version == digest, f'write "static/desk.js?v={digest}" into its package.json'
