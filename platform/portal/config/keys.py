"""Keys outside the database: created on first use, readable by the owner alone.

With the database but without this folder one can neither read a project's secrets nor forge a
session or a sign-in token.
"""

import secrets
from pathlib import Path

from cryptography.fernet import Fernet
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from portal.config.keyfiles import read_or_create


def session_key(folder: Path) -> str:
    """Return the key that signs sessions and links."""
    return read_or_create(folder / "session.key", secrets.token_urlsafe(64).encode())


def secrets_key(folder: Path) -> str:
    """Return the Fernet key that encrypts project secrets at rest."""
    return read_or_create(folder / "secrets.key", Fernet.generate_key())


def slurm_keys(data_dir: Path) -> Path:
    """Return the folder of the keys that sign tokens for Slurm. `slurm_key` creates them."""
    return data_dir / "keys" / "slurm"


def oidc_key(folder: Path) -> str:
    """Return the RSA private key (PEM) that signs the identity tokens of single sign-on."""
    path = folder / "oidc.pem"
    if path.exists():
        return path.read_text(encoding="ascii").strip()
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return read_or_create(path, pem)
