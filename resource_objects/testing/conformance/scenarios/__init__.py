"""Scenarios of the conformance kit as text: define providers, send orders, expect a state.

Each ``*.txt`` file of this folder is about one subject. A scenario begins with its title::

    == The last unit can be allocated, and no more (4)
    define host0: VCPU=8:reserved=1:allocation_ratio=1.15
    claim first: host0 VCPU=7      # floor(7 * 1.15) is 8
    claim second: host0 VCPU=1
    claim third: host0 VCPU=1
      refused CapacityException
      because capacity of VCPU at host0: requested 1, bound 8, used 8, second 1, first 7
    used host0 VCPU 8

The numbers after the title are the invariants that it protects. Words in braces, as ``{sharing}``,
are what the backend has to support (:class:`Requirement`). Text after ``#`` is a comment. Lines
that are indented belong to the line above.

Steps, each of which is one write:

=============================================  =====================================================
``define host0: VCPU=8,DISK_GB=9; traits A``   define a tree: inventories, then ``traits``,
                                               ``aggregates``, ``shares A of host0 [B] [times 2]``,
                                               ``was OLD`` (renamed) or ``new`` (another uuid);
                                               children are indented; several names before the colon
                                               are several trees
``undefine host0``                             remove a tree
``move gpu0: host1``                           move a provider with its descendants
``claim job: host0 VCPU=1; host1 PCPU cpu0``   claim; a word that begins without ``CLASS=`` names a
                                               unit, ``-cpu0`` releases one. Options follow in
                                               brackets: ``[aggregate, project=p, at=noted]``
``adjust``, ``replace``, ``renew``,            the other orders of a consumer, in the same form
``release``
``rename class A: B``, ``ensure trait A``,     change names of classes, traits, aggregates
``delete aggregate A``
``disable host0: fan``, ``enable host0``       disable a provider with a reason, or enable it
``group db: anti-affinity 2``, ``ungroup db``  create a server group (with its maximum for each
                                               host), or remove it
``limit host0 VCPU 5``, ``unchanged host0 at   further parts of a ``write``
NAME``, ``reported host0``, ``adopted host0``
``write``                                      all indented steps in one write
``repeat``                                     send the last write again: nothing changes, as with a
                                               step of the same ``[operation=NAME]``
``note NAME: job`` or ``note NAME: host0``     remember the generation of a consumer or provider
``prepare NAME``, later ``send NAME``          compare the definitions below with the ledger now,
                                               and write the differences later; ``prepare NAME
                                               bare``: without parents of which only children differ
=============================================  =====================================================

What follows a step is indented below it:

``refused ERROR [of SUBJECT]`` names the exception or its code. It is checked that a refused step
leaves the ledger and its feed as they were. ``because`` lines are its reasons, all of them, or
``because RULE``. ``feed`` lines are the entries of the change feed, one for each shard, such as
``feed definitions host0`` or ``feed uses job VCPU at host0 0 to 2 +cpu0 +cpu1``. ``touched host0``
are the providers whose trees a reader of changes reads again, or ``touched all``.

Statements on the state:

``used host0 VCPU 8; host1 VCPU 2``, ``capacity``, ``total``: figures of inventories;
``writes host0 2; cell0 1``: counters of allocation writes; ``times host0: reported adopted``: which
of these times a provider has; ``levels r1=rack r2=``: of all aggregates;
``allocations job: host0 VCPU=1`` (of one consumer; ``none``), or ``allocations`` with a line below
for each consumer of the ledger; ``units`` with a line ``host0 cpu0: PCPU of job`` for each unit;
``providers host0 gpu0``; ``traits``, ``aggregates``, ``inventories host0: A B``;
``parent gpu0: host0``, ``root``; ``names class: CUSTOM_A``: all names but the standard ones;
``members db: job``: of a server group; ``mark``, later ``as marked``: the ledger is as it was.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import importlib.resources
import re
import uuid as uuids
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from resource_objects import exceptions
from resource_objects.providers import Backend, Provider, diff
from resource_objects.providers.allocation import RELEASED
from resource_objects.providers.columns import trees
from resource_objects.providers.definition import (
    DefinitionChanges,
    ProviderRemoval,
    merge_changes,
)
from resource_objects.providers.disabled import DisableOrder
from resource_objects.providers.feed import FeedEntry
from resource_objects.providers.listing import ProviderFilter
from resource_objects.providers.orders import (
    ConsumerOrder,
    ConsumerRecord,
    GroupChange,
    NameAction,
    NameChange,
    NameKind,
    Operation,
    Use,
    Write,
)
from resource_objects.providers.provider import Share
from resource_objects.providers.server_groups import ServerGroup
from resource_objects.reasons import Reason, Rule
from resource_objects.resources import Inventories
from resource_objects.testing.conformance.feed import Follower
from resource_objects.testing.conformance.requirements import Requirement, requires
from resource_objects.testing.conformance.suite import (
    Kit,
    law,
    ledger_state,
    names_of,
    sorted_record,
    updated,
)

_ORDERS: dict[str, Callable[..., ConsumerOrder]] = {
    "claim": ConsumerOrder.claim,
    "adjust": ConsumerOrder.adjust,
    "replace": ConsumerOrder.replace,
    "renew": ConsumerOrder.renew,
    "release": ConsumerOrder.release,
}
_DEFINITIONS = ("define", "undefine", "move", "send")
_NAME_ACTIONS = {
    "ensure": NameAction.ENSURE,
    "rename": NameAction.RENAME,
    "delete": NameAction.DELETE,
    "level": NameAction.SET_LEVEL,
}
_NAME_KINDS = {
    "class": NameKind.RESOURCE_CLASS,
    "trait": NameKind.TRAIT,
    "aggregate": NameKind.AGGREGATE,
}


class Statement(NamedTuple):
    """One line of a scenario, with the lines that are indented below it."""

    number: int
    text: str
    below: list[Statement]

    @property
    def word(self) -> str:
        """The first word, which decides what the statement does."""
        return self.text.split(maxsplit=1)[0].rstrip(":")

    @property
    def rest(self) -> str:
        """The text after the first word."""
        return self.text[len(self.text.split(maxsplit=1)[0]) :].strip()


class Scenario(NamedTuple):
    """A named list of statements."""

    name: str
    invariants: tuple[int, ...]
    requirements: tuple[Requirement, ...]
    statements: list[Statement]

    @property
    def test_name(self) -> str:
        """The name of its test."""
        return "test_" + re.sub(r"[^a-z0-9]+", "_", self.name.lower()).strip("_")


def read_scenarios(text: str) -> Iterator[Scenario]:
    """Yield the scenarios of a file.

    :raises ValueError: for a line before the first title
    """
    for part in re.split(r"^== ", text, flags=re.MULTILINE)[1:]:
        title, _, body = part.partition("\n")
        match = re.fullmatch(r"(.+?)(?: \(([\d, ]+)\))?(?: \{([a-z, ]+)\})?", title.strip())
        assert match is not None, title
        name, invariants, needs = match.groups(default="")
        yield Scenario(
            name,
            tuple(map(int, invariants.split(","))) if invariants else (),
            tuple(Requirement[word.strip().upper()] for word in needs.split(",") if needs),
            _nested(body),
        )


def _nested(body: str) -> list[Statement]:
    top: list[Statement] = []
    levels = [(-1, top)]
    for number, line in enumerate(body.splitlines(), 1):
        text = re.sub(r"(^|\s)#.*", "", line).rstrip()
        if not text:
            continue
        indent = len(text) - len(text.lstrip())
        while indent <= levels[-1][0]:
            levels.pop()
        statement = Statement(number, text.strip(), [])
        levels[-1][1].append(statement)
        levels.append((indent, statement.below))
    return top


def all_scenarios() -> list[Scenario]:
    """Return the scenarios of all files of this folder."""
    files = sorted(importlib.resources.files(__package__).iterdir(), key=lambda file: file.name)
    return [
        scenario
        for file in files
        if file.name.endswith(".txt")
        for scenario in read_scenarios(file.read_text("utf-8"))
    ]


class ScenarioRules(Kit):
    """A test for each scenario of this folder, named by its title."""


def _test_of(scenario: Scenario) -> Callable[[Kit, Backend], None]:
    def test(self: Kit, backend: Backend) -> None:
        run(backend, scenario)

    test.__name__ = scenario.test_name
    test.__qualname__ = f"ScenarioRules.{scenario.test_name}"
    marked = law(*scenario.invariants)(test) if scenario.invariants else test
    return requires(*scenario.requirements)(marked)


def run(backend: Backend, scenario: Scenario) -> None:
    """Carry out a scenario on an empty ledger; an ``AssertionError`` names the failed line."""
    runner = _Runner(backend)
    for statement in scenario.statements:
        try:
            runner.carry_out(statement)
        except Exception as error:
            error.add_note(f"{scenario.name}, line {statement.number}: {statement.text}")
            raise


for _scenario in all_scenarios():
    setattr(ScenarioRules, _scenario.test_name, _test_of(_scenario))


class _Runner:
    """The state of a running scenario: uuids of providers, noted generations, the last write."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.follower = Follower(backend)
        self.uuids: dict[str, str] = {}
        self.noted: dict[str, int] = {}
        self.prepared: dict[str, DefinitionChanges] = {}
        self.last: Write | None = None
        self.outcomes: dict[str, tuple[ConsumerRecord, ...]] = {}
        self.entries: tuple[FeedEntry, ...] = ()
        self.marked: Any = None
        self.checks: dict[str, Callable[[Statement], None]] = {
            **dict.fromkeys(("used", "capacity", "total"), self._check_figures),
            "allocations": self._check_allocations,
            "units": self._check_units,
            "providers": self._check_providers,
            **dict.fromkeys(
                ("traits", "aggregates", "inventories", "parent", "root"), self._check_attribute
            ),
            "names": self._check_custom_names,
            "members": self._check_members,
            "mark": self._mark,
            "as": self._check_marked,
            "note": self._note,
            "prepare": self._prepare,
            "writes": self._check_writes,
            "times": self._check_times,
            "levels": self._check_levels,
            "repeat": self._repeat,
        }

    def carry_out(self, statement: Statement) -> None:
        check = self.checks.get(statement.word)
        if check is not None:
            check(statement)
            return
        outcome = [part for part in statement.below if part.word in ("refused", "because")]
        feed = [part for part in statement.below if part.word == "feed"]
        touched = [part for part in statement.below if part.word == "touched"]
        parts = [part for part in statement.below if part not in (*outcome, *feed, *touched)]
        steps = parts if statement.word == "write" else [statement._replace(below=parts)]
        if touched:
            self.follower.follow()
        if not outcome:
            self._commit(self._write(steps))
            if feed:
                texts = [self._entry_text(entry) for entry in self.entries]
                assert sorted(item.rest for item in feed) == sorted(texts)
            for part in touched:
                self._check_touched(part)
            return
        before, cursor = ledger_state(self.backend), self.backend.cursor()
        with pytest.raises(exceptions.ResourceObjectsError) as refused:
            self.backend.commit(self._write(steps))
        self._check_refusal(refused.value, outcome)
        assert ledger_state(self.backend) == before, "a refused step changed the ledger"
        assert self.backend.cursor() == cursor, "the feed has a refused step"

    def _commit(self, write: Write) -> None:
        """Carry out a write; one of a known operation has its first outcome and changes nothing."""
        before, cursor = ledger_state(self.backend), self.backend.cursor()
        consumers = [order.consumer for order in write.orders]
        earlier = self.backend.held_by(consumers)
        outcome = self.backend.commit(write)
        assert [record.consumer for record in outcome] == consumers
        if write.operation.id in self.outcomes:
            assert outcome == self.outcomes[write.operation.id]
            assert (ledger_state(self.backend), self.backend.cursor()) == (before, cursor)
            return
        self.last, self.outcomes[write.operation.id] = write, outcome
        stored = self.backend.held_by([record.consumer for record in outcome])
        for record in outcome:
            if record.state != RELEASED:
                assert sorted_record(stored[record.consumer]) == sorted_record(record)
            _check_identity(earlier.get(record.consumer), record)
        with contextlib.suppress(exceptions.NotSupported):  # of a backend without a feed
            self.entries = self.backend.changes(cursor, 1000)
            operation = (write.operation.id, write.kind, write.subject)
            assert {(entry.operation, entry.kind, entry.subject) for entry in self.entries} == {
                operation
            }
            assert len({entry.shard for entry in self.entries}) == len(self.entries)
            assert self.backend.cursor() == cursor.moved(self.entries)
            assert len({record.generation for record in outcome}) <= 1, "one write, one generation"
            self.follower.follow()
            assert self.follower.state == ledger_state(self.backend), "as read from the feed"

    def _check_touched(self, statement: Statement) -> None:
        """Compare the providers that a write concerns with ``touched host0 gpu0``, or ``all``."""
        if self.follower.cursor != self.backend.cursor():  # of a backend without a feed
            self.follower.follow()
            assert self.follower.state == ledger_state(self.backend)
        touched = self.follower.touched
        names = sorted(name for name, uuid in self.uuids.items() if uuid in touched.providers)
        assert (["all"] if touched.is_wide else names) == statement.rest.split()

    def _entry_text(self, entry: FeedEntry) -> str:
        """Return what an entry of the feed is about, by the names that providers have now."""
        names = {uuid: name for name, uuid in self.uuids.items()}
        parts = {
            "definitions": " ".join(sorted(names[uuid] for uuid in entry.definitions)),
            "reports": " ".join(sorted(names[uuid] for uuid in entry.reports)),
            "disabled": " ".join(sorted(names[item.provider_uuid] for item in entry.disabled)),
            "consumers": " ".join(sorted(entry.claims)),
            "uses": ", ".join(
                " ".join(
                    [
                        *(use.consumer, use.key[1], "at", names[use.key[0]]),
                        *(str(use.before), "to", str(use.after)),
                        *(f"+{unit}" for unit in use.taken),
                        *(f"-{unit}" for unit in use.given),
                    ]
                )
                for use in sorted(entry.uses, key=lambda use: (use.consumer, use.key[1]))
            ),
        }
        return "; ".join(f"{name} {text}" for name, text in parts.items() if text) or "nothing"

    # --- writes ---

    def _write(self, steps: list[Statement]) -> Write:
        """Return one write of some steps; a step may name providers that another one defines."""
        definitions = [change for step in steps for change in self._definitions(step)]
        changes = None
        if definitions:
            changes = merge_changes(definitions[0].root, definitions)
            self.uuids.update({created.name: created.uuid for created in changes.creates})
        more: dict[str, Any] = {}
        for step in steps:
            if step.word in ("reported", "adopted"):
                more[step.word] = tuple(self.uuid_of(name) for name in step.rest.split())
            elif step.word == "limit":
                provider, resource_class, total = step.rest.split()
                more.setdefault("limits", {})[self.uuid_of(provider), resource_class] = int(total)
            elif step.word in ("disable", "enable"):
                provider, _, reason = step.rest.partition(": ")
                disabling = DisableOrder(self.uuid_of(provider), reason or None)
                more["disabling"] = (*more.get("disabling", ()), disabling)
            elif step.word in ("group", "ungroup"):
                more["groups"] = (_group_change(step),)
            elif step.word == "unchanged":
                provider, noted = step.rest.split(" at ")
                demanded = (self.uuid_of(provider), self.noted[noted])
                more["unchanged"] = (*more.get("unchanged", ()), demanded)
            elif step.word not in (*_ORDERS, *_DEFINITIONS, *_NAME_ACTIONS):
                raise ValueError(f"no step {step.word!r}")
        subject, _, options = steps[0].rest.partition(" [")
        named = re.search(r"operation=(\w+)", options)
        return Write(
            Operation() if named is None else Operation(self.uuid_of(named[1])),
            steps[0].word,
            subject.partition(":")[0] or steps[0].word,
            changes,
            tuple(self._order(step) for step in steps if step.word in _ORDERS),
            tuple(_name_change(step) for step in steps if step.word in _NAME_ACTIONS),
            **more,
        )

    def uuid_of(self, name: str) -> str:
        """Return the uuid of a provider; of a name that was never defined, one without provider."""
        return self.uuids.get(name) or str(uuids.uuid5(uuids.NAMESPACE_OID, name))

    def _order(self, step: Statement) -> ConsumerOrder:
        text, _, options = step.rest.partition(" [")
        consumer, _, allocations = text.partition(":")
        more = dict(map(self._option, options.rstrip("]").split(", "))) if options else {}
        more.pop("operation", None)  # of the write
        counted = more.pop("counted", False)
        parts = (self._uses(allocations),) if allocations else ()
        order = _ORDERS[step.word](consumer, *parts, **more)
        return dataclasses.replace(order, counted=True) if counted else order

    def _option(self, option: str) -> tuple[str, Any]:
        name, _, value = option.partition("=")
        if name == "at":
            return "generation", self.noted[value]
        if name == "uuid":
            return name, self.uuid_of(value)
        if name == "expires":
            return "expires_at", datetime.datetime.fromisoformat(value)
        return name, value or True

    def _uses(self, text: str) -> tuple[Use, ...]:
        uses: list[Use] = []
        for part in text.split(";"):
            provider, amounts, *units = part.split()
            if units:
                released = units[0].startswith("-")
                names = tuple(unit.removeprefix("-") for unit in units)
                count = -len(units) if released else len(units)
                uses.append(Use(self.uuid_of(provider), amounts, count, names))
            else:
                uses += [Use(self.uuid_of(provider), *amount) for amount in _amounts(amounts)]
        return tuple(uses)

    def _definitions(self, step: Statement) -> Iterator[DefinitionChanges]:
        """Yield the differences between the stored trees and those of a step."""
        if step.word == "send":
            yield self.prepared[step.rest]
        elif step.word == "undefine":
            [root] = trees(self.backend.read(step.rest))
            removals = [
                ProviderRemoval(provider.uuid or "", provider.name, provider.generation or 0)
                for provider in reversed(list(root.walk()))
            ]
            yield DefinitionChanges(step.rest, removals=tuple(removals))
        elif step.word == "move":
            name, _, parent = step.rest.partition(": ")
            update = updated(self.backend, name, parent_uuid=self.uuid_of(parent))
            yield DefinitionChanges(name, updates=(update,))
        elif step.word == "define":
            names, _, content = step.rest.partition(":")
            for name in names.split(", "):
                expected = self._provider(name, content, step.below)
                stored = trees(self.backend.read(expected.uuid or expected.name))
                yield diff(stored[0] if stored else None, expected)

    def _provider(self, name: str, content: str, below: list[Statement]) -> Provider:
        inventories, *attributes = (part.strip() for part in content.split(";"))
        more: dict[str, Any] = {"shares": []}
        for attribute in attributes:
            word, *values = attribute.split()
            if word == "shares":
                more["shares"].append(_share(attribute))
            elif word == "was":
                more["uuid"] = self.uuid_of(values[0])
            elif word == "new":
                more["uuid"] = str(uuids.uuid4())
            else:
                more[word] = values
        children = []
        for child in below:
            child_name, _, child_content = child.text.partition(":")
            children.append(self._provider(child_name, child_content, child.below))
        return Provider(name, Inventories(inventories or {}), children=children, **more)

    # --- refusals ---

    def _check_refusal(self, error: Exception, outcome: list[Statement]) -> None:
        for statement in outcome:
            if statement.word == "refused":
                expected, _, subject = statement.rest.partition(" of ")
                names = {kind.__name__ for kind in type(error).__mro__}
                assert expected in names | {getattr(error, "code", "")}, repr(error)
                assert not subject or error.name in (subject, self.uuid_of(subject)), repr(error)  # type: ignore[attr-defined]
        expected_reasons = {item.rest for item in outcome if item.word == "because"}
        if expected_reasons:
            reasons = error.reasons  # type: ignore[attr-defined]
            full = " at " in next(iter(expected_reasons))
            assert {_reason_text(reason, full) for reason in reasons} == expected_reasons

    # --- statements on the state ---

    def _check_figures(self, statement: Statement) -> None:
        providers = ledger_state(self.backend).providers
        for part in statement.rest.split("; "):
            provider, resource_class, figure = part.split()
            record = providers[provider].inventories[resource_class]
            assert getattr(record, statement.word) == int(figure), f"{part}: {record}"

    def _check_allocations(self, statement: Statement) -> None:
        stored: dict[str, dict[tuple[str, str], int]] = {}
        for (consumer, *place), amount in ledger_state(self.backend).allocations.items():
            stored.setdefault(consumer, {})[place[0], place[1]] = amount
        lines = (
            [statement.rest] if ":" in statement.rest else [part.text for part in statement.below]
        )
        expected = {}
        for line in lines:
            consumer, _, parts = line.partition(": ")
            expected[consumer] = {
                (part.split()[0], name): amount
                for part in parts.split(";")
                if part != "none"
                for name, amount in _amounts(part.split()[1])
            }
        if ":" in statement.rest:
            stored = {consumer: stored.get(consumer, {}) for consumer in expected}
        assert stored == expected
        for consumer in expected:
            record = self.backend.held(consumer)
            assert (record is None) is not bool(expected[consumer])
            if record is not None:
                listed = {(use.provider, use.resource_class): use.amount for use in record.held}
                assert listed == expected[consumer]

    def _check_units(self, statement: Statement) -> None:
        """Compare all units of the ledger with lines of ``host0 cpu0: PCPU of job``."""
        stored = {
            f"{provider} {unit}: {resource_class} of {consumer}"
            for (provider, unit), (resource_class, consumer) in ledger_state(
                self.backend
            ).units.items()
        }
        assert stored == {below.text for below in statement.below}

    def _check_providers(self, statement: Statement) -> None:
        assert set(ledger_state(self.backend).providers) == set(statement.rest.split())

    def _check_attribute(self, statement: Statement) -> None:
        name, _, values = statement.rest.partition(":")
        stored = getattr(ledger_state(self.backend).providers[name], statement.word)
        if stored is None or isinstance(stored, str):
            assert stored == (values.strip() or None)
        else:
            assert set(stored) == set(values.split())

    def _check_custom_names(self, statement: Statement) -> None:
        kind, _, names = statement.rest.partition(":")
        stored = set(names_of(self.backend, _NAME_KINDS[kind]))
        if kind != "aggregate":
            stored = {name for name in stored if name.startswith("CUSTOM_")}
        assert stored == set(names.split())

    def _check_members(self, statement: Statement) -> None:
        name, _, members = statement.rest.partition(":")
        [group] = self.backend.list_server_groups(1, names=[name])
        assert group.members == set(members.split())

    def _mark(self, statement: Statement) -> None:
        self.marked = ledger_state(self.backend)

    def _check_marked(self, statement: Statement) -> None:
        assert ledger_state(self.backend) == self.marked

    def _note(self, statement: Statement) -> None:
        name, _, of = statement.rest.partition(": ")
        record = self.backend.held(of)
        if record is None:
            self.noted[name] = ledger_state(self.backend).providers[of].generation
        else:
            self.noted[name] = record.generation

    def _prepare(self, statement: Statement) -> None:
        name, *bare = statement.rest.split()
        [changes] = [change for step in statement.below for change in self._definitions(step)]
        if bare:
            updates = tuple(update for update in changes.updates if not update.children_changed)
            changes = dataclasses.replace(changes, updates=updates)
        self.prepared[name] = changes

    def _check_writes(self, statement: Statement) -> None:
        listed = self.backend.list_providers(ProviderFilter(), 100)
        stored = {provider.name: provider.allocation_writes for provider in listed}
        parts = dict(part.split() for part in statement.rest.split("; "))
        assert stored == {name: int(writes) for name, writes in parts.items()}

    def _check_times(self, statement: Statement) -> None:
        name, _, expected = statement.rest.partition(":")
        [listed] = self.backend.list_providers(ProviderFilter(names=frozenset({name})), 1)
        record = ledger_state(self.backend).providers[name]
        times = {"reported": record.reported_at, "adopted": record.adopted_at}
        assert times == {"reported": listed.reported_at, "adopted": listed.adopted_at}
        assert {word for word, time in times.items() if time is not None} == set(expected.split())

    def _check_levels(self, statement: Statement) -> None:
        listed = self.backend.list_names(NameKind.AGGREGATE, 100)
        assert {f"{item.name}={item.level or ''}" for item in listed} == set(statement.rest.split())

    def _repeat(self, statement: Statement) -> None:
        assert self.last is not None, "nothing to repeat"
        self._commit(self.last)


def _check_identity(earlier: ConsumerRecord | None, record: ConsumerRecord) -> None:
    """Check that a written consumer is the same claim as before, with another generation."""
    if earlier is not None and record.held and earlier.held:
        assert (record.uuid, record.created_at) == (earlier.uuid, earlier.created_at)
        if record.state != RELEASED:
            assert record.generation != earlier.generation
        else:
            assert {use.key: use.amount for use in record.held} == {
                use.key: use.amount for use in earlier.held
            }


def _amounts(text: str) -> list[tuple[str, int]]:
    pairs = (part.split("=") for part in text.split(","))
    return [(name, int(amount)) for name, amount in pairs]


def _share(text: str) -> Share:
    match = re.fullmatch(r"shares (\S+) of (\S+?)(?: (?!times)(\S+))?(?: times (\d+))?", text)
    assert match is not None, text
    resource_class, of, of_class, factor = match.groups()
    return Share(
        resource_class=resource_class,
        of=of,
        of_class=of_class or resource_class,
        factor=int(factor or 1),
    )


def _name_change(step: Statement) -> NameChange:
    """Return the change of ``rename class A: B`` or ``ensure trait A``."""
    kind, _, remainder = step.rest.partition(" ")
    name, _, to = remainder.partition(": ")
    return NameChange(_NAME_KINDS[kind], _NAME_ACTIONS[step.word], name, to or None)


def _group_change(step: Statement) -> GroupChange:
    """Return the change of ``group db: anti-affinity 2`` or ``ungroup db``."""
    name, _, text = step.rest.partition(": ")
    policy, *per_host = text.split() or [""]
    group = ServerGroup(name, policy, (), int(per_host[0]) if per_host else 1) if policy else None
    return GroupChange(name, group)


def _reason_text(reason: Reason, full: bool) -> str:
    """Return a reason as ``because`` writes it: the rule alone, or with its figures."""
    if not full:
        return reason.rule.value
    if reason.rule is Rule.SERVER_GROUP:
        members = " ".join(name for name, _ in reason.holders)
        return f"{reason.rule.value} {reason.group} at {reason.where}: {members}"
    if reason.rule is Rule.DISABLED:
        return f"{reason.rule.value} at {reason.where}"
    unit = f" unit {reason.unit}" if reason.unit else ""
    figures = f"requested {reason.requested}, bound {reason.bound}, used {reason.used}"
    consumers = "".join(f", {name} {amount}" for name, amount in reason.holders)
    return f"{reason.rule.value} of {reason.resource} at {reason.where}{unit}: {figures}{consumers}"
