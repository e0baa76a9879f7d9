"""HTML pages among artifacts, made fit for a frame: their scripts run, and reach nobody.

A content security policy stops every request but WebRTC, which sends packets to any address by
`iceServers`. No browser lets a page forbid that to itself, so each script gets a first line that
takes WebRTC out of the window it runs in, and only scripts with that line may run: the policy names
them by their digests. This holds in frames within the page too, which inherit the policy. The line
uses no name that a script could define for itself before it: declarations come into being first,
but `this` and `delete` are syntax. A module has no `this`, and fails at it.

Figures of Plotly load its library from its CDN, which the policy forbids. The element that does is
replaced by one that loads the portal's copy, and the policy lets that address run.

What this reads of HTML may differ from what a browser reads: then a script does not run.
"""

import base64
import hashlib
import re
from collections.abc import Iterator
from html import escape

MOST_BYTES = 16 * 1024**2
_MOST_SCRIPTS = 500
_MOST_ATTRIBUTES = 2_000
GUARD = "".join(
    f"delete this.{name};"
    for name in (
        *("RTCPeerConnection", "webkitRTCPeerConnection", "mozRTCPeerConnection"),
        *("RTCIceTransport", "RTCIceGatherer", "RTCDtlsTransport", "RTCQuicTransport"),
    )
)
_BEGIN = re.compile(r"<script(?=[\s/>])", re.IGNORECASE)
_ATTRIBUTES = re.compile(r"""(?:[^>"']|"[^"]*"|'[^']*')*>""")
_END = re.compile(r"</script(?=[\s/>])", re.IGNORECASE)
_SOURCE = re.compile(r"\bsrc\s*=", re.IGNORECASE)
_TYPE = re.compile(r"""\btype\s*=\s*["']?([^"'\s>]*)""", re.IGNORECASE)
_PLOTLY = re.compile(
    r"""\bsrc\s*=\s*["']https://cdn\.plot\.ly/plotly-[\w.-]{1,40}\.js["']""", re.IGNORECASE
)
_FIGURE = """<!doctype html><meta charset="utf-8"><title>Figure</title>
<style>html, body, #plot { height: 100%; margin: 0; }</style><div id="plot"></div>
<script src="https://cdn.plot.ly/plotly-latest.min.js"></script>
<script type="application/json" id="figure">FIGURE</script>
<script>
const figure = JSON.parse(document.getElementById("figure").textContent);
const options = {responsive: true, displaylogo: false};
Plotly.newPlot("plot", figure.data, {...figure.layout, autosize: true}, options);
</script>
"""
_JAVASCRIPT = frozenset({"", "text/javascript", "application/javascript", "text/ecmascript"})


def figure_page(content: bytes) -> bytes:
    """Return a page that draws a figure of Plotly, whose JSON is not parsed here."""
    text = content.decode("utf-8-sig", errors="replace")
    # As an escape within a string, the only place where JSON has this character.
    return _FIGURE.replace("FIGURE", text.replace("<", "\\u003c")).encode()


def framed_page(content: bytes, *, plotly_url: str) -> bytes:
    """Return the page with guarded scripts, and the policy that lets no others run.

    `plotly_url` is the absolute address of the portal's copy of Plotly.
    """
    # Decoded like a browser does, because a browser computes digests of the decoded text.
    text = content.decode("utf-8-sig", errors="replace").replace("\r\n", "\n").replace("\r", "\n")
    digests: list[str] = []
    parts = list(_guarded(text.replace("\0", "\ufffd"), digests, plotly_url))
    sources = " ".join(["'unsafe-eval'", *dict.fromkeys(digests)])
    policy = (
        '<!doctype html><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" '
        f'content="script-src {sources}">'
    )
    return "".join([policy, *parts]).encode()


def _guarded(text: str, digests: list[str], plotly_url: str) -> Iterator[str]:
    """Yield the page in parts, and add the source of each script that may run to `digests`."""
    at = 0
    for _ in range(_MOST_SCRIPTS):
        begin = _BEGIN.search(text, at)
        if begin is None:
            break
        tag = _ATTRIBUTES.match(text, begin.end(), begin.end() + _MOST_ATTRIBUTES)
        if tag is None:
            yield text[at : begin.end()]
            at = begin.end()
            continue
        end = _END.search(text, tag.end())
        if end is None:
            break
        if _PLOTLY.search(tag.group()):
            yield f'{text[at : begin.start()]}<script src="{escape(plotly_url)}">'
            digests.append(plotly_url)
            at = end.start()
            continue
        yield text[at : tag.end()]
        script = text[tag.end() : end.start()]
        if _is_script(tag.group()):
            script = f"{GUARD}\n{script}"
            digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
            digests.append(f"'sha256-{digest}'")
        yield script
        at = end.start()
    yield text[at:]


def _is_script(attributes: str) -> bool:
    """Return whether a browser executes the element's content as JavaScript."""
    kind = _TYPE.search(attributes)
    return not _SOURCE.search(attributes) and (
        kind is None or kind[1].strip().lower() in _JAVASCRIPT
    )
