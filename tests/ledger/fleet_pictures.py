"""What a snapshot holds, as plain values: equal exactly where the snapshots are."""

from __future__ import annotations

from typing import Any

from resource_objects import exceptions
from resource_objects.search import Snapshot
from resource_objects.search.demands import view_of, view_with_use
from resource_objects.search.equivalence import equivalence
from resource_objects.search.fleet import CLASS_COLUMNS, ClassRows, Fleet


def picture_of(snapshot: Snapshot) -> dict[str, Any]:
    """Return everything that a search can see of a snapshot, field by field."""
    fleet = snapshot._fleet
    providers = range(len(fleet.names))
    alike = [equivalence(fleet).of(fleet, place) for place in providers]
    return {
        **_providers(fleet),
        "inventories": _columns(fleet.inventories),
        "classes": {name: _columns(rows) for name, rows in fleet.classes.items()},
        "class_of": [fleet.class_of(number) for number in range(len(fleet.inventories.tree))],
        "shares": [
            getattr(fleet.shares, name).tolist()
            for name in ("source", "target", "factor", "targets")
        ],
        "into": [fleet.shares.into(number) for number in range(len(fleet.inventories.tree))],
        "pools": [
            fleet.pools.providers.tolist(),
            sorted(fleet.pools.trees),
            [fleet.pools.of_tree(tree) for tree in range(len(fleet.hosts))],
            fleet.pools.linked_to(fleet.pools.providers, len(fleet.hosts)).tolist(),
        ],
        "allocations": [sorted(fleet.allocations.of([place])) for place in providers],
        "all allocations": sorted(fleet.allocations.all()),
        "units": [sorted(fleet.units.of([place])) for place in providers],
        "all units": sorted(fleet.units.all()),
        "places of holders": {
            name: sorted(places) for name, places in fleet.places_of_holders.items()
        },
        "parts": {
            kind: [
                parts.provider.tolist(),
                parts.tree.tolist(),
                [parts.shapes[number] for number in parts.shape.tolist()],
                parts.shapes,
            ]
            for kind, parts in fleet.parts.items()
        },
        "views": _views(fleet),
        "totals": {name: [one.tolist() for one in fleet.totals(name)] for name in fleet.classes},
        "fullness": fleet.fullness({"VCPU": 1.0, "PGPU": 2.0}, {"VCPU": 2}).tolist(),
        # numbers are given in the order in which somebody asks: what counts is who has the same
        "equivalence": [alike.index(one) for one in alike],
    }


def _providers(fleet: Fleet) -> dict[str, Any]:
    return {
        "names": fleet.names,
        "uuids": fleet.uuids,
        "generation": fleet.generation.tolist(),
        "parent": fleet.parent.tolist(),
        "tree": fleet.tree.tolist(),
        "height": fleet.height,
        "hosts": fleet.hosts,
        "roots": fleet.roots.tolist(),
        "traits": {name: having.tolist() for name, having in fleet.traits.items()},
        "aggregates": {name: having.tolist() for name, having in fleet.aggregates.items()},
        "within": (fleet.within, fleet.above),
        "disabled": {place: one.facts for place, one in sorted(fleet.disabled.items())},
        "removed units": dict(sorted(fleet.removed_units.items())),
        "free in force": fleet.as_of_now().inventories.free.tolist(),
        "views in force": _views(fleet.as_of_now()),
    }


def _columns(rows: ClassRows) -> dict[str, Any]:
    for name in CLASS_COLUMNS:
        assert not getattr(rows, name).flags.writeable
    return {"first": rows.first} | {name: getattr(rows, name).tolist() for name in CLASS_COLUMNS}


def _views(fleet: Fleet) -> list[Any]:
    found: list[Any] = []
    for kind in fleet.parts:
        for tree, host in enumerate(fleet.hosts):
            try:
                view = view_of(fleet, kind, tree)
            except exceptions.InvalidInventory as error:
                found.append((kind, host, str(error)))
                continue
            if view is not None:
                one = view.located
                parts = [(part.uuid, part.name) for part in one.parts]
                said = (kind, host, view.tree, view.places, one.host, parts, one.shape.classes)
                found.append((*said, str(one.inventory), _more(fleet, view)))
    return found


def _more(fleet: Fleet, view: Any) -> str:
    """Return a view with more in use of its first part, where that can be said."""
    place = view.places[0]
    some = {(place, fleet.class_of(number)): 0 for number in equivalence(fleet).inventories(place)}
    return str(view_with_use(fleet, view, some).located.inventory)
