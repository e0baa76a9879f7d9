"""Ask for the sections of many texts, one by one and all at once, and say how fast that went.

python ask.py                                            # sections.pt, in this process
KEY=… python ask.py http://localhost:8002/v1/sections    # an endpoint of Slipway

Nobody who asks makes batches: an endpoint joins what comes together. Needs the standard library,
and without an address torch.
"""

import argparse
import json
import os
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from sections import Sections, read_texts

Ask = Callable[[str], str]


def over_http(url: str, key: str) -> Ask:
    """Return what asks an endpoint for the section of one text."""

    def ask(text: str) -> str:
        request = urllib.request.Request(  # noqa: S310  (the user's own URL)
            f"{url.rstrip('/')}/predict",
            json.dumps({"dataframe_records": [{"text": text}]}).encode(),
            {"Authorization": f"Bearer {key}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
            return str(json.load(answer)["predictions"][0]["section"])

    return ask


def here(file: str) -> Ask:
    """Return what asks the saved network in this process."""
    sections = Sections.load(file)
    return lambda text: sections.tell([text])[0][0]


def main() -> None:
    """Ask with one client, then with many."""
    parser = argparse.ArgumentParser(description="Ask for the sections of unseen texts.")
    parser.add_argument("url", nargs="?", help="the address of an endpoint; its key is in KEY")
    parser.add_argument("--network", default="sections.pt")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--texts", type=int, default=200)
    arguments = parser.parse_args()
    texts = read_texts()[1][: arguments.texts]
    url = arguments.url
    ask = over_http(url, os.environ["KEY"]) if url else here(arguments.network)
    for clients in (1, arguments.clients):
        began = time.perf_counter()
        with ThreadPoolExecutor(clients) as pool:
            told = list(pool.map(ask, [one.text for one in texts]))
        rate = len(texts) / (time.perf_counter() - began)
        right = sum(name == one.section for name, one in zip(told, texts, strict=True))
        print(f"{clients} at once: {rate:.0f} texts a second, {right} of {len(texts)} right")


if __name__ == "__main__":
    main()
