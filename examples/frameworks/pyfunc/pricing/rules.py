"""Discounts by the amount of an order."""


def discount(amount: int) -> float:
    """Return the factor of the price."""
    return 0.9 if amount >= 10 else 1.0
