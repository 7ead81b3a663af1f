"""Versioned objects to their wire form, beside what oslo.versionedobjects does by itself.

The peer of the seven-field object is the same class on the library's own base and field types; the
peer of an inventory is the library's own method, called on the inventory. The forms must be equal
but for the order of what changed, which the library leaves to chance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.measure import Row, side_by_side
from resource_objects import base, fields
from resource_objects._ovo import base as ovo
from resource_objects._ovo import fields as ovo_fields
from resource_objects.resources import IntegerInventory

PEER = "oslo.versionedobjects"
MOST = 2.0  #: microseconds
NAMES = ("total", "reserved", "min_unit", "max_unit", "step_size", "ratio", "used")
VALUES = dict(zip(NAMES, (64, 4, 1, 32, 1, 16, 0), strict=True))


@base.register
class Seven(base.ResourceObject):
    """Seven integers, on our base."""

    VERSION = "1.0"
    WIRE_PREFIX = OBJ_PROJECT_NAMESPACE = "benchmarks"
    fields = {name: fields.integer() for name in NAMES}


@ovo.VersionedObjectRegistry.register
class StockSeven(ovo.VersionedObject):  # type: ignore[misc]
    """Seven integers, on the library's."""

    VERSION = "1.0"
    OBJ_PROJECT_NAMESPACE = "benchmarks"
    fields = {name: ovo_fields.IntegerField() for name in NAMES}

    @classmethod
    def obj_name(cls) -> str:
        return Seven.obj_name()


def rows() -> Iterator[Row]:
    """Yield a row per object."""
    seven, stock = Seven(**VALUES), StockSeven(**VALUES)
    inventory = IntegerInventory(64, 4, 1, 32, 1, "16", 0)
    stock.obj_reset_changes()
    yield _row("seven fields to a primitive", seven.obj_to_primitive, stock.obj_to_primitive)
    yield _row(
        f"an inventory ({len(inventory.fields)} fields) to a primitive",
        inventory.obj_to_primitive,
        lambda: ovo.VersionedObject.obj_to_primitive(inventory),
    )


def _row(name: str, ours: Callable[[], Any], peer: Callable[[], Any]) -> Row:
    if ours() != peer():
        raise RuntimeError(f"{ours()} is not {peer()}")
    row = side_by_side(name, ours, peer, peer_name=PEER)
    return Row(
        name,
        "us",
        row.ours / 1000,
        None if row.peer is None else row.peer / 1000,
        PEER,
        row.ratio,
        f"under {MOST:g} us",
        row.ours / 1000 < MOST,
    )
