"""Files that look as if they held secrets: they leave a machine only when a person says so."""

import re
from functools import lru_cache

from slipway.snapshots.patterns import is_ignored, read_patterns

_PATTERNS = read_patterns("""
.env
.env.*
!.env.example
!.env.sample
!.env.template
!.env.dist
*.env
.envrc
*.pem
*.key
*.p12
*.pfx
*.jks
*.keystore
*.kdbx
*.ppk
id_rsa*
id_dsa*
id_ecdsa*
id_ed25519*
!id_*.pub
.netrc
_netrc
.pgpass
.my.cnf
.pypirc
.npmrc
.htpasswd
.git-credentials
.dockercfg
.dockerconfigjson
.aws/
.ssh/
.gnupg/
.kube/
.azure/
.docker/
kaggle.json
credentials
credentials.json
credentials.y*ml
client_secret*.json
service[-_]account*.json
application_default_credentials.json
secret.json
secrets.json
secret.y*ml
secrets.y*ml
secrets.toml
*.tfstate
*.tfstate.backup
*.tfvars
""")

# One expression for all patterns, because hardly any of possibly thousands of files matches one.
_PERHAPS = re.compile("|".join(f"(?:{pattern.expression.pattern})" for pattern in _PATTERNS))


def looks_secret(path: str) -> bool:
    """Return whether the name of `path`, or of a folder above it, is typical of secrets."""
    folder, _, name = path.lower().rpartition("/")
    return _is_secret(name, is_folder=False) or _secret_folder(folder)


@lru_cache(maxsize=4096)
def _secret_folder(folder: str) -> bool:
    above, _, name = folder.rpartition("/")
    return _is_secret(name, is_folder=True) or (above != "" and _secret_folder(above))


def _is_secret(name: str, *, is_folder: bool) -> bool:
    if not _PERHAPS.fullmatch(name):
        return False
    return is_ignored(_PATTERNS, name, is_folder=is_folder)
