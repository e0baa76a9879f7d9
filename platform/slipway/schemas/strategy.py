"""Distribution strategies of training as one word: the grammar, and its meaning for a job.

    word     = "auto" | ps | part { "*" part }
    part     = "ddp" [size] | "zero1" [size] | zero [size] ["+offload"] | "tensor" [size]
             | "pipeline" [size] [":" schedule]
    zero     = "zero2" | "zero3" | "fsdp"                       fsdp is an alias of zero3
    schedule = "gpipe" | "1f1b" | "interleaved"
    ps       = "ps" [size] [":" ("sync" | "async" | "ssp" [size])]
    size     = "=" number

The ranks form a grid with one axis a part. One part may omit its size and takes the
remaining ranks. `tensor` and `pipeline` alone with a size combine with `ddp` over the other ranks.
With one rank every word means plain training.
"""

import difflib
import math
import re
from dataclasses import dataclass
from enum import StrEnum

DEFAULT_STRATEGY = "ddp"
DEFAULT_STALENESS = 2
MAX_SIZE = 65_536
MAX_WORD_LENGTH = 200


class StrategyError(ValueError):
    """The strategy is not valid, or does not fit the number of ranks.

    `message` says what is wrong and why, `next_step` what to do.
    """

    def __init__(self, message: str, next_step: str) -> None:
        super().__init__(f"{message}\nNext step: {next_step}")
        self.message = message
        self.next_step = next_step


class Sharing(StrEnum):
    """State that data-parallel ranks shard among themselves, in ascending order."""

    DDP = "ddp"
    ZERO1 = "zero1"
    ZERO2 = "zero2"
    ZERO3 = "zero3"


class Schedule(StrEnum):
    """Order in which the stages of a pipeline process micro-batches."""

    GPIPE = "gpipe"
    ONE_FORWARD_ONE_BACKWARD = "1f1b"
    INTERLEAVED = "interleaved"


class Consistency(StrEnum):
    """Maximum staleness of the workers of a parameter server."""

    SYNCHRONOUS = "sync"
    ASYNCHRONOUS = "async"
    STALE_SYNCHRONOUS = "ssp"


@dataclass(frozen=True, slots=True)
class Layout:
    """The grid of a job: number of ranks along each axis. Their product is the world size.

    `servers` and `workers` are set only for a parameter server, and all axes are then 1.
    """

    pipeline: int = 1
    replicas: int = 1
    shards: int = 1
    tensor: int = 1
    servers: int = 0
    workers: int = 0

    @property
    def data(self) -> int:
        """Number of shards of a batch."""
        return self.workers or self.replicas * self.shards


@dataclass(frozen=True, slots=True)
class Servers:
    """A parameter server: its number of ranks, and the maximum staleness of workers in steps."""

    count: int = 1
    consistency: Consistency = Consistency.SYNCHRONOUS
    staleness: int = DEFAULT_STALENESS

    def __str__(self) -> str:
        mode = str(self.consistency)
        if self.consistency is Consistency.STALE_SYNCHRONOUS:
            mode += f"={self.staleness}"
        return f"ps={self.count}:{mode}"


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a word. `size` is None if the word omits it."""

    name: str
    size: int | None = None
    schedule: Schedule | None = None
    offload: bool = False

    def __str__(self) -> str:
        text = self.name if self.size is None else f"{self.name}={self.size}"
        if self.schedule is not None:
            text += f":{self.schedule}"
        return text + ("+offload" if self.offload else "")


# Outermost axis first: adjacent ranks, which share a machine, differ in the last axis.
_ORDER = ("pipeline", "ddp", "zero1", "zero2", "zero3", "tensor")
_ALIASES = {"fsdp": "zero3"}
_WORDS = ("auto", "ps", *_ORDER, *_ALIASES)
_PART = re.compile(
    r"(?P<name>[a-z0-9]+)(?:=(?P<size>[^:+]*))?(?::(?P<mode>[^+]*))?(?P<offload>\+offload)?\Z"
)


@dataclass(frozen=True, slots=True)
class Strategy:
    """A parsed word. `str()` returns its canonical spelling."""

    parts: tuple[Part, ...] = ()
    servers: Servers | None = None

    @property
    def is_auto(self) -> bool:
        """Return whether Slipway chooses once the model and the machines are known."""
        return not self.parts and self.servers is None

    @property
    def sharing(self) -> Sharing:
        """State that data-parallel ranks shard."""
        sharings = [Sharing(part.name) for part in self.parts if part.name in list(Sharing)]
        return max(sharings, key=list(Sharing).index, default=Sharing.DDP)

    @property
    def schedule(self) -> Schedule:
        """The schedule of the pipeline."""
        part = self._part("pipeline")
        return part.schedule if part and part.schedule else Schedule.ONE_FORWARD_ONE_BACKWARD

    @property
    def offload(self) -> bool:
        """Return whether weights, gradients and optimizer state are offloaded to host memory."""
        return any(part.offload for part in self.parts)

    def __str__(self) -> str:
        if self.servers is not None:
            return str(self.servers)
        return "*".join(map(str, self.parts)) or "auto"

    def layout(self, world_size: int) -> Layout:
        """Return the grid for a job of `world_size` ranks.

        Raises StrategyError when the sizes do not fit that many ranks, or the word is `auto`.
        """
        if world_size < 1:
            raise StrategyError(f"A job of {world_size} ranks cannot train.", "Start at least one.")
        if self.is_auto:
            raise StrategyError("auto has no layout before it has chosen.", "Choose first.")
        if world_size == 1:
            return Layout()
        if self.servers is not None:
            return _parameter_server_layout(self.servers, world_size)
        sizes = self._sizes(world_size)
        return Layout(
            pipeline=sizes.get("pipeline", 1),
            replicas=sizes.get("ddp", 1) * sizes.get("zero1", 1),
            shards=sizes.get("zero2", 1) * sizes.get("zero3", 1),
            tensor=sizes.get("tensor", 1),
        )

    def _part(self, name: str) -> Part | None:
        return next((part for part in self.parts if part.name == name), None)

    def _sizes(self, world_size: int) -> dict[str, int]:
        sizes = {part.name: part.size for part in self.parts if part.size is not None}
        given = math.prod(sizes.values())
        open_parts = [part.name for part in self.parts if part.size is None]
        shares_data = any(part.name in list(Sharing) for part in self.parts)
        if not open_parts and shares_data:
            if given != world_size:
                raise StrategyError(
                    f"{self} is for {_ranks(given)}; this job has {_ranks(world_size)}.",
                    f"Start {_ranks(given)}, or leave one size out: it then takes what is left.",
                )
            return sizes
        if world_size % given:
            fits = [
                n for n in (world_size // given * given, (world_size // given + 1) * given) if n
            ]
            raise StrategyError(
                f"{self} needs a world size divisible by {given}; this job has "
                f"{_ranks(world_size)}.",
                f"Start {' or '.join(map(str, fits))} ranks, or choose sizes that divide "
                f"{world_size}.",
            )
        return sizes | {(open_parts or ["ddp"])[0]: world_size // given}


def _parameter_server_layout(servers: Servers, world_size: int) -> Layout:
    workers = world_size - servers.count
    if workers < 1:
        raise StrategyError(
            f"{servers} needs {_ranks(servers.count)} as servers and at least one as a worker; "
            f"this job has {_ranks(world_size)}.",
            f"Start {servers.count + 1} ranks or more, or use fewer servers.",
        )
    return Layout(servers=servers.count, workers=workers)


def _ranks(count: int) -> str:
    return "1 rank" if count == 1 else f"{count} ranks"


def parse_strategy(word: str) -> Strategy:
    """Parse a strategy word. Raises StrategyError with a suggestion."""
    text = word.strip().lower()
    if not text or len(text) > MAX_WORD_LENGTH:
        raise StrategyError(
            "The strategy is empty." if not text else "The strategy is too long to be one.",
            "Write a word such as ddp, zero3+offload, pipeline=2*ddp, ps=2:async or auto.",
        )
    if text == "auto":
        return Strategy()
    pieces = [piece.strip() for piece in text.split("*")]
    if any(piece == "ps" or piece.startswith(("ps=", "ps:")) for piece in pieces):
        if len(pieces) > 1:
            raise StrategyError(
                "A parameter server cannot be combined with another strategy.",
                "Write ps alone, such as ps=2:async, or leave it out.",
            )
        return Strategy(servers=_parse_servers(text))
    parts = sorted(map(_parse_part, pieces), key=lambda part: _ORDER.index(part.name))
    _check_together(parts)
    return Strategy(parts=tuple(parts))


def _parse_part(text: str) -> Part:
    match = _PART.match(text)
    name = match["name"] if match else re.split(r"[=:+]", text)[0]
    name = _ALIASES.get(name, name)
    if name == "auto":
        raise StrategyError(
            "auto cannot be combined with another strategy.", "Write auto alone, or leave it out."
        )
    if match is None or name not in _ORDER:
        raise _unknown(text, name)
    if match["mode"] is not None and name != "pipeline":
        raise StrategyError(
            f'"{text}" gives a schedule, which only a pipeline has.',
            f"Write {name}, or pipeline=2:{match['mode']}.",
        )
    if match["offload"] and name not in ("zero2", "zero3"):
        raise StrategyError(
            f'"{text}" asks for offload, which goes with zero2 and zero3 alone.',
            "Write zero3+offload.",
        )
    return Part(
        name=name,
        size=None if match["size"] is None else _number(match["size"], text),
        schedule=None if match["mode"] is None else _schedule(match["mode"]),
        offload=bool(match["offload"]),
    )


def _parse_servers(text: str) -> Servers:
    match = re.match(r"ps(?:=(?P<count>[^:]*))?(?::(?P<mode>[a-z]*)(?:=(?P<bound>.*))?)?\Z", text)
    modes = [str(mode) for mode in Consistency]
    if match is None or (match["mode"] is not None and match["mode"] not in modes):
        raise StrategyError(
            f'"{text}" is not a parameter server.',
            "Write ps=1:sync, ps=2:async or ps=1:ssp=3 (at most 3 steps apart).",
        )
    mode = Consistency(match["mode"] or Consistency.SYNCHRONOUS)
    bound = match["bound"]
    if bound is not None and mode is not Consistency.STALE_SYNCHRONOUS:
        raise StrategyError(
            f'"{text}" bounds how far workers run apart, which {mode} does not.',
            f"Write ps:{mode}, or ps:ssp={bound}.",
        )
    return Servers(
        count=1 if match["count"] is None else _number(match["count"], text),
        consistency=mode,
        staleness=DEFAULT_STALENESS if bound is None else _number(bound, text, lowest=0),
    )


def _check_together(parts: list[Part]) -> None:
    names = [part.name for part in parts]
    word = "*".join(map(str, parts))
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise StrategyError(f"{word} names {twice} twice.", "Write it once, with its size.")
    data = [name for name in names if name in list(Sharing)]
    if len(data) > 1 and (len(data) > 2 or data[0] != "ddp" or data[1] == "zero1"):
        raise StrategyError(
            f"{word} shares the same samples in {len(data)} ways: {' and '.join(data)}.",
            "Keep one of them; ddp=2*zero3 (copies of a sharded model) is the only pair.",
        )
    if len(unsized := [part.name for part in parts if part.size is None]) > 1:
        raise StrategyError(
            f"{word} leaves out more than one size: {' and '.join(unsized)}.",
            f"Give all but one a size, such as {unsized[0]}=2*{unsized[1]}.",
        )


def _unknown(text: str, name: str) -> StrategyError:
    near = difflib.get_close_matches(name, _WORDS, n=1, cutoff=0.6)
    hint = f"Did you mean {near[0]}? " if near and near[0] != name else ""
    return StrategyError(
        f'"{text}" is not a strategy.',
        f"{hint}Strategies are {', '.join(_WORDS)}; join them with *, such as pipeline=2*ddp.",
    )


def _number(text: str, where: str, lowest: int = 1) -> int:
    if not re.fullmatch(r"[0-9]{1,6}", text) or not lowest <= int(text) <= MAX_SIZE:
        raise StrategyError(
            f'"{where}" has "{text}" where a number from {lowest} to {MAX_SIZE} belongs.',
            "Write the number of ranks, such as tensor=2.",
        )
    return int(text)


def _schedule(text: str) -> Schedule:
    if text not in list(Schedule):
        raise StrategyError(
            f'"{text}" is not a schedule of a pipeline.',
            f"Schedules are {', '.join(Schedule)}, such as pipeline=2:1f1b.",
        )
    return Schedule(text)
