"""A snapshot is kept fresh: it shows all that was written, and is as one that is read anew."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from pathlib import Path

import hypothesis
import hypothesis.stateful
import pytest

import resource_objects as ro
from resource_objects.backends.memory import MemoryBackend
from resource_objects.backends.sql.backend import SQLBackend
from resource_objects.providers import Backend
from resource_objects.search import Snapshot
from resource_objects.search.demands import view_of
from resource_objects.search.equivalence import equivalence
from resource_objects.testing.conformance.scenarios import run
from tests import databases
from tests.ledger import refresh_machine as machines
from tests.ledger.fleet_pictures import picture_of
from tests.support.lengths import examples, some

_SETTINGS = hypothesis.settings(
    max_examples=examples(20),
    stateful_step_count=25,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)

Opened = Callable[[], tuple[ro.Ledger, ro.Ledger]]


def _pair(backend: Backend) -> tuple[ro.Ledger, ro.Ledger]:
    return ro.Ledger(backend), ro.Ledger(backend)


# --- any sequence of writes -----------------------------------------------------------------------


@pytest.mark.law(1, 11)
@pytest.mark.drawn
def test_any_writes_in_memory() -> None:
    machine = machines.refresh_machine(lambda: _pair(MemoryBackend()))
    hypothesis.stateful.run_state_machine_as_test(machine, settings=_SETTINGS)


@pytest.mark.law(1, 11)
@pytest.mark.drawn
def test_any_writes_by_two_connections(tmp_path: Path) -> None:
    numbers = itertools.count()

    def opened() -> tuple[ro.Ledger, ro.Ledger]:
        url = f"sqlite:///{tmp_path}/{next(numbers)}.db"
        return ro.connect(url), ro.connect(url)

    machine = machines.refresh_machine(opened)
    hypothesis.stateful.run_state_machine_as_test(machine, settings=_SETTINGS)


def _walk(opened: Opened, seed: int, steps: int) -> set[str]:
    """Take random steps; return the ways in which snapshots came to be."""
    draw = random.Random(seed)
    pick = draw.choice
    machine = machines.refresh_machine(opened)()
    machine.begin([pick(machines.SHAPES) for _ in machines.HOSTS])

    def which() -> int:
        return draw.randrange(31)

    definitions: list[Callable[[], None]] = [
        lambda: machine.sync(pick(machines.HOSTS), pick(machines.SHAPES), which() % 4),
        lambda: machine.remove(which(), pick(machines.SHAPES), pick(["go", "again"])),
        lambda: machine.rename(which(), pick(["c", "zz", *machines.HOSTS])),
        lambda: machine.reparent(which(), which(), pick([True, False, False])),
        lambda: machine.set_traits(which(), {pick(machines.TRAITS)}),
        lambda: machine.set_aggregates(which(), {pick(machines.AGGREGATES)}),
        lambda: machine.share(which(), which(), pick(machines.AGGREGATES)),
        lambda: machine.set_inventories(which(), 1 + which() % 9),
        lambda: machine.rename_something(pick(machines.RENAMED), pick(machines.TRAITS)),
        machine.look,
    ]
    for _ in range(steps):
        for _ in range(draw.randrange(4)):
            use = (pick(machines.USES), pick(machines.CONSUMERS), which(), which())
            machine.use_and_look([use])
        pick(definitions)()
    machine.teardown()
    return machine.ways


@pytest.mark.drawn
@pytest.mark.law(1, 11)
@pytest.mark.parametrize("seed", some(range(2)))
def test_a_long_walk_on_a_database(
    prepared_database: Callable[[databases.Prepare], str], seed: int
) -> None:
    url = prepared_database(SQLBackend.upgrade_database)
    ways = _walk(lambda: (ro.connect(url), ro.connect(url)), seed, examples(200))
    assert ways == {"read", "patched", "replaced"}


# --- how a snapshot came to be --------------------------------------------------------------------


@pytest.fixture
def lab(ledger: ro.Ledger) -> ro.Ledger:
    """A ledger with three hosts, each with a GPU."""
    for number in range(3):
        host = ro.Provider(f"host{number}", "VCPU=8,MEMORY_MB=1024")
        host.add(f"host{number}/gpu", "PGPU=1", traits=["CUSTOM_A"])
        ledger.sync(host)
    return ledger


def _told(snapshot: Snapshot) -> tuple[int, int, str]:
    return snapshot.refreshed.changes, snapshot.refreshed.trees, snapshot.refreshed.way


def test_nothing_new_is_the_same_snapshot(lab: ro.Ledger) -> None:
    first = lab.snapshot()
    assert _told(first) == (0, 3, "read")
    assert lab.snapshot() is first
    lab.claim("job", {"host0": "VCPU=1"})
    assert lab.snapshot() is not first
    assert lab.snapshot() is lab.snapshot()


def test_what_was_used_is_patched(lab: ro.Ledger) -> None:
    first = lab.snapshot()
    assert first.candidates("PGPU=1") and equivalence(first._fleet) and len(first._fleet.roots) == 3
    lab.claim("job-1", {"host0": "VCPU=1", "host1/gpu": "PGPU=1"})
    lab.claim("job-2", {"host0": "VCPU=2"})
    second = lab.snapshot()
    assert _told(second) == (len(lab.feed.changes(first.cursor)), 2, "patched")
    assert not second.refreshed.is_full
    assert (first.used("VCPU"), second.used("VCPU"), second.free("PGPU")) == (0, 3, 2)
    # of what nobody can have changed there is one copy
    for name in ("names", "parent", "traits", "shares", "pools", "roots"):
        assert getattr(first._fleet, name) is getattr(second._fleet, name)
    assert first._fleet.inventories.capacity is second._fleet.inventories.capacity


def test_a_definition_that_changed_is_replaced(lab: ro.Ledger) -> None:
    lab.snapshot()
    lab.change("host1/gpu", traits=["CUSTOM_B"])
    lab.sync(ro.Provider("host00", "VCPU=4"))
    lab.remove("host2")
    found = lab.snapshot()
    assert _told(found) == (3, 2, "replaced")
    assert found.hosts == ("host0", "host00", "host1")


def test_the_same_definition_again_reads_no_more_than_its_tree(lab: ro.Ledger) -> None:
    lab.snapshot()
    lab.change("host1/gpu", parent="host0")
    lab.change("host1/gpu", parent="host1")
    assert _told(lab.snapshot())[1:] == (2, "replaced")


def test_a_provider_that_goes_leaves_the_tree_it_was_in(lab: ro.Ledger) -> None:
    """Also where a write names nobody else: both trees are read."""
    lab.claim("job", {"host1/gpu": "PGPU=1"})
    lab.snapshot()
    run(lab.backend, "move host1/gpu: host2")
    found = lab.snapshot()
    assert found.refreshed.trees == 2
    assert picture_of(found) == picture_of(Snapshot(lab.backend.read()))
    run(lab.backend, "move host1/gpu: host0/gpu")
    assert picture_of(lab.snapshot()) == picture_of(Snapshot(lab.backend.read()))


def test_rows_that_are_no_more_stay_away(lab: ro.Ledger) -> None:
    """What was read first of a tree that was replaced is nobody's, however often others are."""
    lab.claim("job", {"host0": "VCPU=1"})
    lab.snapshot()
    for trait in ("CUSTOM_B", "CUSTOM_C", "CUSTOM_D"):
        lab.change("host0", traits=[trait])
        found = lab.snapshot()
        assert found.refreshed.way == "replaced"
        assert picture_of(found) == picture_of(Snapshot(lab.backend.read()))
    lab.release("job")
    assert picture_of(lab.snapshot()) == picture_of(Snapshot(lab.backend.read()))


def test_names_alone_read_everything(lab: ro.Ledger) -> None:
    lab.snapshot()
    lab.names.traits.rename("CUSTOM_A", "CUSTOM_NEW")
    found = lab.snapshot()
    assert _told(found) == (1, 3, "read") and found.refreshed.is_full
    assert list(found._fleet.traits) == ["CUSTOM_NEW"]


def test_a_renewal_reads_nothing(lab: ro.Ledger) -> None:
    lab.claim("job", {"host0": "VCPU=1"})
    first = lab.snapshot()
    lab.confirm("job")
    second = lab.snapshot()
    assert _told(second) == (1, 0, "patched")
    assert second is not first and second.cursor != first.cursor
    assert second._fleet.inventories is first._fleet.inventories


def test_a_report_alone_reads_nothing(lab: ro.Ledger) -> None:
    """That an owner said how its pool is, and it is as before, changes nothing that is searched."""
    lab.sync(ro.Provider("pool", "CUSTOM_WATT=100"))
    lab.pools.share("pool", hosts=["host0", "host1"])
    first = lab.snapshot()
    lab.pools.report("pool", "CUSTOM_WATT=100")
    second = lab.snapshot()
    assert _told(second) == (1, 0, "patched")
    assert second.cursor != first.cursor
    assert second._fleet.inventories is first._fleet.inventories
    lab.claim("job", {"host1": "VCPU=1"})
    lab.pools.report("pool", "CUSTOM_WATT=100")
    assert _told(lab.snapshot()) == (2, 1, "patched")
    lab.pools.report("pool", "CUSTOM_WATT=90")
    assert lab.snapshot().refreshed.way == "replaced"
    assert picture_of(lab.snapshot()) == picture_of(Snapshot(lab.backend.read()))


def test_very_many_trees_are_read_with_all_others(ledger: ro.Ledger) -> None:
    names = [f"host{number:03}" for number in range(200)]
    ledger.sync(*(ro.Provider(name, "VCPU=8") for name in names))
    ledger.snapshot()
    for name in names[:60]:
        ledger.claim(name, {name: "VCPU=1"})
    assert _told(ledger.snapshot()) == (60, 60, "patched")
    for name in names[60:150]:
        ledger.claim(name, {name: "VCPU=1"})
    # what is used is in the feed, however many they are
    assert _told(ledger.snapshot()) == (90, 90, "patched")
    for name in names[60:150]:
        ledger.change(name, traits=["CUSTOM_A"])
    assert _told(ledger.snapshot()) == (90, 200, "read")
    assert ledger.snapshot().used("VCPU") == 150


def test_a_view_over_a_tree_is_gathered_until_it_is_touched(ledger: ro.Ledger) -> None:
    for name in ("a", "b", "c"):
        ledger.sync(machines.SHAPES[-1](name, 1))
    first = ledger.snapshot()._fleet
    ledger.claim("job", {"b": "DEVICES=PGPU"})
    ledger.sync(ro.Provider("aa", "VCPU=1"))
    ledger.claim("job-2", {"aa": "VCPU=1"})
    second = ledger.snapshot()._fleet
    new, old = (
        [view_of(fleet, "DEVICES", n) for n in range(4) if n < len(fleet.hosts)]
        for fleet in (second, first)
    )
    assert new[1] is None
    assert new[0].located is old[0].located and new[3].located is old[2].located
    for fleet, views in ((first, old), (second, new)):
        for view in filter(None, views):
            names = [part.name for part in view.located.parts]
            assert [fleet.names[place] for place in view.places] == names
    assert str(old[1].located.inventory) != str(new[2].located.inventory)


def test_a_part_of_the_ledger_is_read_by_itself(lab: ro.Ledger) -> None:
    lab.snapshot()
    lab.claim("job", {"host0": "VCPU=1"})
    found = lab.snapshot(at="host0")
    assert _told(found)[2] == "read"
    assert (found.hosts, found.used("VCPU")) == (("host0",), 1)
    assert _told(lab.snapshot()) == (1, 1, "patched")


def test_a_snapshot_is_as_one_of_the_same_columns(lab: ro.Ledger) -> None:
    lab.snapshot()
    lab.claim("job", {"host0": "VCPU=1"})
    assert picture_of(lab.snapshot()) == picture_of(Snapshot(lab.backend.read()))
