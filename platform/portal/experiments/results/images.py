"""Images of runs: names that `mlflow.log_image` gives them, and formats and sizes from their bytes.

An image is never decoded here. A few kilobytes can unpack to gigabytes in a browser, so that its
dimensions are read from its header before a page shows it.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

MOST_PIXELS = 64_000_000
HEADER_BYTES = 256 * 1024
FOLDER = "images"
RASTER_TYPES = {
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "gif": "image/gif",
    "webp": "image/webp",
}
# <key>+step+<step>+timestamp+<ms>+<uuid>[+compressed].<ending>. MLflow before 3.10 has % for +, and
# # for ~, which is in place of the slashes of the key.
_NAME = re.compile(
    r"(?P<key>.{1,200}?)[+%]step[+%](?P<step>-?\d{1,15})[+%]timestamp[+%](?P<ms>\d{1,15})[+%]"
    r"(?P<id>[0-9a-f-]{8,40})(?P<small>[+%]compressed)?\.(?P<ending>[a-z]{3,4})",
    re.IGNORECASE,
)
_START_OF_FRAME = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


@dataclass(frozen=True)
class LoggedImage:
    """An image of `mlflow.log_image`. `thumbnail` is the path of its small copy, or its own."""

    key: str
    step: int
    timestamp_ms: int
    path: str
    thumbnail: str


@dataclass(frozen=True)
class ImageSize:
    """Format and dimensions by the header of an image, in pixels."""

    mime: str
    width: int
    height: int


class ImageRefused(Exception):
    """The image is not one that a browser is given. The message is a sentence for people."""


def logged_images(paths: Iterable[str]) -> dict[str, list[LoggedImage]]:
    """Return the images among the paths of `images/` by their key, in order of step and time."""
    whole: dict[tuple[str, int, int, str], str] = {}
    small: dict[tuple[str, int, int, str], str] = {}
    for path in paths:
        match = _NAME.fullmatch(path.rpartition("/")[2])
        if match is None or match["ending"].lower() not in RASTER_TYPES:
            continue
        key = match["key"].replace("~", "/").replace("#", "/")
        identity = (key, int(match["step"]), int(match["ms"]), match["id"].lower())
        (small if match["small"] else whole)[identity] = path
    by_key: dict[str, list[LoggedImage]] = {}
    for identity in sorted({*whole, *small}):
        key, step, timestamp_ms, _ = identity
        path = whole.get(identity) or small[identity]
        thumbnail = small.get(identity, path)
        by_key.setdefault(key, []).append(LoggedImage(key, step, timestamp_ms, path, thumbnail))
    return by_key


def checked_image(head: bytes) -> ImageSize:
    """Return format and dimensions from the first HEADER_BYTES of an image.

    Raises ImageRefused for what is no image of a known format, or has too many pixels.
    """
    size = _png(head) or _gif(head) or _webp(head) or _jpeg(head)
    if size is None or size.width <= 0 or size.height <= 0:
        raise ImageRefused("This file is not a readable PNG, JPEG, GIF or WebP image.")
    if size.width * size.height > MOST_PIXELS:
        raise ImageRefused(
            f"This image has {size.width:,} × {size.height:,} pixels; "  # noqa: RUF001
            f"up to {MOST_PIXELS // 1_000_000} megapixels are shown."
        )
    return size


def _png(head: bytes) -> ImageSize | None:
    if not head.startswith(b"\x89PNG\r\n\x1a\n") or head[12:16] != b"IHDR" or len(head) < 24:
        return None
    return ImageSize("image/png", _big(head[16:20]), _big(head[20:24]))


def _gif(head: bytes) -> ImageSize | None:
    if head[:6] not in (b"GIF87a", b"GIF89a") or len(head) < 10:
        return None
    return ImageSize("image/gif", _little(head[6:8]), _little(head[8:10]))


def _webp(head: bytes) -> ImageSize | None:
    if head[:4] != b"RIFF" or head[8:12] != b"WEBP" or len(head) < 30:
        return None
    kind = head[12:16]
    if kind == b"VP8X":
        return ImageSize("image/webp", _little(head[24:27]) + 1, _little(head[27:30]) + 1)
    if kind == b"VP8L" and head[20] == 0x2F:
        bits = _little(head[21:25])
        return ImageSize("image/webp", (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1)
    if kind == b"VP8 " and head[23:26] == b"\x9d\x01\x2a":
        width, height = _little(head[26:28]) & 0x3FFF, _little(head[28:30]) & 0x3FFF
        return ImageSize("image/webp", width, height)
    return None


def _jpeg(head: bytes) -> ImageSize | None:
    """Read the first frame header, which follows segments of known lengths."""
    if head[:3] != b"\xff\xd8\xff":
        return None
    at = 2
    while at + 9 < len(head) and head[at] == 0xFF:
        marker = head[at + 1]
        if marker in _START_OF_FRAME:
            return ImageSize("image/jpeg", _big(head[at + 7 : at + 9]), _big(head[at + 5 : at + 7]))
        if marker == 0xFF:
            at += 1
            continue
        at += 2 + max(2, _big(head[at + 2 : at + 4]))
    return None


def _big(number: bytes) -> int:
    return int.from_bytes(number, "big")


def _little(number: bytes) -> int:
    return int.from_bytes(number, "little")
