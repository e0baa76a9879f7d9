"""Static files straight from the npm packages: only the files named here are served."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.staticfiles.finders import BaseFinder
from django.core.files.storage import FileSystemStorage, Storage

# Package folder → files in it, served under /static/npm/<package>/<file>.
SERVED: dict[str, tuple[str, ...]] = {
    # With source maps: the files refer to them, and collectstatic needs every referenced file.
    "@tabler/core": (
        "dist/css/tabler.min.css",
        "dist/css/tabler.min.css.map",
        "dist/js/tabler.min.js",
        "dist/js/tabler.min.js.map",
    ),
    "htmx.org": ("dist/htmx.min.js", "dist/ext/hx-sse.min.js"),
    "echarts": ("dist/echarts.min.js",),
    "@dagrejs/dagre": ("dist/dagre.min.js", "dist/dagre.min.js.map"),
    "plotly.js-dist-min": ("plotly.min.js",),
    "@xterm/xterm": ("lib/xterm.mjs", "css/xterm.css"),
    "@xterm/addon-fit": ("lib/addon-fit.mjs",),
    "@fontsource-variable/inter": (
        "files/inter-latin-wght-normal.woff2",
        "files/inter-latin-ext-wght-normal.woff2",
    ),
}
_PREFIX = "npm"


class NpmFinder(BaseFinder):
    """Finds `npm/<package>/<file>` in node_modules."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.root = Path(settings.SLIPWAY_ROOT) / "node_modules"
        self.storage = FileSystemStorage(location=self.root)
        self.storage.prefix = _PREFIX  # type: ignore[attr-defined]  # read by collectstatic
        super().__init__(*args, **kwargs)

    def find(self, path: str, find_all: bool = False, **_: Any) -> Any:
        """Return the file's path, or a list of it, or nothing."""
        inner = path.removeprefix(f"{_PREFIX}/")
        known = inner != path and inner in self._files()
        text = str(self.root / inner) if known else ""
        if find_all:
            return [text] if text else []
        return text or None

    def list(self, ignore_patterns: Iterable[str] | None) -> Iterator[tuple[str, Storage]]:
        """Yield every served file with the storage that holds it."""
        for path in self._files():
            yield path, self.storage

    @staticmethod
    def _files() -> tuple[str, ...]:
        return tuple(f"{package}/{file}" for package, files in SERVED.items() for file in files)
