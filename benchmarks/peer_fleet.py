"""A whole fleet put into Placement at once: the rows that we keep, in its tables.

Its own way, a few requests for each provider, would take minutes for ten thousand of them.
"""

from __future__ import annotations

from typing import Any

from benchmarks.peer import Placement
from resource_objects.providers.columns import Columns
from resource_objects.ratio import from_millionths

_MAX_UNIT = 2**31 - 1
_FIRST_CUSTOM = 10_000


def keep(placement: Placement, columns: Columns) -> None:
    """Put a fleet that nobody uses in the place of all that is in Placement."""
    from placement.db.sqlalchemy import models

    with placement.engine.begin() as connection:
        for model in (
            models.Allocation,
            models.Inventory,
            models.ResourceProviderTrait,
            models.ResourceProvider,
        ):
            connection.execute(model.__table__.delete())
        names = set(columns.inventories.resource_class)
        classes = _numbers(connection, models.ResourceClass.__table__, names)
        traits = _numbers(connection, models.Trait.__table__, set(columns.traits.trait))
        for model, rows in (
            (models.ResourceProvider, _providers(columns)),
            (models.Inventory, _inventories(columns, classes)),
            (models.ResourceProviderTrait, _traits(columns, traits)),
        ):
            if rows:
                connection.execute(model.__table__.insert(), rows)


def _numbers(connection: Any, table: Any, names: set[str]) -> dict[str, int]:
    """Return the numbers of names, after giving one to those that have none."""
    known = {row.name: row.id for row in connection.execute(table.select())}
    last = max([_FIRST_CUSTOM, *known.values()])
    new = {name: last + at for at, name in enumerate(sorted(names - set(known)), 1)}
    if new:
        rows = [{"id": number, "name": name} for name, number in new.items()]
        connection.execute(table.insert(), rows)
    return {**known, **new}


def _providers(columns: Columns) -> list[dict[str, Any]]:
    """Return providers, each after the one that it is below."""
    table = columns.providers
    rows = [
        {
            "id": number,
            "uuid": uuid,
            "name": name,
            "generation": 1,
            "root_provider_id": root,
            "parent_provider_id": parent,
        }
        for number, uuid, name, parent, root in zip(
            table.provider_id, table.uuid, table.name, table.parent_id, table.root_id, strict=True
        )
    ]
    return sorted(rows, key=lambda row: row["id"])


def _inventories(columns: Columns, classes: dict[str, int]) -> list[dict[str, Any]]:
    rows = []
    for entry in zip(*columns.inventories, strict=True):
        number, name, total, reserved, least, most, step, ratio, _capacity, _used = entry
        rows.append(
            {
                "resource_provider_id": number,
                "resource_class_id": classes[name],
                "total": total,
                "reserved": reserved,
                "min_unit": least,
                "max_unit": _MAX_UNIT if most is None else most,
                "step_size": step,
                "allocation_ratio": float(from_millionths(ratio)),
            }
        )
    return rows


def _traits(columns: Columns, traits: dict[str, int]) -> list[dict[str, Any]]:
    return [
        {"trait_id": traits[name], "resource_provider_id": number}
        for number, name in zip(*columns.traits, strict=True)
    ]
