"""A state machine that compares a backend with a simple model after random steps.

The model consists of dicts and loops, and implements the rules again. It uses no decision of the
library, so that :func:`state_machine` compares two independent implementations.
"""

from __future__ import annotations

import dataclasses
import datetime
import math
from collections import defaultdict
from collections.abc import Callable
from fractions import Fraction
from typing import Any, ClassVar, NamedTuple, TypeAlias

import hypothesis.strategies as st
from hypothesis import note
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from resource_objects import exceptions
from resource_objects.providers import Backend
from resource_objects.providers.allocation import CONFIRMED, HELD
from resource_objects.providers.use_over_time import UseBy, UseFilter
from resource_objects.reasons import Rule
from resource_objects.testing.conformance.feed import Follower
from resource_objects.testing.conformance.scenarios import Runner, statements_of
from resource_objects.testing.conformance.suite import ledger_state, now
from resource_objects.testing.conformance.use_over_time import microseconds, time_of_last

#: (provider, resource class), by name.
Key: TypeAlias = tuple[str, str]
#: ``{resource class: arguments of an IntegerInventory}``
Inventories: TypeAlias = dict[str, dict[str, Any]]
#: ``{key of a source: {key of a target: factor}}``
Shares: TypeAlias = dict[Key, dict[Key, int]]


@dataclasses.dataclass(frozen=True)
class Step:
    """One order of a consumer in the model.

    ``verb`` is claim, adjust, replace, renew or release, ``amounts`` ``{key: (amount, units)}``;
    ``at`` is the generation demanded: ``"now"``, ``"old"`` (a wrong one) or None. ``field`` is a
    project, or the state of a renewal.
    """

    verb: str
    consumer: str
    amounts: dict[Key, tuple[int, tuple[str, ...]]]
    at: str | None = None
    field: str | None = None


class Unit(NamedTuple):
    """An allocated unit."""

    provider: str
    name: str
    resource_class: str
    consumer: str


class ExpectedRefusal(Exception):
    """The error or code that the ledger must raise, and the inventories that it must name."""

    def __init__(self, error: str, culprits: set[Key] | None = None) -> None:
        super().__init__(error, culprits)
        self.error = error
        self.culprits = culprits


class Model:
    """The expected providers, allocations and consumers of a ledger."""

    def __init__(self, above: dict[str, str]) -> None:
        self.above = above  #: {provider: parent}
        self.providers: dict[str, Inventories] = {}
        self.shares: Shares = {}
        self.allocations: dict[tuple[str, str, str], int] = {}  #: {(consumer, *key): amount}
        self.units: set[Unit] = set()
        self.fields: dict[str, tuple[str | None, str]] = {}  #: {consumer: (project, state)}
        self.disabled: set[str] = set()
        self.removed_disabled: set[str] = set()  #: disabled again when they are created again

    # --- figures derived from allocations ---

    def capacity(self, key: Key) -> int:
        """Return the capacity of an inventory."""
        figures = self.providers[key[0]][key[1]]
        remaining: int = figures["total"] - figures["reserved"]
        return math.floor(remaining * Fraction(figures["allocation_ratio"]))

    def allocated(self, key: Key) -> int:
        """Return the direct allocations of an inventory."""
        return sum(amount for place, amount in self.allocations.items() if place[1:] == key)

    def used(self) -> dict[Key, int]:
        """Return the use of each inventory, including allocations through shares."""
        result = {}
        for name, inventories in self.providers.items():
            for key in ((name, resource_class) for resource_class in inventories):
                through = (
                    self.allocated(source) * targets[key]
                    for source, targets in self.shares.items()
                    if key in targets
                )
                result[key] = self.allocated(key) + sum(through)
        return result

    # --- definitions ---

    def define(self, tree: dict[str, Inventories], removed: set[str], shares: Shares) -> None:
        """Replace the inventories and shares of the providers of a tree."""
        for name in removed & set(self.providers):
            if any(self.allocated((name, kind)) for kind in self.providers[name]):
                raise ExpectedRefusal("ProviderInUse")
        for name, inventories in tree.items():
            for kind in set(self.providers.get(name, {})) - set(inventories):
                if self.allocated((name, kind)):
                    raise ExpectedRefusal("InventoryInUse")
        for name in removed:
            self.providers.pop(name, None)
        self.removed_disabled |= {name for name in removed & self.disabled if name in self.above}
        self.removed_disabled = {
            name for name in self.removed_disabled if self.above[name] not in removed
        }
        self.disabled -= removed
        self.providers.update(tree)
        self.disabled |= self.removed_disabled & set(tree)
        self.removed_disabled -= set(tree)
        others = {
            source: targets
            for source, targets in self.shares.items()
            if source[0] not in {*tree, *removed}
        }
        self.shares = {**others, **shares}

    # --- orders ---

    def write(self, steps: list[Step], limits: dict[Key, int]) -> None:
        """Carry out some steps together, or raise :class:`ExpectedRefusal` and change nothing.

        :param limits: bounds of some inventories for this write, in addition to the capacity
        """
        before = self.allocations, self.units, self.fields
        used = self.used()
        self.allocations, self.units, self.fields = dict(before[0]), set(before[1]), dict(before[2])
        try:
            repeated = {unit for step in steps for unit in self._carry_out(step)}
            changes = {
                place: (before[0].get(place, 0), amount)
                for place, amount in self.allocations.items()
                if before[0].get(place, 0) != amount
            }
            if any(provider not in self.providers for _, provider, _ in changes):
                raise ExpectedRefusal("ProviderNotFound")
            self._check_disabled(used, (self.units - before[1]) | repeated, before[1] - self.units)
            self._check_totals(changes, used, limits)
            if repeated or len({unit[:2] for unit in self.units}) < len(self.units):
                raise ExpectedRefusal("UnitTaken")
        except ExpectedRefusal:
            self.allocations, self.units, self.fields = before
            raise
        self.allocations = {place: amount for place, amount in self.allocations.items() if amount}
        consumers = {place[0] for place in self.allocations}
        self.fields = {name: self.fields[name] for name in self.fields if name in consumers}

    def _carry_out(self, step: Step) -> set[Unit]:
        """Change amounts, units and fields; return the new units that the consumer has already."""
        self._check_consumer(step)
        mine = {unit for unit in self.units if unit.consumer == step.consumer}
        if step.verb in ("replace", "release"):
            for place in self.allocations:
                if place[0] == step.consumer:
                    self.allocations[place] = 0
            self.units -= mine
        repeated: set[Unit] = set()
        for key, (amount, names) in step.amounts.items():
            place = (step.consumer, *key)
            self.allocations[place] = self.allocations.get(place, 0) + amount
            units = {Unit(key[0], name, key[1], step.consumer) for name in names}
            stored = {unit for unit in self.units & mine if (unit[0], unit[2]) == key}
            if amount > 0:
                repeated |= units & stored
                self.units |= units
                continue
            if not units <= stored:
                raise ExpectedRefusal("UnitNotHeld")
            if stored and self.allocations[place] > 0 and not units:
                raise ExpectedRefusal("InvalidAmount")
            self.units -= units if self.allocations[place] else stored
        project, state = self.fields.get(step.consumer, (None, HELD))
        if step.verb == "renew":
            state = step.field or HELD
        elif step.verb in ("claim", "replace"):
            project = step.field or project
        self.fields[step.consumer] = project, state
        return repeated

    def _check_consumer(self, step: Step) -> None:
        exists = step.consumer in self.fields
        if step.verb == "claim" and exists:
            raise ExpectedRefusal("ConsumerExists")
        if step.verb in ("renew", "release") and not exists:
            raise ExpectedRefusal("ConsumerNotFound")
        if step.at == "old" or (step.at == "now" and not exists):
            raise ExpectedRefusal("StaleConsumer")

    def _check_disabled(self, used: dict[Key, int], new: set[Unit], released: set[Unit]) -> None:
        """Check that disabled providers have no more use, and no new unit that was free."""
        disabled = {
            key
            for key in used
            if key[0] in self.disabled or self.above.get(key[0]) in self.disabled
        }
        after = self.used()
        free = {unit for unit in new if unit[:2] not in {item[:2] for item in released}}
        if any(after[key] > used[key] for key in disabled) or any(
            (unit.provider, unit.resource_class) in disabled for unit in free
        ):
            raise ExpectedRefusal("ProviderDisabled")

    def _check_totals(
        self,
        changes: dict[tuple[str, str, str], tuple[int, int]],
        used: dict[Key, int],
        limits: dict[Key, int],
    ) -> None:
        culprits = set()
        for (_, *place), (before, after) in changes.items():
            step_size = self.providers[place[0]].get(place[1], {}).get("step_size", math.inf)
            if after < 0 or (after > before and after % step_size):
                culprits.add((place[0], place[1]))
        for key, amount in self.used().items():
            bound = min(self.capacity(key), limits.get(key, 1 << 62))
            if amount > max(used[key], bound):
                culprits.add(key)
        if culprits:
            raise ExpectedRefusal("CapacityException", culprits)


# --- use over time ---

#: ``{(consumer, resource class): amount}``, summed over providers.
UsedAmounts: TypeAlias = dict[tuple[str, str], int]


class Timeline:
    """A list of times, each with the allocations from then on."""

    def __init__(self, at: datetime.datetime) -> None:
        self._notes: list[tuple[datetime.datetime, UsedAmounts]] = [(at, {})]

    def note(self, at: datetime.datetime, amounts: UsedAmounts) -> None:
        """Add the allocations from a moment on."""
        self._notes.append((at, amounts))

    def moments(self) -> list[datetime.datetime]:
        """Return the first moment and one in the middle."""
        return [self._notes[0][0], self._notes[len(self._notes) // 2][0]]

    def used(self, since: datetime.datetime, until: datetime.datetime) -> UsedAmounts:
        """Return the amounts times the microseconds between two moments."""
        result: UsedAmounts = defaultdict(int)
        ends = [*(at for at, _ in self._notes[1:]), until]
        for (at, amounts), end in zip(self._notes, ends, strict=True):
            length = max(0, microseconds(min(end, until) - max(at, since)))
            for key, amount in amounts.items():
                result[key] += amount * length
        return {key: total for key, total in result.items() if total}


# --- the state machine ---


#: Two hosts, each with a cell that can share the inventories of the host.
_TREES = {"host0": "cell0", "host1": "cell1"}
_PROVIDERS = [name for pair in _TREES.items() for name in pair]
_CLASSES = ("VCPU", "MEMORY_MB", "CUSTOM_X")
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
def _inventories(draw: st.DrawFn) -> Inventories:
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
_AMOUNTS = {"claim": (1, 1, 2, 3, 5), "replace": (1, 1, 2, 3, 5), "adjust": (-2, -1, 1, 2)}


@st.composite
def _steps(draw: st.DrawFn) -> Step:
    verb = draw(st.sampled_from(["claim", "replace", "replace", "adjust", "renew", "release"]))
    consumer = draw(st.sampled_from(_CONSUMERS))
    amounts: dict[Key, tuple[int, tuple[str, ...]]] = {}
    if verb in _AMOUNTS:
        uses = st.tuples(st.sampled_from(_AMOUNTS[verb]), _units)
        amounts = draw(st.dictionaries(_keys, uses, min_size=1, max_size=2))
    at = None if verb == "claim" else draw(st.sampled_from([*[None] * 8, "now", "old"]))
    field = draw(st.sampled_from([HELD, CONFIRMED] if verb == "renew" else [None, "p", "q"]))
    return Step(verb, consumer, amounts, at, field)


_writes = st.lists(_steps(), min_size=1, max_size=3, unique_by=lambda step: step.consumer)
_no_limits: st.SearchStrategy[dict[Key, int]] = st.just({})
_limits = _no_limits | _no_limits | st.dictionaries(_keys, st.integers(0, 12), max_size=4)
_defined: dict[str, Any] = {
    "inventories": _inventories(),
    "cell": _inventories(),
    "shares": _shares,
}


class LedgerMachine(RuleBasedStateMachine):
    """Random steps on a backend and on the model, compared after each step.

    The steps are scenarios: a failing example prints one.
    """

    fresh: ClassVar[Callable[[], Backend]]

    @initialize(**_defined)
    def _open(self, inventories: Any, cell: Any, shares: Any) -> None:
        self.backend = type(self).fresh()
        self.runner = Runner(self.backend)
        self.model = Model({below: above for above, below in _TREES.items()})
        self.follower = Follower(self.backend)
        self.timeline = Timeline(now())
        for name in _TREES:
            self.define(name, inventories, cell, shares, False)

    def teardown(self) -> None:
        if hasattr(self, "backend"):
            if hasattr(self, "timeline"):
                self._check_use_over_time()
            self.backend.close()

    def _run(self, *lines: str, expected: Callable[[], None]) -> bool:
        """Carry out a step; return False if the model, changed by ``expected``, refuses it."""
        refused = None
        try:
            expected()
        except ExpectedRefusal as refusal:
            refused = refusal
            lines = (*lines, f"  refused {refusal.error}")
        text = "\n".join(lines)
        note(text)
        [statement] = statements_of(text)
        error = self.runner.carry_out(statement)
        if refused is None:
            return True
        if refused.culprits is not None and isinstance(error, exceptions.CapacityException):
            assert error.code != "UnitTaken"
            named = {
                (reason.where, reason.resource)
                for reason in error.reasons
                if reason.rule is not Rule.UNIT_TAKEN  # reported in addition
            }
            assert named == refused.culprits
        return False

    # --- definitions ---

    @rule(
        host=st.sampled_from(list(_TREES)), bare=st.sampled_from([False] * 4 + [True]), **_defined
    )
    def define(self, host: str, inventories: Any, cell: Any, shares: Any, bare: bool) -> None:
        """Define a host and its cell with other inventories; a bare host loses its cell."""
        below = _TREES[host]
        tree = {host: dict(inventories)}
        links: Shares = {}
        lines = [f"define {host}: {_inventories_text(inventories)}"]
        if not bare:
            tree[below] = dict(cell)
            for kind in shares.keys() & cell.keys():
                targets = shares[kind].keys() & inventories.keys()
                links[below, kind] = {(host, target): shares[kind][target] for target in targets}
            lines.append(f"  {below}: {_inventories_text(cell)}")
        for (_, kind), factors in links.items():
            for (of, target), factor in factors.items():
                lines[-1] += f"; shares {kind} of {of} {target} times {factor}"
        removed = {below} if bare else set()
        self._run(*lines, expected=lambda: self.model.define(tree, removed, links))

    # --- orders ---

    @rule(writes=st.lists(st.tuples(_writes, st.integers(0, 5), _limits), min_size=1, max_size=4))
    def write(self, writes: list[tuple[list[Step], int, dict[Key, int]]]) -> None:
        for steps, chance, limits in writes:
            self._write(self._likely(steps) if chance else steps, limits)

    def _likely(self, steps: list[Step]) -> list[Step]:
        """Return steps of present and of absent consumers that each can carry out."""
        present = [name for name in _CONSUMERS if name in self.model.fields]
        absent = [name for name in _CONSUMERS if name not in present]
        likely = []
        for step in steps:
            names = absent if step.verb == "claim" else present
            if step.verb == "replace":
                likely.append(step)
            elif names:
                likely.append(dataclasses.replace(step, consumer=names.pop()))
        return list({step.consumer: step for step in likely}.values())

    def _write(self, steps: list[Step], limits: dict[Key, int]) -> None:
        within = "; ".join(f"{name} {kind} {total}" for (name, kind), total in limits.items())
        lines = [f"write [within={within}]", *(f"  {self._text(step)}" for step in steps)]
        cursor = self.backend.cursor()
        if steps and self._run(*lines, expected=lambda: self.model.write(steps, limits)):
            self.timeline.note(time_of_last(self.backend, cursor), self._allocations())

    def _text(self, step: Step) -> str:
        """Return the line of a scenario that is a step."""
        uses = "; ".join(
            " ".join([name, f"{kind}={amount}", *units])
            for (name, kind), (amount, units) in step.amounts.items()
        )
        options = []
        option = {"claim": "project", "replace": "project", "renew": "state"}.get(step.verb)
        if option is not None and step.field is not None:
            options.append(f"{option}={step.field}")
        if step.at is not None:  # any generation is wrong for an absent consumer
            record = self.backend.consumer(step.consumer)
            generation = 0 if record is None else record.generation
            options.append(f"expect={generation + (step.at == 'old')}")
        return f"{step.verb} {step.consumer}: {uses} [{', '.join(options)}]"

    # --- history ---

    # --- in between ---

    @rule(action=st.sampled_from([*_PROVIDERS, "repeat", "prune"]))
    def now_and_then(self, action: str) -> None:
        """Disable or enable a provider, send the last write again, or prune old entries."""
        if action in self.model.providers:
            disabled = self.model.disabled
            text = f"enable {action}" if action in disabled else f"disable {action}: fan"
            self._run(text, expected=lambda: disabled.symmetric_difference_update({action}))
        elif action == "repeat" and self.runner.last is not None:
            self._run("repeat", expected=lambda: None)
        elif action == "prune":
            cursor = self.backend.cursor()
            self.backend.prune(now())
            self.runner.last = None
            assert self.backend.changes(cursor, 10) == ()

    # --- use over time ---

    def _allocations(self) -> UsedAmounts:
        """Return the allocations of the model by consumer and class."""
        result: UsedAmounts = defaultdict(int)
        for (consumer, _, kind), amount in self.model.allocations.items():
            result[consumer, kind] += amount
        return result

    def _check_use_over_time(self) -> None:
        """Check that the reported use is the integral of the allocations."""
        first, middle = self.timeline.moments()
        for since, until in ((first, middle), (middle, None)):
            report = self.backend.use_between(since, until, UseFilter(), (UseBy.CONSUMER,))
            reported = {(row.consumer, row.resource_class): row.microseconds for row in report}
            assert len(reported) == len(report), "each consumer and class once"
            assert reported == self.timeline.used(max(since, report.complete_since), report.until)

    # --- invariants ---

    @invariant()
    def the_ledger_equals_the_model(self) -> None:
        model, state = self.model, ledger_state(self.backend)
        self.follower.follow()
        assert self.follower.state == state
        assert state.allocations == model.allocations
        assert state.units == {unit[:2]: unit[2:] for unit in model.units}
        assert set(state.providers) == set(model.providers)
        used = model.used()
        for name, provider in state.providers.items():
            assert (provider.disabled is not None) == (name in model.disabled)
            assert set(provider.inventories) == set(model.providers[name])
            for kind, record in provider.inventories.items():
                key = name, kind
                assert (record.used, record.capacity) == (used[key], model.capacity(key))
            assert provider.shares == {
                (source[1], *target): factor
                for source, targets in model.shares.items()
                if source[0] == name
                for target, factor in targets.items()
            }

    @invariant()
    def consumers_equal_the_model(self) -> None:
        records = self.backend.held_by(_CONSUMERS)
        fields = {name: (record.project, record.state) for name, record in records.items()}
        assert fields == self.model.fields
        for name, record in records.items():
            assert self.backend.consumer(name) == record


def _inventories_text(inventories: Inventories) -> str:
    """Return inventories as the text of a definition."""
    texts = []
    for kind, figures in inventories.items():
        rules = (f"{name}={value}" for name, value in figures.items() if name != "total")
        texts.append(":".join([f"{kind}={figures['total']}", *rules]))
    return ",".join(texts)


def state_machine(fresh: Callable[[], Backend]) -> type[LedgerMachine]:
    """Return a Hypothesis state machine that compares backends with the model.

    A test module collects its ``TestCase``.

    :param fresh: opens a backend on an empty ledger, once per example; the machine closes it
    """
    return type("Machine", (LedgerMachine,), {"fresh": staticmethod(fresh)})
