"""Scenarios of the conformance kit as text: define providers, send orders, expect a state.

Each ``*.txt`` file of this folder is about one subject. A scenario begins with its title::

    == The last unit can be allocated, and no more (4)
    define host0: VCPU=8:reserved=1:allocation_ratio=1.15
    claim first: host0 VCPU=7      # floor(7 * 1.15) is 8
    claim second: host0 VCPU=1
    claim third: host0 VCPU=1 => refused CapacityException
      because capacity of VCPU at host0: 1, 8 of 8 used, second 1, first 7
    used host0 VCPU 8

The numbers after the title are the invariants that it protects. Lines before the first title begin
each scenario of the file. Text after ``#`` is a comment. Indented lines belong to the line above.
``3 times`` before a line, or before a part between semicolons, repeats it: ``{n}`` counts from 0,
``{n%2}`` to 1 and again. A title with ``{class|trait}`` is a scenario for each word; ``{kind}`` and
``{Kind}`` in its lines are that word.

Steps, each of which is one write:

``define host0: VCPU=8,DISK_GB=9; traits A``
    define a tree: inventories, then ``traits``, ``aggregates``, ``shares A of host0 B times 2``,
    ``was OLD`` (renamed), ``new`` (another uuid) or ``card 0000:01:02.1``, a card of three virtual
    functions of which some were removed. Children are indented; several names before the
    colon are several trees. ``undefine host0`` removes a tree, and ``move gpu0: host1`` moves a
    provider with its descendants
``claim job: host0 VCPU=1; host1 PCPU cpu0 cpu1 [aggregate, project=p, expect=NOTED]``
    an order of a consumer for amounts or units (``-cpu0`` releases one; ``PF=1 pf vf0`` is one of
    two units), with options; likewise ``adjust``, ``replace``, ``renew``, ``release``. The option
    ``note=NAME`` remembers the generation of the consumer, and the uuid of its claim
``rename class A: B``, ``ensure trait A``, ``delete aggregate A``, ``level aggregate A: rack``
    change names of classes, traits and aggregates, and levels of aggregates
``disable host0: fan``, ``enable host0``, ``group db: anti-affinity 2``, ``ungroup db``
    disable and enable a provider (``[was=fan]``, ``[was]``: in this state only), create (with its
    maximum for each host) and remove a server group
``reported host0``, ``adopted host0``
    report the state of a provider, and the adoption of its existing use
``write``
    all indented steps in one write. Options of a write: ``within=host0 VCPU 5; cell0 VCPU 2`` are
    limits, ``unchanged=host0 at NOTED`` a definition that must be unchanged, ``operation=NAME``,
    ``actor=NAME``
``repeat``
    send the last write again: nothing changes, as with a step of the same ``[operation=NAME]``
``note NAME: host0``
    remember the generation of a provider
``prepare NAME``, later ``send NAME``
    compare the definition below with the ledger now, and write the differences later

The outcome of a step is indented below it, or after ``=>``: ``refused ERROR of SUBJECT: TEXT``
names the exception or its code, and may name its subject and a part of its text. It is checked that
a refused step leaves the ledger and its feed as they were. ``because`` lines are its reasons, all
of them, or ``because RULE``. ``feed`` lines are the entries of the change feed, one for each shard:
``feed definitions host0``, ``feed uses job VCPU at host0 0 to 1``. ``touched host0`` are the
providers whose trees a reader of changes reads again, or ``touched all``.

Statements on the state:

``used host0 VCPU 8; host1 VCPU 2``, ``capacity``, ``total``
    some figures of inventories
``allocation_writes host0 2; cell0 1``, ``definition_writes``
    the counters of all providers
``allocations job: host0 VCPU=1``
    of one consumer (or ``none``), or with a line below for each consumer of the ledger
``record job [project=p]``
    the fields of a consumer that are not the default
``units``
    with a line ``host0 cpu0: PCPU of job`` below for each unit
``traits host0: A B``, ``aggregates``, ``inventories``, ``parent``, ``root``
    an attribute of a provider
``providers host0; gpu0``, ``levels r1=rack; r2=``, ``members db: job``, ``names class: CUSTOM_A``
    all providers, aggregates, members of a server group, names but the standard ones
``with_free VCPU=2,DISK_GB=9: host0``
    the providers in which these amounts are free
``mark``, later ``as marked``
    the ledger is as it was
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import importlib.resources
import re
import uuid as uuids
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

import pytest

from resource_objects import exceptions
from resource_objects.providers import Backend, Provider
from resource_objects.providers.allocation import HELD, RELEASED
from resource_objects.providers.definition import DefinitionChanges, merge_changes
from resource_objects.providers.disabled import DisableOrder, ServiceState
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
    StoredRequest,
    Use,
    Write,
)
from resource_objects.providers.provider import Share
from resource_objects.providers.server_groups import ServerGroup
from resource_objects.reasons import Reason, Rule
from resource_objects.resources import Inventories
from resource_objects.resources.pci import DeviceUse, PCIInventory
from resource_objects.testing.conformance import suite as kit
from resource_objects.testing.conformance.feed import Follower

#: Lines below a step that are not part of it.
_OUTCOMES = ("refused", "because", "feed", "touched")
#: Options of a step that are not fields of its order.
_OPTIONS_OF_WRITES = ("operation", "actor", "within", "unchanged", "note")
#: Steps that may create providers, which other steps of their write name.
_DEFINITIONS = ("define", "undefine", "move", "send")
_NAME_KINDS = {
    "class": NameKind.RESOURCE_CLASS,
    "trait": NameKind.TRAIT,
    "aggregate": NameKind.AGGREGATE,
}


# --- text ---


class Statement(NamedTuple):
    """One line of a scenario: ``word subject: value [options]``, and the lines indented below it.

    ``argument`` is the subject with the value. An option without a value has the value ``""``.
    """

    number: int
    text: str
    word: str
    argument: str
    subject: str
    value: str
    options: dict[str, str]
    below: list[Statement]


def read_scenarios(text: str) -> Iterator[tuple[str, tuple[int, ...], str]]:
    """Yield (title, invariants, statements) of each scenario of a file."""
    background, *parts = re.split(r"^== ", text, flags=re.MULTILINE)
    for part in parts:
        title, _, body = part.partition("\n")
        name, _, numbers = title.removesuffix(")").partition(" (")
        invariants = tuple(map(int, numbers.split(","))) if numbers else ()
        before, _, words = name.partition("{")
        words, _, after = words.partition("}")
        for word in words.split("|"):
            lines = (background + body).replace("{kind}", word).replace("{Kind}", word.capitalize())
            yield before + word + after, invariants, lines


def statements_of(text: str) -> list[Statement]:
    """Return the outer statements of a text, each with those below it."""
    top: list[Statement] = []
    levels = [(-1, top)]
    for number, line in enumerate(text.splitlines(), 1):
        content = re.sub(r"(^|\s)#.*", "", line).rstrip()
        if not content:
            continue
        indent = len(content) - len(content.lstrip())
        while indent <= levels[-1][0]:
            levels.pop()
        step, *outcomes = content.strip().split(" => ")
        below = [_statement(number, outcome, []) for outcome in outcomes]
        levels[-1][1].extend(_statement(number, copy, below) for copy in _copies(step))
        levels.append((indent, below))
    return top


def _statement(number: int, text: str, below: list[Statement]) -> Statement:
    line, _, options = text.partition(" [")
    word, _, rest = line.partition(" ")
    subject, _, value = f"{rest} ".partition(": ")
    pairs = (pair.partition("=") for pair in options.removesuffix("]").split(", ") if pair)
    values = {name: value for name, _, value in pairs}
    word, subject, value = word.removesuffix(":"), subject.strip(), value.strip()
    return Statement(number, text, word, rest.strip(), subject, value, values, below)


def _copies(text: str) -> Iterator[str]:
    """Yield the copies of ``3 times host{n}``, in which n counts from 0."""
    count, _, pattern = text.partition(" times ")
    if not pattern or not count.isdecimal():
        yield text
        return
    for number in range(int(count)):
        copy = re.sub(r"\{n%(\d+)\}", partial(_remainder, number), pattern)
        yield copy.replace("{n}", str(number))


def _remainder(number: int, divisor: re.Match[str]) -> str:
    return str(number % int(divisor[1]))


def _parts(text: str) -> list[str]:
    """Return the parts of a text between semicolons."""
    parts = (part.strip() for part in text.split(";") if part)
    return [copy for part in parts for copy in _copies(part)]


# --- tests ---


class ScenarioRules(kit.Kit):
    """A test for each scenario of this folder, named by its title."""


def _add_test(title: str, invariants: tuple[int, ...], text: str) -> None:
    def test(self: kit.Kit, backend: Backend) -> None:
        run(backend, text)

    test.__name__ = "test_" + re.sub(r"[^a-z0-9]+", "_", title.lower()).strip("_")
    test.__qualname__ = f"ScenarioRules.{test.__name__}"
    setattr(ScenarioRules, test.__name__, kit.law(*invariants)(test) if invariants else test)


for _file in sorted(importlib.resources.files(__package__).iterdir(), key=lambda file: file.name):
    if _file.name.endswith(".txt"):
        for _scenario in read_scenarios(_file.read_text("utf-8")):
            _add_test(*_scenario)


def run(backend: Backend, text: str) -> None:
    """Carry out the statements of a text; an ``AssertionError`` names the failed line."""
    runner = Runner(backend)
    for statement in statements_of(text):
        try:
            runner.carry_out(statement)
        except Exception as error:
            error.add_note(f"line {statement.number} of the scenario: {statement.text}")
            raise


# --- carrying out ---


class Runner:
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
            "repeat": self._repeat,
            "prepare": self._prepare,
            "note": self._note,
            "mark": self._mark,
            "as": self._check_marked,
            "allocations": self._check_allocations,
            "record": self._check_record,
            **dict.fromkeys(_FACTS, self._check_facts),
        }

    def carry_out(self, statement: Statement) -> Any:
        """Carry out a step, or check a statement on the state; return the error of a refusal."""
        if statement.word in self.checks:
            self.checks[statement.word](statement)
            return None
        parts: dict[str, list[Statement]] = defaultdict(list)
        for below in statement.below:
            parts[below.word if below.word in _OUTCOMES else "steps"].append(below)
        steps = parts["steps"]
        if statement.word == "define":  # the lines below are its children
            steps = [statement._replace(below=steps)]
        elif statement.word != "write":
            steps = [statement, *steps]
        if parts["refused"] or parts["because"]:
            reasons = {item.argument for item in parts["because"]}
            write = partial(self._write, statement.options, steps)
            return self._check_refusal(write, parts["refused"], reasons)
        if parts["touched"]:
            self.follower.follow()
        self._commit(self._write(statement.options, steps))
        self._note_consumers(steps)
        if parts["feed"]:
            entries = [self._entry_text(entry) for entry in self.entries]
            assert sorted(entries) == sorted(item.argument for item in parts["feed"])
        for item in parts["touched"]:
            self._check_touched(item)
        return None

    def _check_refusal(
        self, write: Callable[[], Write], errors: list[Statement], reasons: set[str]
    ) -> Any:
        before, cursor = kit.ledger_state(self.backend), self.backend.cursor()
        with pytest.raises(exceptions.ResourceObjectsError) as refused:
            self.backend.commit(write())
        error: Any = refused.value
        for statement in errors:
            expected, _, subject = statement.subject.partition(" of ")
            names = {kind.__name__ for kind in type(error).__mro__}
            assert expected in names | {getattr(error, "code", "")}, repr(error)
            if subject and not hasattr(error, "name"):
                pytest.fail(f"no 'of {subject}' after refused: a {expected} names no subject")
            assert not subject or error.name in (subject, self.uuid_of(subject)), repr(error)
            assert statement.value in str(error)
        if reasons:
            full = any(" at " in reason for reason in reasons)
            assert {_reason_text(reason, full) for reason in error.reasons} == reasons
        assert kit.ledger_state(self.backend) == before, "a refused step changed the ledger"
        assert self.backend.cursor() == cursor, "the feed has a refused step"
        return error

    def uuid_of(self, name: str) -> str:
        """Return the uuid of a provider; of a name that was never defined, one without provider."""
        uuid = self.uuids.get(name) or self.backend.uuids([name]).get(name)
        return uuid or str(uuids.uuid5(uuids.NAMESPACE_OID, name))

    # --- writes ---

    def _write(self, options: dict[str, str], steps: list[Statement]) -> Write:
        """Return one write of some steps; a step may name providers that another one defines."""
        fields: dict[str, Any] = {"definitions": (), **self._preconditions(options)}
        for step in sorted(steps, key=lambda step: step.word not in _DEFINITIONS):
            name, *values = self._part(step)
            fields[name] = (*fields.get(name, ()), *values)
        changes = fields["definitions"]
        fields["definitions"] = merge_changes(changes[0].root, changes) if changes else None
        named, first = options.get("operation"), steps[0]
        operation = Operation(named and self.uuid_of(named), options.get("actor"))
        return Write(operation, first.word, first.subject or first.word, **fields)

    def _part(self, step: Statement) -> tuple[Any, ...]:
        """Return the field of a write that a step is about, and its values."""
        match step.word:
            case "define" | "undefine" | "move" | "send":
                return "definitions", *self._definitions(step)
            case "ensure" | "rename" | "delete" | "level":
                kind, name = step.subject.split()
                action = NameAction.SET_LEVEL if step.word == "level" else NameAction(step.word)
                return "names", NameChange(_NAME_KINDS[kind], action, name, step.value or None)
            case "disable" | "enable":
                was = ServiceState(step.options["was"] or None) if "was" in step.options else None
                order = DisableOrder(self.uuid_of(step.subject), step.value or None, was=was)
                return "disabling", order
            case "group" | "ungroup":
                return "groups", GroupChange(step.subject, _server_group(step))
            case "reported" | "adopted":
                return step.word, *(self.uuid_of(name) for name in step.argument.split())
        return "orders", self._order(step)

    def _preconditions(self, options: dict[str, str]) -> dict[str, Any]:
        """Return the limits and the unchanged definitions that options of a write state."""
        limits = (part.split() for part in _parts(options.get("within", "")))
        definitions = (part.split(" at ") for part in _parts(options.get("unchanged", "")))
        return {
            "limits": {(self.uuid_of(name), kind): int(total) for name, kind, total in limits},
            "unchanged": tuple((self.uuid_of(name), self.noted[at]) for name, at in definitions),
        }

    def _commit(self, write: Write) -> None:
        """Carry out a write; one of a known operation has its first outcome and changes nothing."""
        before, cursor = kit.ledger_state(self.backend), self.backend.cursor()
        consumers = [order.consumer for order in write.orders]
        earlier = self.backend.held_by(consumers)
        began = self.backend.now()
        outcome = self.backend.commit(write)
        assert [record.consumer for record in outcome] == consumers
        recorded = self.backend.outcome(write.operation)
        assert recorded is not None
        assert (recorded.kind, recorded.subject) == (write.kind, write.subject)
        for stored_record, record in zip(recorded.claims, outcome, strict=True):
            assert dataclasses.replace(stored_record, held=record.held) == record
        if write.operation.id in self.outcomes:
            assert outcome == self.outcomes[write.operation.id]
            assert (kit.ledger_state(self.backend), self.backend.cursor()) == (before, cursor)
            return
        self.last, self.outcomes[write.operation.id] = write, outcome
        stored = self.backend.held_by(consumers)
        for record in outcome:
            if record.state != RELEASED:
                assert kit.sorted_record(stored[record.consumer]) == kit.sorted_record(record)
            if record.held and record.consumer in earlier:
                _check_identity(earlier[record.consumer], record)
        for order, record in zip(write.orders, outcome, strict=True):
            if order.consumer not in earlier:
                assert record.uuid == str(uuids.UUID(order.uuid or record.uuid))
                assert began <= record.created_at <= self.backend.now()
        with contextlib.suppress(exceptions.NotSupported):  # of a backend without a feed
            self.entries = self.backend.changes(cursor, 1000)
            written = {(entry.operation, entry.kind, entry.subject) for entry in self.entries}
            assert written == {(write.operation.id, write.kind, write.subject)}
            assert {entry.actor for entry in self.entries} == {write.operation.actor}
            assert all(began <= entry.at <= self.backend.now() for entry in self.entries)
            assert len({entry.shard for entry in self.entries}) == len(self.entries)
            assert self.backend.cursor() == cursor.moved(self.entries)
            assert len({record.generation for record in outcome}) <= 1, "one write, one generation"
            self.follower.follow()
            assert self.follower.state == kit.ledger_state(self.backend), "as read from the feed"

    def _check_touched(self, statement: Statement) -> None:
        if self.follower.cursor != self.backend.cursor():  # of a backend without a feed
            self.follower.follow()
            assert self.follower.state == kit.ledger_state(self.backend)
        touched = self.follower.touched
        names = sorted(name for name, uuid in self.uuids.items() if uuid in touched.providers)
        assert (["all"] if touched.is_wide else names) == statement.argument.split()

    def _order(self, step: Statement) -> ConsumerOrder:
        uses = (self._uses(step.value),) if step.value else ()
        order: ConsumerOrder = getattr(ConsumerOrder, step.word)(step.subject, *uses)
        return dataclasses.replace(order, **self._fields(step))

    def _fields(self, statement: Statement) -> dict[str, Any]:
        """Return the fields of an order or record by the options, without those of an operation."""
        readers: dict[str, Callable[[str], Any]] = {
            "expect": lambda text: self.noted[text] if text in self.noted else int(text),
            "uuid": self.uuid_of,
            "expires_at": datetime.datetime.fromisoformat,
            "request": StoredRequest,
        }
        return {
            name: readers.get(name, str)(value) if value else True
            for name, value in statement.options.items()
            if name not in _OPTIONS_OF_WRITES
        }

    def _uses(self, text: str) -> tuple[Use, ...]:
        uses: list[Use] = []
        for part in _parts(text):
            provider, amounts, *units = part.split()
            if units:
                resource_class, _, amount = amounts.partition("=")
                names = tuple(unit.removeprefix("-") for unit in units)
                count = -len(units) if units[0].startswith("-") else len(units)
                use = Use(self.uuid_of(provider), resource_class, int(amount or count), names)
                uses.append(use)
            else:
                uses += [Use(self.uuid_of(provider), *amount) for amount in _amounts(amounts)]
        return tuple(uses)

    def _definitions(self, step: Statement) -> list[DefinitionChanges]:
        """Return the differences between the stored trees and those of a step."""
        if step.word == "undefine":
            return [kit.removal_of(self.backend, step.argument)]
        if step.word == "send":
            return [self.prepared[step.argument]]
        if step.word == "move":
            update = kit.updated(self.backend, step.subject, parent_uuid=self.uuid_of(step.value))
            return [DefinitionChanges(step.subject, updates=(update,))]
        names = step.subject.split(", ")
        roots = (self._provider(name, step.value, step.below) for name in names)
        changes = [kit.changes_to(self.backend, root) for root in roots]
        for part in changes:
            written = (*part.creates, *(update.definition for update in part.updates))
            self.uuids.update({provider.name: provider.uuid for provider in written})
        return changes

    def _provider(self, name: str, content: str, below: list[Statement]) -> Provider:
        inventories, *attributes = (part.strip() for part in content.split(";"))
        fields: dict[str, Any] = {"shares": []}
        devices = None
        for attribute in attributes:
            word, *values = attribute.split()
            if word == "shares":
                fields["shares"].append(_share(attribute))
            elif word == "was":
                fields["uuid"] = self.uuid_of(values[0])
            elif word == "new":
                fields["uuid"] = str(uuids.uuid4())
            elif word == "card":
                removed = [DeviceUse(unit, "allocated", gone=True) for unit in values]
                devices = PCIInventory(kit.card(1), usage=removed)
            else:
                fields[word] = values
        children = [self._provider(child.word, child.argument, child.below) for child in below]
        provider = Provider(name, Inventories(inventories or {}), children=children, **fields)
        if devices is not None:
            provider.add_parts(kit.DEVICES, devices)
        return provider

    def _repeat(self, statement: Statement) -> None:
        assert self.last is not None, "nothing to repeat"
        self._commit(self.last)

    def _prepare(self, statement: Statement) -> None:
        [self.prepared[statement.argument]] = self._definitions(statement.below[0])

    def _note(self, statement: Statement) -> None:
        provider = kit.ledger_state(self.backend).providers[statement.value]
        self.noted[statement.subject] = provider.generation

    def _note_consumers(self, steps: list[Statement]) -> None:
        names = {step.options["note"]: step.subject for step in steps if "note" in step.options}
        records = self.backend.held_by(names.values())
        self.noted.update({name: records[names[name]].generation for name in names})
        self.uuids.update({name: records[names[name]].uuid for name in names})

    # --- statements on the state ---

    def _mark(self, statement: Statement) -> None:
        self.marked = kit.ledger_state(self.backend)

    def _check_marked(self, statement: Statement) -> None:
        assert kit.ledger_state(self.backend) == self.marked

    def _check_facts(self, statement: Statement) -> None:
        has_subject = statement.argument != statement.subject
        expected = statement.value.split() if has_subject else _items(statement)
        stored = sorted(_FACTS[statement.word](self.backend, statement.subject))
        if statement.word in ("used", "capacity", "total"):  # of some inventories
            stored = [item for item in stored if item in expected]
        assert stored == sorted(expected)

    def _check_allocations(self, statement: Statement) -> None:
        state = kit.ledger_state(self.backend)
        lines = [line.text for line in statement.below] or [statement.argument]
        consumers = set()
        for line in lines:
            consumer, _, text = line.partition(": ")
            consumers.add(consumer)
            record = self.backend.consumer(consumer)
            uses = () if record is None else record.held
            assert (record is None) == (text == "none")
            expected = () if text == "none" else self._uses(text)
            assert {use.key: use.amount for use in uses} == {u.key: u.amount for u in expected}
            listed = {(use.provider, use.resource_class): use.amount for use in uses}
            assert listed == state.holds(consumer)
        if statement.below:
            assert consumers == {consumer for consumer, _, _ in state.allocations}

    def _check_record(self, statement: Statement) -> None:
        record = self.backend.consumer(statement.argument)
        assert record is not None
        names = ("state", "expires_at", "request", "project", "user", "consumer_type", "group")
        stored = {name: getattr(record, name) for name in names}
        assert stored == {**dict.fromkeys(names), "state": HELD, **self._fields(statement)}

    def _entry_text(self, entry: FeedEntry) -> str:
        """Return the text of an entry of the feed, with the current names of providers."""
        names = {uuid: name for name, uuid in self.uuids.items()}

        def providers(changed: Iterable[str]) -> str:
            return " ".join(sorted(names[uuid] for uuid in changed))

        uses = []
        for use in sorted(entry.uses, key=lambda use: (use.consumer, use.key[1])):
            units = [
                *(f"+{unit}" for unit in use.allocated_units),
                *(f"-{unit}" for unit in use.released_units),
            ]
            change = f"{use.key[1]} at {names[use.key[0]]} {use.before} to {use.after}"
            uses.append(" ".join([use.consumer, change, *units]))
        parts = {
            "definitions": providers(entry.definitions),
            "reports": providers(entry.reports),
            "disabled": providers(change.provider_uuid for change in entry.disabled),
            "consumers": " ".join(sorted(entry.claims)),
            "uses": ", ".join(uses),
            "overrides": providers(entry.overrides),
        }
        return "; ".join(f"{name} {text}" for name, text in parts.items() if text) or "nothing"


def _items(statement: Statement) -> list[str]:
    """Return the parts of a statement without a subject, and the lines below it."""
    return [*_parts(statement.argument), *(line.text for line in statement.below)]


# --- facts about a ledger ---


def _of_provider(attribute: str) -> Callable[[Backend, str], Iterable[str]]:
    return lambda backend, name: getattr(kit.ledger_state(backend).providers[name], attribute)


def _figures(attribute: str) -> Callable[[Backend, str], Iterable[str]]:
    return lambda backend, _: [
        f"{name} {resource_class} {getattr(record, attribute)}"
        for name, provider in kit.ledger_state(backend).providers.items()
        for resource_class, record in provider.inventories.items()
    ]


def _counters(attribute: str) -> Callable[[Backend, str], Iterable[str]]:
    return lambda backend, _: [
        f"{provider.name} {getattr(provider, attribute)}"
        for provider in backend.list_providers(ProviderFilter(), 100)
    ]


def _units(backend: Backend, _: str) -> Iterable[str]:
    stored = kit.ledger_state(backend).units.items()
    return [f"{at} {unit}: {kind} of {consumer}" for (at, unit), (kind, consumer) in stored]


def _custom_names(backend: Backend, kind: str) -> Iterable[str]:
    names = kit.names_of(backend, _NAME_KINDS[kind])
    return [name for name in names if kind == "aggregate" or name.startswith("CUSTOM_")]


def _levels(backend: Backend, _: str) -> Iterable[str]:
    listed = backend.list_names(NameKind.AGGREGATE, 100)
    return [f"{aggregate.name}={aggregate.level or ''}" for aggregate in listed]


def _with_free(backend: Backend, amounts: str) -> Iterable[str]:
    listed = backend.list_providers(ProviderFilter(room=tuple(_amounts(amounts))), 100)
    return [provider.name for provider in listed]


#: ``{first word of a statement: what returns the stored items}``
_FACTS: dict[str, Callable[[Backend, str], Iterable[str]]] = {
    "traits": _of_provider("traits"),
    "aggregates": _of_provider("aggregates"),
    "inventories": _of_provider("inventories"),
    "parent": lambda backend, name: [str(kit.ledger_state(backend).providers[name].parent)],
    "root": lambda backend, name: [kit.ledger_state(backend).providers[name].root],
    "providers": lambda backend, _: kit.ledger_state(backend).providers,
    **{figure: _figures(figure) for figure in ("used", "capacity", "total")},
    "allocation_writes": _counters("allocation_writes"),
    "definition_writes": _counters("definition_writes"),
    "units": _units,
    "names": _custom_names,
    "levels": _levels,
    "members": lambda backend, name: backend.list_server_groups(1, names=[name])[0].members,
    "with_free": _with_free,
}


def _check_identity(earlier: ConsumerRecord, record: ConsumerRecord) -> None:
    """Check that a written consumer is the same claim as before, with another generation."""
    if record.state == RELEASED:
        released = dataclasses.replace(earlier, state=RELEASED, generation=record.generation)
        assert kit.sorted_record(record) == kit.sorted_record(released)
    else:
        assert (record.uuid, record.created_at) == (earlier.uuid, earlier.created_at)
        assert record.generation != earlier.generation


def _amounts(text: str) -> list[tuple[str, int]]:
    pairs = (part.split("=") for part in text.split(","))
    return [(name, int(amount)) for name, amount in pairs]


def _share(text: str) -> Share:
    match = re.fullmatch(r"shares (\S+) of (\S+?)(?: (?!times)(\S+))?(?: times (\d+))?", text)
    assert match is not None, text
    name, of, of_class, factor = match.groups()
    return kit.share(name, of, of_class, int(factor or 1))


def _server_group(step: Statement) -> ServerGroup | None:
    if not step.value:
        return None
    policy, *maximum = step.value.split()
    return ServerGroup(step.subject, policy, max_per_host=int(maximum[0]) if maximum else 1)


def _reason_text(reason: Reason, full: bool) -> str:
    """Return a reason as ``because`` writes it: the rule alone, or with its figures."""
    rule = reason.rule.value
    if not full:
        return rule
    if reason.rule is Rule.SERVER_GROUP:
        members = " ".join(name for name, _ in reason.holders)
        return f"{rule} {reason.group} at {reason.where}: {members}"
    unit = f" unit {reason.unit}" if reason.unit else ""
    if reason.rule is Rule.DISABLED:
        return f"{rule} at {reason.where}{unit}"
    figures = f"{reason.requested}, {reason.used} of {reason.bound} used"
    consumers = "".join(f", {name} {amount}" for name, amount in reason.holders)
    return f"{rule} of {reason.resource} at {reason.where}{unit}: {figures}{consumers}"
