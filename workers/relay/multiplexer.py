"""Many streams over one WebSocket, with credit for each: a slow reader delays no other stream.

Memory is bounded: a stream holds no more than it has granted, and all streams of a connection
together no more than MAX_STREAMS · FIRST_WINDOW + EXTRA_WINDOWS.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any, Final, Protocol

from websockets.exceptions import ConnectionClosed

from workers.relay.frames import (
    CREDIT,
    EXTRA_WINDOWS,
    FIRST_WINDOW,
    MAX_DATA,
    MAX_STREAM_NUMBER,
    MAX_STREAMS,
    MAX_WINDOW,
    Frame,
    FrameKind,
    ProtocolError,
    pack,
    pack_text,
    unpack,
)

log = logging.getLogger(__name__)
_MOST_WAITING: Final = 8 * MAX_STREAMS
_PROTOCOL_ERROR: Final = 1002
_MAX_REASON: Final = 100


class StreamReset(Exception):
    """The stream ended before its data did. The message is the reason."""


class Socket(Protocol):
    """The part of a WebSocket connection that is used here."""

    @property
    def close_reason(self) -> str | None:
        """The reason in the close frame."""

    async def send(self, message: bytes, /) -> None:
        """Send a binary message."""

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """Close the connection."""

    def __aiter__(self) -> AsyncIterator[Any]:
        """Iterate over received messages until the connection is closed."""


class Stream:
    """One connection within the connection. Both directions end on their own."""

    def __init__(self, multiplexer: "Multiplexer", number: int, name: str) -> None:
        self.number = number
        self.name = name
        self.reason = ""
        self._multiplexer = multiplexer
        self._changed = asyncio.Event()
        # Outward.
        self._credit = FIRST_WINDOW
        self._has_ended = False
        # Inward.
        self._arrived: deque[memoryview] = deque()
        self._granted = FIRST_WINDOW
        self._window = FIRST_WINDOW
        self._consumed = 0
        self._since_growth = 0
        self._peer_ended = False

    @property
    def extra_window(self) -> int:
        """The bytes granted beyond the first window."""
        return self._window - FIRST_WINDOW

    async def read(self) -> memoryview:
        """Return the next bytes, or nothing at the end. Raises StreamReset."""
        while not self._arrived:
            if self.reason:
                raise StreamReset(self.reason)
            if self._peer_ended:
                return memoryview(b"")
            await self._wait()
        data = self._arrived.popleft()
        self._forget_if_over()
        return data

    def consume(self, size: int) -> None:
        """Grant the peer as much as was read and is no longer held."""
        self._consumed += size
        self._since_growth += size
        if self._consumed * 2 < self._window or self._peer_ended or self.reason:
            return
        grant, self._consumed = self._consumed, 0
        if self._since_growth >= 2 * self._window:
            grant += self._grow()
        self._granted += grant
        self._multiplexer.post(pack(FrameKind.CREDIT, self.number, CREDIT.pack(grant)))

    def _grow(self) -> int:
        """Double the window of a fast reader, while the connection has room. Return the rest."""
        self._since_growth = 0
        extra = self._multiplexer.reserve(min(self._window, MAX_WINDOW - self._window))
        self._window += extra
        return extra

    async def write(self, data: bytes | memoryview) -> None:
        """Send bytes, as the peer grants them. Raises StreamReset."""
        rest = memoryview(data)
        while rest:
            while not self._credit:
                self._require_open()
                await self._wait()
            self._require_open()
            size = min(len(rest), self._credit, MAX_DATA)
            self._credit -= size
            await self._multiplexer.send_data(pack(FrameKind.DATA, self.number, rest[:size]))
            rest = rest[size:]

    def end(self) -> None:
        """Tell the peer that nothing follows. What it sends still arrives."""
        if not self._has_ended and not self.reason:
            self._has_ended = True
            # Data was written before, since each write waits for its turn.
            self._multiplexer.post(pack(FrameKind.END, self.number))
            self._forget_if_over()

    def reset(self, reason: str) -> None:
        """End both directions at once, here and at the peer."""
        if not self.reason:
            self._multiplexer.post(pack_text(FrameKind.RESET, self.number, reason))
            self.fail(reason)

    def fail(self, reason: str) -> None:
        """End both directions here. What has arrived is dropped."""
        self.reason = self.reason or reason or "The other side ended the connection."
        self._arrived.clear()
        self._changed.set()
        self._multiplexer.forget(self)

    # Called by the multiplexer

    def on_data(self, payload: memoryview) -> None:
        """Hold bytes until they are read. Raises ProtocolError for more than was granted."""
        self._granted -= len(payload)
        if self._granted < 0 or self._peer_ended:
            raise ProtocolError("a stream sent more than it was granted")
        if payload:
            self._arrived.append(payload)
            self._changed.set()

    def on_credit(self, size: int) -> None:
        """Continue to send. Raises ProtocolError for more credit than any window has."""
        self._credit += size
        if self._credit > MAX_WINDOW:
            raise ProtocolError("a stream was granted more than a window")
        self._changed.set()

    def on_end(self) -> None:
        """The peer sends nothing more."""
        self._peer_ended = True
        self._changed.set()
        self._forget_if_over()

    def _forget_if_over(self) -> None:
        if self._has_ended and self._peer_ended and not self._arrived:
            self._multiplexer.forget(self)

    def _require_open(self) -> None:
        if self.reason:
            raise StreamReset(self.reason)

    async def _wait(self) -> None:
        self._changed.clear()
        await self._changed.wait()


class Multiplexer:
    """The streams of one connection."""

    def __init__(
        self,
        socket: Socket,
        *,
        accept: Callable[[Stream], None] | None = None,
        on_message: Callable[[Frame], None] | None = None,
    ) -> None:
        """`accept` is given each stream that the peer opens. Without it the peer may open none.

        `on_message` is given the frames of stream 0. Both must return at once, and may raise
        ProtocolError.
        """
        self._socket = socket
        self._accept = accept
        self._on_message = on_message
        self._streams: dict[int, Stream] = {}
        self._last = 0
        self._extra = 0
        # Frames other than DATA go first and wait for nobody.
        self._waiting: deque[bytes] = deque()
        self._has_waiting = asyncio.Event()
        self._data_turn = asyncio.Lock()
        self._ending: set[asyncio.Task[None]] = set()
        self.closed_reason = ""

    def __len__(self) -> int:
        """Return the number of open streams."""
        return len(self._streams)

    @property
    def has_room(self) -> bool:
        """True if one more stream may be opened."""
        return len(self._streams) < MAX_STREAMS and self._last < MAX_STREAM_NUMBER

    def open(self, name: str) -> Stream:
        """Open a stream to a target of the peer. Raises StreamReset."""
        if self.closed_reason:
            raise StreamReset(self.closed_reason)
        if not self.has_room:
            raise StreamReset(f"The node has {MAX_STREAMS} connections already.")
        self._last += 1
        stream = self._streams[self._last] = Stream(self, self._last, name)
        self.post(pack_text(FrameKind.OPEN, stream.number, name))
        return stream

    async def run(self, lost: str) -> str:
        """Serve until the connection ends. Return the reason, in which all streams end.

        `lost` is the reason if the connection just breaks.
        """
        reason = lost
        sender = asyncio.create_task(self._send_waiting())
        try:
            with suppress(ConnectionClosed):
                async for message in self._socket:
                    self._process(unpack(message))
            reason = f"{lost} {self._socket.close_reason or ''}".strip()
        except ProtocolError as error:
            reason = f"{lost} It broke the protocol: {error}."
            with suppress(ConnectionClosed, TimeoutError):
                text = str(error)[:_MAX_REASON]
                await asyncio.wait_for(self._socket.close(_PROTOCOL_ERROR, text), 1)
        finally:
            sender.cancel()
            for task in list(self._ending):
                task.cancel()
            self.closed_reason = reason
            for stream in list(self._streams.values()):
                stream.fail(reason)
        return reason

    def post(self, message: bytes) -> None:
        """Send a frame soon, before any data. Returns at once."""
        if len(self._waiting) >= _MOST_WAITING:
            self.closed_reason = self.closed_reason or "The other side reads too slowly."
            self._end_later(self._socket.close(1008, self.closed_reason))
            return
        self._waiting.append(message)
        self._has_waiting.set()

    async def send_data(self, message: bytes) -> None:
        """Send a frame in turn with those of other streams. Raises StreamReset."""
        async with self._data_turn:
            try:
                # Frames that were posted before it come before it, such as OPEN.
                await self._send_posted()
                await self._socket.send(message)
            except ConnectionClosed:
                raise StreamReset(self.closed_reason or "The connection was lost.") from None

    def reserve(self, size: int) -> int:
        """Return how much of the extra memory a stream may have: `size`, or nothing."""
        if self._extra + size > EXTRA_WINDOWS:
            return 0
        self._extra += size
        return size

    def forget(self, stream: Stream) -> None:
        """Release what a stream held."""
        if self._streams.pop(stream.number, None) is not None:
            self._extra -= stream.extra_window

    async def _send_waiting(self) -> None:
        with suppress(ConnectionClosed):
            while True:
                await self._has_waiting.wait()
                await self._send_posted()

    async def _send_posted(self) -> None:
        while self._waiting:
            await self._socket.send(self._waiting.popleft())
        self._has_waiting.clear()

    def _end_later(self, closing: Any) -> None:
        task = asyncio.ensure_future(closing)
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def _process(self, frame: Frame) -> None:
        if frame.stream == 0:
            if self._on_message is None:
                raise ProtocolError("frames of stream 0 are not expected")
            self._on_message(frame)
            return
        if frame.kind is FrameKind.OPEN:
            self._accept_stream(frame)
            return
        if frame.stream > self._last:
            raise ProtocolError(f"the stream {frame.stream} was never opened")
        stream = self._streams.get(frame.stream)
        if stream is None:
            return  # sent before the peer knew that the stream had ended
        match frame.kind:
            case FrameKind.DATA:
                stream.on_data(frame.payload)
            case FrameKind.CREDIT:
                stream.on_credit(frame.credit)
            case FrameKind.END:
                stream.on_end()
            case FrameKind.RESET:
                stream.fail(frame.text)
            case _:
                raise ProtocolError(f"a {frame.kind.name} frame belongs to stream 0")

    def _accept_stream(self, frame: Frame) -> None:
        if self._accept is None or frame.stream <= self._last:
            raise ProtocolError(f"the stream {frame.stream} must not be opened")
        self._last = frame.stream
        stream = Stream(self, frame.stream, frame.text)
        if len(self._streams) >= MAX_STREAMS:
            reason = f"There are {MAX_STREAMS} connections already."
            self.post(pack_text(FrameKind.RESET, stream.number, reason))
            return
        self._streams[stream.number] = stream
        self._accept(stream)
