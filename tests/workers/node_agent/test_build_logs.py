"""The log of a build says what is left out of it, and always has its end."""

from workers.node_agent.builds import GrowingLog

_MIB = 1024**2


def whole(log: GrowingLog) -> str:
    """Return the log as the portal is sent it, piece by piece."""
    pieces = []
    while not log.is_sent:
        pieces.append(log.next_piece())
        log.sent(log.offset + len(pieces[-1].encode()))
    return "".join(pieces)


def test_a_long_log_says_how_much_is_left_out_and_why_the_build_failed() -> None:
    log = GrowingLog()
    for _ in range(10):
        log.write("é" * (_MIB // 2))
    log.finish("\nThe environment could not be built.\n")
    text = whole(log)
    assert text.count("é") == 8 * _MIB // 2
    assert "2,097,152 more bytes of output are left out" in text
    assert "at most 8 MiB" in text
    assert text.endswith("The environment could not be built.\n")


def test_a_short_log_is_whole() -> None:
    log = GrowingLog()
    log.write("Building\n")
    log.finish()
    assert whole(log) == "Building\n"
