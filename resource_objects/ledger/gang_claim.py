"""The choices of a gang claim: one demand for each of several consumers, all at once or none."""

from __future__ import annotations

import dataclasses
import itertools
import operator
from collections import defaultdict
from collections.abc import Callable, Generator, Hashable, Iterator, Mapping, Sequence
from typing import TypeAlias

from resource_objects import exceptions
from resource_objects.fields import MAX_AMOUNT
from resource_objects.ledger.demand import Demand, Demands
from resource_objects.providers import Backend
from resource_objects.providers.orders import UNLIMITED, Key, UseLimits
from resource_objects.reasons import UNIT_RULES, Reason, Rule
from resource_objects.resources.backtracking import Budget, solutions
from resource_objects.resources.records import InventoryRecord
from resource_objects.search.distribution import Counts, Domain, distribute, maximal
from resource_objects.store.decide import Unit

#: The maximum number of steps of one choice among all demands: about a second.
STEPS = 100_000

#: Yields demands by consumer, and is sent the refusal of each choice before it yields the next.
Choices: TypeAlias = Generator[Demands, exceptions.ResourceObjectsError, None]


def gang_choices(
    demands: Mapping[str, Sequence[Demand]], backend: Backend, limits: UseLimits = UNLIMITED
) -> Choices:
    """Yield demands for all consumers of a gang, as long as there are some to try.

    First each consumer gets its first demand, so that a refusal of these gives the reasons. Then
    each gets the first of its demands that is free next to those of the consumers before it. If
    a consumer has none that way, all choices are searched, so every possible choice is found: a
    consumer gets a later demand to make room for those after it.

    The free amounts are read once, after the first refusal; later changes are learned from
    refusals. So a gang needs few refused writes, not one for each combination.

    :param demands: by consumer, at least one for each, the preferred first
    :param limits: of the write: at most what remains under a limit is free
    :raises SearchLimitReached: if the search of all choices exceeds ``STEPS``
    """
    gang = _Gang(demands, limits)
    refusal = yield {name: choices[0] for name, choices in demands.items()}
    if all(len(choices) == 1 for choices in demands.values()):
        return
    gang.read_free(backend)
    chosen: Mapping[str, _Option] = {name: options[0] for name, options in gang.options.items()}
    while gang.learn(refusal, chosen):
        before, chosen = chosen, gang.choose() or {}
        if not chosen or chosen == before:  # the same choice would be refused again
            return
        refusal = yield {name: option.demand for name, option in chosen.items()}
        if all(len(options) == 1 for options in gang.options.values()):
            return


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class _Option:
    """A demand with its use of each inventory, shares included, and of each unit."""

    demand: Demand
    usage: Mapping[Key, int]
    units: frozenset[Unit]


class _Gang:
    """The remaining options of each consumer, and what is free."""

    def __init__(self, demands: Mapping[str, Sequence[Demand]], limits: UseLimits) -> None:
        self._limits = limits
        self._free: dict[Key, int] = {}
        self._shares: dict[Key, list[tuple[Key, int]]] = defaultdict(list)
        self._allocated_units: set[Unit] = set()  # to other consumers
        self._uuids: dict[str, str] = {}  # by name
        self.options = {name: list(map(self._option, choices)) for name, choices in demands.items()}

    def _option(self, demand: Demand) -> _Option:
        usage: dict[Key, int] = defaultdict(int)
        for use in demand.uses:
            usage[use.key] += use.amount
            for target, factor in self._shares.get(use.key, ()):
                usage[target] += use.amount * factor
        units = frozenset((use.provider_uuid, unit) for use in demand.uses for unit in use.units)
        return _Option(demand, usage, units)

    def read_free(self, backend: Backend) -> None:
        """Read the free amounts and the shares of the trees that options use."""
        demands = [option.demand for options in self.options.values() for option in options]
        providers = dict.fromkeys(use.provider_uuid for demand in demands for use in demand.uses)
        columns = backend.read(*providers, allocations=False)
        uuid = columns.index.uuids
        self._uuids = dict(zip(columns.providers.name, columns.providers.uuid, strict=True))
        for number, *figures in zip(*columns.inventories, strict=True):
            record = InventoryRecord(*figures)
            key = uuid[number], record.resource_class
            self._free[key] = min(record.capacity, self._limits.get(key, MAX_AMOUNT)) - record.used
        for number, kind, of_id, of_class, factor in zip(*columns.shares, strict=True):
            self._shares[uuid[number], kind].append(((uuid[of_id], of_class), factor))
        self.options = {
            name: [self._option(option.demand) for option in options]
            for name, options in self.options.items()
        }

    # --- choosing ---

    def choose(self) -> dict[str, _Option] | None:
        """Return an option for each consumer, None if not all can have one."""
        remainder = _Remainder(self._free, self._allocated_units)
        chosen: dict[str, _Option] = {}
        for name, options in self.options.items():
            option = next(filter(remainder.has_room, options), None)
            if option is None:
                return self._searched()
            remainder.choose(option)
            chosen[name] = option
        return chosen

    def _searched(self) -> dict[str, _Option] | None:
        """Return a choice among all choices, None if there is none.

        Consumers with the same demands are one kind, of which only the number matters. Options
        that use nothing in common form independent groups, mostly one for each host. What a group
        can hold is searched separately; then the kinds are distributed over the groups.
        """
        remainder = _Remainder(self._free, self._allocated_units)
        # a demand that is not assigned yet uses nothing: its assignment decides whether it fits
        chosen = {
            name: option
            for name, options in self.options.items()
            for option in reversed(options)
            if not option.usage and not option.units
        }
        kinds: dict[Hashable, list[str]] = defaultdict(list)
        for name, options in self.options.items():
            if name not in chosen:
                demands = tuple((option.demand.uses, option.demand.located) for option in options)
                kinds[demands].append(name)
        by_kind = [self.options[names[0]] for names in kinds.values()]
        need = tuple(map(len, kinds.values()))
        if _is_infeasible(by_kind, need, remainder):
            return None
        budget = Budget(STEPS)
        groups = [
            _Group(options, need, remainder, budget) for options in _independent_groups(by_kind)
        ]
        domains = tuple(Domain(n, group.largest) for n, group in enumerate(groups))
        distribution = distribute(Domain(parts=domains), need, budget)
        if distribution is None:
            return None
        remaining = [iter(names) for names in kinds.values()]
        for number, counts in distribution.items():
            for kind, option in groups[number].assignment_for(counts):
                chosen[next(remaining[kind])] = option
        return {name: chosen[name] for name in self.options}

    # --- learning ---

    def learn(
        self, refusal: exceptions.ResourceObjectsError, chosen: Mapping[str, _Option]
    ) -> bool:
        """Record the cause of a refusal; return whether there are other choices to try."""
        if isinstance(refusal, exceptions.CapacityException):
            learned = [self._learn_from(reason, chosen) for reason in refusal.reasons]
            return any(learned) or self._drop_last(refusal.reasons, chosen)
        subject = getattr(refusal, "name", None)
        subjects = {subject, self._uuids.get(str(subject))}

        def is_unconcerned(option: _Option) -> bool:
            demand = option.demand
            uuids = {uuid for uuid, _ in demand.definitions}
            uuids |= {use.provider_uuid for use in demand.uses}
            return subjects.isdisjoint(uuids) and subjects.isdisjoint(demand.names.values())

        return self._keep(is_unconcerned)

    def _learn_from(self, reason: Reason, chosen: Mapping[str, _Option]) -> bool:
        """Record what a reason reports; return whether it concerns a chosen option."""
        uuid = self._uuids.get(reason.where or "")
        if uuid is None or reason.resource is None:
            return False
        if reason.rule is Rule.UNIT_TAKEN and reason.unit is not None:
            count = sum((uuid, reason.unit) in option.units for option in chosen.values())
            if any(consumer in self.options for consumer, _ in reason.holders):
                return count > 1  # of the gang: two of it do not choose the unit again
            self._allocated_units.add((uuid, reason.unit))
            return count > 0
        key = uuid, reason.resource
        if reason.rule in UNIT_RULES:
            refused = key, reason.requested
            return self._keep(
                lambda option: all((use.key, use.amount) != refused for use in option.demand.uses)
            )
        requested = sum(option.usage.get(key, 0) for option in chosen.values())
        is_full = reason.rule in (Rule.CAPACITY, Rule.LIMIT, Rule.NO_INVENTORY)
        if not is_full or requested <= reason.free:
            return False
        self._free[key] = reason.free
        return True

    def _drop_last(self, reasons: Sequence[Reason], chosen: Mapping[str, _Option]) -> bool:
        """Drop the chosen option of the last consumer that a reason concerns."""
        uuids = {self._uuids.get(reason.where or "") for reason in reasons}
        concerned = [
            name
            for name, option in chosen.items()
            if not uuids.isdisjoint(uuid for uuid, _ in option.usage)
        ]
        for name in reversed(concerned or list(chosen)):
            if len(self.options[name]) > 1:
                self.options[name].remove(chosen[name])
                return True
        return False

    def _keep(self, is_possible: Callable[[_Option], bool]) -> bool:
        """Drop the options that are not possible any more; return whether there were any."""
        before = sum(map(len, self.options.values()))
        self.options = {
            name: list(filter(is_possible, options)) for name, options in self.options.items()
        }
        return sum(map(len, self.options.values())) < before


class _Remainder:
    """The amounts and units that are free in addition to the chosen options."""

    def __init__(self, free: Mapping[Key, int], allocated_units: set[Unit]) -> None:
        #: unknown inventories count as free
        self._amounts: dict[Key, int] = defaultdict(lambda: MAX_AMOUNT, free)
        self._allocated = set(allocated_units)

    def has_room(self, option: _Option) -> bool:
        """Return whether an option is free next to the chosen ones."""
        return self._allocated.isdisjoint(option.units) and self.covers(option.usage)

    def covers(self, usage: Mapping[Key, int]) -> bool:
        """Return whether amounts are free."""
        return all(amount <= self._amounts[key] for key, amount in usage.items())

    def times(self, option: _Option) -> int:
        """Return the number of members that can choose an option."""
        if not self.has_room(option):
            return 0
        if option.units:
            return 1
        return min(self._amounts[key] // amount for key, amount in option.usage.items())

    def choose(self, option: _Option) -> None:
        self._allocated |= option.units
        for key, amount in option.usage.items():
            self._amounts[key] -= amount

    def undo(self, option: _Option) -> None:
        self._allocated -= option.units
        for key, amount in option.usage.items():
            self._amounts[key] += amount


class _Group:
    """Options that use something in common, and which of them are possible at once."""

    def __init__(
        self,
        options: Sequence[tuple[int, _Option]],
        need: Counts,
        remainder: _Remainder,
        budget: Budget,
    ) -> None:
        """:param options: each with the number of its kind, the preferred first"""
        self._assignments: dict[Counts, list[tuple[int, _Option]]] = {}
        assigned: list[tuple[int, _Option]] = []
        count = [0] * len(need)

        def expand(start: int) -> Iterator[int]:
            """Choose an option from ``start`` on, as often as it is free."""
            budget.spend()
            self._assignments.setdefault(tuple(count), list(assigned))
            for position in range(start, len(options)):
                kind, option = options[position]
                if count[kind] < need[kind] and remainder.has_room(option):
                    remainder.choose(option)
                    assigned.append((kind, option))
                    count[kind] += 1
                    yield position
                    count[kind] -= 1
                    assigned.pop()
                    remainder.undo(option)

        for _ in solutions(0, expand, budget, cost=0):
            pass
        self.largest = maximal(self._assignments)

    def assignment_for(self, counts: Counts) -> list[tuple[int, _Option]]:
        """Return options that make up counts, with the kind of each."""
        remaining, assignment = list(counts), []
        superset = next(larger for larger in self.largest if all(map(operator.ge, larger, counts)))
        for kind, option in self._assignments[superset]:
            if remaining[kind]:
                remaining[kind] -= 1
                assignment.append((kind, option))
        return assignment


def _independent_groups(by_kind: Sequence[Sequence[_Option]]) -> list[list[tuple[int, _Option]]]:
    """Return options, with the number of their kind, in groups that use nothing in common.

    :param by_kind: the options of each kind
    """
    parents: dict[Hashable, Hashable] = {}  # a union-find structure over inventories and units

    def group_of(used: Hashable) -> Hashable:
        while (parent := parents.setdefault(used, used)) != used:
            parents[used] = parents[parent]
            used = parent
        return used

    for option in itertools.chain.from_iterable(by_kind):
        together: list[Hashable] = [*option.usage, *option.units]
        for used in together[1:]:
            parents[group_of(used)] = group_of(together[0])
    groups: dict[Hashable, list[tuple[int, _Option]]] = {}
    for kind, options in enumerate(by_kind):
        for option in options:
            groups.setdefault(group_of(next(iter(option.usage))), []).append((kind, option))
    return list(groups.values())


def _is_infeasible(
    by_kind: Sequence[Sequence[_Option]], need: Counts, remainder: _Remainder
) -> bool:
    """Return True if it is certain that no choice is possible, by two necessary conditions.

    Each kind must fit individually, and so must the amounts that all options of a kind use.

    :param by_kind: the options of each kind
    """
    at_least: dict[Key, int] = defaultdict(int)
    for options, count in zip(by_kind, need, strict=True):
        if sum(map(remainder.times, options)) < count:
            return True
        for key in set.intersection(*(set(option.usage) for option in options)):
            at_least[key] += count * min(option.usage[key] for option in options)
    return not remainder.covers(at_least)
