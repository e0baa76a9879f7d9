"""What counts as work in a notebook server."""

from types import SimpleNamespace
from typing import Any

from workers.lab.activity import Watch


def at_rest() -> Watch:
    """Answer the watch over a server in which nothing runs."""
    kernels: Any = SimpleNamespace(list_kernel_ids=list)
    web: Any = SimpleNamespace(settings={})
    return Watch(SimpleNamespace(kernel_manager=kernels, web_app=web, session_manager=None))


def test_a_save_is_work_unless_the_page_saves_because_it_heard_of_a_stop() -> None:
    watch = at_rest()
    watch.poll()
    watch.note_save()
    assert watch.poll().why == "a file was just saved"
    assert not watch.poll().moved
    watch.expect_saves()
    watch.note_save()
    assert not watch.poll().moved


def test_a_wish_to_keep_the_server_counts_once() -> None:
    watch = at_rest()
    watch.poll()
    watch.keep_alive()
    assert watch.poll().why == "kept running on request"
    assert not watch.poll().moved
