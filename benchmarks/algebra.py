"""Amounts and inventories next to slotted plain classes that check the same rules.

The peer of the wire form is the method of oslo.versionedobjects, called on the same inventory.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

from benchmarks.measure import Row, alternating
from resource_objects._ovo import base as versioned_objects
from resource_objects.resources import IntegerAmount, IntegerInventory

MAX_AMOUNT = 2**63 - 1
MAX_FIGURE = 2**31 - 1
MILLION = 10**6
CALLS = (20_000, 20_000)
LEAST_RATIO = 0.2


def rows() -> Iterator[Row]:
    """Yield a row for each operation."""
    amount, plain_amount = IntegerAmount(5), PlainAmount(5)
    equal, plain_equal = IntegerAmount(5), PlainAmount(5)
    figures = (64, 4, 1, 32, 1, "16", 0)
    inventory, plain_inventory = IntegerInventory(*figures), PlainInventory(*figures)
    minus, plain_minus = IntegerAmount(-5), PlainAmount(-5)

    def consume() -> None:
        inventory.consume(amount)
        inventory.consume(minus)

    def plain_consume() -> None:
        plain_inventory.consume(plain_amount)
        plain_inventory.consume(plain_minus)

    for name, ours, plain in (
        ("amount: construct", lambda: IntegerAmount(5), lambda: PlainAmount(5)),
        ("amount: compare", lambda: amount == equal, lambda: plain_amount == plain_equal),
        ("amount: hash", lambda: hash(amount), lambda: hash(plain_amount)),
        (
            "inventory: construct",
            lambda: IntegerInventory(*figures),
            lambda: PlainInventory(*figures),
        ),
        (
            "inventory: can_provide",
            lambda: inventory.can_provide(amount),
            lambda: plain_inventory.can_provide(plain_amount),
        ),
        (
            "inventory: fit",
            lambda: inventory.fit(amount),
            lambda: plain_inventory.fit(plain_amount),
        ),
        ("inventory: consume and give back", consume, plain_consume),
    ):
        yield alternating(
            name, "ns", ours, plain, "slotted class", calls=CALLS, least_ratio=LEAST_RATIO
        )
    yield alternating(
        "inventory: to a primitive",
        "us",
        inventory.obj_to_primitive,
        lambda: versioned_objects.VersionedObject.obj_to_primitive(inventory),
        "oslo.versionedobjects",
        calls=(5_000, 500),
    )


# --- the peer -------------------------------------------------------------------------------------


def _figure(value: int, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise ValueError(value)
    return value


class PlainAmount:
    """An integer amount as a slotted class."""

    __slots__ = ("value",)

    def __init__(self, value: int) -> None:
        self.value = _figure(value, -MAX_AMOUNT, MAX_AMOUNT)

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not PlainAmount:
            return NotImplemented
        return self.value == other.value  # type: ignore[attr-defined, no-any-return]

    def __hash__(self) -> int:
        return hash(self.value)


class PlainInventory:
    """An integer inventory with the rules of :class:`IntegerInventory` as a slotted class."""

    __slots__ = (
        *("total", "reserved", "min_unit", "max_unit", "step_size", "ratio", "used", "capacity"),
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
        self.total = _figure(total, 0, MAX_FIGURE)
        self.reserved = _figure(reserved, 0, MAX_FIGURE)
        self.min_unit = _figure(min_unit, 1, MAX_FIGURE)
        self.max_unit = None if max_unit is None else _figure(max_unit, 1, MAX_FIGURE)
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

    def _has_capacity(self, amount: int) -> bool:
        if amount <= 0:
            return self.used + amount >= 0
        return (
            amount >= self.min_unit
            and (self.max_unit is None or amount <= self.max_unit)
            and amount % self.step_size == 0
            and self.used + amount <= self.capacity
        )

    def can_provide(self, amount: PlainAmount) -> bool:
        """Return True if the amount fits."""
        if amount.__class__ is not PlainAmount or amount.value < 0:
            raise ValueError(amount)
        return self._has_capacity(amount.value)

    def fit(self, amount: PlainAmount) -> PlainAmount:
        """Return the amount if it fits."""
        if amount.__class__ is not PlainAmount:
            raise ValueError(amount)
        if not self._has_capacity(amount.value):
            raise RuntimeError("does not fit")
        return amount

    def consume(self, amount: PlainAmount) -> PlainAmount:
        """Add the amount to the usage."""
        fitted = self.fit(amount)
        self.used += fitted.value
        return fitted
