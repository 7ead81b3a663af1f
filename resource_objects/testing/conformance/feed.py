"""Tests of the change feed: every write has one entry in each shard that it concerns, in order.

A follower that reads only the changed trees has the stored state at each moment.
"""

from __future__ import annotations

import datetime
import functools
import secrets
import uuid as uuids
from collections import Counter
from collections.abc import Collection, Iterable

from resource_objects.providers import Backend
from resource_objects.providers.backend import Changed, Touched
from resource_objects.providers.definition import DefinitionChanges, ProviderDefinition
from resource_objects.providers.feed import SHARDS, Cursor, FeedEntry
from resource_objects.providers.orders import ConsumerOrder, NameAction, NameChange, Operation
from resource_objects.testing.conformance import suite as kit
from resource_objects.testing.conformance.races import read_during
from resource_objects.testing.refusals import raises_code

_ZERO = Cursor((0,) * SHARDS)


def everything(backend: Backend, after: Cursor = _ZERO, limit: int = 7) -> list[FeedEntry]:
    """Return all changes after a cursor, read page by page."""
    result: list[FeedEntry] = []
    while page := backend.changes(after, limit):
        assert len(page) <= limit
        result += page
        after = after.moved(page)
    assert after == backend.cursor()
    return result


def check_order(changes: Iterable[FeedEntry]) -> None:
    """Check that the entries of each shard are in order and without a gap."""
    last: dict[int, int] = {}
    for change in changes:
        assert change.number == last.get(change.shard, change.number - 1) + 1
        last[change.shard] = change.number


def check_expired(backend: Backend, cursor: Cursor) -> None:
    """Check that changes after a cursor cannot be read."""
    with raises_code("CursorExpired"):
        backend.changes(cursor, 10)
    with raises_code("CursorExpired"):
        backend.read_changed(cursor, MANY, lambda touched: ())


class FeedRules(kit.Kit):
    """Entries of the change feed, pages and pruning."""

    # --- entries ---

    def test_a_cursor_of_another_history_expires(self, backend: Backend) -> None:
        assert backend.changes(_ZERO, 10) == ()
        names = kit.define(backend, kit.host("host0"))
        kit.claim(backend, "job", {names["host0"]: "VCPU=1"})
        cursor = backend.cursor()
        # the cursor of a ledger in which the last writes were others
        other = Cursor(cursor.heads, tuple(n + 1 if n else 0 for n in cursor.last), cursor.epoch)
        for place in (other, Cursor(cursor.heads, cursor.last, cursor.epoch + 1)):
            check_expired(backend, place)
        kit.claim(backend, "job-2", {names["host0"]: "VCPU=1"})
        check_expired(backend, other)
        assert len(backend.changes(cursor, 10)) == 1

    # --- pages ---

    def test_pages_cover_everything_once(self, backend: Backend) -> None:
        names = kit.define(backend, *(kit.host(f"host{n}", "VCPU=99") for n in range(5)))
        for turn in range(4):
            for number, destination in enumerate(names.values()):
                if number <= turn:
                    kit.adjust(backend, f"job-{number}", {destination: "VCPU=1"})
        complete = everything(backend, limit=1000)
        for limit in (1, 3):
            paged = everything(backend, limit=limit)
            check_order(paged)
            assert sorted(paged, key=_place) == sorted(complete, key=_place)
        assert len({_place(change) for change in complete}) == len(complete)

    def test_a_busy_shard_does_not_starve_others(self, backend: Backend) -> None:
        names = kit.define(backend, kit.host("busy", "VCPU=999"), kit.host("quiet", "VCPU=9"))
        cursor = backend.cursor()
        for _ in range(5):
            kit.adjust(backend, "a", {names["busy"]: "VCPU=1"})
        kit.adjust(backend, "b", {names["quiet"]: "VCPU=1"})
        for _ in range(30):
            kit.adjust(backend, "a", {names["busy"]: "VCPU=1"})
        first = backend.changes(cursor, 20)
        assert len(first) == 20
        assert any(change.consumers == ("b",) for change in first)

    # --- concurrent writers ---

    @kit.law(2)
    def test_a_reader_that_continues_from_a_snapshot_misses_nothing(self, backend: Backend) -> None:
        """A write is in the snapshot or in the feed after its cursor, never in both."""
        names = kit.define(backend, *(kit.host(f"host{n}", "VCPU=9999") for n in range(3)))
        uuids, start = list(names.values()), backend.cursor()
        snapshots: list[tuple[set[str], Cursor]] = []
        followed: list[FeedEntry] = []

        def read() -> None:
            columns = backend.read()
            assert columns.cursor is not None
            snapshots.append((set(columns.allocations.consumer), columns.cursor))
            while page := backend.changes(start.moved(followed), 5):
                followed.extend(page)

        def write(number: int) -> None:
            for turn in range(20):
                amounts = {uuids[turn % 3]: "VCPU=1", uuids[(turn + number) % 3]: "VCPU=2"}
                kit.claim(backend, f"job-{number}-{turn}", amounts)

        read_during([functools.partial(write, number) for number in range(3)], read)
        everybody = {f"job-{number}-{turn}" for number in range(3) for turn in range(20)}
        for seen, cursor in [*snapshots[:: max(1, len(snapshots) // 40)], snapshots[-1]]:
            later = everything(backend, cursor, limit=50)
            check_order(later)
            reported = {name for change in later for name in change.consumers}
            assert seen | reported == everybody and not seen & reported
        check_order(followed)
        assert sorted(followed, key=_place) == sorted(everything(backend, start), key=_place)
        places = Counter(change.operation for change in followed)  # one entry for each tree
        assert sorted(places.values()) == [1] * 20 + [2] * 40

    # --- pruning ---

    def test_pruned_entries_expire_the_cursors_before_them(self, backend: Backend) -> None:
        names = kit.define(backend, kit.host("host0"))
        old = backend.cursor()
        kit.claim(backend, "job", {names["host0"]: "VCPU=1"})
        middle = backend.cursor()
        kit.claim(backend, "job-2", {names["host0"]: "VCPU=1"})
        last, moment = backend.cursor(), kit.later_moment()
        pruned = backend.prune(moment)
        assert (
            pruned.changes == 2
        )  # the last entry of a shard is not pruned: it identifies the history
        for cursor in (_ZERO, old, middle):
            check_expired(backend, cursor)
        assert backend.changes(last, 10) == ()
        assert backend.prune(moment).changes == 0
        kit.claim(backend, "job-3", {names["host0"]: "VCPU=1"})
        assert [item.consumers for item in everything(backend, last)] == [("job-3",)]

    def test_a_cursor_after_the_pruned_entries_is_valid(self, backend: Backend) -> None:
        kit.define(backend, kit.host("host0"), kit.host("host1"))
        cursor = backend.cursor()
        backend.prune(kit.later_moment())
        assert backend.cursor() == cursor == backend.read().cursor
        assert backend.changes(cursor, 10) == ()
        for shard in (cursor.heads.index(1), cursor.heads.index(0)):
            ahead = Cursor(tuple(head + (n == shard) for n, head in enumerate(cursor.heads)))
            check_expired(backend, ahead)
        kit.change_names(backend, NameChange(kit.AGGREGATE, NameAction.ENSURE, "rack"))
        assert len(backend.changes(cursor, 10)) == 1

    @kit.law(4)
    def test_pruning_removes_operations_and_no_state(self, backend: Backend) -> None:
        [here] = kit.define(backend, kit.host("host0")).values()
        removed, old = Operation(), Operation()
        backend.claim(removed, ConsumerOrder.claim("gone", kit.deltas({here: "VCPU=1"})))
        kit.release(backend, "gone")
        first = backend.claim(old, ConsumerOrder.claim("job", kit.deltas({here: "VCPU=1"})))
        before = kit.ledger_state(backend)
        pruned = backend.prune(kit.later_moment())
        assert pruned.operations == 3  # the definition, a claim, the release; not the last one
        assert kit.ledger_state(backend) == before
        assert backend.consumer("job") == first
        assert backend.outcome(removed) is None and backend.outcome(old) is not None
        kit.release(backend, "job")
        again = kit.claim(backend, "job", {here: "VCPU=1"})
        assert again.generation != first.generation

    @kit.law(6)
    def test_an_operation_older_than_the_retention_is_refused(self, backend: Backend) -> None:
        [here] = kit.define(backend, kit.host("host0")).values()
        old = Operation(_operation_id(kit.now() - datetime.timedelta(days=8)))
        assert old.made_at is not None and Operation(str(uuids.uuid4())).made_at is None
        with raises_code("OperationExpired"):
            backend.claim(old, ConsumerOrder.claim("job", kit.deltas({here: "VCPU=1"})))
        assert backend.consumer("job") is None
        younger = Operation(_operation_id(kit.now() - datetime.timedelta(days=2)))
        created = backend.claim(younger, ConsumerOrder.claim("job", kit.deltas({here: "VCPU=1"})))
        again = ConsumerOrder.claim("job", kit.deltas({here: "VCPU=2"}))
        assert backend.claim(younger, again) == created

    def test_writes_prune_entries_older_than_the_retention(self, backend: Backend) -> None:
        [here] = kit.define(backend, kit.host("host0", "VCPU=9999")).values()
        first = Operation()
        backend.claim(first, ConsumerOrder.claim("job", kit.deltas({here: "VCPU=1"})))
        backend.retain(datetime.timedelta(0))
        kit.later_moment()
        for _ in range(1000):
            kit.adjust(backend, "other", {here: "VCPU=1"})
            if backend.outcome(first) is None:
                break
        assert backend.outcome(first) is None
        assert backend.consumer("job") is not None
        with raises_code("CursorExpired"):
            backend.changes(_ZERO, 10)

    def test_entries_within_the_retention_are_not_pruned(self, backend: Backend) -> None:
        [here] = kit.define(backend, kit.host("host0")).values()
        operation = Operation()
        backend.claim(operation, ConsumerOrder.claim("job", kit.deltas({here: "VCPU=1"})))
        kit.release(backend, "job")
        pruned = backend.prune(kit.now() - datetime.timedelta(days=1))
        assert (pruned.operations, pruned.changes) == (0, 0)
        assert backend.outcome(operation) is not None
        assert len(everything(backend)) == 3


def _place(change: FeedEntry) -> tuple[int, int]:
    return change.shard, change.number


def _operation_id(when: datetime.datetime) -> str:
    """Return an id of an operation that was created at a time."""
    milliseconds = int(when.timestamp() * 1000)
    return str(uuids.UUID(int=milliseconds << 80 | 7 << 76 | 2 << 62 | secrets.randbits(62)))


# --- freshness ---


#: More changes than any test writes.
MANY = 10_000


class Follower:
    """A state of a ledger that is updated only by reading changed trees."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._old: set[str] = set()
        #: the providers that the last followed changes concern
        self.touched = Touched()
        self._read()

    def _read(self) -> None:
        columns = self._backend.read()
        assert columns.cursor is not None
        self.cursor, self.state = columns.cursor, kit.state_of_columns(columns)

    def _choose(self, touched: Touched) -> Collection[str] | None:
        """Return the providers whose trees are read: the changed ones and their former roots."""
        self.touched = touched
        root_of = {value.uuid: value.root for value in self.state.providers.values()}
        self._old = {root_of[provider] for provider in touched.providers if provider in root_of}
        roots = {self.state.providers[name].uuid for name in self._old}
        return None if touched.is_wide else touched.providers | roots

    def follow(self) -> Changed:
        """Read the changed trees into the state."""
        changed = self._backend.read_changed(self.cursor, MANY, self._choose)
        if changed.columns is None:
            # a backend can always answer so, for instance because of concurrent writes
            self._read()
            return changed
        assert changed.columns.cursor == changed.cursor
        result, was = kit.state_of_columns(changed.columns), self.state
        removed = {name for name, item in was.providers.items() if item.root in self._old}
        removed |= result.providers.keys()
        self.state = kit.LedgerState(
            {n: item for n, item in was.providers.items() if n not in removed} | result.providers,
            {k: item for k, item in was.allocations.items() if k[1] not in removed}
            | result.allocations,
            {k: item for k, item in was.units.items() if k[0] not in removed} | result.units,
        )
        self.cursor = changed.cursor
        return changed


def _changed(backend: Backend, after: Cursor, most: int = MANY) -> Changed:
    """Return the changed trees of all providers that the changes concern."""
    return backend.read_changed(after, most, lambda touched: touched.providers)


class FreshnessRules(kit.Kit):
    """Reading of changed trees (``read_changed``)."""

    def test_more_changes_than_requested_are_not_read(self, backend: Backend) -> None:
        here, _ = kit.two_hosts(backend)
        cursor = backend.cursor()
        for number in range(4):
            kit.claim(backend, f"job-{number}", {here: "VCPU=1"})
        changed = _changed(backend, cursor, most=3)
        assert changed.columns is None and changed.changes == 4
        changed = _changed(backend, cursor, most=4)
        assert changed.columns is not None and changed.changes == 4
        assert changed.cursor == backend.cursor()

    def test_only_selected_trees_are_read(self, backend: Backend) -> None:
        here, _ = kit.two_hosts(backend)
        cursor = backend.cursor()
        changed = _changed(backend, cursor)
        assert (changed.cursor, changed.changes) == (cursor, 0)
        assert changed.columns is not None and not changed.columns.providers.uuid
        kit.claim(backend, "job", {here: "VCPU=1"})
        changed = backend.read_changed(cursor, MANY, lambda touched: None)
        assert (changed.columns, changed.changes) == (None, 1)
        changed = backend.read_changed(cursor, MANY, lambda touched: ())
        assert changed.columns is not None and not changed.columns.providers.uuid

    def test_a_uuid_is_not_confused_with_a_name(self, backend: Backend) -> None:
        here, _ = kit.two_hosts(backend)
        other = ProviderDefinition(str(uuids.uuid4()), here, None, (), frozenset())
        backend.define(Operation(), DefinitionChanges("other", creates=(other,)))
        cursor = backend.cursor()
        kit.claim(backend, "job", {here: "VCPU=1"})
        changed = _changed(backend, cursor)
        # a backend that cannot distinguish them can read everything
        assert changed.columns is None or list(changed.columns.providers.name) == ["host0"]

    def test_a_renewal_changes_no_tree(self, backend: Backend) -> None:
        here, _ = kit.two_hosts(backend)
        kit.claim(backend, "job", {here: "VCPU=1"})
        follower = Follower(backend)
        kit.order(backend, ConsumerOrder.renew("job", None))
        assert follower.follow().changes == 1
        assert not follower.touched.is_wide and follower.touched.providers <= {here}
        assert follower.state == kit.ledger_state(backend)

    # --- a followed state ---

    @kit.law(2)
    def test_a_follower_sees_each_write_completely(self, backend: Backend) -> None:
        """Each claim allocates at two trees: a state has both parts or none."""
        names = kit.define(backend, *(kit.host(f"host{n}", "VCPU=9999") for n in range(4)))
        uuids = list(names.values())
        follower = Follower(backend)

        def write(number: int) -> None:
            for turn in range(12):
                here, destination = uuids[number], uuids[(number + 1 + turn % 3) % 4]
                kit.claim(backend, f"job-{number}-{turn}", {here: "VCPU=1", destination: "VCPU=1"})
                if turn % 3 == 2:
                    kit.release(backend, f"job-{number}-{turn}")

        def follow() -> None:
            before = backend.cursor()
            follower.follow()
            assert all(a <= b for a, b in zip(before.heads, follower.cursor.heads, strict=True))
            consumers = [consumer for consumer, _, _ in follower.state.allocations]
            assert all(consumers.count(consumer) == 2 for consumer in set(consumers))
            # the sums are right within each tree and between trees
            total = sum(follower.state.used(name, "VCPU") for name in names)
            assert total == len(consumers)

        read_during([functools.partial(write, number) for number in range(4)], follow)
        assert follower.state == kit.ledger_state(backend)
