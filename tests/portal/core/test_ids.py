"""Ids sort by time of creation, also within a millisecond, between threads and after a fork."""

import os
import threading
from collections import Counter

import pytest
from django.apps import apps

from portal.core.ids import is_id, new_id
from portal.core.models import IdField

pytestmark = pytest.mark.postgres


def test_ids_made_one_after_the_other_sort_in_that_order() -> None:
    made = [new_id("prj") for _ in range(5_000)]
    assert made == sorted(made)
    assert all(is_id(made_id, "prj") for made_id in made)


def test_threads_never_share_an_id() -> None:
    made: list[str] = []

    def make() -> None:
        made.extend([new_id("prj") for _ in range(2_000)])

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(made)) == 8_000


def test_a_forked_process_makes_ids_of_its_own() -> None:
    new_id("prj")
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.write(writer, "".join(new_id("prj") for _ in range(100)).encode())
        os._exit(0)
    own = {new_id("prj") for _ in range(100)}
    os.waitpid(child, 0)
    text = os.read(reader, 65_536).decode()
    os.close(reader)
    os.close(writer)
    theirs = {text[start : start + 30] for start in range(0, len(text), 30)}
    assert len(theirs) == 100
    assert not own & theirs


def test_a_prefix_that_makes_ids_longer_than_their_column_is_refused() -> None:
    IdField("rptv")
    with pytest.raises(ValueError, match="longer than 32 characters"):
        IdField("readme")


def test_every_table_has_a_prefix_of_its_own() -> None:
    keys = [model._meta.pk for model in apps.get_models()]
    prefixes = Counter(key.prefix for key in keys if isinstance(key, IdField))
    assert {prefix for prefix, count in prefixes.items() if count > 1} == set()
