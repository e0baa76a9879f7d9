"""Structured logs: one line an event, with the request id and never a secret."""

import logging.config
import re
from typing import Any, Literal

import structlog
from structlog.typing import EventDict, Processor

# Tokens of Slipway have a recognisable prefix, so they can be masked anywhere: slp_ of people,
# sln_ of nodes, slj_ for joining, slw_ of workloads.
_TOKEN = re.compile(r"\b(sl[pnjw])_[A-Za-z0-9_-]{8,}")
# URLs that are credentials by themselves: invitations, password resets, signed links.
_SECRET_PLACES = re.compile(
    r"(/invitations/(?!inv_|accept\b)|/shared/reports/|/password/reset/key/"
    r"|[?&](?:link|token|code|key)=)[^\s/&'\"]+"
)
_SECRET_KEYS = re.compile(r"(?i)(password|passwd|secret|authorization|cookie|token$|api_?key)")


def mask_tokens(text: str) -> str:
    """Replace anything with the format of a Slipway token or a secret URL by stars."""
    return _SECRET_PLACES.sub(r"\1***", _TOKEN.sub(r"\1_***", text))


def _masked(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, dict):
        return {key: _masked_under(str(key), inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_masked(inner) for inner in value]
    return mask_tokens(str(value))


def _masked_under(key: str, value: Any) -> Any:
    return "***" if _SECRET_KEYS.search(key) and value is not None else _masked(value)


def _mask(_logger: Any, _method: str, event: EventDict) -> EventDict:
    for key, value in event.items():
        if not key.startswith("_"):  # structlog's own: the record behind the event
            event[key] = _masked_under(key, value)
    return event


def logging_from(level: str, shape: Literal["text", "json"]) -> None:
    """Configure structlog and the standard library's logging to write to standard error."""
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
        structlog.processors.format_exc_info,
        _mask,
    ]
    renderer: Processor = (
        structlog.processors.JSONRenderer()
        if shape == "json"
        else structlog.dev.ConsoleRenderer(colors=False, pad_event_to=0)
    )
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": False,
            "formatters": {
                "slipway": {
                    "()": structlog.stdlib.ProcessorFormatter,
                    "foreign_pre_chain": shared,
                    "processors": [
                        structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                        renderer,
                    ],
                }
            },
            "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "slipway"}},
            "root": {"handlers": ["stderr"], "level": level.upper()},
            "loggers": {
                "django.server": {"level": "WARNING"},
                "uvicorn.access": {"level": "WARNING"},
                "httpx": {"level": "WARNING"},
                "botocore": {"level": "WARNING"},
                "aiobotocore": {"level": "WARNING"},
            },
        }
    )
