"""Money as people read it. It is counted in integer nano-USD everywhere else."""

from decimal import Decimal, InvalidOperation

NANO = 1_000_000_000
MOST_NANO_USD = 10**15
_CENT = NANO // 100
_DECIMALS = (2, 3, 4, 6, 9)


def dollars(nano_usd: int) -> str:
    """Write an amount with as many decimals as show it to a hundredth of itself, at least two.

    `static/slipway/counting.js` writes the same in the browser, where costs count on.
    """
    amount = Decimal(abs(nano_usd)) / NANO
    decimals = next(
        (few for few in _DECIMALS if abs(round(amount, few) - amount) * 100 <= amount),
        _DECIMALS[-1],
    )
    return f"{'-' if nano_usd < 0 else ''}${amount:,.{decimals}f}"


def nano_usd_of(text: str) -> int:
    """Parse an amount in dollars, such as `0.12` or `$1.50`, or raise ValueError."""
    try:
        amount = Decimal(text.strip().removeprefix("$")) * NANO
    except InvalidOperation:
        raise ValueError(f"“{text[:20]}” is not an amount in dollars.") from None
    if not amount.is_finite() or not 0 <= amount <= MOST_NANO_USD:
        raise ValueError("The amount must be from $0 to $1,000,000.")
    if amount != amount.to_integral_value():
        raise ValueError("Nine decimals are the most.")
    return int(amount)


def is_tiny(nano_usd: int) -> bool:
    """Return whether an amount is not zero and less than a cent."""
    return 0 < abs(nano_usd) < _CENT


def short_dollars(nano_usd: int) -> str:
    """Write an amount as `dollars` does, and what is less than a cent as that."""
    if not is_tiny(nano_usd):
        return dollars(nano_usd)
    return "< $0.01" if nano_usd > 0 else "> -$0.01"
