"""Money as people read and type it. Everywhere else it is integer nano-USD."""

from decimal import Decimal, InvalidOperation
from typing import Final

NANO: Final = 1_000_000_000
MAX_NANO_USD: Final = 10**15
_CENT: Final = NANO // 100
_DECIMALS: Final = (2, 3, 4, 6, 9)


def dollars(nano_usd: int) -> str:
    """Format an amount with as many decimals as show it to 1 %, at least two.

    `$0.00` is always exactly zero. `static/slipway/counting.js` does the same in the browser.
    """
    amount = Decimal(abs(nano_usd)) / NANO
    decimals = next(
        (few for few in _DECIMALS if abs(round(amount, few) - amount) * 100 <= amount),
        _DECIMALS[-1],
    )
    return f"{'-' if nano_usd < 0 else ''}${amount:,.{decimals}f}"


def short_dollars(nano_usd: int) -> str:
    """Format an amount as `dollars` does, and less than a cent as `< $0.01`."""
    if not is_tiny(nano_usd):
        return dollars(nano_usd)
    return "< $0.01" if nano_usd > 0 else "> -$0.01"


def plain_dollars(nano_usd: int) -> str:
    """Format an amount exactly, as a person types it: `0.000000001`, `1000000`."""
    return f"{Decimal(nano_usd) / NANO:.9f}".rstrip("0").rstrip(".")


def is_tiny(nano_usd: int) -> bool:
    """Return whether an amount is not zero and less than a cent."""
    return 0 < abs(nano_usd) < _CENT


def parse_dollars(text: str) -> int:
    """Return the nano-USD of an amount such as `0.12` or `$1.50`.

    Raises ValueError with a sentence for text that is no amount, for one outside of $0 to
    $1,000,000, and for more than nine decimals.
    """
    try:
        amount = Decimal(text.strip().removeprefix("$")) * NANO
    except InvalidOperation:
        raise ValueError(f"“{text[:20]}” is not an amount in dollars.") from None
    if not amount.is_finite() or not 0 <= amount <= MAX_NANO_USD:
        raise ValueError("The amount must be from $0 to $1,000,000.")
    if amount != amount.to_integral_value():
        raise ValueError("An amount has at most nine decimals.")
    return int(amount)


def charged(nano_usd: int, *, percent: int = 100, discount: int = 0) -> int:
    """Return `percent` of an amount, less a discount in percent, in nano-USD, rounded down once."""
    return nano_usd * percent * (100 - discount) // 10_000
