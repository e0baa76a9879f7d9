"""MLflow's filter syntax for runs, read by ourselves: `metrics.loss < 0.5 and params.lr = '0.1'`.

    filter     = comparison {"and" comparison}
    comparison = field operator value | field ["not"] "in" "(" text {"," text} ")"
               | field "is" ["not"] "null"
    field      = ("metrics" | "params" | "tags" | "attributes" | "datasets") "." key | attribute
    key        = word | "`" anything "`" | '"' anything '"'
    operator   = "=" | "==" | "!=" | "<>" | ">" | ">=" | "<" | "<=" | "like" | "ilike"

Metrics and times compare with numbers, everything else with text. What is wrong is told with the
position, counted from 1, where it stands.
"""

import re
from dataclasses import dataclass
from enum import StrEnum

from portal.core.errors import InvalidInput

MAX_LENGTH = 6_000
MAX_COMPARISONS = 50
MAX_LISTED = 200
_MAX_KEY = 250


class FieldKind(StrEnum):
    """Kind of run field that a condition compares."""

    METRIC = "metrics"
    PARAM = "params"
    TAG = "tags"
    ATTRIBUTE = "attributes"
    DATASET = "datasets"


@dataclass(frozen=True)
class RunField:
    """One field of runs, for example the metric `loss`. It names a column and an order too."""

    kind: FieldKind
    key: str

    def __str__(self) -> str:
        plain = re.fullmatch(r"[A-Za-z_][\w/-]*", self.key, re.ASCII) is not None
        return f"{self.kind}.{self.key}" if plain else f"{self.kind}.`{self.key}`"

    @property
    def is_number(self) -> bool:
        """Return True if the field is compared with numbers."""
        if self.kind is FieldKind.METRIC:
            return True
        return self.kind is FieldKind.ATTRIBUTE and self.key in NUMBERS


@dataclass(frozen=True)
class FilterCondition:
    """One condition. `value` is a number, a text, a tuple of texts (`in`) or None (`is null`)."""

    field: RunField
    operator: str
    value: float | str | tuple[str, ...] | None


NUMBERS = frozenset({"start_time", "end_time"})
TEXTS = frozenset({"run_id", "run_name", "status", "user_id", "artifact_uri"})
_DATASET_KEYS = frozenset({"name", "digest", "context"})
_ATTRIBUTE_NAMES = {
    "created": "start_time",
    "name": "run_name",
    "run name": "run_name",
    "user": "user_id",
} | {name: name for name in NUMBERS | TEXTS}
_KINDS = {
    **dict.fromkeys(("metric", "metrics"), FieldKind.METRIC),
    **dict.fromkeys(("param", "params", "parameter", "parameters"), FieldKind.PARAM),
    **dict.fromkeys(("tag", "tags"), FieldKind.TAG),
    **dict.fromkeys(("attribute", "attributes", "attr", "run"), FieldKind.ATTRIBUTE),
    **dict.fromkeys(("dataset", "datasets"), FieldKind.DATASET),
}
_SAME = {"==": "=", "<>": "!="}
_ORDERED = frozenset({"=", "!=", ">", ">=", "<", "<="})
_LIKENESS = frozenset({"=", "!=", "like", "ilike"})
_TOKEN = re.compile(
    r"""
      (?P<space>\s+)
    | (?P<text>'(?:[^']|'')*')
    | (?P<name>"[^"]*"|`[^`]*`)
    | (?P<number>(?<!\w)[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?!\w))
    | (?P<operator><=|>=|!=|<>|==|=|<|>)
    | (?P<sign>[().,])
    | (?P<word>[A-Za-z_][\w/\-]*)
    """,
    re.VERBOSE,
)


# The text immediately after a dot is a name, whatever its first character.
_KEY = re.compile(r"(?P<word>[\w/\-]+)", re.ASCII)


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    at: int

    @property
    def word(self) -> str:
        return self.text.lower() if self.kind == "word" else ""


def bad_filter(what: str, at: int, next_step: str, *, field: str = "filter") -> InvalidInput:
    """Return the error of a filter whose character number `at`, from 0, cannot be understood."""
    return InvalidInput(
        f"At position {at + 1}: {what}.", code="bad_filter", field=field, next_step=next_step
    )


def parse_filter(text: str) -> tuple[FilterCondition, ...]:
    """Return the comparisons that must all hold. An empty filter has none. Raises InvalidInput."""
    if len(text) > MAX_LENGTH:
        raise bad_filter(
            f"the filter is longer than {MAX_LENGTH} characters",
            MAX_LENGTH,
            "Use fewer conditions.",
        )
    reader = _Reader(text)
    filter_conditions: list[FilterCondition] = []
    while not reader.at_end():
        if filter_conditions:
            reader.expect_and()
        if len(filter_conditions) == MAX_COMPARISONS:
            raise bad_filter(
                f"there are more than {MAX_COMPARISONS} conditions",
                reader.at,
                "Use fewer conditions.",
            )
        filter_conditions.append(reader.comparison())
    return tuple(filter_conditions)


def parse_field(text: str, *, name: str) -> RunField:
    """Return the field written as in a filter, such as `metrics.loss`. Raises InvalidInput.

    `name` is the parameter it was given as.
    """
    reader = _Reader(text, name)
    if reader.at_end():
        raise bad_filter("a field is missing", 0, "For example metrics.loss.", field=name)
    run_field = reader.field()
    if not reader.at_end():
        raise reader.wrong("nothing more is allowed here", "Give one field, such as metrics.loss.")
    return run_field


class _Reader:
    """Reads a filter token by token."""

    def __init__(self, text: str, name: str = "filter") -> None:
        self._text = text
        self._name = name
        self._tokens = self._cut(text)
        self._next = 0

    def _cut(self, text: str) -> list[_Token]:
        tokens: list[_Token] = []
        at = 0
        while at < len(text):
            dotted = at > 0 and text[at - 1] == "." and tokens[-1].kind == "sign"
            match = (_KEY.match(text, at) if dotted else None) or _TOKEN.match(text, at)
            if match is None:
                raise bad_filter(_unreadable(text[at]), at, _closing(text[at]), field=self._name)
            if match.lastgroup not in (None, "space"):
                tokens.append(_Token(str(match.lastgroup), match.group(), at))
            at = match.end()
        return tokens

    def at_end(self) -> bool:
        """Return True if no token is left."""
        return self._next >= len(self._tokens)

    @property
    def at(self) -> int:
        """Return the position of the next token, from 0."""
        return len(self._text) if self.at_end() else self._tokens[self._next].at

    def wrong(self, what: str, next_step: str) -> InvalidInput:
        """Return an error about the next token."""
        return bad_filter(what, self.at, next_step, field=self._name)

    def _peek(self) -> _Token:
        return _Token("end", "", len(self._text)) if self.at_end() else self._tokens[self._next]

    def _advance(self) -> _Token:
        token = self._peek()
        self._next += 1
        return token

    def expect_and(self) -> None:
        """Read `and`."""
        word = self._peek().word
        if word == "or":
            raise self.wrong(
                "MLflow's filters support only `and`, not `or`",
                "Use `in ('a', 'b')` for several values of one field.",
            )
        if word != "and":
            raise self.wrong("expected `and` or the end", "Join conditions with `and`.")
        self._advance()
        if self.at_end():
            raise self.wrong("a condition is missing", "Write one after `and`, or leave it out.")

    def comparison(self) -> FilterCondition:
        """Read one condition."""
        field = self.field()
        word = self._peek().word
        if word == "is":
            return self._null_condition(field)
        if word in ("in", "not"):
            return self._in_condition(field)
        operator = self._operator(field)
        return FilterCondition(field, operator, self._value(field))

    def field(self) -> RunField:
        """Read a field."""
        token = self._peek()
        if token.kind not in ("word", "name"):
            raise self.wrong(
                "expected a field", "For example metrics.loss, params.lr or tags.team."
            )
        self._advance()
        dotted = self._peek().text == "."
        if not dotted:
            return self._attribute(token, _unquoted(token))
        kind = _KINDS.get(token.word)
        if kind is None:
            raise bad_filter(
                f"there is no kind of field called {token.text[:40]}",
                token.at,
                "Kinds are metrics, params, tags, attributes and datasets.",
                field=self._name,
            )
        self._advance()
        key_token, key = self._key()
        if kind is FieldKind.ATTRIBUTE:
            return self._attribute(key_token, key)
        if kind is FieldKind.DATASET and key not in _DATASET_KEYS:
            raise bad_filter(
                f"datasets have no {key[:40]}",
                key_token.at,
                "They have a name, a digest and a context.",
                field=self._name,
            )
        return RunField(kind, key)

    def _key(self) -> tuple[_Token, str]:
        """Read a key: quoted, or words and numbers joined by dots."""
        first = self._peek()
        if first.kind == "name":
            self._advance()
            return first, self._check_key(first, _unquoted(first))
        key, end = "", first.at
        while (token := self._peek()).at == end and (
            token.kind in ("word", "number") or token.text == "."
        ):
            self._advance()
            key += token.text
            end = token.at + len(token.text)
        if not key:
            raise self.wrong(
                "expected a name", "Quote names with unusual characters: metrics.`my loss`."
            )
        return first, self._check_key(first, key)

    def _check_key(self, token: _Token, key: str) -> str:
        if not key or len(key) > _MAX_KEY or "\0" in key:
            raise bad_filter(
                f"a name has 1 to {_MAX_KEY} characters",
                token.at,
                "Use the name as it was logged.",
                field=self._name,
            )
        return key

    def _attribute(self, token: _Token, key: str) -> RunField:
        name = _ATTRIBUTE_NAMES.get(key.lower())
        if name is None:
            raise bad_filter(
                f"runs have no attribute called {key[:40]}",
                token.at,
                f"Attributes are {', '.join(sorted(NUMBERS | TEXTS))}; "
                "write metrics., params. or tags. before other names.",
                field=self._name,
            )
        return RunField(FieldKind.ATTRIBUTE, name)

    def _operator(self, field: RunField) -> str:
        token = self._peek()
        operator = _SAME.get(token.text, token.text) if token.kind == "operator" else token.word
        allowed = _ORDERED if field.is_number else _LIKENESS
        if operator not in allowed:
            what, like_this = ("a number", "> 0.5") if field.is_number else ("text", "= 'a'")
            raise self.wrong(
                f"{field} must be compared with {what}, by {', '.join(sorted(allowed))}",
                f"For example {field} {like_this}.",
            )
        self._advance()
        return operator

    def _value(self, field: RunField) -> float | str:
        token = self._peek()
        if field.is_number:
            if token.kind != "number":
                raise self.wrong(
                    f"{field} must be compared with a number",
                    f"For example {field} > 0.5, without quotes.",
                )
            self._advance()
            return float(token.text)
        return self._quoted(field)

    def _quoted(self, field: RunField) -> str:
        token = self._peek()
        if token.kind == "text":
            value = token.text[1:-1].replace("''", "'")
        elif token.kind == "name" and token.text[0] == '"':
            value = token.text[1:-1]
        else:
            raise self.wrong(
                f"{field} must be compared with text in quotes", f"For example {field} = '0.1'."
            )
        if "\0" in value:
            raise self.wrong("text contains a NUL character", "Leave it out.")
        self._advance()
        return value

    def _in_condition(self, field: RunField) -> FilterCondition:
        negated = self._peek().word == "not"
        if negated:
            self._advance()
        if self._peek().word != "in" or field.is_number:
            raise self.wrong(
                "`in` only works on text fields",
                f"For example {RunField(FieldKind.PARAM, 'lr')} in ('0.1', '0.2').",
            )
        self._advance()
        self._sign("(")
        values = [self._quoted(field)]
        while self._peek().text == ",":
            self._advance()
            values.append(self._quoted(field))
        if len(values) > MAX_LISTED:
            raise self.wrong(f"`in` takes at most {MAX_LISTED} values", "List fewer.")
        self._sign(")")
        return FilterCondition(field, "not in" if negated else "in", tuple(values))

    def _null_condition(self, field: RunField) -> FilterCondition:
        self._advance()
        negated = self._peek().word == "not"
        if negated:
            self._advance()
        if self._peek().word != "null" or field.kind not in (
            FieldKind.METRIC,
            FieldKind.PARAM,
            FieldKind.TAG,
        ):
            raise self.wrong(
                "`is null` only works on metrics, parameters and tags",
                "For example params.lr is null.",
            )
        self._advance()
        return FilterCondition(field, "is not null" if negated else "is null", None)

    def _sign(self, sign: str) -> None:
        if self._peek().text != sign:
            raise self.wrong(f"expected {sign}", "For example in ('a', 'b').")
        self._advance()


def _unquoted(token: _Token) -> str:
    return token.text[1:-1] if token.kind == "name" else token.text


def _unreadable(character: str) -> str:
    if character in "'\"`":
        return f"this {character} is never closed"
    return "unexpected character"


def _closing(character: str) -> str:
    if character in "'\"`":
        return f"Close it with another {character}."
    return "For example metrics.loss < 0.5 and params.lr = '0.1'."
