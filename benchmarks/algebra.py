"""Amounts and inventories against slotted plain classes that check the same rules."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.measure import Row, side_by_side
from benchmarks.plain import PlainAmount, PlainInventory
from resource_objects.resources import IntegerAmount, IntegerInventory

MOST = 5.0
PEER = "slotted class"


def rows() -> Iterator[Row]:
    """Yield a row per operation."""
    ours, plain = IntegerAmount(5), PlainAmount(5)
    same, plain_same = IntegerAmount(5), PlainAmount(5)
    figures = (64, 4, 1, 32, 1, "16", 0)
    kept, plain_kept = IntegerInventory(*figures), PlainInventory(*figures)
    back, plain_back = IntegerAmount(-5), PlainAmount(-5)

    def consume() -> None:
        kept.consume(ours)
        kept.consume(back)

    def plain_consume() -> None:
        plain_kept.consume(plain)
        plain_kept.consume(plain_back)

    pairs = [
        ("amount: construct", lambda: IntegerAmount(5), lambda: PlainAmount(5)),
        ("amount: compare", lambda: ours == same, lambda: plain == plain_same),
        ("amount: hash", lambda: hash(ours), lambda: hash(plain)),
        (
            "inventory: construct",
            lambda: IntegerInventory(*figures),
            lambda: PlainInventory(*figures),
        ),
        (
            "inventory: can_provide",
            lambda: kept.can_provide(ours),
            lambda: plain_kept.can_provide(plain),
        ),
        ("inventory: fit", lambda: kept.fit(ours), lambda: plain_kept.fit(plain)),
        ("inventory: consume and give back", consume, plain_consume),
    ]
    for name, mine, theirs in pairs:
        yield side_by_side(name, mine, theirs, peer_name=PEER, most=MOST)
