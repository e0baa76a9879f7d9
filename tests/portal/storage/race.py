"""A process that stores, reads, deletes and sweeps the same few contents as fast as it can.

Several run side by side on one database and one store, with no grace at all, and are killed at
random: `python -m tests.portal.storage.race ROLE SEED`. It ends when its standard input closes.
"""

import os
import random
import select
import sys
from datetime import timedelta

import django

django.setup()

from portal.accounts.models import Project, User  # noqa: E402  (Django must be set up first)
from portal.storage.models import StoredFile  # noqa: E402
from portal.storage.retention import sweep  # noqa: E402
from portal.storage.services import delete_file, open_file, store_file  # noqa: E402

CONTENTS = 30


def content(number: int) -> bytes:
    """Return one of the few contents everybody stores."""
    return f"content {number} ".encode() * 1000


def check(file: StoredFile) -> None:
    """Raise unless the file reads as what its name says."""
    if b"".join(open_file(file=file)) != content(int(file.name)):
        raise AssertionError(f"{file.pk} holds other bytes than were stored")


def check_all() -> int:
    """Store every content once more, sweep, check every file; returns how many there are."""
    for number in range(CONTENTS):
        upload(number)
    sweep(grace=timedelta(0))
    files = list(StoredFile.objects.select_related("blob", "project"))
    for file in files:
        check(file)
    return len(files)


def upload(number: int) -> StoredFile:
    """Store one content."""
    return store_file(
        project=Project.objects.get(),
        by=User.objects.get(),
        name=str(number),
        chunks=iter([content(number)]),
    )


def upload_and_delete(dice: random.Random) -> None:
    """Store one content, read it back, delete it; only a kill in between leaves a file."""
    file = upload(dice.randrange(CONTENTS))
    check(file)
    delete_file(file=file)


def main(role: str, seed: int) -> None:
    """Work until the standard input closes, and say so at the first success."""
    dice = random.Random(seed)  # noqa: S311  (a test's dice)
    announced = False
    while not select.select([sys.stdin], [], [], 0)[0]:
        if role == "sweeper":
            sweep(grace=timedelta(0))
        else:
            upload_and_delete(dice)
        if not announced:
            os.write(1, b"working\n")
            announced = True


if __name__ == "__main__":
    if sys.argv[1] == "check":
        print(check_all())  # noqa: T201  (its answer)
    else:
        main(sys.argv[1], int(sys.argv[2]))
