"""Placed amounts (topologies, devices) of a request: over the fleet, and their reasons on one tree.

The inventory of a placed resource spans a tree and decides which of its parts, such as cells or
devices, an amount is assigned to (:class:`.demands.Placing`). Over the fleet there are lower
bounds: what the parts of a tree have free at least if the amount fits.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from resource_objects import exceptions
from resource_objects.fields import MAX_AMOUNT
from resource_objects.providers.holders import without_removed_units
from resource_objects.reasons import USAGE_RULES, Reason, Rule
from resource_objects.resources import Amount, resource
from resource_objects.resources.backtracking import Budget, Solution, solutions
from resource_objects.resources.placed import HasNamedUnits, has_named_units
from resource_objects.search.arrays import Booleans, Integers, sums_by
from resource_objects.search.conditions.amounts import SourceCondition, flags_of
from resource_objects.search.conditions.shortage import figures_of, full
from resource_objects.search.demands import LocatedTreeDemand, Placing, bits
from resource_objects.search.eligibility import OWN, GroupEligibility
from resource_objects.search.findings import (
    Check,
    HostContext,
    HostSet,
    Sources,
    excluded,
    in_words,
)
from resource_objects.search.fleet import ClassRows, Fleet
from resource_objects.search.relations import Parts
from resource_objects.search.tree_solver import may_provide


@dataclasses.dataclass(eq=False, kw_only=True)
class LocatedCondition(SourceCondition):
    """A placed amount fits on the host. Its sources are parts of the tree, never of pools."""

    amount: Amount
    parts: Parts

    is_of_devices = False  # a missing trait is reported of the counts of devices first

    @classmethod
    def compile(
        cls, fleet: Fleet, resource_class: str, amount: Amount, eligibility: GroupEligibility
    ) -> LocatedCondition:
        """Return the condition of a placed amount. Cost: a pass over the parts for each."""
        parts = fleet.parts_of(resource_class)
        met = flags_of(eligibility.of_each, parts.provider)
        allowed = np.ones((1, len(parts.provider)), dtype=np.bool_)
        for flags in met:
            allowed &= flags
        return cls(
            fleet,
            resource_class,
            requirements=tuple([(needed.rule, needed.label) for needed in eligibility.of_each]),
            failed=tuple([~flags for flags in met]),
            has_required=flags_of(eligibility.of_some, parts.provider),
            allowed=allowed,
            amount=amount,
            parts=parts,
        )

    def __post_init__(self) -> None:
        self._last: LocatedTreeDemand | None = None
        self._free: dict[str, Integers] = {}

    @property
    def providers(self) -> Integers:
        """The providers of all parts in the fleet."""
        return self.parts.provider

    source_providers = providers

    @functools.cached_property
    def classes(self) -> frozenset[str]:
        """The classes that it may use, also through shares."""
        fleet, names = self.fleet, {name for shape in self.parts.shapes for name in shape}
        shared: set[str] = set()
        for name in names:
            rows = fleet.rows(name)
            entries = fleet.shares.entries(rows.first, rows.first + len(rows.provider))
            shared.update(fleet.by_class.names_of(fleet.shares.target[entries]))
        return frozenset(names | shared)

    # --- lower bounds ---

    @functools.cached_property
    def pieces(self) -> list[tuple[Mapping[str, int], ...]]:
        """For each piece of the amount, what its part has free at least, by shape of the parts."""
        kind = resource(self.resource_class)
        bounds = [kind.lower_bounds(self.amount, classes) for classes in self.parts.shapes]
        return list(zip(*bounds, strict=True))

    def free(self, name: str) -> Integers:
        """Return the free amount of a class at each part, 0 without an inventory."""
        if name not in self._free:
            rows, providers = self.fleet.rows(name), self.providers
            free = np.zeros(len(providers), dtype=np.int64)
            if len(rows.provider):
                at = np.minimum(rows.provider.searchsorted(providers), len(rows.provider) - 1)
                has_class = rows.provider[at] == providers
                free[has_class] = rows.free[at[has_class]]
            self._free[name] = free
        return self._free[name]

    def _sum(self, names: Iterable[str], parts: Booleans) -> Integers:
        """Return, by tree, the free amount of classes at some parts."""
        free = np.zeros(len(parts), dtype=np.int64)
        for name in names:
            free += np.where(parts, self.free(name).clip(0), 0)
        return sums_by(free, self.parts.tree, len(self.fleet.hosts))

    def _totals(self) -> Iterator[tuple[Iterable[str], int]]:
        """Yield how much of some classes all parts together have free at least."""
        amount = self.amount
        for name, count in amount.parts_usage.items():
            yield (name,), count
        if amount.item_count and has_named_units(self.resource_class):
            yield {name for shape in self.parts.shapes for name in shape}, amount.item_count

    def enough(self, trait: int | None) -> Booleans:
        """Return the hosts whose parts with a required trait may have enough; None: all parts."""
        parts = self.parts
        able = self.with_trait(trait)[OWN]

        def count(flags: Booleans) -> Integers:
            return np.bincount(parts.tree[flags], minlength=len(self.fleet.hosts))

        passing: Booleans = count(able) >= max(1, len(self.pieces))
        equal = Counter(
            tuple(tuple(sorted(bounds.items())) for bounds in piece) for piece in self.pieces
        )
        for piece, times in equal.items():
            has_enough = able.copy()
            for shape, bounds in enumerate(piece):
                for name, amount in bounds:
                    has_enough &= (parts.shape != shape) | (self.free(name) >= amount)
            passing &= count(has_enough) >= times
        for names, amount in self._totals():
            passing &= self._sum(names, able) >= amount
        return passing

    def most(self) -> Integers:
        """Return, by tree, an upper bound of how often the amount fits."""
        bounds = np.full(len(self.fleet.hosts), MAX_AMOUNT)
        total = Counter[str]()
        for piece in self.pieces:
            total.update({name: min(shape.get(name, 0) for shape in piece) for name in piece[0]})
        of_pieces = [((name,), amount) for name, amount in total.items() if amount]
        for names, amount in (*of_pieces, *self._totals()):
            np.minimum(bounds, self._sum(names, self.allowed[OWN]) // amount, out=bounds)
        return bounds

    def shared_demands(self) -> Iterator[tuple[int, ClassRows, Booleans]]:
        """Yield the amount of each class that the host or its parts together provide.

        With it come the inventories of the class, and which of these may provide it.
        """
        providers, amount = self.providers[self.allowed[OWN]], self.amount
        for name, count in {**amount.host_usage, **amount.parts_usage}.items():
            rows = self.fleet.rows(name)
            yield count, rows, np.isin(rows.provider, providers)

    # --- stages ---

    def checks(self) -> Iterator[Check]:
        """Yield one check."""
        words = in_words(self.requirements)
        yield Check(self.enough(None), self.rule, "", self.resource_class, words=words)

    def check_of_trait(self, trait: int, label: str) -> Check:
        """Return the check that parts with a required trait may have enough."""
        words = in_words([*self.requirements, (Rule.TRAIT_MISSING, label)])
        return Check(self.enough(trait), self.rule, "", self.resource_class, label, words)

    # --- one tree ---

    def of_tree(self, tree: int) -> LocatedTreeDemand:
        """Return the demand on one tree; the last one is remembered. Its view is read later."""
        if self._last is None or self._last.tree != tree:
            parts = self.parts.of_tree(tree)
            self._last = LocatedTreeDemand(
                *(self.fleet, self.resource_class, self.amount, self.parts, tree),
                places=tuple(self.providers[parts].tolist()),
                allowed=bits(self.allowed[OWN][parts].tolist()),
                with_trait=tuple(bits(has[OWN][parts].tolist()) for has in self.has_required),
            )
        return self._last

    def sources_on(self, hosts: HostSet) -> Sources:
        """Return the parts on some hosts."""
        pairs = hosts.entries(self.parts.tree)
        has_required = tuple([pairs.flags(has) for has in self.has_required])
        return Sources(pairs, pairs.flags(self.allowed), has_required)

    def can(self, tree: int, parts: int) -> bool:
        """Return whether it fits on a set of parts, or deciding that takes too long."""
        return may_provide(self.fleet, tree, (), [self.of_tree(tree).only(parts)])

    def reasons(self, host: HostContext) -> list[Reason]:
        """Return why it does not fit on the parts with the traits that it has to answer for."""
        return self.short(host.tree, host.sources(self))

    def short(self, tree: int, parts: int) -> list[Reason]:
        """Return why it does not fit on a set of parts."""
        return Refusal([self], tree).reasons([parts])

    def lacks(self, tree: int, trait: int, required: Sequence[str]) -> Reason:
        """Return the reason that no part has a required trait, or none next to those before it."""
        demand, labels = self.of_tree(tree), required[: trait + 1]
        refusal, with_trait = Refusal([self], tree), demand.with_trait[trait]
        if demand.allowed & with_trait:
            words = " ".join(f"with {label}" for label in labels)
            return refusal.reason(Rule.TRAITS_AT_ONCE, unit=words)
        parts = self.parts.of_tree(tree)
        lacking = (Rule.TRAIT_MISSING, labels[-1]), ~self.has_required[trait][OWN][parts]
        reasons = refusal.excluded(lacking) if with_trait else []
        return reasons[0] if reasons else refusal.reason(Rule.TRAIT_MISSING, trait=labels[-1])


#: The next piece; the parts that have pieces of the same amount, as bits; by part, what is free.
_State: TypeAlias = tuple[int, int, tuple[tuple[int, ...], ...]]


def may_hold(conditions: Sequence[LocatedCondition], tree: int, budget: Budget) -> bool:
    """Return False if the parts of a tree cannot have amounts of one resource at the same time.

    Each piece of an amount is on a part of its own, which has its lower bounds free. Every
    assignment is tried. True does not mean that they fit: bounds do not name CPUs or devices.

    :raises SearchLimitReached: if the budget runs out first
    """
    parts = conditions[0].parts
    of_tree = parts.of_tree(tree)
    shapes = parts.shape[of_tree].tolist()
    pieces = [
        (number, bounds, condition.allowed[OWN][of_tree].tolist())
        for number, condition in enumerate(conditions)
        for bounds in condition.pieces
    ]
    names = sorted({name for _, piece, _ in pieces for bounds in piece for name in bounds})
    columns = [conditions[0].free(name)[of_tree].tolist() for name in names]

    def expand(state: _State) -> Iterator[_State | Solution[bool]]:
        at, used, free = state
        if at == len(pieces):
            yield Solution(True)
            return
        number, piece, allowed = pieces[at]
        is_last = at + 1 == len(pieces) or pieces[at + 1][0] != number
        for part, counts in enumerate(free):
            if used >> part & 1 or not allowed[part]:
                continue
            bounds = piece[shapes[part]]
            free_of_part = tuple(
                [n - bounds.get(name, 0) for n, name in zip(counts, names, strict=True)]
            )
            if min(free_of_part, default=0) >= 0:
                free_after = (*free[:part], free_of_part, *free[part + 1 :])
                yield at + 1, 0 if is_last else used | 1 << part, free_after

    free = tuple([tuple([column[part] for column in columns]) for part in range(len(shapes))])
    start: _State = 0, 0, free
    return next(solutions(start, expand, budget, lambda state: state), False)


# --- reasons ------------------------------------------------------------------------------------


class Refusal:
    """Why placed amounts, one or several that are decided together, do not fit on a tree.

    The inventories report the rules and figures. The consumers, and the remaining capacity under
    limits and shares, are added here.
    """

    def __init__(self, conditions: Sequence[LocatedCondition], tree: int) -> None:
        self._demands = [condition.of_tree(tree) for condition in conditions]
        self._first = conditions[0]
        self._fleet = self._first.fleet
        self._tree = tree
        self._host = self._fleet.hosts[tree]

    def reasons(self, within: Sequence[int]) -> list[Reason]:
        """Return why they do not fit, each on a set of its parts; nothing if they fit."""
        if not self._demands[0].places:
            return [self.reason(Rule.NO_INVENTORY)]
        if not self._demands[0].allowed:
            return self.excluded()
        try:
            Placing(self._demands).try_fit(within)
        except exceptions.CapacityException as refusal:
            complete = (self._complete(reason, within) for reason in refusal.reasons)
            return list(itertools.chain.from_iterable(complete))
        except exceptions.ForeignAmount:
            return [self.reason(Rule.FOREIGN)]
        except exceptions.InvalidInventory:
            return [self.reason(Rule.INVALID)]
        except exceptions.SearchLimitReached:
            pass
        return []

    def reason(self, rule: Rule, **fields: Any) -> Reason:
        """Return a reason about the first amount as a whole."""
        first = self._first
        requested = first.amount.item_count
        return Reason(rule, requested, 0, 0, first.resource_class, self._host, **fields)

    def excluded(self, *more: tuple[tuple[Rule, str], Booleans]) -> list[Reason]:
        """Return the conditions that no part of the first amount meets, or that exclude each other.

        :param more: further conditions, each with the parts that do not meet it
        """
        first = self._first
        conditions = [*(condition for condition, _ in more), *first.requirements]
        failed = [*(flags for _, flags in more), *self._failed()]
        requested, name = first.amount.item_count, first.resource_class
        return excluded(conditions, failed, requested, name, self._host)

    def _failed(self) -> list[Booleans]:
        """Return, by condition on each part of the first amount, the parts that do not meet it."""
        parts = self._first.parts.of_tree(self._tree)
        return [flags[OWN][parts] for flags in self._first.failed]

    def _complete(self, reason: Reason, within: Sequence[int]) -> list[Reason]:
        """Return a reason with its consumers, or the reasons that are behind it."""
        name = reason.resource
        if name is None:
            return [reason]
        pairs = list(zip(self._demands, within, strict=True))
        demand, parts = next(
            (pair for pair in pairs if pair[0].places and pair[0].view.located.is_about(reason)),
            pairs[0],
        )
        is_of_class = reason.cell is None and name != demand.resource_class
        numbers: list[int] = []
        if self._fleet.limited or is_of_class:
            numbers = self._inventories(demand, name)
        limit = self._limit_of_shares(reason, numbers)
        if limit is not None:
            return [limit, *self._allocated(reason, numbers)]
        is_absent = is_of_class and reason.rule is Rule.CAPACITY and not reason.bound
        reasons: list[Reason] = []
        if is_absent and numbers and demand is self._demands[0]:
            has_class = np.isin(demand.places, self._fleet.inventories.provider[numbers])
            failed = [flags[has_class] for flags in self._failed()]
            requirements, requested = self._first.requirements, reason.requested
            reasons = excluded(requirements, failed, requested, name, self._host)
        return reasons or [self._with_consumers(reason, demand, parts)]

    def _inventories(self, demand: LocatedTreeDemand, name: str) -> list[int]:
        """Return the inventories of a class at the parts, by number.

        For the placed resource itself, those of the classes that the amount requests.
        """
        view, names = demand.view, [name]
        inventory = view.located.inventory
        if name == demand.resource_class and isinstance(inventory, HasNamedUnits):
            names = [
                class_name
                for class_name in view.located.shape.classes
                if any(
                    inventory.is_requested(demand.amount, unit)
                    for unit in inventory.units(class_name) or ()
                )
            ]
        return self._numbers(view.places, names)

    def _numbers(self, places: Iterable[int], names: Iterable[str]) -> list[int]:
        numbers = [self._fleet.number(place, name) for place in places for name in names]
        return [number for number in numbers if number is not None]

    def _limit_of_shares(self, reason: Reason, numbers: Iterable[int]) -> Reason | None:
        """Return the limit of an inventory that devices use too, if it leaves none of a class."""
        fleet = self._fleet
        if not fleet.limited or reason.rule is not Rule.CAPACITY or reason.cell is not None:
            return None
        targets = [
            (target, factor)
            for number in numbers
            if fleet.left(number) > 0
            for target, factor in fleet.shares.of(number)
            if target in fleet.limited and fleet.left(target) < factor
        ]
        if not targets:
            return None
        target, factor = max(targets, key=lambda pair: (fleet.left(pair[0]) / pair[1], -pair[0]))
        return full(fleet, self._host, reason.requested * factor, [target])

    def _allocated(self, reason: Reason, numbers: Iterable[int]) -> Iterator[Reason]:
        """Yield the inventories of which too much is allocated."""
        fleet = self._fleet
        for number in numbers:
            is_short = number not in fleet.limited and fleet.left(number) < reason.requested
            if is_short and fleet.holders([number]):
                yield full(fleet, self._host, reason.requested, [number])

    def _with_consumers(self, reason: Reason, demand: LocatedTreeDemand, parts: int) -> Reason:
        """Return a reason with the consumers of what is missing on a set of parts."""
        fleet, view, name = self._fleet, demand.view, reason.resource
        assert name is not None, "it is about a class"
        place_of = dict(zip(view.located.parts, view.places, strict=True))
        blocking = view.located.blocking_units(demand.amount, reason, demand.positions(parts))
        if blocking:
            units = {
                place_of[part]: self._without_removed(place_of[part], blocked)
                for part, blocked in blocking.items()
            }
            return dataclasses.replace(reason, holders=fleet.unit_consumers(units, name))
        if reason.rule not in USAGE_RULES:
            return reason
        part = view.located.part_of(reason)
        if part is None:
            return self._of_host(reason, name, view.places)
        if reason.rule is Rule.UNIT_TAKEN and reason.unit is not None:
            taken = fleet.units.allocated([reason.unit]).get(place_of[part])
            return dataclasses.replace(reason, holders=((taken[1], 1),) if taken else ())
        number = fleet.number(place_of[part], name)
        if number is None:
            return reason
        changes: dict[str, Any] = {"holders": fleet.holders([number])}
        if number in fleet.limited:
            figures = figures_of(fleet, [number])
            if reason.rule is Rule.PHYSICAL and figures["used"] + reason.requested > reason.bound:
                changes["used"] = figures["used"]
            elif reason.rule in (Rule.CAPACITY, Rule.PHYSICAL):
                changes = figures
        return dataclasses.replace(reason, **changes)

    def _without_removed(
        self, place: int, blocked: Mapping[str, frozenset[str]]
    ) -> dict[str, frozenset[str]]:
        """Return the blocked units that are not blocked by a free removed unit."""
        removed = self._fleet.removed_units.get(place, {})
        taken = {row[0] for row in self._fleet.units.of_provider(place)} if removed else set()
        return without_removed_units(blocked, removed.keys() - taken)

    def _of_host(self, reason: Reason, name: str, places: Iterable[int]) -> Reason:
        """Return a reason with the figures of the whole host, if its parts use the same class."""
        fleet = self._fleet
        numbers = self._numbers(places, [name])
        shared = {target for number in numbers for target, _ in fleet.shares.of(number)}
        targets = sorted(target for target in shared if fleet.class_of(target) == name)
        target = min(targets, key=fleet.left, default=None)
        if reason.rule is not Rule.CAPACITY or target is None or fleet.left(target) != reason.free:
            return reason
        return dataclasses.replace(reason, **figures_of(fleet, [target]))
