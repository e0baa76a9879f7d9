"""Request predictions of digits from an endpoint: python ask.py URL KEY. Needs no SDK."""

import json
import sys
import urllib.request

from sklearn.datasets import load_digits

SAMPLE = 20


def main(url: str, key: str) -> None:
    """Send some digits in one request, and print how many predictions are correct."""
    images, labels = load_digits(return_X_y=True)
    body = json.dumps({"inputs": (images[:SAMPLE] / 16).tolist()}).encode()
    request = urllib.request.Request(  # noqa: S310  (the user's own URL)
        f"{url.rstrip('/')}/predict",
        body,
        {"Authorization": f"Bearer {key}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as response:  # noqa: S310
        scores = json.load(response)["predictions"]
    predicted = [max(range(10), key=row.__getitem__) for row in scores]
    correct = sum(
        int(digit == label) for digit, label in zip(predicted, labels[:SAMPLE], strict=True)
    )
    print(f"{correct} of {SAMPLE} digits right")


if __name__ == "__main__":
    main(*sys.argv[1:])
