"""Tokens with which slurmrestd acts as an account of the cluster: the only code that signs them.

A token is a JWT with `sun`, the account, and lasts two minutes. slurmctld and slurmdbd trust the
public keys in a file that the site has installed (`AuthAltParameters=jwks=…`). A private key can
act as any account there, so accounts of the system are refused here, whoever asks.
"""

import base64
import json
import pwd
import re
import time
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

VALID_S: Final = 120
_BITS: Final = 2048
_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_KID: Final = re.compile(r"slipway-[0-9a-f]{12}")
_SIGNING: Final = "signing"
# Uids below 1000 are of the system on all common Linux distributions. This machine need not know
# the accounts of the cluster, so usual names are refused as well.
_FIRST_PERSON: Final = 1000
_SYSTEM: Final = frozenset(
    {"root", "toor", "daemon", "bin", "sys", "sync", "games", "man", "lp", "mail", "news", "uucp"}
    | {"proxy", "backup", "list", "irc", "gnats", "nobody", "nogroup", "adm", "operator", "ftp"}
    | {"shutdown", "halt", "www-data", "apache", "nginx", "http", "sshd", "dbus", "messagebus"}
    | {"polkitd", "munge", "slurm", "slurmadmin", "slurmctld", "slurmd", "slurmdbd", "slurmrestd"}
    | {"mysql", "mariadb", "postgres", "redis", "ldap", "sssd", "chrony", "ntp", "rpc", "rpcuser"}
    | {"nfsnobody", "tss", "postfix", "tomcat", "admin", "sudo", "wheel"}
)


class SlurmKeys:
    """The RSA keys of an installation for Slurm: a file each, readable by its owner alone.

    One of them signs. The others are published as well, so that a site can install a new key before
    it is used, and keeps the old one until nothing signs with it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def kids(self) -> list[str]:
        """Return the ids of all keys."""
        names = [path.stem for path in self._folder.glob("slipway-*.pem")]
        return sorted(name for name in names if _KID.fullmatch(name))

    def signing(self) -> str:
        """Return the id of the key that signs, "" without any."""
        try:
            kid = (self._folder / _SIGNING).read_text("ascii").strip()
        except FileNotFoundError:
            return ""
        return kid if kid in self.kids() else ""

    def create(self) -> str:
        """Create a key and return its id. The first one signs."""
        key = rsa.generate_private_key(public_exponent=65537, key_size=_BITS)
        public = key.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        kid = f"slipway-{sha256(public).hexdigest()[:12]}"
        pem = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._write(f"{kid}.pem", pem)
        if not self.signing():
            self.activate(kid)
        return kid

    def activate(self, kid: str) -> None:
        """Sign with this key from now on. Raises ValueError for an unknown one."""
        self._require(kid)
        self._write(_SIGNING, kid.encode("ascii"))

    def remove(self, kid: str) -> None:
        """Delete a key. Raises ValueError for an unknown one, and for the one that signs."""
        self._require(kid)
        if kid == self.signing():
            raise ValueError(f"Key {kid} signs; activate another key first.")
        (self._folder / f"{kid}.pem").unlink()

    def jwks(self) -> dict[str, Any]:
        """Return the public keys as a JSON Web Key Set, for `AuthAltParameters=jwks=FILE`."""
        return {"keys": [self._public(kid) for kid in self.kids()]}

    def token(self, account: str) -> str:
        """Return a token for an account. Raises ValueError for one of the system, or no key."""
        require_person(account)
        kid = self.signing()
        if not kid:
            raise ValueError("there is no key that signs for Slurm: run manage.py slurm_key create")
        issued = int(time.time())
        header = {"alg": "RS256", "typ": "JWT", "kid": kid}
        claims = {"sun": account, "iat": issued, "exp": issued + VALID_S}
        content = f"{_encoded(header)}.{_encoded(claims)}"
        signature = self._private(kid).sign(
            content.encode("ascii"), padding.PKCS1v15(), hashes.SHA256()
        )
        return f"{content}.{_base64(signature)}"

    def _require(self, kid: str) -> None:
        if kid not in self.kids():
            raise ValueError(f"There is no key {kid}.")

    def _write(self, name: str, content: bytes) -> None:
        """Replace a file at once, readable by its owner alone."""
        temporary = self._folder / f".{name}.new"
        temporary.touch(mode=0o600)
        temporary.chmod(0o600)
        temporary.write_bytes(content)
        temporary.replace(self._folder / name)

    def _private(self, kid: str) -> rsa.RSAPrivateKey:
        content = (self._folder / f"{kid}.pem").read_bytes()
        key = serialization.load_pem_private_key(content, password=None)
        if not isinstance(key, rsa.RSAPrivateKey):
            raise ValueError(f"{kid}.pem is no RSA key")
        return key

    def _public(self, kid: str) -> dict[str, str]:
        numbers = self._private(kid).public_key().public_numbers()
        exponent, modulus = (
            _base64(number.to_bytes((number.bit_length() + 7) // 8))
            for number in (numbers.e, numbers.n)
        )
        return {
            "kty": "RSA",
            "kid": kid,
            "alg": "RS256",
            "use": "sig",
            "e": exponent,
            "n": modulus,
        }


def require_person(account: str) -> None:
    """Raise ValueError if an account is, or may be, one of the system."""
    if not _NAME.fullmatch(account):
        raise ValueError(f"{account[:40]!r} is not the name of a person's account")
    refused = account in _SYSTEM or account.startswith("systemd-")
    with suppress(KeyError):  # an account of the cluster that this machine does not have
        refused = refused or pwd.getpwnam(account).pw_uid < _FIRST_PERSON
    if refused:
        raise ValueError(f"{account} is an account of the system, and not of a person")


def _encoded(part: dict[str, Any]) -> str:
    return _base64(json.dumps(part, separators=(",", ":")).encode("ascii"))


def _base64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode("ascii")
