"""Money as people read it. It is counted in integer nano-USD everywhere."""

from decimal import Decimal, InvalidOperation

NANO = 1_000_000_000


def dollars(nano_usd: int) -> str:
    """Return an amount in dollars, with as many decimals as show it to a hundredth of itself.

    At least two. $0.00 is always exactly zero.
    """
    sign = "-" if nano_usd < 0 else ""
    amount = Decimal(abs(nano_usd)) / NANO
    for decimals in (2, 3, 4, 6, 9):
        if abs(round(amount, decimals) - amount) * 100 <= amount:
            break
    return f"{sign}${amount:,.{decimals}f}"


def nano_usd(text: str) -> int:
    """Return the nano-USD that an amount in dollars means, or raise ValueError."""
    try:
        amount = Decimal(text.strip().removeprefix("$")) * NANO
    except InvalidOperation:
        raise ValueError(f"{text!r} is not an amount in dollars") from None
    if not amount.is_finite() or amount != amount.to_integral_value():
        raise ValueError(f"{text!r} is not a whole number of nano-dollars")
    return int(amount)
