"""Ask an endpoint which digits it sees: python ask.py URL KEY. Needs no SDK."""

import json
import sys
import urllib.request

from sklearn.datasets import load_digits

ASKED = 20


def main(url: str, key: str) -> None:
    """Ask for some digits in one request, and say how many were told rightly."""
    images, labels = load_digits(return_X_y=True)
    body = json.dumps({"inputs": (images[:ASKED] / 16).tolist()}).encode()
    request = urllib.request.Request(  # noqa: S310  (the user's own URL)
        f"{url.rstrip('/')}/predict",
        body,
        {"Authorization": f"Bearer {key}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
        scores = json.load(answer)["predictions"]
    told = [max(range(10), key=row.__getitem__) for row in scores]
    right = sum(int(one == label) for one, label in zip(told, labels[:ASKED], strict=True))
    print(f"{right} of {ASKED} digits right")


if __name__ == "__main__":
    main(*sys.argv[1:])
