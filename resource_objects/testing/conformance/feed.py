"""Rules of the change feed: every write is told once to each shard it touches, in order (D9)."""

from __future__ import annotations

import datetime
import threading
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import pytest

from resource_objects import exceptions
from resource_objects.providers import Backend
from resource_objects.providers.definition import (
    DefinitionChanges,
    ProviderDefinition,
    ProviderUpdate,
)
from resource_objects.providers.feed import SHARDS, Change, Cursor
from resource_objects.providers.orders import (
    ClaimOrder,
    Delta,
    NameAction,
    NameChange,
    Operation,
    Release,
    Renewal,
    Replacement,
    Write,
)
from resource_objects.providers.provider import Share
from resource_objects.testing.conformance.base import (
    AGGREGATE,
    CLASS,
    Kit,
    adjust,
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
    release,
    rename,
)

_ZERO = Cursor((0,) * SHARDS)


def everything(backend: Backend, after: Cursor = _ZERO, limit: int = 7) -> list[Change]:
    """Return all changes after a cursor, read page by page."""
    found: list[Change] = []
    while page := backend.changes(after, limit):
        assert len(page) <= limit
        found += page
        after = after.moved(page)
    assert after == backend.cursor()
    return found


def check_order(changes: Iterable[Change]) -> None:
    """Check that each shard's changes have no gap and are in order."""
    last: dict[int, int] = {}
    for change in changes:
        assert change.number == last.get(change.shard, change.number - 1) + 1
        last[change.shard] = change.number


class FeedRules(Kit):
    """What the feed tells, and to whom."""

    # --- what is told ---

    def test_a_new_ledger_has_nothing_to_tell(self, backend: Backend) -> None:
        assert backend.cursor() == _ZERO
        assert backend.changes(_ZERO, 10) == ()

    def test_a_write_is_told_in_full(self, backend: Backend) -> None:
        names = define(backend, host("host0"), host("host1"))
        cursor, before = backend.cursor(), now()
        operation = Operation(actor="Größe 大")
        wanted = ClaimOrder("job", deltas({names["host0"]: "VCPU=1,MEMORY_MB=1"}))
        backend.claim(operation, wanted)
        [change] = backend.changes(cursor, 10)
        said = change.operation, change.kind, change.subject, change.actor
        assert said == (operation.id, "claim", "job", "Größe 大")
        assert (change.providers, change.consumers) == ((names["host0"],), ("job",))
        assert before <= change.at <= now()
        assert change.number == cursor.heads[change.shard] + 1
        assert backend.cursor() == cursor.moved([change])

    def test_every_write_is_told_once(self, backend: Backend) -> None:
        names = define(backend, host("host0"), host("host1"))
        cursor = backend.cursor()
        told = []

        def tell(write: Write) -> None:
            backend.commit(write)
            told.append((write.operation.id, write.kind, write.subject))

        here, there = names["host0"], names["host1"]
        for kind, one in (
            ("claim", ClaimOrder("job", deltas({here: "VCPU=1"}))),
            ("replace", Replacement("job", deltas({here: "VCPU=2"}))),
            ("renew", Renewal("job", None)),
            ("release", Release("job")),
        ):
            tell(Write(Operation(), kind, "job", orders=(one,)))
        tell(Write(Operation(), "define", "host0", changes_to(backend, host("host0", "VCPU=9"))))
        tell(Write(Operation(), "report", "host0", reported=(there,)))
        name = NameChange(AGGREGATE, NameAction.ENSURE, "rack")
        tell(Write(Operation(), "names", "rack", names=(name,)))
        changes = everything(backend, cursor)
        assert [(one.operation, one.kind, one.subject) for one in changes] == told
        check_order(changes)

    def test_a_write_that_touches_no_tree_is_told_too(self, backend: Backend) -> None:
        change_names(backend, NameChange(CLASS, NameAction.ENSURE, "CUSTOM_NEW"))
        change_names(backend, rename(CLASS, "CUSTOM_NEW", "CUSTOM_NEWER"))
        changes = everything(backend)
        assert [(one.shard, one.number, one.providers) for one in changes] == [
            (0, 1, ()),
            (0, 2, ()),
        ]

    def test_each_tree_is_told_of_what_touches_it(self, backend: Backend) -> None:
        names = define(backend, host("host0"), host("host1"), host("host2"))
        cursor = backend.cursor()
        claim(backend, "a", {names["host0"]: "VCPU=1", names["host1"]: "VCPU=1"})
        order(
            backend,
            Replacement("a", deltas({names["host1"]: "VCPU=2"})),
            ClaimOrder("b", deltas({names["host2"]: "VCPU=1"})),
        )
        changes = everything(backend, cursor)
        assert len({(one.operation, one.shard) for one in changes}) == len(changes) == 5
        first, second = changes[:2], changes[2:]
        assert {one.providers + one.consumers for one in first} == {
            (names["host0"], "a"),
            (names["host1"], "a"),
        }
        assert {one.providers + one.consumers for one in second} == {
            (names["host0"], "a"),
            (names["host1"], "a"),
            (names["host2"], "b"),
        }
        assert len({one.operation for one in second}) == 1

    def test_targets_of_shares_are_told(self, backend: Backend) -> None:
        tree = host("host0", "VCPU=8")
        share = Share(resource_class="VCPU", of="host0", of_class="VCPU")
        tree.add("cell0", "VCPU=4", shares=[share])
        names = define(backend, tree)
        cursor = backend.cursor()
        claim(backend, "job", {names["cell0"]: "VCPU=1"})
        [change] = backend.changes(cursor, 10)
        assert set(change.providers) == {names["host0"], names["cell0"]}

    def test_definitions_tell_whom_they_changed(self, backend: Backend) -> None:
        tree = host("host0", "VCPU=8")
        tree.add("a", "VCPU=4")
        tree.add("b", "VCPU=4")
        names = define(backend, tree, host("other"))
        cursor = backend.cursor()
        tree = kept(backend, "host0")
        tree.find("a").update(traits={"CUSTOM_A"})
        define(backend, tree)
        [change] = backend.changes(cursor, 10)
        assert (change.providers, change.consumers) == ((names["a"],), ())
        cursor = backend.cursor()
        tree = kept(backend, "host0")
        tree.update(children=tuple(child for child in tree.children if child.name != "b"))
        define(backend, tree)
        [change] = backend.changes(cursor, 10)
        assert set(change.providers) == {names["b"], names["host0"]}

    def test_a_provider_that_changes_its_tree_is_told_in_both(self, backend: Backend) -> None:
        old = host("old", "VCPU=8")
        old.add("moves", "VCPU=4")
        names = define(backend, old, host("new", "VCPU=8"))
        found, nothing = picture(backend).providers["moves"], frozenset[str]()
        definition = ProviderDefinition(
            names["moves"], "moves", names["new"], tuple(found.inventories.values()), nothing
        )
        update = ProviderUpdate(definition, found.generation, (), (), nothing, nothing)
        cursor = backend.cursor()
        backend.define(Operation(), DefinitionChanges("moves", updates=(update,)))
        assert picture(backend).providers["moves"].root == "new"
        changes = everything(backend, cursor)
        assert len({one.shard for one in changes}) == len(changes) == 2
        assert all(names["moves"] in one.providers for one in changes)

    @law(2)
    def test_what_was_refused_or_repeated_is_not_told(self, backend: Backend) -> None:
        names = define(backend, host("host0"))
        operation = Operation()
        wanted = ClaimOrder("job", deltas({names["host0"]: "VCPU=1"}))
        backend.claim(operation, wanted)
        cursor = backend.cursor()
        backend.claim(operation, wanted)
        with pytest.raises(exceptions.CapacityException):
            claim(backend, "job-2", {names["host0"]: "VCPU=8"})
        with pytest.raises(exceptions.OperationConflict):
            backend.release(operation, "job")
        assert backend.cursor() == cursor
        assert backend.changes(cursor, 10) == ()

    @law(11)
    def test_reading_is_not_told(self, backend: Backend) -> None:
        define(backend, host("host0"))
        cursor = backend.cursor()
        backend.read()
        backend.changes(_ZERO, 10)
        assert backend.cursor() == cursor == backend.read("host0").cursor

    # --- pages ---

    def test_pages_cover_everything_once(self, backend: Backend) -> None:
        names = define(backend, *(host(f"host{n}", "VCPU=99") for n in range(5)))
        for turn in range(4):
            for number, uuid in enumerate(names.values()):
                if number <= turn:
                    adjust(backend, f"job-{number}", {uuid: "VCPU=1"})
        whole = everything(backend, limit=1000)
        for limit in (1, 3):
            paged = everything(backend, limit=limit)
            check_order(paged)
            assert sorted(paged, key=_place) == sorted(whole, key=_place)
        assert len({_place(change) for change in whole}) == len(whole)

    def test_a_busy_shard_does_not_starve_others(self, backend: Backend) -> None:
        names = define(backend, host("busy", "VCPU=999"), host("quiet", "VCPU=9"))
        cursor = backend.cursor()
        for _ in range(5):
            adjust(backend, "a", {names["busy"]: "VCPU=1"})
        adjust(backend, "b", {names["quiet"]: "VCPU=1"})
        for _ in range(30):
            adjust(backend, "a", {names["busy"]: "VCPU=1"})
        first = backend.changes(cursor, 20)
        assert len(first) == 20
        assert any(change.consumers == ("b",) for change in first)

    def test_a_cursor_survives_as_text(self, backend: Backend) -> None:
        names = define(backend, host("host0"))
        cursor = Cursor.parse(str(backend.cursor()))
        claim(backend, "job", {names["host0"]: "VCPU=1"})
        [change] = backend.changes(cursor, 10)
        assert change.consumers == ("job",)

    # --- with others writing ---

    @law(2)
    def test_who_reads_and_goes_on_from_there_misses_nothing(self, backend: Backend) -> None:
        """What a picture does not show yet, the feed tells after its cursor; never both."""
        names = define(backend, *(host(f"host{n}", "VCPU=9999") for n in range(3)))
        uuids = list(names.values())
        done = threading.Event()
        looks: list[tuple[set[str], Cursor]] = []

        def look() -> None:
            while not done.is_set():
                columns = backend.read()
                assert columns.cursor is not None
                looks.append((set(columns.allocations.consumer), columns.cursor))

        def write(number: int) -> None:
            for turn in range(20):
                wanted = {uuids[turn % 3]: "VCPU=1", uuids[(turn + number) % 3]: "VCPU=2"}
                claim(backend, f"job-{number}-{turn}", wanted)

        with ThreadPoolExecutor(5) as pool:
            looking = pool.submit(look)
            try:
                for future in [pool.submit(write, number) for number in range(3)]:
                    future.result()
            finally:
                done.set()
            looking.result()
        everybody = {f"job-{number}-{turn}" for number in range(3) for turn in range(20)}
        for seen, cursor in [*looks[:: max(1, len(looks) // 40)], looks[-1]]:
            later = everything(backend, cursor, limit=50)
            check_order(later)
            told = {name for change in later for name in change.consumers}
            assert seen | told == everybody and not seen & told

    @law(2)
    def test_a_reader_that_follows_sees_each_change_once(self, backend: Backend) -> None:
        figures = "VCPU=9999,MEMORY_MB=9999"
        names = define(backend, *(host(f"host{n}", figures) for n in range(4)))
        uuids = list(names.values())
        cursor = backend.cursor()
        done = threading.Event()
        seen: list[Change] = []

        def follow() -> None:
            at = cursor
            while True:
                last = done.is_set()
                page = backend.changes(at, 5)
                seen.extend(page)
                at = at.moved(page)
                if last and not page:
                    return

        def write(number: int) -> list[str]:
            made = []
            for turn in range(15):
                operation, here, there = Operation(), uuids[turn % 4], uuids[number]
                wanted = (Delta(here, "VCPU", 1), Delta(there, "MEMORY_MB", 1))
                backend.claim(operation, ClaimOrder(f"job-{number}-{turn}", wanted))
                made += [operation.id] * len({here, there})
            return made

        with ThreadPoolExecutor(5) as pool:
            following = pool.submit(follow)
            try:
                made = [pool.submit(write, number) for number in range(4)]
                told = [id for future in made for id in future.result()]
            finally:
                done.set()
            following.result()
        check_order(seen)
        assert Counter(change.operation for change in seen) == Counter(told)

    # --- what is forgotten ---

    def test_what_was_pruned_expires_the_cursors_before_it(self, backend: Backend) -> None:
        names = define(backend, host("host0"), host("host1"))
        old = backend.cursor()
        claim(backend, "job", {names["host0"]: "VCPU=1"})
        middle, moment = backend.cursor(), _a_moment_later()
        claim(backend, "job-2", {names["host0"]: "VCPU=1"})
        pruned = backend.prune(moment)
        assert pruned.changes == 3
        for cursor in (_ZERO, old):
            with pytest.raises(exceptions.CursorExpired):
                backend.changes(cursor, 10)
        [change] = backend.changes(middle, 10)
        assert change.consumers == ("job-2",)
        assert backend.prune(moment).changes == 0
        claim(backend, "job-3", {names["host1"]: "VCPU=1"})
        assert [one.consumers for one in everything(backend, middle)] == [("job-2",), ("job-3",)]

    def test_a_cursor_that_needs_nothing_forgotten_is_good(self, backend: Backend) -> None:
        define(backend, host("host0"), host("host1"))
        cursor = backend.cursor()
        backend.prune(_a_moment_later())
        assert backend.cursor() == cursor == backend.read().cursor
        assert backend.changes(cursor, 10) == ()
        change_names(backend, NameChange(AGGREGATE, NameAction.ENSURE, "rack"))
        assert len(backend.changes(cursor, 10)) == 1

    def test_a_cursor_ahead_of_the_feed_has_expired(self, backend: Backend) -> None:
        define(backend, host("host0"))
        heads = backend.cursor().heads
        for shard in (heads.index(1), heads.index(0)):
            ahead = Cursor(tuple(head + (n == shard) for n, head in enumerate(heads)))
            with pytest.raises(exceptions.CursorExpired):
                backend.changes(ahead, 10)

    def test_pruning_keeps_what_consumers_were_written_by(self, backend: Backend) -> None:
        [here] = define(backend, host("host0")).values()
        gone, old, last = Operation(), Operation(), Operation()
        backend.claim(gone, ClaimOrder("gone", deltas({here: "VCPU=1"})))
        release(backend, "gone")
        first = backend.claim(old, ClaimOrder("job", deltas({here: "VCPU=1"})))
        write = Write(last, "renew", "job", orders=(Renewal("job", None),))
        backend.commit(write)
        before = picture(backend)
        pruned = backend.prune(_a_moment_later())
        assert pruned.operations == 4  # the definition, the claims, the release
        assert picture(backend) == before
        assert backend.outcome(gone) is None and backend.outcome(old) is None
        assert backend.outcome(last) is not None
        assert [record.generation for record in backend.commit(write)] == [
            record.generation for record in [backend.held("job")] if record is not None
        ]
        release(backend, "job")
        again = backend.claim(old, ClaimOrder("job", deltas({here: "VCPU=1"})))  # it is new now
        assert again.generation > first.generation

    @law(4)
    def test_no_generation_is_repeated_after_pruning(self, backend: Backend) -> None:
        [here] = define(backend, host("host0")).values()
        seen = set()
        for _ in range(3):
            seen.add(claim(backend, "job", {here: "VCPU=1"}).generation)
            release(backend, "job")
            backend.prune(_a_moment_later())
        assert len(seen) == 3

    def test_nothing_younger_is_pruned(self, backend: Backend) -> None:
        [here] = define(backend, host("host0")).values()
        operation = Operation()
        backend.claim(operation, ClaimOrder("job", deltas({here: "VCPU=1"})))
        release(backend, "job")
        pruned = backend.prune(now() - datetime.timedelta(days=1))
        assert (pruned.operations, pruned.changes) == (0, 0)
        assert backend.outcome(operation) is not None
        assert len(everything(backend)) == 3

    def test_changes_outlive_the_backend(self, backend: Backend, url: str) -> None:
        self.need("persistent")
        define(backend, host("host0"))
        told = everything(backend)
        backend.close()
        again = self.backend_class.open(url)
        try:
            assert everything(again) == told
        finally:
            again.close()


def _place(change: Change) -> tuple[int, int]:
    return change.shard, change.number


def _a_moment_later() -> datetime.datetime:
    """Return a moment after everything that was written, also on a clock of coarse ticks."""
    began = now()
    while (moment := now()) <= began:
        pass
    return moment
