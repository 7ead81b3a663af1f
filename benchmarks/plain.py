"""The peer of the algebra: slotted plain classes that check the same rules, and nothing else.

No versions, no wire form, no change tracking, no resource kinds: what a careful programmer would
write in an afternoon. Ratios are kept as integer millionths, parsed from decimal text.
"""

from __future__ import annotations

from decimal import Decimal

MILLION = 1_000_000
MAX_FIGURE = 2**31 - 1
MAX_AMOUNT = 2**63 - 1


class PlainAmount:
    """A checked integer."""

    __slots__ = ("value",)

    def __init__(self, value: int) -> None:
        if type(value) is not int or not -MAX_AMOUNT <= value <= MAX_AMOUNT:
            raise ValueError(value)
        self.value = value

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not PlainAmount:
            return NotImplemented
        return self.value == other.value

    def __hash__(self) -> int:
        return hash(self.value)


def _figure(value: object, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise ValueError(value)
    return value


class PlainInventory:
    """The rules of an integer inventory."""

    __slots__ = (
        "capacity",
        "max_unit",
        "min_unit",
        "ratio",
        "reserved",
        "step_size",
        "total",
        "used",
    )

    def __init__(
        self,
        total: int,
        reserved: int = 0,
        min_unit: int = 1,
        max_unit: int | None = None,
        step_size: int = 1,
        allocation_ratio: str = "1",
        used: int = 0,
    ) -> None:
        self.total = _figure(total, 1, MAX_FIGURE)
        self.reserved = _figure(reserved, 0, MAX_FIGURE)
        self.min_unit = _figure(min_unit, 1, MAX_FIGURE)
        self.max_unit = max_unit if max_unit is None else _figure(max_unit, 1, MAX_FIGURE)
        self.step_size = _figure(step_size, 1, MAX_FIGURE)
        self.used = _figure(used, 0, MAX_AMOUNT)
        exact = Decimal(allocation_ratio)
        if not exact.is_finite() or not 0 < exact <= 4000 or (exact * MILLION) % 1:
            raise ValueError(allocation_ratio)
        self.ratio = int(exact * MILLION)
        if self.reserved > self.total:
            raise ValueError(reserved)
        if self.max_unit is not None and not self.min_unit <= self.max_unit <= self.total:
            raise ValueError(max_unit)
        self.capacity = (self.total - self.reserved) * self.ratio // MILLION

    def _fits(self, asked: int) -> bool:
        if asked <= 0:
            return self.used + asked >= 0
        return (
            asked >= self.min_unit
            and (self.max_unit is None or asked <= self.max_unit)
            and asked % self.step_size == 0
            and self.used + asked <= self.capacity
        )

    def can_provide(self, amount: PlainAmount) -> bool:
        """Return whether it fits."""
        if amount.__class__ is not PlainAmount or amount.value < 0:
            raise ValueError(amount)
        return self._fits(amount.value)

    def fit(self, amount: PlainAmount) -> PlainAmount:
        """Return the amount if it fits."""
        if amount.__class__ is not PlainAmount:
            raise ValueError(amount)
        if not self._fits(amount.value):
            raise RuntimeError("does not fit")
        return amount

    def consume(self, amount: PlainAmount) -> PlainAmount:
        """Count it."""
        fitted = self.fit(amount)
        self.used += fitted.value
        return fitted
