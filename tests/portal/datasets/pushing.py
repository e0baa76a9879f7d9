"""Making versions through the REST API, as a client would."""

import hashlib
from collections.abc import Mapping
from typing import Any

from django.http import HttpResponse

from portal.datasets.version_checks import check_waiting
from slipway.schemas.datasets import PIECE_BYTES
from tests.personas import Api, json_of

OCTETS = "application/octet-stream"
AT = "projects/vision/datasets"


def send(api: Api, path: str, content: bytes) -> HttpResponse:
    """POST bytes as they are."""
    headers = {"Authorization": f"Bearer {api.token}", "Content-Type": OCTETS}
    answer: Any = api.client.generic(
        "POST", f"/api/v1/{path}", content, content_type=OCTETS, headers=headers
    )
    assert isinstance(answer, HttpResponse)
    return answer


def pieces_of(content: bytes) -> list[bytes]:
    """Cut as the protocol says."""
    return [content[at : at + PIECE_BYTES] for at in range(0, len(content), PIECE_BYTES)]


def sha(content: bytes) -> str:
    """Return the SHA-256 in hex."""
    return hashlib.sha256(content).hexdigest()


def frames(*pieces: bytes) -> bytes:
    """Return a body of frames."""
    return b"".join(
        hashlib.sha256(piece).digest() + len(piece).to_bytes(8) + piece for piece in pieces
    )


def named(path: str, content: bytes) -> dict[str, Any]:
    """Describe a file to the server."""
    pieces = [sha(piece) for piece in pieces_of(content)]
    return {"path": path, "size_bytes": len(content), "pieces": pieces}


def begin(api: Api, name: str = "digits") -> str:
    """Make the dataset if need be, and a draft; returns its address below `/api/v1/`."""
    api.post(AT, {"name": name})
    answer = api.post(f"{AT}/{name}/versions", {"note": "as collected"})
    assert answer.status_code == 201, answer.content
    return f"{AT}/{name}/versions/{json_of(answer)['id']}"


def fill(api: Api, draft: str, files: Mapping[str, bytes]) -> None:
    """Name the files of a draft, and send what is missing."""
    body = {"files": [named(path, content) for path, content in files.items()]}
    answer = api.post(f"{draft}/files", body)
    assert answer.status_code == 200, answer.content
    missing = set(json_of(answer)["missing"])
    pieces = [
        piece for content in files.values() for piece in pieces_of(content) if sha(piece) in missing
    ]
    if pieces:
        dataset = draft.rpartition("/versions/")[0]
        answer = send(api, f"{dataset}/pieces", frames(*dict.fromkeys(pieces)))
        assert answer.status_code == 200, answer.content


def close(api: Api, draft: str, *, allow_bad_rows: bool = False) -> dict[str, Any]:
    """Commit a draft, let the worker check it, and return how it stands then."""
    answer = api.post(f"{draft}/commit", {"allow_bad_rows": allow_bad_rows})
    assert answer.status_code == 200, answer.content
    check_waiting()
    committed: dict[str, Any] = json_of(api.get(draft))
    return committed


def push(
    api: Api, files: Mapping[str, bytes], name: str = "digits", **options: Any
) -> dict[str, Any]:
    """Make files a version; return how it stands once it was checked."""
    draft = begin(api, name)
    fill(api, draft, files)
    return close(api, draft, **options)
