"""Shares, names and definitions changed by several at once, or by plans that say parts of trees.

On every backend: in memory too, where the second comes after the first.
"""

from __future__ import annotations

import dataclasses
import uuid as uuids
from collections.abc import Callable, Iterator

import pytest

from resource_objects import exceptions
from resource_objects.backends.memory import MemoryBackend
from resource_objects.backends.sql.backend import SQLBackend
from resource_objects.providers import Backend, Provider, Share, diff
from resource_objects.providers.columns import trees
from resource_objects.providers.definition import (
    DefinitionChanges,
    ProviderDefinition,
    ProviderRemoval,
    ProviderUpdate,
    ShareRecord,
)
from resource_objects.providers.orders import ConsumerOrder, NameAction, NameKind, Operation, Write
from resource_objects.resources import Inventories
from resource_objects.resources.records import KindRecord
from resource_objects.testing.conformance import races
from resource_objects.testing.conformance.suite import (
    change_names,
    changes_to,
    claim,
    define,
    deltas,
    ledger_state,
    rename,
    stored_tree,
    updated,
)
from resource_objects.testing.refusals import is_one_of, raises_code
from tests import databases
from tests.backends.conftest import upgrade

CLASS, TRAIT, AGGREGATE = NameKind.RESOURCE_CLASS, NameKind.TRAIT, NameKind.AGGREGATE
_ENSURE = NameAction.ENSURE


@pytest.fixture(params=["memory", *databases.KINDS])
def backend(request: pytest.FixtureRequest, scratch: databases.Scratch) -> Iterator[Backend]:
    kind: str = request.param
    if kind == "memory":
        yield MemoryBackend.open("memory://")
        return
    if kind != "sqlite":
        try:
            databases.find_server(kind)
        except databases.Unreachable as error:
            (pytest.fail if databases.required() else pytest.skip)(str(error))
    with scratch.prepared(kind, upgrade) as url:
        opened = SQLBackend.open(url)
        yield opened
        opened.close()


def vcpu(of: str, factor: int = 1) -> Share:
    return Share(resource_class="VCPU", of=of, of_class="VCPU", factor=factor)


def chain(backend: Backend, providers: int = 3) -> dict[str, str]:
    """Define a tree of c1, c2, ... below one root, and another tree."""
    root = Provider("root", "VCPU=64")
    for number in range(1, providers + 1):
        root.add(f"c{number}", "VCPU=16")
    return define(backend, root, Provider("other", "VCPU=64"))


def sharing(backend: Backend, sharer: str, *of: str) -> DefinitionChanges:
    """Return the changes, compared now, by which one provider shares others of its tree."""
    tree = stored_tree(backend, "root")
    tree.find(sharer).update(shares=[vcpu(name) for name in of])
    return changes_to(backend, tree)


def moving(backend: Backend, below: str, *names: str) -> DefinitionChanges:
    """Return the changes by which providers go below another one of another tree."""
    tree = stored_tree(backend, "root")
    above = backend.uuids([below])[below]
    updates = tuple(
        updated(backend, provider.name, parent_uuid=above)
        for provider in tree.children
        if provider.name in names
    )
    return DefinitionChanges(names[0], (), updates)


def commit(backend: Backend, changes: DefinitionChanges) -> None:
    backend.define(Operation(), changes)


def apply_all(
    backend: Backend, *changes: DefinitionChanges, at_once: bool
) -> list[BaseException | None]:
    """Write changes that were compared before; return what each raised."""

    def write(number: int) -> None:
        commit(backend, changes[number])

    if at_once:
        return races.together(write, len(changes))
    found: list[BaseException | None] = []
    for number in range(len(changes)):
        try:
            write(number)
        except exceptions.Stale as error:
            if not error.is_about("provider"):
                raise
            found.append(error)
        else:
            found.append(None)
    return found


def generations(backend: Backend) -> dict[str, int]:
    """Return the generation of each provider, by name."""
    providers = backend.read().providers
    return dict(zip(providers.name, providers.generation, strict=True))


def changed(before: dict[str, int], after: dict[str, int]) -> set[str]:
    """Return who is at another generation than before: of two numbers any may be the greater."""
    assert before.keys() == after.keys()
    return {name for name, number in before.items() if after[name] != number}


def check_sums(backend: Backend) -> None:
    """Check that every tree can be read, and is what a sync would accept."""
    for tree in trees(backend.read()):
        diff(tree, tree)
    ledger_state(backend)  # which checks that ``used`` is what the allocations say


# --- shares against moves ---


@pytest.mark.parametrize("turn", ["share first", "move first", *range(4)])
def test_who_is_shared_does_not_leave_the_tree_meanwhile(backend: Backend, turn: str | int) -> None:
    chain(backend)
    changes = [sharing(backend, "c1", "c2"), moving(backend, "other", "c2")]
    if turn == "move first":
        changes.reverse()
    raised = apply_all(backend, *changes, at_once=isinstance(turn, int))
    [error] = [error for error in raised if error is not None]
    assert is_one_of(error, "StaleDefinition")
    check_sums(backend)


def test_who_shares_and_what_is_shared_move_together(backend: Backend) -> None:
    names = chain(backend)
    commit(backend, sharing(backend, "c1", "c2"))
    claim(backend, "job", {names["c1"]: "VCPU=2"})
    commit(backend, moving(backend, "other", "c1", "c2"))
    check_sums(backend)
    assert ledger_state(backend).used("c2", "VCPU") == 2
    assert {p.name for p in stored_tree(backend, "other").walk()} == {"other", "c1", "c2"}


def test_what_is_shared_may_move_where_its_sharer_goes_in_the_same_write(backend: Backend) -> None:
    names = chain(backend)
    commit(backend, sharing(backend, "c1", "c2"))
    claim(backend, "job", {names["c1"]: "VCPU=2"})
    gone = stored_tree(backend, "root").find("c1")
    removal = ProviderRemoval(gone.uuid or "", gone.name, gone.generation or 0)
    moved = moving(backend, "other", "c2")
    changes = dataclasses.replace(moved, removals=(removal,))
    orders = (ConsumerOrder.replace("job", deltas({names["other"]: "VCPU=2"})),)
    backend.commit(Write(Operation(), "reshape", "c", changes, orders))
    check_sums(backend)
    assert ledger_state(backend).used("c2", "VCPU") == 0


# --- shares against shares ---


@pytest.mark.law(1)
@pytest.mark.parametrize("turn", ["one", "other", *range(4)])
def test_shares_stay_flat_whoever_states_them(backend: Backend, turn: str | int) -> None:
    names = chain(backend)
    changes = [sharing(backend, "c1", "c2"), sharing(backend, "c2", "c3")]
    if turn == "other":
        changes.reverse()
    raised = apply_all(backend, *changes, at_once=isinstance(turn, int))
    [error] = [error for error in raised if error is not None]
    assert is_one_of(error, "StaleDefinition")
    claim(backend, "job", {names["c1"]: "VCPU=1", names["c2"]: "VCPU=1"})
    check_sums(backend)


def test_a_share_is_not_taken_away_from_under_another(backend: Backend) -> None:
    chain(backend)
    tree = stored_tree(backend, "root")
    tree.find("c2").update(shares=[vcpu("c3")])
    tree.find("c1").update(shares=[vcpu("c3")])
    commit(backend, changes_to(backend, tree))
    commit(backend, sharing(backend, "c1", "c2", "c3"))
    with raises_code("StaleDefinition", match="c1"):
        commit(backend, _stating(backend, c1=("c2",)))
    check_sums(backend)


# --- shares that a plan states ---


def _stating(backend: Backend, **of: tuple[str, ...]) -> DefinitionChanges:
    """Return changes by which providers share others, whatever a sync would say."""
    names = backend.uuids(["root", "c1", "c2", "c3", "other"])
    updates = []
    tree = stored_tree(backend, "root")
    for name, targets in of.items():
        provider = tree.find(name)
        kept_now = diff(None, Provider(name, provider.inventories)).creates[0]
        shares = tuple(ShareRecord("VCPU", names[target], "VCPU", 1) for target in targets)
        wanted = dataclasses.replace(
            kept_now, uuid=names[name], parent_uuid=names["root"], shares=shares
        )
        before = dataclasses.replace(wanted, shares=())
        updates.append(ProviderUpdate(wanted, provider.generation or 0, before))
    return DefinitionChanges("root", (), tuple(updates))


@pytest.mark.parametrize(
    "shares",
    [
        {"c1": ("other",)},
        {"c1": ("c1",)},
        {"c1": ("c2", "c2")},
        {"c1": ("c2",), "c2": ("c1",)},
        {"c1": ("c2",), "c2": ("c3",), "c3": ("c1",)},
        {"c1": ("c2",), "c2": ("c3",)},
        {"c1": ("c2", "c3"), "c2": ("c3", "c1"), "c3": ("c1", "c2")},
    ],
)
def test_a_plan_states_no_shares_that_a_sync_would_not(
    backend: Backend, shares: dict[str, tuple[str, ...]]
) -> None:
    names = chain(backend)
    claim(backend, "job", {names["c1"]: "VCPU=2"})
    before = ledger_state(backend)
    with raises_code("StaleDefinition"):
        commit(backend, _stating(backend, **shares))
    assert ledger_state(backend) == before
    commit(backend, _stating(backend, c1=("c2", "c3"), c2=("c3",)))
    assert [ledger_state(backend).used(name, "VCPU") for name in ("c1", "c2", "c3")] == [2, 2, 2]
    check_sums(backend)


def test_a_new_tree_states_no_share_of_another(backend: Backend) -> None:
    names = chain(backend)
    [created] = diff(None, Provider("new", "VCPU=1")).creates
    share = ShareRecord("VCPU", names["other"], "VCPU", 1)
    before = ledger_state(backend)
    with raises_code("StaleDefinition", match="new"):
        commit(backend, DefinitionChanges("new", (dataclasses.replace(created, shares=(share,)),)))
    assert ledger_state(backend) == before


# --- names against definitions ---


def _user() -> ProviderDefinition:
    """Return a provider that has a class, a trait and an aggregate that may be renamed."""
    root = Provider("user", {"CUSTOM_A": 8}, traits=["CUSTOM_A"], aggregates=["r1"])
    [created] = diff(None, root).creates
    return created


@pytest.mark.parametrize(
    ("kind", "old", "new"),
    [(CLASS, "CUSTOM_A", "CUSTOM_B"), (TRAIT, "CUSTOM_A", "CUSTOM_B"), (AGGREGATE, "r1", "r2")],
)
def test_a_definition_compared_before_a_rename_is_stale(
    backend: Backend, kind: NameKind, old: str, new: str
) -> None:
    commit(backend, DefinitionChanges("user", (_user(),)))
    define(backend, Provider("free", "VCPU=1"))
    tree = stored_tree(backend, "user")
    tree.update(inventories=Inventories({"CUSTOM_A": 9}))
    changes = changes_to(backend, tree)
    before = generations(backend)
    change_names(backend, rename(kind, old, new))
    found = ledger_state(backend)
    after = generations(backend)
    assert changed(before, after) == {"user"}
    with raises_code("StaleDefinition"):
        commit(backend, changes)
    claims = Write(
        Operation(),
        "orders",
        "job",
        orders=(ConsumerOrder.replace("job", deltas({backend.uuids(["free"])["free"]: "VCPU=1"})),),
        unchanged=((backend.uuids(["user"])["user"], before["user"]),),
    )
    with raises_code("StaleDefinition"):
        backend.commit(claims)
    assert ledger_state(backend) == found


def test_who_shares_a_renamed_class_is_at_its_next_generation_too(backend: Backend) -> None:
    root = Provider("card", {"CUSTOM_SLICE": 8})
    share = Share(resource_class="CUSTOM_PART", of="card", of_class="CUSTOM_SLICE", factor=2)
    root.add("part", {"CUSTOM_PART": 4}, shares=[share])
    root.add("bystander", {"CUSTOM_PART": 4, "CUSTOM_SLICES": 1})
    define(backend, root)
    before = generations(backend)
    change_names(backend, rename(CLASS, "CUSTOM_SLICE", "CUSTOM_CUT"))
    assert changed(before, generations(backend)) == {"card", "part"}


def test_who_has_a_kind_record_of_a_renamed_class_is_at_its_next_generation_too(
    backend: Backend,
) -> None:
    change_names(
        backend,
        dataclasses.replace(rename(CLASS, "CUSTOM_X", "CUSTOM_X"), action=_ENSURE, to=None),
    )
    kinds = (KindRecord("CUSTOM_X", ("CUSTOM_A",), ""),)
    longer = (KindRecord("CUSTOM_XL", ("CUSTOM_A",), ""),)
    user = dataclasses.replace(_user(), kinds=kinds)
    other = dataclasses.replace(user, uuid=str(uuids.uuid4()), name="other", kinds=longer)
    commit(backend, DefinitionChanges("user", (user, other)))
    before = generations(backend)
    change_names(backend, rename(CLASS, "CUSTOM_X", "CUSTOM_Y"))
    assert changed(before, generations(backend)) == {"user"}
    columns = backend.read("user", "other")
    said = dict(zip(columns.kinds[0], columns.kinds[1], strict=True))
    assert set(said.values()) == {"CUSTOM_Y", "CUSTOM_XL"}


def test_a_definition_may_come_with_the_names_it_was_compared_without(backend: Backend) -> None:
    commit(backend, DefinitionChanges("user", (_user(),)))
    tree = stored_tree(backend, "user")
    tree.update(traits=["CUSTOM_A", "CUSTOM_T"])
    changes, before = changes_to(backend, tree), generations(backend)
    names = (rename(CLASS, "CUSTOM_A", "CUSTOM_B"),)
    backend.commit(Write(Operation(), "names", "user", changes, names=names))
    found = stored_tree(backend, "user")
    assert found.traits == {"CUSTOM_A", "CUSTOM_T"}
    assert str(found.inventories) == "CUSTOM_B=8"
    assert changed(before, generations(backend)) == {"user"}


@pytest.mark.law(2)
def test_renames_and_syncs_at_once_leave_one_of_both_orders(backend: Backend) -> None:
    for turn in range(5):
        old, new, name = f"CUSTOM_O{turn}", f"CUSTOM_N{turn}", f"user{turn}"
        define(backend, Provider(name, {old: 8, "VCPU": 1}))
        tree = stored_tree(backend, name)
        tree.update(inventories=Inventories({old: 9, "VCPU": 1}))
        changes, start = changes_to(backend, tree), backend.cursor()

        work: list[Callable[[], None]] = [
            lambda changes=changes: commit(backend, changes),  # type: ignore[misc]
            lambda old=old, new=new: change_names(backend, rename(CLASS, old, new)),  # type: ignore[misc]
        ]
        raised = races.together(lambda number, work=work: work[number](), 2)  # type: ignore[misc]
        assert raised[1] is None
        found, first = stored_tree(backend, name), tree.generation
        synced = [told.generation for told in backend.changes(start, 10) if told.kind == "define"]
        assert first is not None
        if raised[0] is None:  # it came first, so the rename counted up after it
            assert str(found.inventories) == f"VCPU=1,{new}=9" and len(synced) == 1
            # the sync alone makes the next one in memory, and the operation's number in a database
            alone = first + 1 if isinstance(backend, MemoryBackend) else synced[0]
            assert found.generation not in (first, alone)
        else:
            assert is_one_of(raised[0], "StaleDefinition")
            assert str(found.inventories) == f"VCPU=1,{new}=8"
            assert not synced and found.generation != first


def test_releasing_is_not_disturbed_by_shares_that_were_refused(backend: Backend) -> None:
    names = chain(backend)
    claim(backend, "job", {names["c1"]: "VCPU=2"})
    with raises_code("StaleDefinition"):
        commit(backend, _stating(backend, c1=("other",)))
    backend.commit(Write(Operation(), "orders", "job", orders=(ConsumerOrder.release("job"),)))
    check_sums(backend)
