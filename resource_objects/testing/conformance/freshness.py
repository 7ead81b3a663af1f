"""Rules of freshness: who follows the trees that were touched has what is kept, at each moment."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor

import pytest

from resource_objects import exceptions
from resource_objects.providers import Backend, Provider
from resource_objects.providers.changed import Changed, Touched
from resource_objects.providers.definition import (
    DefinitionChanges,
    ProviderDefinition,
    ProviderRemoval,
    ProviderUpdate,
)
from resource_objects.providers.feed import SHARDS, Cursor
from resource_objects.providers.orders import (
    ClaimOrder,
    NameAction,
    NameChange,
    Operation,
    Release,
    Renewal,
    Replacement,
    Write,
)
from resource_objects.resources import Inventories
from resource_objects.testing.conformance.base import (
    AGGREGATE,
    CLASS,
    TRAIT,
    Kit,
    Picture,
    change_names,
    changes_to,
    claim,
    define,
    deltas,
    host,
    kept,
    law,
    now,
    order,
    picture,
    picture_of,
    release,
    rename,
)

#: More changes than any test here makes.
MANY = 10_000


class Follower:
    """A picture of a ledger that is kept up with what was touched, and with nothing else."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._old: set[str] = set()
        self._read()

    def _read(self) -> None:
        columns = self._backend.read()
        assert columns.cursor is not None
        self.cursor, self.picture = columns.cursor, picture_of(columns)

    def _choose(self, touched: Touched) -> Collection[str] | None:
        """Return whose trees to read: of those touched, and of the roots they had."""
        root_of = {one.uuid: one.root for one in self.picture.providers.values()}
        self._old = {root_of[one] for one in touched.providers if one in root_of}
        roots = {self.picture.providers[name].uuid for name in self._old}
        return None if touched.is_wide else touched.providers | roots

    def keep_up(self) -> Picture:
        """Return what the ledger holds, read anew only if the feed has forgotten something."""
        try:
            self.follow()
        except exceptions.CursorExpired:
            self._read()
        return self.picture

    def follow(self) -> Changed:
        """Take over what was changed."""
        changed = self._backend.read_changed(self.cursor, MANY, self._choose)
        if changed.columns is None:
            # by the way that every backend has, also because others wrote all the time
            self._read()
            return changed
        assert changed.columns.cursor == changed.cursor
        found, was = picture_of(changed.columns), self.picture
        gone = {name for name, one in was.providers.items() if one.root in self._old}
        gone |= found.providers.keys()
        self.picture = Picture(
            {n: one for n, one in was.providers.items() if n not in gone} | found.providers,
            {k: one for k, one in was.allocations.items() if k[1] not in gone} | found.allocations,
            {k: one for k, one in was.units.items() if k[0] not in gone} | found.units,
        )
        self.cursor = changed.cursor
        return changed


def _ask(backend: Backend, after: Cursor, most: int = MANY) -> tuple[Changed, Touched | None]:
    """Return what was changed, reading all trees that were touched, and whom it touched."""
    seen: list[Touched] = []

    def choose(touched: Touched) -> Collection[str]:
        seen.append(touched)
        return touched.providers

    changed = backend.read_changed(after, most, choose)
    return changed, seen[-1] if seen else None


class FreshnessRules(Kit):
    """What is read of what was changed, and when nothing is."""

    def test_nothing_is_read_when_nothing_was_changed(self, backend: Backend) -> None:
        define(backend, host("host0"))
        cursor = backend.cursor()
        changed, touched = _ask(backend, cursor)
        assert (changed.cursor, changed.changes) == (cursor, 0)
        assert touched in (None, Touched(frozenset(), False))
        assert changed.columns is not None and not changed.columns.providers.uuid

    def test_the_trees_that_were_touched_are_read_whole(self, backend: Backend) -> None:
        tree = host("host0", "VCPU=8")
        tree.add("host0/gpu", "PGPU=1", traits=["CUSTOM_A"])
        names = define(backend, tree, host("host1"), host("host2"))
        claim(backend, "before", {names["host0/gpu"]: "PGPU=1"})
        cursor = backend.cursor()
        claim(backend, "a", {names["host0"]: "VCPU=1"})
        claim(backend, "b", {names["host2"]: "VCPU=1"})
        changed, touched = _ask(backend, cursor)
        assert touched == Touched(frozenset((names["host0"], names["host2"])), False)
        assert (changed.cursor, changed.changes) == (backend.cursor(), 2)
        assert changed.columns is not None
        assert picture_of(changed.columns) == picture(backend, "host0", "host2")

    def test_more_changes_than_asked_for_are_not_read(self, backend: Backend) -> None:
        names = define(backend, host("host0"))
        cursor = backend.cursor()
        for number in range(4):
            claim(backend, f"job-{number}", {names["host0"]: "VCPU=1"})
        changed, _ = _ask(backend, cursor, most=3)
        assert changed.columns is None and changed.changes == 4
        changed, _ = _ask(backend, cursor, most=4)
        assert changed.columns is not None and changed.changes == 4

    def test_nothing_is_read_where_nothing_is_chosen(self, backend: Backend) -> None:
        names = define(backend, host("host0"))
        cursor = backend.cursor()
        claim(backend, "job", {names["host0"]: "VCPU=1"})
        changed = backend.read_changed(cursor, MANY, lambda touched: None)
        assert (changed.columns, changed.changes) == (None, 1)
        changed = backend.read_changed(cursor, MANY, lambda touched: ())
        assert changed.columns is not None and not changed.columns.providers.uuid

    def test_who_is_gone_gives_nothing(self, backend: Backend) -> None:
        names = define(backend, host("host0"), host("host1"))
        cursor = backend.cursor()
        removal = ProviderRemoval(names["host1"], "host1", kept(backend, "host1").generation or 0)
        backend.define(Operation(), DefinitionChanges("host1", removals=(removal,)))
        changed, touched = _ask(backend, cursor)
        assert touched == Touched(frozenset((names["host1"],)), False)
        assert changed.columns is not None and not changed.columns.providers.uuid

    def test_a_uuid_is_not_taken_for_a_name(self, backend: Backend) -> None:
        names = define(backend, host("host0"))
        other = ProviderDefinition(str(uuid.uuid4()), names["host0"], None, (), frozenset())
        backend.define(Operation(), DefinitionChanges("host1", creates=(other,)))
        cursor = backend.cursor()
        claim(backend, "job", {names["host0"]: "VCPU=1"})
        changed, _ = _ask(backend, cursor)
        # who cannot tell them apart may have everything read
        assert changed.columns is None or list(changed.columns.providers.name) == ["host0"]

    def test_a_renewal_changes_nothing_that_is_read(self, backend: Backend) -> None:
        names = define(backend, host("host0"))
        claim(backend, "job", {names["host0"]: "VCPU=1"})
        cursor = backend.cursor()
        backend.commit(Write(Operation(), "renew", "job", orders=(Renewal("job", None),)))
        changed, touched = _ask(backend, cursor)
        assert touched is not None and not touched.is_wide
        assert touched.providers <= {names["host0"]}
        assert changed.columns is not None and changed.changes == 1

    def test_a_rename_on_its_own_touches_everybody(self, backend: Backend) -> None:
        define(backend, Provider("host0", {"CUSTOM_OLD": 4}, traits=["CUSTOM_A"]))
        for kind, name in ((CLASS, "CUSTOM_OLD"), (TRAIT, "CUSTOM_A")):
            cursor = backend.cursor()
            change_names(backend, rename(kind, name, "CUSTOM_NEW"))
            _, touched = _ask(backend, cursor)
            assert touched == Touched(frozenset(), True)

    def test_a_rename_beside_other_changes_names_whom_it_touched(self, backend: Backend) -> None:
        told = Provider("told", {"CUSTOM_OLD": 4}, traits=["CUSTOM_A"])
        names = define(backend, host("host0"), told, host("other"))
        cursor = backend.cursor()
        backend.commit(
            Write(
                Operation(),
                "reshape",
                "job",
                orders=(ClaimOrder("job", deltas({names["host0"]: "VCPU=1"})),),
                names=(rename(CLASS, "CUSTOM_OLD", "CUSTOM_NEW"),),
            )
        )
        _, touched = _ask(backend, cursor)
        assert touched == Touched(frozenset((names["host0"], names["told"])), False)
        cursor = backend.cursor()
        backend.commit(
            Write(
                Operation(),
                "reshape",
                "host0",
                changes_to(backend, host("host0", "VCPU=9")),
                names=(rename(TRAIT, "CUSTOM_A", "CUSTOM_B"),),
            )
        )
        _, touched = _ask(backend, cursor)
        assert touched == Touched(frozenset((names["host0"], names["told"])), False)

    def test_a_cursor_that_is_no_good_is_refused(self, backend: Backend) -> None:
        names = define(backend, host("host0"))
        old = backend.cursor()
        claim(backend, "job", {names["host0"]: "VCPU=1"})
        ahead = Cursor(tuple(head + 1 for head in backend.cursor().heads))
        with pytest.raises(exceptions.CursorExpired):
            _ask(backend, ahead)
        moment = began = now()
        while moment <= began:
            moment = now()
        backend.prune(moment)
        for cursor in (old, Cursor((0,) * SHARDS)):
            with pytest.raises(exceptions.CursorExpired):
                _ask(backend, cursor)

    @law(11)
    def test_nothing_is_told_of_who_follows(self, backend: Backend) -> None:
        names = define(backend, host("host0"))
        follower = Follower(backend)
        claim(backend, "job", {names["host0"]: "VCPU=1"})
        cursor = backend.cursor()
        assert follower.follow().changes == 1
        assert backend.cursor() == cursor == follower.cursor

    # --- a picture that is kept up ---

    @law(1)
    def test_who_follows_has_what_is_kept(self, backend: Backend) -> None:
        """After every kind of write, one at a time."""
        follower = Follower(backend)
        names: dict[str, str] = {}

        def check() -> None:
            follower.follow()
            assert follower.picture == picture(backend)
            assert follower.cursor == backend.cursor()

        def defined(*roots: Provider) -> None:
            names.update(define(backend, *roots))
            check()

        tree = host("host0", "VCPU=8")
        tree.add("cell0", "PCPU=4", traits=["CUSTOM_A"])
        tree.add("cell1", "PCPU=4")
        defined(tree, host("host1"), host("host2"))
        claim(backend, "job", {names["host0"]: "VCPU=1", names["cell0"]: "PCPU=1"})
        check()
        order(backend, Replacement("job", deltas({names["host1"]: "VCPU=2"})))
        check()
        tree = kept(backend, "host0")
        tree.find("cell0").update(traits={"CUSTOM_B"}, aggregates={"rack0"})
        defined(tree)
        tree = kept(backend, "host0")
        tree.find("cell1").update(inventories=Inventories({"PCPU": 6, "MEMORY_MB": 7}))
        defined(tree)
        reparent(backend, "cell1", "host2")
        check()
        assert follower.picture.providers["cell1"].root == "host2"
        claim(backend, "job-2", {names["cell1"]: "PCPU=1"})
        check()
        for change in (
            NameChange(AGGREGATE, NameAction.ENSURE, "rack1"),
            rename(AGGREGATE, "rack0", "rack2"),
            rename(TRAIT, "CUSTOM_B", "CUSTOM_C"),
        ):
            change_names(backend, change)
            check()
        backend.commit(Write(Operation(), "report", "host0", reported=(names["host1"],)))
        check()
        tree = kept(backend, "host0")
        tree.update(children=())
        defined(tree)
        order(backend, Release("job"), Release("job-2"))
        check()

    @law(2)
    def test_who_follows_sees_each_write_whole(self, backend: Backend) -> None:
        """Writers take of two trees at once: a picture has both parts, or none."""
        names = define(backend, *(host(f"host{n}", "VCPU=9999") for n in range(4)))
        uuids = list(names.values())
        done = threading.Event()
        follower = Follower(backend)

        def write(number: int) -> None:
            for turn in range(12):
                here, there = uuids[number], uuids[(number + 1 + turn % 3) % 4]
                claim(backend, f"job-{number}-{turn}", {here: "VCPU=1", there: "VCPU=1"})
                if turn % 3 == 2:
                    release(backend, f"job-{number}-{turn}")

        def follow() -> None:
            while not done.is_set():
                was = backend.cursor()
                follower.follow()
                assert all(a <= b for a, b in zip(was.heads, follower.cursor.heads, strict=True))
                consumers = [consumer for consumer, _, _ in follower.picture.allocations]
                assert all(consumers.count(consumer) == 2 for consumer in set(consumers))
                # sums agree within trees, and trees with one another
                total = sum(follower.picture.used(name, "VCPU") for name in names)
                assert total == len(consumers)

        with ThreadPoolExecutor(5) as pool:
            following = pool.submit(follow)
            try:
                for future in [pool.submit(write, number) for number in range(4)]:
                    future.result()
            finally:
                done.set()
            following.result()
        follower.follow()
        assert follower.picture == picture(backend)


def reparent(backend: Backend, name: str, parent: str) -> None:
    """Move a provider, and all below it, below another."""
    found = picture(backend)
    provider, nothing = found.providers[name], frozenset[str]()
    definition = ProviderDefinition(
        provider.uuid,
        name,
        found.providers[parent].uuid,
        tuple(provider.inventories.values()),
        provider.traits,
    )
    update = ProviderUpdate(definition, provider.generation, (), (), nothing, nothing)
    backend.define(Operation(), DefinitionChanges(name, updates=(update,)))
