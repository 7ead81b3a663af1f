"""Writes to a ledger in memory: names, shares, units, the feed; a refusal changes nothing."""

from __future__ import annotations

import copy
import dataclasses
import datetime
from collections.abc import Iterator
from typing import Any

import pytest

from resource_objects import exceptions
from resource_objects.backends.memory import URL, MemoryBackend
from resource_objects.providers import Provider
from resource_objects.providers.definition import (
    DefinitionChanges,
)
from resource_objects.providers.feed import Cursor
from resource_objects.providers.listing import ProviderFilter, Pruned
from resource_objects.providers.orders import (
    ConsumerOrder,
    NameAction,
    NameChange,
    NameKind,
    Operation,
    Use,
    Write,
)
from resource_objects.providers.provider import Share
from resource_objects.resources import Inventories
from resource_objects.store.tables import Index, Table, UniqueIndex
from resource_objects.testing.conformance.suite import (
    changes_to,
    claim,
    define,
    deltas,
    ledger_state,
    release,
    stored_tree,
    updated,
)
from resource_objects.testing.refusals import raises_code

CLASS, TRAIT, AGGREGATE = NameKind.RESOURCE_CLASS, NameKind.TRAIT, NameKind.AGGREGATE
VCPU, DISK, SLOT = "VCPU", "DISK_GB", "CUSTOM_SLOT"


@pytest.fixture
def backend() -> Iterator[MemoryBackend]:
    backend = MemoryBackend.open(URL)
    yield backend
    backend.close()


def sharing(name: str = "host", factor: int = 1, total: int = 8) -> Provider:
    """Return a host with a cell whose slots are also the host's."""
    host = Provider(name, f"CUSTOM_SLOT={total}", traits=["CUSTOM_T"], aggregates=["rack"])
    share = Share(resource_class=SLOT, of=name, of_class=SLOT, factor=factor)
    host.add(f"{name}/cell", "CUSTOM_SLOT=8", shares=[share])
    return host


def names(backend: MemoryBackend, *changes: NameChange) -> None:
    backend.commit(Write(Operation(), "names", "names", names=changes))


def everything(backend: MemoryBackend) -> Any:
    """Return a copy of all rows, and of the indexes of them."""
    backend.cursor()  # finishes what an interrupt stopped
    return {
        name: copy.deepcopy(
            part.rows
            if isinstance(part, Table)
            else part.keys
            if isinstance(part, Index)
            else part.key
        )
        for name, part in vars(backend._rows).items()
        if isinstance(part, Table | Index | UniqueIndex)
    }


def writes(backend: MemoryBackend, name: str) -> int:
    [row] = backend.list_providers(ProviderFilter(names=frozenset([name])), 1)
    return row.allocation_writes


# --- names ---


@pytest.mark.parametrize("kind", NameKind)
def test_a_custom_name_is_made_renamed_and_removed(backend: MemoryBackend, kind: NameKind) -> None:
    before = backend.list_names(kind, 10_000)
    names(backend, *[NameChange(kind, NameAction.ENSURE, "CUSTOM_A")] * 2)
    [made] = set(backend.list_names(kind, 10_000)) - set(before)
    names(backend, NameChange(kind, NameAction.RENAME, "CUSTOM_A", "CUSTOM_B"))
    [renamed] = set(backend.list_names(kind, 10_000)) - set(before)
    assert (made.name, renamed.name, renamed.number) == ("CUSTOM_A", "CUSTOM_B", made.number)
    names(backend, NameChange(kind, NameAction.DELETE, "CUSTOM_B"))
    assert backend.list_names(kind, 10_000) == before


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (NameChange(CLASS, NameAction.DELETE, VCPU), "StandardName"),
        (NameChange(CLASS, NameAction.RENAME, VCPU, "CUSTOM_A"), "StandardName"),
        (NameChange(TRAIT, NameAction.DELETE, "HW_CPU_X86_AVX2"), "StandardName"),
        (NameChange(CLASS, NameAction.DELETE, "CUSTOM_NO"), "ClassNotFound"),
        (NameChange(TRAIT, NameAction.RENAME, "CUSTOM_NO", "CUSTOM_A"), "TraitNotFound"),
        (NameChange(AGGREGATE, NameAction.SET_LEVEL, "no", "x"), "AggregateNotFound"),
        (NameChange(CLASS, NameAction.SET_LEVEL, SLOT, "x"), "InvalidField"),
        (NameChange(CLASS, NameAction.DELETE, SLOT), "ClassInUse"),
        (NameChange(TRAIT, NameAction.DELETE, "CUSTOM_T"), "TraitInUse"),
        (NameChange(AGGREGATE, NameAction.DELETE, "rack"), "AggregateInUse"),
        (NameChange(CLASS, NameAction.RENAME, SLOT, VCPU), "NameExists"),
        (NameChange(CLASS, NameAction.RENAME, SLOT, "SLOT"), "UnknownResourceClass"),
        (NameChange(CLASS, NameAction.ENSURE, "SLOT"), "UnknownResourceClass"),
        (NameChange(CLASS, NameAction.ENSURE, "CUSTOM_"), "InvalidResourceClass"),
        (NameChange(TRAIT, NameAction.ENSURE, "FAST"), "UnknownTrait"),
        (NameChange(TRAIT, NameAction.RENAME, "CUSTOM_T", "fast"), "InvalidTrait"),
        (NameChange(AGGREGATE, NameAction.RENAME, "rack", " "), "InvalidName"),
    ],
)
def test_a_name_that_cannot_be_changed_is_left_with_all_else_of_the_write(
    backend: MemoryBackend, change: NameChange, error: type[Exception]
) -> None:
    define(backend, sharing())
    before = everything(backend)
    with raises_code(error):
        names(backend, NameChange(AGGREGATE, NameAction.ENSURE, "other"), change)
    assert everything(backend) == before


def test_an_aggregate_keeps_its_level_when_it_is_renamed(backend: MemoryBackend) -> None:
    define(backend, sharing())
    before = stored_tree(backend, "host").generation
    names(
        backend,
        NameChange(AGGREGATE, NameAction.SET_LEVEL, "rack", "room"),
        NameChange(AGGREGATE, NameAction.RENAME, "rack", "row-1"),
        NameChange(TRAIT, NameAction.RENAME, "CUSTOM_T", "CUSTOM_U"),
    )
    [listed] = backend.list_names(AGGREGATE, 10)
    assert (listed.name, listed.level) == ("row-1", "room")
    host = stored_tree(backend, "host")
    assert host.aggregates == frozenset({"row-1"}) and host.traits == {"CUSTOM_U"}
    assert host.generation == (before or 0) + 1  # one write, one step


def test_a_renamed_class_is_renamed_wherever_something_is_counted_in_it(
    backend: MemoryBackend,
) -> None:
    uuids = define(backend, sharing(), Provider("other", "CUSTOM_SLOT=1,VCPU=1"))
    delta = Use(uuids["host/cell"], SLOT, 2, ("s1", "s2"))
    backend.claim(Operation(), ConsumerOrder.claim("job", (delta, Use(uuids["other"], VCPU, 1))))
    before = ledger_state(backend)
    names(backend, NameChange(CLASS, NameAction.RENAME, SLOT, "CUSTOM_BAY"))
    found = ledger_state(backend)  # which checks that what is used is what is held
    assert found.used("host", "CUSTOM_BAY") == found.used("host/cell", "CUSTOM_BAY") == 2
    assert found.providers["host/cell"].shares == {("CUSTOM_BAY", "host", "CUSTOM_BAY"): 1}
    assert found.units[("host/cell", "s1")] == ("CUSTOM_BAY", "job")
    held = backend.held("job")
    assert held is not None and {h.resource_class for h in held.held} == {"CUSTOM_BAY", VCPU}
    names(backend, NameChange(CLASS, NameAction.RENAME, "CUSTOM_BAY", SLOT))
    again = ledger_state(backend)
    providers = {
        name: dataclasses.replace(one, generation=before.providers[name].generation)
        for name, one in again.providers.items()
    }
    assert dataclasses.replace(again, providers=providers) == before
    generations = [
        {one.generation for one in told.providers.values()} for told in (before, found, again)
    ]
    assert generations[0].isdisjoint(generations[1]) and len(generations[1]) == 1
    assert generations[2].isdisjoint(generations[0] | generations[1])
    release(backend, "job")
    assert ledger_state(backend).used("host", SLOT) == 0


def test_names_are_made_when_a_definition_first_says_them(backend: MemoryBackend) -> None:
    define(backend, sharing())
    for kind, name in ((CLASS, SLOT), (TRAIT, "CUSTOM_T"), (AGGREGATE, "rack")):
        assert name in [listed.name for listed in backend.list_names(kind, 10_000)]


def test_a_level_is_a_label(backend: MemoryBackend) -> None:
    define(backend, sharing())
    with raises_code("InvalidName"):
        names(backend, NameChange(AGGREGATE, NameAction.SET_LEVEL, "rack", " room"))
    names(backend, NameChange(AGGREGATE, NameAction.SET_LEVEL, "rack", "room"))
    names(backend, NameChange(AGGREGATE, NameAction.RENAME, "rack", "rack"))
    names(backend, NameChange(AGGREGATE, NameAction.SET_LEVEL, "rack", None))
    assert [listed.level for listed in backend.list_names(AGGREGATE, 10)] == [None]


def test_what_was_renamed_since_is_not_taken_away(backend: MemoryBackend) -> None:
    define(backend, sharing())
    host = stored_tree(backend, "host")
    host.update(traits=[])
    changes = changes_to(backend, host)
    names(backend, NameChange(TRAIT, NameAction.RENAME, "CUSTOM_T", "CUSTOM_U"))
    with raises_code("StaleDefinition", match=r"read at generation \d+, now \d+"):
        backend.define(Operation(), changes)
    names(backend, NameChange(TRAIT, NameAction.RENAME, "CUSTOM_U", "CUSTOM_T"))
    host = stored_tree(backend, "host")
    host.update(traits=[])
    changes = changes_to(backend, host)
    again = NameChange(TRAIT, NameAction.RENAME, "CUSTOM_T", "CUSTOM_U")
    write = Write(Operation(), "names", "host", changes, names=(again,))
    with raises_code("StaleDefinition", match="CUSTOM_T does not exist"):
        backend.commit(write)


# --- shares ---


def test_what_is_used_follows_shares_that_change_while_something_is_allocated(
    backend: MemoryBackend,
) -> None:
    uuids = define(backend, sharing(factor=3))
    claim(backend, "job", {uuids["host/cell"]: "CUSTOM_SLOT=2", uuids["host"]: "CUSTOM_SLOT=1"})
    assert ledger_state(backend).used("host", SLOT) == 7
    host = stored_tree(backend, "host")
    host.find("host/cell").update(shares=[])
    define(backend, host)
    assert ledger_state(backend).used("host", SLOT) == 1
    define(backend, sharing(factor=5))
    assert ledger_state(backend).used("host", SLOT) == 11
    release(backend, "job")
    assert ledger_state(backend).used("host", SLOT) == 0


def test_a_refusal_names_who_draws_through_shares(backend: MemoryBackend) -> None:
    uuids = define(backend, sharing(factor=3))
    claim(backend, "job", {uuids["host/cell"]: "CUSTOM_SLOT=2", uuids["host"]: "CUSTOM_SLOT=1"})
    with pytest.raises(exceptions.CapacityException) as refusal:
        claim(backend, "more", {uuids["host/cell"]: "CUSTOM_SLOT=1"})
    [reason] = refusal.value.reasons
    assert (reason.where, reason.requested, reason.used) == ("host", 3, 7)
    assert reason.holders == (("job", 7),)


def test_what_is_used_through_shares_cannot_go(backend: MemoryBackend) -> None:
    uuids = define(backend, sharing())
    claim(backend, "job", {uuids["host/cell"]: "CUSTOM_SLOT=2"})
    host = stored_tree(backend, "host")
    host.find("host/cell").update(shares=[])
    host.update(inventories=Inventories("VCPU=1"))
    changes = changes_to(backend, host)
    kept_shares = DefinitionChanges("host", updates=tuple(u for u in changes.updates if u.removed))
    before = everything(backend)
    with raises_code("InventoryInUse"):
        backend.define(Operation(), kept_shares)
    assert everything(backend) == before
    backend.define(Operation(), changes)  # without the share nothing uses it
    assert ledger_state(backend).providers["host"].inventories.keys() == {VCPU}


def test_what_somebody_shares_cannot_go_unless_the_share_does(backend: MemoryBackend) -> None:
    define(backend, sharing())
    host = stored_tree(backend, "host")
    host.find("host/cell").update(shares=[])
    host.update(inventories=Inventories("VCPU=1"))
    updates = tuple(u for u in changes_to(backend, host).updates if u.removed)
    with raises_code("InventoryInUse", match="host"):
        backend.define(Operation(), DefinitionChanges("host", updates=updates))
    backend.define(Operation(), changes_to(backend, host))
    assert ledger_state(backend).providers["host"].inventories.keys() == {VCPU}


def test_shares_of_more_than_can_be_counted_are_refused(backend: MemoryBackend) -> None:
    uuids = define(backend, sharing())
    host = stored_tree(backend, "host")
    host.find("host/cell").update(
        inventories=Inventories(f"CUSTOM_SLOT={10**9}:allocation_ratio=4000")
    )
    host.find("host/cell").update(shares=[])
    define(backend, host)
    claim(backend, "job", {uuids["host/cell"]: f"CUSTOM_SLOT={10**12}"})
    host = stored_tree(backend, "host")
    share = Share(resource_class=SLOT, of="host", of_class=SLOT, factor=10**9)
    host.find("host/cell").update(shares=[share])
    with raises_code("InvalidAmount", match="used"):
        define(backend, host)


def test_a_share_of_what_is_not_there_is_refused(backend: MemoryBackend) -> None:
    changes = changes_to(backend, sharing())
    [host, cell] = changes.creates
    for wrong in (
        DefinitionChanges("host", (type(host)(host.uuid, "host", None, (), frozenset()), cell)),
        DefinitionChanges("host", (host, _without_inventories(cell))),
    ):
        with raises_code("StaleDefinition", match="CUSTOM_SLOT does not exist"):
            backend.define(Operation(), wrong)
    assert not backend.read().providers.name


def _without_inventories(definition: Any) -> Any:
    return type(definition)(
        definition.uuid,
        definition.name,
        definition.parent_uuid,
        (),
        frozenset(),
        shares=definition.shares,
    )


# --- orders ---


def test_units_pass_from_one_consumer_to_another_in_one_write(backend: MemoryBackend) -> None:
    uuids = define(backend, Provider("host", "CUSTOM_SLOT=2"))
    uuid = uuids["host"]
    for consumer, unit in (("a", "s0"), ("b", "s1")):
        order = ConsumerOrder.claim(consumer, (Use(uuid, SLOT, 1, (unit,)),))
        backend.claim(Operation(), order)
    swap = (
        ConsumerOrder.replace("a", (Use(uuid, SLOT, 1, ("s1",)),)),
        ConsumerOrder.replace("b", (Use(uuid, SLOT, 1, ("s0",)),)),
    )
    backend.commit(Write(Operation(), "swap", "a and b", orders=swap))
    assert ledger_state(backend).units == {("host", "s0"): (SLOT, "b"), ("host", "s1"): (SLOT, "a")}
    before = everything(backend)
    with raises_code("UnitTaken"):
        taking = ConsumerOrder.replace("a", (Use(uuid, SLOT, 1, ("s0",)),))
        backend.commit(Write(Operation(), "replace", "a", orders=(taking,)))
    assert everything(backend) == before
    release(backend, "a")
    assert ledger_state(backend).units == {("host", "s0"): (SLOT, "b")}
    backend.adjust(Operation(), ConsumerOrder.adjust("b", (Use(uuid, SLOT, -1),)))
    assert ledger_state(backend).units == {} and backend.held("b") is None


def test_the_id_of_a_claim_is_one_claims(backend: MemoryBackend) -> None:
    uuids = define(backend, Provider("host", "CUSTOM_SLOT=8"))
    order = ConsumerOrder.claim("a", (Use(uuids["host"], SLOT, 1),), uuid=uuids["host"])
    again = ConsumerOrder.claim("b", order.uses, uuid=order.uuid)
    backend.claim(Operation(), order)
    with raises_code("OperationConflict", match=order.uuid):
        backend.claim(Operation(), again)
    backend.commit(
        Write(Operation(), "pass", "a and b", orders=(again, ConsumerOrder.release("a")))
    )
    assert backend.held("a") is None and backend.held("b") is not None


def test_a_renewal_keeps_what_is_held_and_raises_the_generation(backend: MemoryBackend) -> None:
    uuids = define(backend, Provider("host", "CUSTOM_SLOT=2"))
    before = claim(backend, "job", {uuids["host"]: "CUSTOM_SLOT=1"})
    cursor, counted = backend.cursor(), writes(backend, "host")
    [after] = backend.commit(
        Write(
            Operation(), "confirm", "job", orders=(ConsumerOrder.renew("job", None, "confirmed"),)
        )
    )
    assert (after.held, after.state) == (before.held, "confirmed")
    assert after.generation > before.generation and backend.held("job") == after
    [change] = backend.changes(cursor, 10)
    assert (change.providers, change.consumers) == ((), ("job",))
    assert writes(backend, "host") == counted


def test_writes_of_allocations_count_once_at_each_provider(backend: MemoryBackend) -> None:
    uuids = define(backend, sharing(), Provider("other", "VCPU=4,DISK_GB=4"))
    claim(backend, "a", {uuids["host/cell"]: "CUSTOM_SLOT=1", uuids["other"]: "VCPU=1,DISK_GB=1"})
    assert [writes(backend, name) for name in ("host", "host/cell", "other")] == [1, 1, 1]
    swap = (
        ConsumerOrder.release("a"),
        ConsumerOrder.claim("b", (Use(uuids["other"], VCPU, 1), Use(uuids["other"], DISK, 1))),
    )
    backend.commit(Write(Operation(), "pass", "a and b", orders=swap))
    assert [writes(backend, name) for name in ("host", "host/cell", "other")] == [1, 1, 2]
    release(backend, "b")
    other = stored_tree(backend, "other")
    other.update(inventories=Inventories("VCPU=4"))
    define(backend, other)
    assert writes(backend, "other") == 2  # also those of the inventory that is gone


def test_inventories_and_providers_go_after_the_orders(backend: MemoryBackend) -> None:
    uuids = define(backend, sharing(), Provider("new", "VCPU=1"))
    claim(backend, "job", {uuids["host/cell"]: "CUSTOM_SLOT=2"})
    host = stored_tree(backend, "host")
    host.update(children=[])
    changes = changes_to(backend, host)
    with raises_code("ProviderInUse", match="host/cell"):
        backend.define(Operation(), changes)
    move = ConsumerOrder.replace("job", deltas({uuids["host"]: "CUSTOM_SLOT=2"}))
    backend.commit(Write(Operation(), "reshape", "host", changes, (move,)))
    found = ledger_state(backend)
    assert found.providers.keys() == {"host", "new"} and found.used("host", SLOT) == 2
    assert backend.uuids(["host/cell"]) == {}


def test_a_decision_on_a_definition_that_changed_is_refused(backend: MemoryBackend) -> None:
    uuids = define(backend, sharing())
    orders = (ConsumerOrder.claim("job", deltas({uuids["host"]: "CUSTOM_SLOT=2"})),)
    before, at = everything(backend), stored_tree(backend, "host").generation or 0
    for unchanged in ((uuids["host"], at + 1), ("nobody", 0)):
        with raises_code("StaleDefinition"):
            write = Write(Operation(), "claim", "job", orders=orders, unchanged=(unchanged,))
            backend.commit(write)
    with raises_code("ProviderNotFound"):
        backend.commit(Write(Operation(), "claim", "job", orders=orders, reported=("nobody",)))
    assert everything(backend) == before
    write = Write(Operation(), "c", "job", orders=orders, unchanged=((uuids["host"], at),))
    assert backend.commit(write) == backend.commit(write) == (backend.held("job"),)


# --- the feed and its end ---


def moved(backend: MemoryBackend, name: str, to: str | None) -> DefinitionChanges:
    """Return the change that moves a provider, and nothing else."""
    return DefinitionChanges(name, updates=(updated(backend, name, parent_uuid=to),))


def test_what_moves_is_told_in_both_trees_with_all_below_it(backend: MemoryBackend) -> None:
    uuids = define(backend, sharing("one"), Provider("two", "VCPU=1"))
    before = backend.cursor()
    backend.define(Operation(), moved(backend, "one", uuids["two"]))
    told = backend.changes(before, 10)
    assert len({change.shard for change in told}) == 2
    assert {change.providers for change in told} == {
        tuple(sorted((uuids["one"], uuids["one/cell"])))
    }
    assert {one.root for one in ledger_state(backend).providers.values()} == {"two"}


def test_a_sharer_does_not_move_away_from_what_it_shares(backend: MemoryBackend) -> None:
    uuids = define(backend, sharing("one"), Provider("two", "VCPU=1"))
    before = everything(backend)
    for to in (uuids["two"], None):
        with raises_code("StaleDefinition", match=r"one/cell.*the same tree"):
            backend.define(Operation(), moved(backend, "one/cell", to))
    assert everything(backend) == before


def test_changes_are_told_in_the_order_of_time_a_page_at_a_time(backend: MemoryBackend) -> None:
    start = backend.cursor()
    uuids = define(backend, *(Provider(f"host{number}", "VCPU=8") for number in range(70)))
    jobs = [f"job-{number}" for number in (3, 1, 67, 2)]  # hosts 3 and 67 are of one shard
    for job in jobs:
        claim(backend, job, {uuids[f"host{job[4:]}"]: "VCPU=1"})
    found: list[str] = []
    cursor = start
    while page := backend.changes(cursor, 7):
        assert len(page) <= 7
        found += [change.subject for change in page]
        cursor = cursor.moved(page)
    assert found == [f"host{number}" for number in range(70)] + jobs
    assert cursor == backend.cursor()


def test_pruning_keeps_the_last_operation_of_a_shard_and_expires_cursors(
    backend: MemoryBackend,
) -> None:
    start = backend.cursor()
    uuids = define(backend, sharing())
    first, second, last = Operation(), Operation(), Operation()
    order = ConsumerOrder.claim("job", deltas({uuids["host"]: "CUSTOM_SLOT=2"}))
    record = backend.claim(first, order)
    backend.claim(second, ConsumerOrder.claim("gone", order.uses))
    backend.release(last, "gone")
    end = backend.cursor()
    [*_, change] = told = backend.changes(start, 10)
    assert backend.prune(datetime.datetime.min.replace(tzinfo=datetime.UTC)) == Pruned(0, 0)
    assert backend.claim(first, order) == record
    assert backend.prune(change.at) == Pruned(operations=3, changes=3)
    assert backend.outcome(first) is None and backend.outcome(second) is None
    with raises_code("CursorExpired"):
        backend.changes(start, 10)
    later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=1)
    assert backend.prune(later) == Pruned(0, 0)  # the last one tells which history it is
    assert backend.outcome(last) is not None
    assert backend.held_by(["job"]) == {"job": record}
    assert backend.cursor() == end and backend.changes(end, 10) == ()
    assert backend.changes(Cursor(start.moved(told[:-1]).heads), 10) == (change,)
    ahead = Cursor(tuple(head + 1 for head in end.heads))
    with raises_code("CursorExpired"):
        backend.changes(ahead, 10)


def test_trees_are_read_without_their_allocations_when_asked(backend: MemoryBackend) -> None:
    uuids = define(backend, sharing(), Provider("other", "VCPU=4"))
    order = ConsumerOrder.claim("job", (Use(uuids["host/cell"], SLOT, 1, ("s1",)),))
    backend.claim(Operation(), order)
    full = backend.read(uuids["host/cell"], "host")
    assert list(full.providers.name) == ["host", "host/cell"]
    assert list(full.allocations.consumer) == list(full.units.consumer) == ["job"]
    bare = backend.read("host", "nobody", allocations=False)
    assert not bare.allocations.consumer and not bare.units.unit
    assert bare.inventories == full.inventories and bare.shares == full.shares
    assert full.cursor == bare.cursor == backend.cursor()
    assert backend.read("nobody").providers.name == ()
