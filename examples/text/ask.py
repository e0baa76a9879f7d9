"""Predict the sections of many texts, one by one and concurrently, and print the throughput.

python ask.py                                            # sections.pt, in this process
KEY=… python ask.py http://localhost:8002/v1/sections    # an endpoint of Slipway

Clients need not batch: an endpoint merges concurrent requests. Needs only the standard library, and
torch if no URL is given.
"""

import argparse
import json
import os
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from sections import Sections, read_texts

Predict = Callable[[str], str]


def by_endpoint(url: str, key: str) -> Predict:
    """Return a function that requests the section of one text from an endpoint."""

    def predict(text: str) -> str:
        request = urllib.request.Request(  # noqa: S310  (the user's own URL)
            f"{url.rstrip('/')}/predict",
            json.dumps({"dataframe_records": [{"text": text}]}).encode(),
            {"Authorization": f"Bearer {key}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as response:  # noqa: S310
            return str(json.load(response)["predictions"][0]["section"])

    return predict


def by_file(file: str) -> Predict:
    """Return a function that predicts with the saved network in this process."""
    sections = Sections.load(file)
    return lambda text: sections.predict([text])[0][0]


def main() -> None:
    """Predict with one client, then with many."""
    parser = argparse.ArgumentParser(description="Predict the sections of unseen texts.")
    parser.add_argument("url", nargs="?", help="URL of an endpoint, whose key is in KEY")
    parser.add_argument("--network", default="sections.pt")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--texts", type=int, default=200)
    arguments = parser.parse_args()
    texts = read_texts()[1][: arguments.texts]
    url = arguments.url
    predict = by_endpoint(url, os.environ["KEY"]) if url else by_file(arguments.network)
    for clients in (1, arguments.clients):
        started = time.perf_counter()
        with ThreadPoolExecutor(clients) as pool:
            predicted = list(pool.map(predict, [text.text for text in texts]))
        rate = len(texts) / (time.perf_counter() - started)
        correct = sum(name == text.section for name, text in zip(predicted, texts, strict=True))
        print(f"{clients} at once: {rate:.0f} texts a second, {correct} of {len(texts)} right")


if __name__ == "__main__":
    main()
