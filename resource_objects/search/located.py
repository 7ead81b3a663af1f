"""Amounts that say where they go: over the fleet, and on one tree.

An amount whose inventory lies over a tree is one class of a request, given by the parts it is put
on. Which parts those are, the inventory decides, a view over the tree (:mod:`.placing`); what is
known before is who may be among them.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping

import numpy as np

from resource_objects.exceptions import Rule
from resource_objects.providers import Allocation
from resource_objects.resources import Amount
from resource_objects.search.arrays import Booleans
from resource_objects.search.asked import bits
from resource_objects.search.conditions import Conditions
from resource_objects.search.fleet import Fleet
from resource_objects.search.views import Parts, View


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class LocatedAsk:
    """An amount that says where it goes, over the fleet. Flags are parallel to the parts."""

    fleet: Fleet
    resource_class: str
    amount: Amount
    parts: Parts
    barriers: tuple[tuple[Rule, str], ...]  #: the conditions on everybody who gives
    is_barred: tuple[Booleans, ...]  #: by such a condition: does not meet it
    has_required: tuple[Booleans, ...]  #: by condition on all who give some class: meets it
    allowed: Booleans  #: meets all conditions on everybody who gives
    classes: frozenset[str]  #: those that it may use anywhere, through shares too

    @property
    def count(self) -> int:
        """Of how many pieces it is, as far as its kind tells beforehand: at least one."""
        return self.amount.pieces

    def of_tree(self, tree: int) -> LocatedAsked:
        """Return the same asked of one tree; no view is looked at yet."""
        here = self.parts.of_tree(tree)
        return LocatedAsked(
            self,
            tree,
            places=tuple(self.parts.provider[here].tolist()),
            allowed=bits(self.allowed[here].tolist()),
            with_trait=tuple(bits(has[here].tolist()) for has in self.has_required),
        )


def lay(fleet: Fleet, amounts: Mapping[str, Amount], laid: Conditions) -> tuple[LocatedAsk, ...]:
    """Return located amounts laid over a fleet."""
    barriers = tuple((one.rule, one.label) for one in laid.each)
    found = []
    for name, amount in amounts.items():
        parts = fleet.views.of(name)
        is_barred = tuple(~one.own[parts.provider] for one in laid.each)
        allowed = np.ones(len(parts.provider), dtype=np.bool_)
        for flags in is_barred:
            allowed &= ~flags
        has_required = tuple(one.own[parts.provider] for one in laid.some)
        classes = _reached(fleet, {name for shape in parts.shapes for name in shape})
        flags_of = (barriers, is_barred, has_required, allowed)
        found.append(LocatedAsk(fleet, name, amount, parts, *flags_of, classes))
    return tuple(found)


def _reached(fleet: Fleet, classes: set[str]) -> frozenset[str]:
    """Return some classes, and those of all that they use through shares."""
    found = set(classes)
    for name in classes:
        rows = fleet.rows(name)
        here = fleet.shares.entries(rows.first, rows.first + len(rows.provider))
        found |= fleet.classes_of(fleet.shares.target[here])
    return frozenset(found)


@dataclasses.dataclass(frozen=True, eq=False)
class LocatedAsked:
    """A located amount asked of one tree. Sets of parts are numbers with a bit for each."""

    ask: LocatedAsk
    tree: int
    places: tuple[int, ...]  #: the providers of the parts
    allowed: int  #: the parts without a forbidden trait
    with_trait: tuple[int, ...]  #: by required trait, the parts that have it

    def with_traits(self, count: int) -> LocatedAsked:
        """Return the same with only the first required traits."""
        return dataclasses.replace(self, with_trait=self.with_trait[:count])

    def only(self, parts: int) -> LocatedAsked:
        """Return the same asked of some parts, whatever their traits."""
        return dataclasses.replace(self, allowed=parts, with_trait=())

    def spots(self, parts: int) -> list[int] | None:
        """Return which spots of the view some parts are, None for all of them."""
        wanted = {place for bit, place in enumerate(self.places) if parts >> bit & 1}
        found = [spot for spot, place in enumerate(self.view.places) if place in wanted]
        return None if len(found) == len(self.view.places) else found

    @property
    def view(self) -> View:
        """The view over the tree, which has at least one part."""
        found = self.ask.fleet.views.of_tree(self.ask.resource_class, self.tree)
        assert found is not None, "it is only asked where there are parts"
        return found

    def allocations(self, assigned: Amount) -> Iterator[tuple[int, Allocation]]:
        """Yield what an assigned amount takes, each with the place of the provider."""
        view = self.view
        places = {spot.name: at for spot, at in zip(view.located.spots, view.places, strict=True)}
        for taken in view.located.allocations(assigned):
            yield places[taken.provider], taken

    # --- inventories, by their numbers ---

    @functools.cached_property
    def reach(self) -> frozenset[int]:
        """The inventories that it may use somewhere, whichever parts it is on."""
        fleet, parts = self.ask.fleet, self.ask.parts
        here = parts.of_tree(self.tree)
        numbers = [
            fleet.number(place, name)
            for place, shape in zip(self.places, parts.shape[here].tolist(), strict=True)
            for name in parts.shapes[shape]
        ]
        own = [number for number in numbers if number is not None]
        drawn = (t for n in own for _, t, _ in fleet.shares.between(n, n + 1))
        return frozenset([*own, *drawn])

    def uses(self, assigned: Amount) -> dict[int, int]:
        """Return what an assigned amount uses of inventories, through shares too."""
        view, fleet = self.view, self.ask.fleet
        places = dict(zip(view.located.spots, view.places, strict=True))
        used: dict[int, int] = {}
        for spot, record in view.located.taken(assigned):
            number = fleet.number(places[spot], record.resource_class)
            assert number is not None, "what is taken is there"
            links = [(number, 1), *((t, k) for _, t, k in fleet.shares.between(number, number + 1))]
            for target, factor in links:
                used[target] = used.get(target, 0) + record.amount * factor
        return used
