"""A state machine that compares a backend with a simple model after random steps.

The model consists of dicts and loops, and implements the rules again. It uses no decision of the
library, so that :func:`state_machine` compares two independent implementations.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any, ClassVar, TypeAlias

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from resource_objects import exceptions
from resource_objects.exceptions import ResourceObjectsError
from resource_objects.providers import Backend, Provider
from resource_objects.providers.allocation import CONFIRMED, HELD
from resource_objects.providers.disabled import DisableOrder
from resource_objects.providers.orders import ConsumerOrder, ConsumerRecord, Operation, Use, Write
from resource_objects.providers.provider import Share
from resource_objects.providers.use_over_time import UseBy, UseFilter
from resource_objects.reasons import Rule
from resource_objects.resources import IntegerInventory
from resource_objects.testing.conformance.feed import Follower
from resource_objects.testing.conformance.suite import (
    CLASS,
    change_names,
    changes_to,
    define,
    ledger_state,
    now,
    rename,
    stored_tree,
)
from resource_objects.testing.conformance.use_over_time import (
    Timeline,
    Whose,
    reported_use,
    summed_by,
    time_of_last,
)

#: (provider, resource class), by name.
Key: TypeAlias = tuple[str, str]


@dataclasses.dataclass(frozen=True)
class Step:
    """One order of a consumer in the model.

    ``what`` is claim, adjust, replace, renew or release, ``amounts`` ``{key: (amount, units)}``;
    ``at`` is the generation demanded: ``"now"``, ``"old"`` (a wrong one) or None.
    """

    what: str
    consumer: str
    amounts: dict[Key, tuple[int, tuple[str, ...]]]
    at: str | None = None
    said: str | None = None  #: a project, or a state for a renewal


@dataclasses.dataclass
class Holder:
    """What a consumer holds: ``{key: amount}`` and ``{key: units}``."""

    holds: dict[Key, int] = dataclasses.field(default_factory=dict)
    units: dict[Key, set[str]] = dataclasses.field(default_factory=dict)
    project: str | None = None
    state: str = "held"


class ExpectedRefusal(Exception):
    """The error that the ledger must raise, with the places that it must name."""

    def __init__(self, error: type[Exception] | str, culprits: set[Key] | None = None) -> None:
        super().__init__(error, culprits)
        self.error = error
        self.culprits = culprits


class Model:
    """What a ledger should hold."""

    def __init__(self) -> None:
        self.places: dict[str, dict[str, dict[str, Any]]] = {}  #: {provider: {class: figures}}
        self.shares: dict[Key, dict[Key, int]] = {}
        self.consumers: dict[str, Holder] = {}
        self.above: dict[str, str] = {}  #: {provider: parent}
        self.disabled: set[str] = set()
        self.away: set[str] = set()  #: went while they were disabled, and are so when they return

    # --- figures derived from allocations ---

    def capacity(self, key: Key) -> int:
        """Return the capacity of an inventory."""
        figures = self.places[key[0]][key[1]]
        remaining: int = figures["total"] - figures["reserved"]
        return math.floor(remaining * Fraction(figures["allocation_ratio"]))

    def held(self, key: Key) -> int:
        """Return the direct allocations of an inventory."""
        return sum(holder.holds.get(key, 0) for holder in self.consumers.values())

    def used(self, key: Key) -> int:
        """Return the use of an inventory, including allocations through shares."""
        through = (
            self.held(source) * targets[key]
            for source, targets in self.shares.items()
            if key in targets
        )
        return self.held(key) + sum(through)

    def allocations(self) -> dict[tuple[str, str, str], int]:
        """Return ``{(consumer, provider, class): amount}``."""
        return {
            (consumer, *key): amount
            for consumer, holder in self.consumers.items()
            for key, amount in holder.holds.items()
        }

    def units(self) -> dict[tuple[str, str], tuple[str, str]]:
        """Return ``{(provider, unit): (class, consumer)}``."""
        return {
            (key[0], unit): (key[1], consumer)
            for consumer, holder in self.consumers.items()
            for key, units in holder.units.items()
            for unit in units
        }

    # --- what changes ---

    def define(
        self,
        tree: dict[str, dict[str, dict[str, Any]]],
        removed: set[str],
        shares: dict[Key, dict[Key, int]],
    ) -> None:
        """Replace the inventories and shares of the providers of a tree.

        :param gone: removed providers
        """
        for name in removed & set(self.places):
            if any(self.held((name, kind)) for kind in self.places[name]):
                raise ExpectedRefusal("ProviderInUse")
        for name, inventories in tree.items():
            for kind in set(self.places.get(name, {})) - set(inventories):
                if self.held((name, kind)):
                    raise ExpectedRefusal("InventoryInUse")
        for name in removed:
            self.places.pop(name, None)
            if name in self.disabled and name in self.above:
                self.away.add(name)
            self.disabled.discard(name)
        self.away = {name for name in self.away if self.above[name] not in removed}
        self.places.update(tree)
        self.disabled |= self.away & set(tree)
        self.away -= set(tree)
        here = set(tree) | removed
        stored = {source: of for source, of in self.shares.items() if source[0] not in here}
        self.shares = {**stored, **shares}

    def rename(self, old: str, new: str) -> None:
        """Give a resource class another name."""

        def to(key: Key) -> Key:
            return (key[0], new) if key[1] == old else key

        for name, inventories in self.places.items():
            self.places[name] = {to((name, kind))[1]: item for kind, item in inventories.items()}
        self.shares = {
            to(source): {to(target): factor for target, factor in targets.items()}
            for source, targets in self.shares.items()
        }
        for holder in self.consumers.values():
            holder.holds = {to(key): amount for key, amount in holder.holds.items()}
            holder.units = {to(key): units for key, units in holder.units.items()}

    def write(self, steps: list[Step], limits: dict[Key, int]) -> None:
        """Carry out some steps together, or raise :class:`ExpectedRefusal` and change nothing.

        :param limits: the most that may be used of some inventories then, unless it was more
        """
        before = copy.deepcopy(self.consumers)
        used = {key: self.used(key) for key in self._keys()}
        try:
            changes = [change for step in steps for change in self._carry_out(step)]
            self._check_known(changes)
            self._check_disabled(steps, before, used)
            self._check_totals(changes, used, limits)
            self._check_units(steps, before)
        except ExpectedRefusal:
            self.consumers = before
            raise
        for step in steps:
            holder = self.consumers[step.consumer]
            holder.holds = {key: amount for key, amount in holder.holds.items() if amount}
            holder.units = {key: holder.units.get(key, set()) for key in holder.holds}
            if not holder.holds:
                del self.consumers[step.consumer]

    def _keys(self) -> Iterator[Key]:
        for name, inventories in self.places.items():
            for kind in inventories:
                yield name, kind

    def _carry_out(self, step: Step) -> Iterator[tuple[str, Key, int, int]]:
        """Yield (consumer, key, before, after) of each changed amount of a step."""
        holder = self._holder(step)
        before = dict(holder.holds)
        if step.what in ("replace", "release"):
            after = dict.fromkeys(before, 0)
            units: dict[Key, set[str]] = {}
        else:
            after, units = dict(before), copy.deepcopy(holder.units)
        for key, (amount, named) in step.amounts.items():
            after[key] = after.get(key, 0) + amount
            has = units.setdefault(key, set())
            if amount < 0:
                if not set(named) <= has:
                    raise ExpectedRefusal("UnitNotHeld")
                if has and after[key] > 0 and not named:
                    raise ExpectedRefusal("InvalidAmount")
                has -= set(named)
            else:
                has |= set(named)
        holder.holds, holder.units = after, units
        if step.what == "renew":
            holder.state = step.said or "held"
        elif step.said is not None and step.what in ("claim", "replace"):
            holder.project = step.said
        for key, amount in after.items():
            if amount != before.get(key, 0):
                yield step.consumer, key, before.get(key, 0), amount

    def _holder(self, step: Step) -> Holder:
        stored = self.consumers.get(step.consumer)
        if step.what == "claim" and stored is not None:
            raise ExpectedRefusal("ConsumerExists")
        if step.what in ("renew", "release") and stored is None:
            raise ExpectedRefusal("ConsumerNotFound")
        if step.at == "old" or (step.at == "now" and stored is None):
            raise ExpectedRefusal("StaleConsumer")
        return self.consumers.setdefault(step.consumer, Holder())

    def is_disabled(self, name: str) -> bool:
        """Return True if a provider or one of its ancestors is disabled."""
        return name in self.disabled or self.above.get(name) in self.disabled

    def _check_disabled(
        self, steps: list[Step], before: dict[str, Holder], used: dict[Key, int]
    ) -> None:
        """Check that a step allocates no more, and no free unit, at disabled providers."""
        out = {key for key in used if self.is_disabled(key[0])}
        taken: set[tuple[Key, str]] = set()
        values: set[tuple[str, str]] = set()
        for step in steps:
            claimed = before.get(step.consumer, Holder())
            named = {key: set(units) for key, (_, units) in step.amounts.items()}
            for key in {*claimed.units, *named} if step.what != "renew" else ():
                has, options = claimed.units.get(key, set()), named.get(key, set())
                amount = step.amounts[key][0] if key in named else 0
                if step.what != "adjust":
                    took, gave = options - has, has - options
                elif amount > 0:
                    took, gave = options, set()
                else:
                    is_all = claimed.holds.get(key, 0) + amount == 0
                    took, gave = set(), has if is_all else options
                taken |= {(key, unit) for unit in took}
                values |= {(key[0], unit) for unit in gave}
        grown = any(self.used(key) > used[key] for key in out)
        if grown or any(key in out and (key[0], unit) not in values for key, unit in taken):
            raise ExpectedRefusal("ProviderDisabled")

    def _check_known(self, changes: list[tuple[str, Key, int, int]]) -> None:
        for _, key, _, _ in changes:
            if key[0] not in self.places:
                raise ExpectedRefusal("ProviderNotFound")

    def _check_totals(
        self,
        changes: list[tuple[str, Key, int, int]],
        before: dict[Key, int],
        limits: dict[Key, int],
    ) -> None:
        culprits = set()
        for _, key, claimed, has in changes:
            if has < 0 or (has > claimed and not self._keeps_unit_rules(key, has)):
                culprits.add(key)
        for key, used in before.items():
            if self.used(key) > max(used, min(self.capacity(key), limits.get(key, 1 << 62))):
                culprits.add(key)
        if culprits:
            raise ExpectedRefusal(exceptions.CapacityException, culprits)

    def _keeps_unit_rules(self, key: Key, amount: int) -> bool:
        figures = self.places[key[0]].get(key[1])
        return figures is not None and amount % figures["step_size"] == 0

    def _check_units(self, steps: list[Step], before: dict[str, Holder]) -> None:
        """Check that each new unit is free."""
        owners: dict[tuple[str, str], str] = {}
        for consumer, holder in self.consumers.items():
            for key, units in holder.units.items():
                for unit in units if holder.holds.get(key) else ():
                    if (
                        owners.setdefault((key[0], unit), f"{consumer} {key}")
                        != f"{consumer} {key}"
                    ):
                        raise ExpectedRefusal("UnitTaken")
        for step in steps:
            if step.what != "adjust" or step.consumer not in before:
                continue
            claimed = before[step.consumer].units
            for key, (amount, named) in step.amounts.items():
                if amount > 0 and set(named) & claimed.get(key, set()):
                    raise ExpectedRefusal("UnitTaken")


# --- the state machine ---


#: Two hosts, each with a cell that can share the inventories of the host.
_TREES = {"host0": "cell0", "host1": "cell1"}
_PROVIDERS = [name for pair in _TREES.items() for name in pair]
#: Resource classes; the last one is sometimes renamed to its twin and back.
_CLASSES = ("VCPU", "MEMORY_MB", "CUSTOM_X")
_TWIN = "CUSTOM_Y"
_CONSUMERS = ("job-1", "job-2", "job-3", "job-4")
_UNITS = ("unit-0", "unit-1", "unit-2")


# Most drawn amounts fit: a machine whose steps are all refused tests little.


@st.composite
def _figures(draw: st.DrawFn) -> dict[str, Any]:
    total = draw(st.integers(1, 12) | st.integers(8, 12))
    return {
        "total": total,
        "reserved": draw(st.sampled_from([0, 0, 0, total // 2, total])),
        "allocation_ratio": draw(st.sampled_from(["1", "1", "0.5", "1.5", "3"])),
        "step_size": draw(st.sampled_from([1, 1, 1, 1, 2])),
    }


@st.composite
def _inventories(draw: st.DrawFn) -> dict[str, dict[str, Any]]:
    missing = draw(st.sampled_from(["", "", "", *_CLASSES]))
    return {kind: draw(_figures()) for kind in _CLASSES if kind != missing}


#: ``{class: {class of the host: factor}}`` of what a cell shares
_shares = st.dictionaries(
    st.sampled_from(_CLASSES),
    st.dictionaries(st.sampled_from(_CLASSES), st.integers(1, 3), min_size=1, max_size=2),
    max_size=2,
)
_units = st.sampled_from([(), (), (), *((unit,) for unit in _UNITS), _UNITS[:2]])
_keys = st.tuples(st.sampled_from(_PROVIDERS), st.sampled_from(_CLASSES))


def _amounts(*amounts: int) -> st.SearchStrategy[dict[Key, tuple[int, tuple[str, ...]]]]:
    options = st.tuples(st.sampled_from(amounts), _units)
    return st.dictionaries(_keys, options, min_size=1, max_size=2)


@st.composite
def _steps(draw: st.DrawFn) -> Step:
    change = draw(st.sampled_from(["claim", "replace", "replace", "adjust", "renew", "release"]))
    consumer = draw(st.sampled_from(_CONSUMERS))
    amounts: dict[Key, tuple[int, tuple[str, ...]]] = {}
    if change in ("claim", "replace"):
        amounts = draw(_amounts(1, 1, 2, 3, 5))
    elif change == "adjust":
        amounts = draw(_amounts(-2, -1, 1, 2))
    at = None if change == "claim" else draw(st.sampled_from([*[None] * 8, "now", "old"]))
    options = draw(st.sampled_from([HELD, CONFIRMED] if change == "renew" else [None, "p", "q"]))
    return Step(change, consumer, amounts, at, options)


_writes = st.lists(_steps(), min_size=1, max_size=3, unique_by=lambda step: step.consumer)
_no_limits: st.SearchStrategy[dict[Key, int]] = st.just({})
_limits = _no_limits | _no_limits | st.dictionaries(_keys, st.integers(0, 12), max_size=4)
_defined: dict[str, Any] = {
    "inventories": _inventories(),
    "cell": _inventories(),
    "shares": _shares,
}


class LedgerMachine(RuleBasedStateMachine):
    """Random steps on a backend and on the model, compared after each step."""

    fresh: ClassVar[Callable[[], Backend]]

    @initialize(**_defined)
    def _open(self, inventories: Any, cell: Any, shares: Any) -> None:
        self.backend = type(self).fresh()
        self.model = Model()
        self.model.above = {below: above for above, below in _TREES.items()}
        self.follower = Follower(self.backend)
        self.uuids: dict[str, str] = {}
        self.custom = _CLASSES[-1]  # as it is called now
        self.last: tuple[Write, tuple[ConsumerRecord, ...]] | None = None
        self.timeline = Timeline()
        self.timeline.note(now(), {})
        for name in _TREES:
            self.define(name, inventories, cell, shares, False)

    def teardown(self) -> None:
        if hasattr(self, "backend"):
            if hasattr(self, "timeline"):
                self._check_use_over_time()
            self.backend.close()

    def _named(self, kind: str) -> str:
        return self.custom if kind == _CLASSES[-1] else kind

    # --- definitions ---

    @rule(
        host=st.sampled_from(list(_TREES)), bare=st.sampled_from([False] * 4 + [True]), **_defined
    )
    def define(self, host: str, inventories: Any, cell: Any, shares: Any, bare: bool) -> None:
        """Define a host and its cell with other inventories; a bare host loses its cell."""
        below = _TREES[host]
        tree = {host: {self._named(kind): figures for kind, figures in inventories.items()}}
        links: dict[Key, dict[Key, int]] = {}
        if not bare:
            tree[below] = {self._named(kind): figures for kind, figures in cell.items()}
            for kind, targets in shares.items():
                links[below, self._named(kind)] = {
                    (host, self._named(target)): factor
                    for target, factor in targets.items()
                    if target in inventories and kind in cell
                }
        provider = Provider(host, _made(tree[host]))
        if not bare:
            provider.add(below, _made(tree[below]), shares=_said(links))
        try:
            self.model.define(tree, {below} if bare else set(), links)
        except ExpectedRefusal as refused:
            self._expect(refused, lambda: define(self.backend, provider))
        else:
            self.uuids |= define(self.backend, provider)

    @rule(name=st.sampled_from(_PROVIDERS))
    def disable_or_enable(self, name: str) -> None:
        """Disable or enable a provider."""
        if name not in self.model.places:
            return
        is_enabled = name not in self.model.disabled
        order = DisableOrder(self.uuids[name], "fan" if is_enabled else None)
        self.backend.commit(Write(Operation(), "disable", name, disabling=(order,)))
        self.model.disabled ^= {name}

    @rule(name=st.sampled_from(["rename", "repeat", "prune", "try_a_stale_change"]))
    def now_and_then(self, name: str) -> None:
        getattr(self, f"_{name}")()

    def _rename(self) -> None:
        """Rename the class between its two names, if it exists."""
        old, new = self.custom, _TWIN if self.custom == _CLASSES[-1] else _CLASSES[-1]
        try:
            change_names(self.backend, rename(CLASS, old, new))
        except exceptions.NotFound as error:
            if not error.is_about("resource class"):
                raise
            assert not any(old in inventories for inventories in self.model.places.values())
        else:
            self.model.rename(old, new)
            self.custom = new

    def _try_a_stale_change(self) -> None:
        [name, *_] = _TREES
        tree = stored_tree(self.backend, name)
        tree.update(traits=tree.traits ^ {"CUSTOM_A"})
        stale = changes_to(self.backend, tree)
        newer = stored_tree(self.backend, name)
        newer.update(traits=newer.traits ^ {"CUSTOM_B"})
        define(self.backend, newer)
        try:
            self.backend.define(Operation(), stale)
        except exceptions.Stale as error:
            if not error.is_about("provider"):
                raise
            return
        raise AssertionError("a stale change was applied")

    # --- orders ---

    @rule(writes=st.lists(st.tuples(_writes, st.integers(0, 5), _limits), min_size=1, max_size=4))
    def write(self, writes: list[tuple[list[Step], int, dict[Key, int]]]) -> None:
        for steps, chance, limits in writes:
            self._write(self._likely(steps) if chance else steps, limits)

    def _likely(self, steps: list[Step]) -> list[Step]:
        """Return steps of present and of absent consumers that each can carry out."""
        destination = [name for name in _CONSUMERS if name in self.model.consumers]
        other_names = [name for name in _CONSUMERS if name not in destination]
        likely = []
        for step in steps:
            names = other_names if step.what == "claim" else destination
            if step.what == "replace":
                likely.append(step)
            elif names:
                likely.append(dataclasses.replace(step, consumer=names.pop()))
        return list({step.consumer: step for step in likely}.values())

    def _write(self, steps: list[Step], limits: dict[Key, int]) -> None:
        named = [self._renamed(step) for step in steps]
        totals = {(name, self._named(kind)): total for (name, kind), total in limits.items()}
        write = Write(
            Operation(),
            "orders",
            "orders",
            orders=tuple(self._order(step) for step in named),
            limits={(self.uuids.get(key[0], key[0]), key[1]): n for key, n in totals.items()},
        )
        cursor = self.backend.cursor()
        try:
            self.model.write(named, totals)
        except ExpectedRefusal as refused:
            self._expect(refused, lambda: self.backend.commit(write))
            assert self.backend.changes(cursor, 100) == ()
            return
        self.last = write, self.backend.commit(write)
        self._check_told(write, cursor)
        self.timeline.note(time_of_last(self.backend, cursor), self._held())

    def _renamed(self, step: Step) -> Step:
        amounts = {
            (name, self._named(kind)): options for (name, kind), options in step.amounts.items()
        }
        return dataclasses.replace(step, amounts=amounts)

    def _order(self, step: Step) -> ConsumerOrder:
        deltas = tuple(
            Use(self.uuids.get(name, name), kind, amount, units)
            for (name, kind), (amount, units) in step.amounts.items()
        )
        generation = self._generation(step)
        if step.what == "claim":
            return ConsumerOrder.claim(step.consumer, deltas, project=step.said)
        if step.what == "adjust":
            return ConsumerOrder.adjust(step.consumer, deltas, generation=generation)
        if step.what == "replace":
            return ConsumerOrder.replace(
                step.consumer, deltas, project=step.said, generation=generation
            )
        if step.what == "renew":
            return ConsumerOrder.renew(
                step.consumer, None, step.said or HELD, generation=generation
            )
        return ConsumerOrder.release(step.consumer, generation=generation)

    def _generation(self, step: Step) -> int | None:
        """Return the generation that a step demands; any is wrong for an absent consumer."""
        if step.at is None:
            return None
        record = self.backend.held(step.consumer)
        is_at = 0 if record is None else record.generation
        return is_at if step.at == "now" else is_at + 1

    def _check_told(self, write: Write, cursor: Any) -> None:
        changes = self.backend.changes(cursor, 100)
        assert {change.operation for change in changes} == {write.operation.id}
        assert len({change.shard for change in changes}) == len(changes)
        reported = {name for change in changes for name in change.consumers}
        assert reported <= {order.consumer for order in write.orders}
        assert self.backend.cursor() == cursor.moved(changes)

    def _expect(self, refused: ExpectedRefusal, work: Callable[[], object]) -> None:
        """Check that the backend raises the error of the model and names every place."""
        try:
            work()
        except ResourceObjectsError as error:
            assert error.matches(refused.error)
            if refused.culprits is not None and isinstance(error, exceptions.CapacityException):
                assert error.code != "UnitTaken"
                named = {
                    (reason.where, reason.resource)
                    for reason in error.reasons
                    if reason.rule is not Rule.UNIT_TAKEN  # told beside
                }
                assert named == refused.culprits
        else:
            raise AssertionError(f"nothing refused what {refused.error} should")

    # --- history ---

    def _repeat(self) -> None:
        if self.last is not None:
            write, outcome = self.last
            cursor = self.backend.cursor()
            # an outcome can have either name of a renamed class, and of a removed provider
            # is gone by its uuid
            again = self.backend.commit(write)
            assert [_in_one_word(record) for record in again] == [
                _in_one_word(record) for record in outcome
            ]
            assert self.backend.cursor() == cursor

    def _prune(self) -> None:
        """Prune old entries: allocations and generations stay the same."""
        before = self.backend.held_by(_CONSUMERS)
        cursor = self.backend.cursor()
        self.backend.prune(now())
        self.last = None
        assert self.backend.held_by(_CONSUMERS) == before
        assert self.backend.changes(cursor, 10) == ()

    # --- use over time ---

    def _held(self) -> dict[Whose, int]:
        """Return the allocations of the model by consumer and first name of the class."""
        result: dict[Whose, int] = defaultdict(int)
        for consumer, holder in self.model.consumers.items():
            for (_, kind), amount in holder.holds.items():
                result[Whose(consumer, None, holder.project, _first_name(kind))] += amount
        return dict(result)

    def _check_use_over_time(self) -> None:
        """Check that the reported use is the integral of the allocations."""
        since = self.timeline.began
        by = (UseBy.CONSUMER,)  # a consumer of the model can change its project
        report = self.backend.use_between(since, None, UseFilter(), by)
        reported: dict[Whose, int] = defaultdict(int)
        for owners, total in reported_use(report).items():
            reported[owners._replace(resource_class=_first_name(owners.resource_class))] += total
        used = self.timeline.used(max(since, report.complete_since), report.until)
        assert reported == summed_by(used, by)

    # --- what must hold ---

    @invariant()
    def the_ledger_is_as_the_model_says(self) -> None:
        state = ledger_state(self.backend)
        assert self.follower.keep_up() == state
        assert state.allocations == self.model.allocations()
        assert state.units == self.model.units()
        assert set(state.providers) == set(self.model.places)
        for name, inventories in self.model.places.items():
            records = state.providers[name].inventories
            is_disabled = state.providers[name].disabled is not None
            assert is_disabled == (name in self.model.disabled)
            assert set(records) == set(inventories)
            for kind, record in records.items():
                assert record.used == self.model.used((name, kind))
                assert record.capacity == self.model.capacity((name, kind))
            assert state.providers[name].shares == {
                (source[1], *target): factor
                for source, targets in self.model.shares.items()
                if source[0] == name
                for target, factor in targets.items()
            }

    @invariant()
    def consumers_are_as_the_model_says(self) -> None:
        records = self.backend.held_by(_CONSUMERS)
        assert set(records) == set(self.model.consumers)
        for consumer, holder in self.model.consumers.items():
            record = records[consumer]
            assert (record.project, record.state) == (holder.project, holder.state)
            assert self.backend.held(consumer) == record


def _first_name(kind: str) -> str:
    """Return the first name of a renamed class."""
    return _CLASSES[-1] if kind == _TWIN else kind


def _in_one_word(record: ConsumerRecord) -> ConsumerRecord:
    """Return a record with the first name of a renamed class and without names of providers."""
    uses = (
        dataclasses.replace(use, resource_class=_first_name(use.resource_class), provider="")
        for use in record.held
    )
    return dataclasses.replace(record, held=tuple(uses))


def _made(inventories: dict[str, dict[str, Any]]) -> dict[str, IntegerInventory]:
    return {kind: IntegerInventory(**figures) for kind, figures in inventories.items()}


def _said(links: dict[Key, dict[Key, int]]) -> list[Share]:
    return [
        Share(resource_class=source[1], of=target[0], of_class=target[1], factor=factor)
        for source, targets in links.items()
        for target, factor in targets.items()
    ]


def state_machine(fresh: Callable[[], Backend]) -> type[LedgerMachine]:
    """Return a Hypothesis state machine that compares backends with the model.

    Its ``TestCase`` is what a test module collects.

    :param fresh: opens a backend on an empty ledger, once per example; the machine closes it
    """
    return type("Machine", (LedgerMachine,), {"fresh": staticmethod(fresh)})
