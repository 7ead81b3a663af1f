"""Definitions as rows, on every kind of database: shares, counters, names, and few statements."""

from __future__ import annotations

import contextlib
import datetime
import random
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import sqlalchemy

from resource_objects import exceptions
from resource_objects.backends.sql import statements
from resource_objects.backends.sql.backend import SQLBackend
from resource_objects.backends.sql.rows import TreeRows
from resource_objects.providers import Provider, Share, definition, diff
from resource_objects.providers.columns import trees
from resource_objects.providers.definition import DefinitionChanges, ProviderRemoval
from resource_objects.providers.listing import ListedName, ProviderFilter
from resource_objects.providers.orders import (
    ConsumerOrder,
    NameAction,
    NameChange,
    NameKind,
    Operation,
    Use,
    Write,
)
from resource_objects.resources import Inventories
from resource_objects.testing.conformance.races import together
from resource_objects.testing.conformance.suite import (
    adjust,
    changes_to,
    claim,
    define,
    release,
    updated,
)
from resource_objects.testing.refusals import raises_code
from tests.backends.conftest import ask, ask_all

pytestmark = pytest.mark.usefixtures("nobody_forgets")  # some count statements

CLASS, TRAIT, AGGREGATE = NameKind.RESOURCE_CLASS, NameKind.TRAIT, NameKind.AGGREGATE


# --- what the tables say, by plain SQL ---


def used(url: str) -> dict[tuple[str, str], int]:
    """Return what is used of each inventory, having checked that it is what the allocations say.

    And that each sharer knows how many shares it has.
    """
    names, classes, shares, allocations, inventories = ask_all(
        url,
        "SELECT id, name FROM resource_providers",
        "SELECT id, name FROM resource_classes",
        "SELECT provider_id, class_id, of_provider_id, of_class_id, factor FROM shares",
        "SELECT provider_id, class_id, used FROM allocations",
        "SELECT provider_id, class_id, used, shares FROM inventories",
    )
    name_of, class_of = dict(names), dict(classes)
    sums: dict[tuple[int, int], int] = defaultdict(int)
    for provider, class_, amount in allocations:
        sums[provider, class_] += amount
        for *sharer, of_provider, of_class, factor in shares:
            if sharer == [provider, class_]:
                sums[of_provider, of_class] += amount * factor
    found = {}
    for provider, class_, amount, count in inventories:
        key = name_of[provider], class_of[class_]
        assert amount == sums.pop((provider, class_), 0), key
        assert count == sum(1 for share in shares if tuple(share[:2]) == (provider, class_)), key
        found[key] = amount
    assert not sums
    return found


def writes(url: str) -> dict[str, int]:
    """Return how often allocations of each provider were written, as the ledger lists it."""
    backend = SQLBackend.open(url)
    found = backend.list_providers(ProviderFilter(), 100)
    backend.close()
    return {one.name: one.allocation_writes for one in found}


def vcpu(of: str, factor: int = 1) -> Share:
    return Share(resource_class="VCPU", of=of, of_class="VCPU", factor=factor)


def numa(shares: bool = True, cells: int = 2, factor: int = 1) -> Provider:
    """Return a host with cells, whose VCPUs are the host's too."""
    root = Provider("host0", "VCPU=16,MEMORY_MB=1024")
    for number in range(cells):
        root.add(f"host0/cell{number}", "VCPU=8", shares=[vcpu("host0", factor)] if shares else [])
    return root


def kept(backend: SQLBackend, name: str = "host0") -> Provider:
    [root] = trees(backend.read(name))
    return root


def redefine(
    backend: SQLBackend, change: Callable[[Provider], object], name: str = "host0"
) -> None:
    """Read a tree, change it, and write what is different."""
    before, wanted = kept(backend, name), kept(backend, name)
    change(wanted)
    changes = diff(before, wanted)
    if changes:
        backend.define(Operation(), changes)


# --- shares ---


@pytest.mark.law(1)
def test_shares_that_come_and_go_change_what_is_used_elsewhere(
    ledger: SQLBackend, ledger_url: str
) -> None:
    names = define(ledger, numa(shares=False))
    claim(ledger, "a", {names["host0/cell0"]: "VCPU=3"})
    claim(ledger, "b", {names["host0/cell1"]: "VCPU=2", names["host0"]: "VCPU=1"})
    assert used(ledger_url)["host0", "VCPU"] == 1
    define(ledger, numa(shares=True))
    assert used(ledger_url)["host0", "VCPU"] == 6
    define(ledger, numa(shares=True, factor=2))
    assert used(ledger_url)["host0", "VCPU"] == 11
    claim(ledger, "c", {names["host0/cell1"]: "VCPU=1"})
    assert used(ledger_url)["host0", "VCPU"] == 13
    redefine(ledger, lambda root: root.find("host0/cell0").update(shares=()))
    assert used(ledger_url)["host0", "VCPU"] == 7
    define(ledger, numa(shares=False))
    assert used(ledger_url)["host0", "VCPU"] == 1


@pytest.mark.law(1)
def test_what_is_shared_may_be_new_while_it_is_used(ledger: SQLBackend, ledger_url: str) -> None:
    names = define(ledger, Provider("host0", "VCPU=8", children=[Provider("cell", "VCPU=8")]))
    claim(ledger, "a", {names["cell"]: "VCPU=5"})
    root = Provider("host0", "VCPU=8,PCPU=64")
    root.add(
        "cell",
        "VCPU=8",
        shares=[Share(resource_class="VCPU", of="host0", of_class="PCPU", factor=3)],
    )
    define(ledger, root)
    assert used(ledger_url) == {
        ("host0", "VCPU"): 0,
        ("host0", "PCPU"): 15,
        ("cell", "VCPU"): 5,
    }


def test_a_share_of_what_is_gone_meanwhile_is_refused(ledger: SQLBackend, ledger_url: str) -> None:
    define(ledger, numa(shares=False))
    before, wanted = kept(ledger), kept(ledger)
    wanted.find("host0/cell0").update(
        shares=[Share(resource_class="VCPU", of="host0", of_class="MEMORY_MB")]
    )
    redefine(ledger, lambda root: root.inventories.__delitem__("MEMORY_MB"))
    with raises_code("StaleDefinition", match="MEMORY_MB does not exist"):
        ledger.define(Operation(), diff(before, wanted))
    assert ("host0", "MEMORY_MB") not in used(ledger_url)


def test_a_share_of_a_class_that_is_gone_meanwhile_is_refused(ledger: SQLBackend) -> None:
    tree = numa(shares=False)
    tree.update(inventories=Inventories.parse("VCPU=16,CUSTOM_SLOT=4"))
    define(ledger, tree)
    before, wanted = kept(ledger), kept(ledger)
    wanted.find("host0/cell0").update(
        shares=[Share(resource_class="VCPU", of="host0", of_class="CUSTOM_SLOT")]
    )
    redefine(ledger, lambda root: root.inventories.__delitem__("CUSTOM_SLOT"))
    names = (NameChange(NameKind.RESOURCE_CLASS, NameAction.DELETE, "CUSTOM_SLOT"),)
    ledger.commit(Write(Operation(), "delete", "CUSTOM_SLOT", names=names))
    kept_before = kept(ledger)
    with raises_code("StaleDefinition", match="CUSTOM_SLOT does not exist"):
        ledger.define(Operation(), diff(before, wanted))
    assert kept(ledger) == kept_before


def test_more_than_can_be_counted_is_refused(ledger: SQLBackend, ledger_url: str) -> None:
    most = 2**31 - 1
    root = Provider("host0", f"VCPU={most}:allocation_ratio=4000")
    root.add("cell", f"VCPU={most}:allocation_ratio=4000")
    names = define(ledger, root)
    claim(ledger, "a", {names["cell"]: {"VCPU": most}})
    for number in range(3999):
        if number in (0, 3998):
            claim(ledger, f"b{number}", {names["cell"]: {"VCPU": most}})
    with raises_code("InvalidAmount"):
        redefine(ledger, lambda root: root.find("cell").update(shares=[vcpu("host0", most)]))
    assert used(ledger_url)["host0", "VCPU"] == 0


@pytest.mark.law(1)
def test_random_definitions_and_claims_keep_the_sums(ledger: SQLBackend, ledger_url: str) -> None:
    chance = random.Random(3)
    define(ledger, numa(cells=3))
    held: list[str] = []
    for step in range(60):
        action = chance.choice(["claim", "release", "share", "share", "cells"])
        with contextlib.suppress(exceptions.CapacityException, exceptions.InUse):
            if action == "claim":
                places = chance.sample([p.uuid or "" for p in kept(ledger).walk()], 2)
                claim(
                    ledger, f"job{step}", {uuid: f"VCPU={chance.randint(1, 3)}" for uuid in places}
                )
                held.append(f"job{step}")
            elif action == "release" and held:
                release(ledger, held.pop(chance.randrange(len(held))))
            elif action == "share":
                redefine(ledger, lambda root: _share_at_random(root, chance))
            elif action == "cells":
                wanted = numa(cells=chance.randint(1, 4), factor=chance.randint(1, 3))
                define(ledger, wanted)
        used(ledger_url)


def _share_at_random(root: Provider, chance: random.Random) -> None:
    for cell in root.children:
        targets = chance.sample(["VCPU", "MEMORY_MB"], chance.randint(0, 2))
        cell.update(
            shares=[
                Share(
                    resource_class="VCPU",
                    of="host0",
                    of_class=target,
                    factor=chance.randint(1, 4),
                )
                for target in targets
            ]
        )


@pytest.mark.law(1, 4)
def test_shares_may_change_while_others_claim(ledger: SQLBackend, ledger_url: str) -> None:
    names = define(ledger, numa())
    cells = [names["host0/cell0"], names["host0/cell1"]]
    done = threading.Event()
    problems: list[BaseException] = []

    def claim_and_release(who: int) -> None:
        number = 0
        try:
            while not done.is_set():
                number += 1
                with contextlib.suppress(exceptions.CapacityException):
                    claim(ledger, f"{who}-{number}", {cells[number % 2]: "VCPU=1"})
                    if number % 3:
                        release(ledger, f"{who}-{number}")
        except BaseException as error:
            problems.append(error)

    workers = [threading.Thread(target=claim_and_release, args=(who,)) for who in range(3)]
    for worker in workers:
        worker.start()
    try:
        for step in range(12):
            define(ledger, numa(shares=bool(step % 3), factor=1 + step % 2))
    finally:
        done.set()
        for worker in workers:
            worker.join()
    assert not problems
    used(ledger_url)


# --- what goes ---


def test_what_is_used_stays(ledger: SQLBackend, ledger_url: str) -> None:
    names = define(ledger, numa())
    claim(ledger, "a", {names["host0/cell0"]: "VCPU=3"})
    before = used(ledger_url)
    with raises_code("ProviderInUse", match="host0/cell0"):
        redefine(ledger, lambda root: root.update(children=root.children[1:]))
    with raises_code("InventoryInUse", match="host0/cell0"):
        redefine(ledger, lambda root: root.children[0].update(inventories=Inventories(), shares=()))
    assert used(ledger_url) == before
    redefine(ledger, lambda root: root.update(children=root.children[:1]))
    assert set(names) - {name for name, _ in used(ledger_url)} == {"host0/cell1"}


def test_what_others_use_by_a_share_stays(ledger: SQLBackend, ledger_url: str) -> None:
    define(ledger, numa(shares=False))
    before, wanted = kept(ledger), kept(ledger)
    del wanted.inventories["VCPU"]
    changes = diff(before, wanted)
    define(ledger, numa())  # which does not change the host itself
    with raises_code("InventoryInUse"):
        ledger.define(Operation(), changes)
    assert ("host0", "VCPU") in used(ledger_url)


def test_a_tree_goes_with_all_it_has(ledger: SQLBackend, ledger_url: str) -> None:
    root = numa()
    root.update(aggregates=["rack"], traits=["CUSTOM_A"])
    define(ledger, root, Provider("other", "VCPU=1", traits=["CUSTOM_A"], aggregates=["rack"]))
    before = kept(ledger)
    changes = diff(before, Provider("host0", uuid=before.uuid))
    removals = [*changes.removals, _removal(before)]
    ledger.define(Operation(), DefinitionChanges("host0", removals=tuple(removals)))
    assert set(used(ledger_url)) == {("other", "VCPU")}
    for table in ("resource_provider_traits", "resource_provider_aggregates"):
        assert len(ask(ledger_url, f"SELECT provider_id FROM {table}")) == 1
    assert ask(ledger_url, "SELECT provider_id FROM shares") == []


def _removal(provider: Provider) -> ProviderRemoval:
    return ProviderRemoval(provider.uuid or "", provider.name, provider.generation or 0)


def test_writes_of_allocations_are_counted_also_where_the_inventory_is_gone(
    ledger: SQLBackend, ledger_url: str
) -> None:
    names = define(ledger, numa())
    claim(ledger, "a", {names["host0/cell0"]: "VCPU=3"})
    adjust(ledger, "a", {names["host0/cell0"]: "VCPU=1"})
    release(ledger, "a")
    assert writes(ledger_url) == {"host0": 2, "host0/cell0": 2, "host0/cell1": 0}
    redefine(ledger, lambda root: root.children[0].update(inventories=Inventories(), shares=()))
    assert writes(ledger_url) == {"host0": 2, "host0/cell0": 2, "host0/cell1": 0}
    redefine(ledger, lambda root: root.children[0].update(inventories=Inventories("VCPU=2")))
    claim(ledger, "a", {names["host0/cell0"]: "VCPU=1"})
    assert writes(ledger_url)["host0/cell0"] == 3


# --- with orders, in one write ---


@pytest.mark.law(1, 2)
def test_an_inventory_may_move_with_its_allocations(ledger: SQLBackend, ledger_url: str) -> None:
    names = define(ledger, Provider("host0", "VCPU=8,MEMORY_MB=64"))
    claim(ledger, "a", {names["host0"]: "VCPU=5,MEMORY_MB=8"})
    before = kept(ledger)
    wanted = Provider("host0", "MEMORY_MB=64", uuid=before.uuid)
    cell = wanted.add("cell", "VCPU=8", uuid="11111111-2222-3333-4444-555555555555")
    host = before.uuid or ""
    moved = ConsumerOrder.replace("a", (Use(cell.uuid or "", "VCPU", 5), Use(host, "MEMORY_MB", 8)))
    write = Write(Operation(), "reshape", "host0", diff(before, wanted), orders=(moved,))
    ledger.commit(write)
    assert used(ledger_url) == {("host0", "MEMORY_MB"): 8, ("cell", "VCPU"): 5}
    # and back, where the cell goes as a whole
    again = kept(ledger)
    back = ConsumerOrder.replace("a", (Use(host, "VCPU", 5), Use(host, "MEMORY_MB", 8)))
    wanted = Provider("host0", "VCPU=8,MEMORY_MB=64", uuid=host)
    ledger.commit(Write(Operation(), "reshape", "host0", diff(again, wanted), orders=(back,)))
    assert used(ledger_url) == {("host0", "MEMORY_MB"): 8, ("host0", "VCPU"): 5}


@pytest.mark.law(1, 2)
def test_allocations_may_move_to_cells_that_share_with_a_full_host(
    ledger: SQLBackend, ledger_url: str
) -> None:
    names = define(ledger, Provider("host0", "VCPU=8"))
    claim(ledger, "a", {names["host0"]: "VCPU=8"})
    before = kept(ledger)
    wanted = Provider("host0", "VCPU=8", uuid=before.uuid)
    uuids = ["11111111-2222-3333-4444-555555555555", "11111111-2222-3333-4444-555555555556"]
    for number, uuid in enumerate(uuids):
        wanted.add(f"cell{number}", "VCPU=4", uuid=uuid, shares=[vcpu("host0")])
    moved = ConsumerOrder.replace("a", tuple(Use(uuid, "VCPU", 4) for uuid in uuids))
    ledger.commit(Write(Operation(), "reshape", "host0", diff(before, wanted), orders=(moved,)))
    assert used(ledger_url) == {("host0", "VCPU"): 8, ("cell0", "VCPU"): 4, ("cell1", "VCPU"): 4}


# --- trees ---


def _define_in(backend: SQLBackend, changes: DefinitionChanges) -> dict[str, set[str]]:
    """Apply changes without recording a write; return the feed entries, with the roots' names."""

    def work(connection: sqlalchemy.Connection) -> dict[str, set[int]]:
        write = Write(Operation(), "step", changes.root, changes)
        now = datetime.datetime.now(datetime.UTC)
        rows = TreeRows(connection, write, 7, now)
        rows.lock()
        rows.apply()
        touched: dict[str, set[int]] = defaultdict(set)
        for root, uuid in rows._transaction.definitions:
            touched[uuid].add(root)
        return touched

    touched = backend._writing(work)
    columns = backend.read().providers
    name_of = dict(zip(columns.provider_id, columns.name, strict=True))
    names = dict(zip(columns.uuid, columns.name, strict=True))
    return {
        names.get(uuid, uuid): {name_of.get(root, "gone") for root in roots}
        for uuid, roots in touched.items()
    }


def _reparented(backend: SQLBackend, name: str, parent: str | None) -> DefinitionChanges:
    """Return the change that moves a provider below another, whatever its tree."""
    above = None if parent is None else backend.uuids([parent])[parent]
    update = updated(backend, name, parent_uuid=above)
    return DefinitionChanges(name, updates=(update,))


def test_a_subtree_that_moves_is_told_in_both_trees(ledger: SQLBackend, ledger_url: str) -> None:
    root = Provider("a", "VCPU=1")
    root.add("a1", "VCPU=1").add("a2", "VCPU=1")
    define(ledger, root, Provider("b", "VCPU=1"))
    assert _define_in(ledger, _reparented(ledger, "a1", "b")) == {
        "a1": {"a", "b"},
        "a2": {"a", "b"},
    }
    assert _roots(ledger_url) == {"a": "a", "a1": "b", "a2": "b", "b": "b"}
    assert _define_in(ledger, _reparented(ledger, "a1", None)) == {
        "a1": {"a1", "b"},
        "a2": {"a1", "b"},
    }
    assert _roots(ledger_url) == {"a": "a", "a1": "a1", "a2": "a1", "b": "b"}
    with raises_code("StaleDefinition", match="below itself"):
        _define_in(ledger, _reparented(ledger, "a1", "a2"))


def _roots(url: str) -> dict[str, str]:
    query = (
        "SELECT p.name, r.name FROM resource_providers p"
        " JOIN resource_providers r ON r.id = p.root_id"
    )
    return dict(ask(url, query))


def test_a_share_never_leaves_its_tree(ledger: SQLBackend, ledger_url: str) -> None:
    define(ledger, numa(), Provider("b", "VCPU=1"))
    with raises_code("StaleDefinition", match="the same tree"):
        _define_in(ledger, _reparented(ledger, "host0/cell0", "b"))
    assert _roots(ledger_url)["host0/cell0"] == "host0"


def test_who_is_touched_is_told(ledger: SQLBackend, ledger_url: str) -> None:
    names = define(ledger, numa(shares=False))
    claim(ledger, "a", {names["host0/cell0"]: "VCPU=3"})
    touched = _define_in(ledger, changes_to(ledger, numa()))
    assert touched == {name: {"host0"} for name in names}  # the host, because more of it is used
    gone = _define_in(ledger, changes_to(ledger, numa(cells=1)))
    assert gone == {"host0": {"host0"}, names["host0/cell1"]: {"host0"}}


# --- names in use ---


def test_what_was_renamed_meanwhile_is_noticed(ledger: SQLBackend) -> None:
    define(ledger, Provider("host0", "CUSTOM_A=1", traits=["CUSTOM_T"], aggregates=["rack"]))
    before = kept(ledger)
    for kind, old, new in ((CLASS, "CUSTOM_A", "CUSTOM_B"), (TRAIT, "CUSTOM_T", "CUSTOM_U")):
        _change(ledger, NameChange(kind, NameAction.RENAME, old, new))
    _change(ledger, NameChange(AGGREGATE, NameAction.RENAME, "rack", "room"))
    again = kept(ledger)
    assert str(again.inventories) == "CUSTOM_B=1"
    assert (again.traits, again.aggregates) == ({"CUSTOM_U"}, {"room"})
    assert again.generation != before.generation  # so that what follows is noticed
    for wanted in (
        Provider("host0", {}, traits=["CUSTOM_T"], uuid=before.uuid),
        Provider("host0", "CUSTOM_A=1", uuid=before.uuid),
        Provider("host0", "CUSTOM_A=1", traits=["CUSTOM_T"], uuid=before.uuid, aggregates=[]),
    ):
        with raises_code("StaleDefinition"):
            ledger.define(Operation(), diff(before, wanted))
    assert kept(ledger) == again


def _change(backend: SQLBackend, *changes: NameChange) -> None:
    backend.commit(Write(Operation(), "name", changes[0].name, names=changes))


def _names(backend: SQLBackend, kind: NameKind) -> list[str]:
    found: list[ListedName] = []
    while page := backend.list_names(kind, 7, found[-1].name if found else None):
        found += page
    return [one.name for one in found]


def test_names_are_listed_by_code_points_and_by_pages(ledger: SQLBackend) -> None:
    wanted = ["a", "B", "_", "é", "z", "Z", "ab", "a b", "a-b", "ß", "中", "\N{GRINNING FACE}", "A"]
    changes = [NameChange(AGGREGATE, NameAction.ENSURE, name) for name in wanted]
    _change(ledger, *changes, *changes)
    assert _names(ledger, AGGREGATE) == sorted(wanted)
    assert _names(ledger, CLASS) == sorted(_names(ledger, CLASS))
    assert "VCPU" in _names(ledger, CLASS) and "HW_CPU_X86_AVX2" in _names(ledger, TRAIT)


@pytest.mark.parametrize(
    ("kind", "action", "name", "to", "error"),
    [
        (CLASS, NameAction.RENAME, "VCPU", "CUSTOM_V", "StandardName"),
        (TRAIT, NameAction.DELETE, "HW_CPU_X86_AVX2", None, "StandardName"),
        (CLASS, NameAction.DELETE, "CUSTOM_NONE", None, "ClassNotFound"),
        (TRAIT, NameAction.RENAME, "CUSTOM_NONE", "CUSTOM_N", "TraitNotFound"),
        (AGGREGATE, NameAction.SET_LEVEL, "none", "rack", "AggregateNotFound"),
        (CLASS, NameAction.DELETE, "CUSTOM_USED", None, "ClassInUse"),
        (TRAIT, NameAction.DELETE, "CUSTOM_USED", None, "TraitInUse"),
        (AGGREGATE, NameAction.DELETE, "used", None, "AggregateInUse"),
        (CLASS, NameAction.RENAME, "CUSTOM_USED", "VCPU", "NameExists"),
        (TRAIT, NameAction.RENAME, "CUSTOM_USED", "CUSTOM_OTHER", "NameExists"),
        (AGGREGATE, NameAction.RENAME, "used", "other", "NameExists"),
        (CLASS, NameAction.RENAME, "CUSTOM_USED", "USED", "UnknownResourceClass"),
        (CLASS, NameAction.ENSURE, "OWN", None, "UnknownResourceClass"),
        (TRAIT, NameAction.ENSURE, "CUSTOM_low", None, "InvalidTrait"),
        (TRAIT, NameAction.RENAME, "CUSTOM_USED", "OWN", "UnknownTrait"),
        (TRAIT, NameAction.SET_LEVEL, "CUSTOM_USED", "rack", "InvalidField"),
        (AGGREGATE, NameAction.ENSURE, " ", None, "InvalidName"),
    ],
)
def test_names_are_refused_for_a_reason(
    ledger: SQLBackend,
    kind: NameKind,
    action: NameAction,
    name: str,
    to: str | None,
    error: type[Exception] | str,
) -> None:
    define(
        ledger,
        Provider(
            "host0",
            "CUSTOM_USED=1",
            traits=["CUSTOM_USED", "CUSTOM_OTHER"],
            aggregates=["used", "other"],
        ),
    )
    before = [_names(ledger, one) for one in NameKind]
    new = NameChange(AGGREGATE, NameAction.ENSURE, "new")
    with raises_code(error):
        _change(ledger, new, NameChange(kind, action, name, to))
    assert [_names(ledger, one) for one in NameKind] == before


def test_changes_of_names_happen_in_their_order(ledger: SQLBackend) -> None:
    def change(action: NameAction, name: str, to: str | None = None) -> NameChange:
        return NameChange(AGGREGATE, action, name, to)

    _change(
        ledger,
        change(NameAction.ENSURE, "a"),
        change(NameAction.ENSURE, "b"),
        change(NameAction.SET_LEVEL, "a", "rack"),
        change(NameAction.RENAME, "b", "c"),
        change(NameAction.RENAME, "a", "b"),
        change(NameAction.RENAME, "b", "d"),
        change(NameAction.RENAME, "d", "d"),
        change(NameAction.DELETE, "c"),
        change(NameAction.ENSURE, "c"),
    )
    found = ledger.list_names(AGGREGATE, 10)
    assert [(one.name, one.level) for one in found] == [("c", None), ("d", "rack")]
    _change(ledger, change(NameAction.SET_LEVEL, "d"))
    assert ledger.list_names(AGGREGATE, 10, "c")[0].level is None


def test_a_renamed_class_is_renamed_in_what_describes_it(
    ledger: SQLBackend, ledger_url: str
) -> None:
    names = define(ledger, Provider("host0", "CUSTOM_A=4,CUSTOM_AB=1"))
    claim(ledger, "job", {names["host0"]: "CUSTOM_A=2"})
    [number] = ask(ledger_url, "SELECT id FROM resource_providers")[0]
    both = '["CUSTOM_A","CUSTOM_AB"]', '["CUSTOM_AB","CUSTOM_A"]'
    for name, classes in zip(("CUSTOM_A", "CUSTOM_X"), both, strict=True):
        values = f"({number}, '{name}', '{classes}', NULL)"
        ask(ledger_url, f"INSERT INTO structures VALUES {values}")
    _change(ledger, NameChange(CLASS, NameAction.RENAME, "CUSTOM_A", "CUSTOM_Z"))
    kinds = ledger.read().kinds
    assert dict(zip(kinds.resource_class, kinds.classes, strict=True)) == {
        "CUSTOM_X": ("CUSTOM_AB", "CUSTOM_Z"),
        "CUSTOM_Z": ("CUSTOM_Z", "CUSTOM_AB"),
    }
    held = ledger.consumer("job")
    assert held is not None and held.held[0].resource_class == "CUSTOM_Z"


def test_a_name_that_another_process_changed_is_not_believed(
    ledger: SQLBackend, ledger_url: str
) -> None:
    define(ledger, Provider("host0", "CUSTOM_A=1,VCPU=2", traits=["CUSTOM_A"], aggregates=["A"]))
    kept(ledger)  # has looked them all up
    other = SQLBackend.open(ledger_url)
    for kind, name in ((CLASS, "CUSTOM_B"), (TRAIT, "CUSTOM_B"), (AGGREGATE, "B")):
        old = "A" if kind is AGGREGATE else "CUSTOM_A"
        _change(other, NameChange(kind, NameAction.RENAME, old, name))
    other.close()
    found = kept(ledger)
    assert str(found.inventories) == "VCPU=2,CUSTOM_B=1"
    assert (found.traits, found.aggregates) == ({"CUSTOM_B"}, {"B"})
    define(ledger, Provider("host1", "CUSTOM_A=1,VCPU=2", traits=["CUSTOM_A"], aggregates=["A"]))
    assert str(kept(ledger, "host1").inventories) == "VCPU=2,CUSTOM_A=1"


@pytest.mark.law(4)
def test_many_may_make_the_same_names_at_once(ledger: SQLBackend, ledger_url: str) -> None:
    def make(who: int) -> None:
        chance = random.Random(who)
        for number in range(4):
            names = [f"CUSTOM_{number}_{n}" for n in range(6)]
            root = Provider(
                f"host{who}/{number}",
                dict.fromkeys(chance.sample(names, 4), 1),
                traits=chance.sample(names, 4),
                aggregates=chance.sample(names, 4),
            )
            define(ledger, root)

    outcomes = together(make, workers=5)
    assert outcomes == [None] * 5
    assert len(trees(ledger.read())) == 20
    for table in ("resource_classes", "traits", "aggregates"):
        found = [row[0] for row in ask(ledger_url, f"SELECT name FROM {table}")]
        assert len(set(found)) == len(found)


# --- few statements ---


@contextlib.contextmanager
def counted(backend: SQLBackend) -> Iterator[list[str]]:
    """Collect the texts of the statements that go through SQLAlchemy."""
    found: list[str] = []

    def note(*args: Any) -> None:
        found.append(args[2])

    engine = backend._database._engine
    sqlalchemy.event.listen(engine, "before_cursor_execute", note)
    try:
        yield found
    finally:
        sqlalchemy.event.remove(engine, "before_cursor_execute", note)


def _hosts(number: int, more: int = 0, name: str = "host") -> list[Provider]:
    hosts = []
    for n in range(number):
        root = Provider(
            f"{name}{n}",
            f"VCPU={8 + more},MEMORY_MB={64 + more},DISK_GB=1",
            traits=["CUSTOM_NEW" if more else "CUSTOM_OLD", "HW_CPU_X86_AVX2"],
            aggregates=[f"rack{(n + more) % 5}"],
        )
        root.add(f"{name}{n}/cell", f"VCPU={8 + more}", shares=[vcpu(f"{name}{n}", 1 + more)])
        hosts.append(root)
    return hosts


def _all_changes(backend: SQLBackend, wanted: Sequence[Provider]) -> DefinitionChanges:
    before = {root.name: root for root in trees(backend.read())}
    return definition.merge_changes("all", [diff(before.get(root.name), root) for root in wanted])


def test_many_trees_take_as_many_statements_as_one(ledger: SQLBackend, ledger_url: str) -> None:
    taken: dict[str, list[int]] = defaultdict(list)
    for name, count in (("first", 1), ("one", 1), ("many", 300)):
        for what, more in (("create", 0), ("update", 1)):
            wanted = _hosts(count, more, name)
            changes = _all_changes(ledger, wanted)
            with counted(ledger) as texts:
                ledger.define(Operation(), changes)
            taken[what].append(len(texts))
            assert not _all_changes(ledger, wanted)
            if what == "create":
                names = ledger.uuids([f"{name}0/cell"])
                claim(ledger, name, {names[f"{name}0/cell"]: "VCPU=2"})
    for what, (_, one, many) in taken.items():
        # two make the other racks; that of many changes is counted, where a few go by the driver
        told = int(ledger_url.startswith("postgresql"))
        assert many <= one + 2 + told, (what, one, many)
    assert used(ledger_url)["many0", "VCPU"] == 4
    reads = []
    for keys in (["one0"], [f"many{n}" for n in range(200)]):
        with counted_on_driver(ledger) as texts:
            ledger.read(*keys)
        reads.append(len(texts))
    assert reads[0] == reads[1]


@contextlib.contextmanager
def counted_on_driver(backend: SQLBackend) -> Iterator[list[str]]:
    """Collect the texts of the statements that go straight to the driver's cursor."""
    found: list[str] = []
    before = statements.SQL.rows

    def rows(self: Any, *args: Any, **values: Any) -> Any:
        found.append(self._text)
        return before(self, *args, **values)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(statements.SQL, "rows", rows)
        yield found


def test_many_providers_may_swap_their_names(ledger: SQLBackend) -> None:
    define(ledger, *_hosts(20))
    before = {root.name: root for root in trees(ledger.read())}
    parts = []
    for n in range(20):
        old = before[f"host{n}"]
        wanted = Provider(
            f"host{(n + 7) % 20}",
            old.inventories,
            uuid=old.uuid,
            traits=old.traits,
            children=[
                Provider(
                    f"host{(n + 3) % 20}/cell",
                    child.inventories,
                    uuid=child.uuid,
                    shares=[vcpu(f"host{(n + 7) % 20}")],
                )
                for child in old.children
            ],
        )
        parts.append(diff(old, wanted))
    ledger.define(Operation(), definition.merge_changes("all", parts))
    after = {root.uuid: root for root in trees(ledger.read())}
    for n in range(20):
        moved = after[before[f"host{n}"].uuid]
        assert (moved.name, moved.children[0].name) == (
            f"host{(n + 7) % 20}",
            f"host{(n + 3) % 20}/cell",
        )


def test_a_write_of_a_definition_and_a_claim_at_once(ledger: SQLBackend, ledger_url: str) -> None:
    uuid = "11111111-2222-3333-4444-555555555555"
    changes = diff(None, Provider("pool", "DISK_GB=10", uuid=uuid))
    order = ConsumerOrder.claim("job", (Use(uuid, "DISK_GB", 4),))
    ledger.commit(Write(Operation(), "make", "pool", changes, orders=(order,)))
    assert used(ledger_url) == {("pool", "DISK_GB"): 4}
    too_much = ConsumerOrder.claim("more", (Use(uuid, "DISK_GB", 40),))
    wanted = Provider("pool", "DISK_GB=20", uuid=uuid)
    write = Write(
        Operation(), "make", "pool", diff(kept(ledger, "pool"), wanted), orders=(too_much,)
    )
    with pytest.raises(exceptions.CapacityException):
        ledger.commit(write)
    assert str(kept(ledger, "pool").inventories) == "DISK_GB=10:used=4"
