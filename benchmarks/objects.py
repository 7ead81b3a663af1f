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
    """Yield a row per object, as it was just made, and without changes."""
    figures = (64, 4, 1, 32, 1, "16", 0)
    for changed in ("all changed", "none changed"):
        seven, stock, inventory = Seven(**VALUES), StockSeven(**VALUES), IntegerInventory(*figures)
        if changed == "none changed":
            for each in (seven, stock, inventory):
                each.obj_reset_changes()
        yield _row(
            f"seven fields to a primitive, {changed}",
            seven.obj_to_primitive,
            stock.obj_to_primitive,
        )
        yield _row(
            f"an inventory ({len(inventory.fields)} fields) to a primitive, {changed}",
            inventory.obj_to_primitive,
            lambda inventory=inventory: ovo.VersionedObject.obj_to_primitive(inventory),
        )


def _row(name: str, ours: Callable[[], Any], peer: Callable[[], Any]) -> Row:
    if _sorted(ours()) != _sorted(peer()):
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


def _sorted(primitive: dict[str, Any]) -> dict[str, Any]:
    key = "versioned_object.changes"
    return {**primitive, **({key: sorted(primitive[key])} if key in primitive else {})}
