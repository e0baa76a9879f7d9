"""Keys that live outside the database: made on first use, readable by the owner alone.

Whoever has the database without this folder can neither read a project's secrets nor forge a
session or a sign-in token.
"""

import os
import secrets
from pathlib import Path

from cryptography.fernet import Fernet
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa


def _read_or_make(path: Path, fresh: bytes) -> str:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}.new")
    if not path.exists():
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(fresh)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(draft, path)  # the first process wins; the others read what it wrote
        except FileExistsError:
            pass
        finally:
            draft.unlink()
    return path.read_text(encoding="ascii").strip()


def session_key(folder: Path) -> str:
    """Return the key that signs sessions and links."""
    return _read_or_make(folder / "session.key", secrets.token_urlsafe(64).encode())


def secrets_key(folder: Path) -> str:
    """Return the Fernet key that encrypts project secrets at rest."""
    return _read_or_make(folder / "secrets.key", Fernet.generate_key())


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
    return _read_or_make(path, pem)
