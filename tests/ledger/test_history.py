"""The change feed: nothing missed, who did it, freshness, and forgetting."""

from __future__ import annotations

import datetime
import threading

import pytest

import resource_objects as ro
from resource_objects.ledger import new_operation
from resource_objects.ledger.feed import Changes
from resource_objects.providers.feed import SHARDS, Cursor, FeedEntry
from resource_objects.testing.refusals import raises_code


def told(ledger: ro.Ledger, after: Cursor | str) -> list[str]:
    """Return what is told after a cursor, as ``kind subject``."""
    found = ledger.feed.changes(after)
    return [f"{change.kind} {change.subject}" for change in found]


def all_changes(ledger: ro.Ledger, after: Cursor, limit: int) -> list[FeedEntry]:
    found: list[FeedEntry] = []
    while True:
        some = ledger.feed.changes(after, limit=limit)
        after = some.cursor
        if not some:
            return found
        assert len(some) <= limit
        found += some


def test_what_is_written_is_told(ledger: ro.Ledger) -> None:
    start = ledger.feed.cursor()
    assert ledger.feed.changes(start) == Changes((), start)
    ledger.sync(ro.Provider("host0", "VCPU=8"))
    ledger.claim("job", {"host0": "VCPU=1"})
    ledger.change("host0", name="host1")
    ledger.release("job")
    assert told(ledger, start) == ["define host0", "claim job", "rename host0", "release job"]
    found = ledger.feed.changes(start)
    now = found.cursor
    assert now == ledger.feed.cursor()
    assert ledger.feed.changes(now) == Changes((), now)
    uuid = ledger.provider("host1").uuid
    assert [change.providers for change in found] == [(uuid,)] * 4
    assert [change.consumers for change in found] == [(), ("job",), (), ("job",)]
    assert [change.number for change in found] == [1, 2, 3, 4]
    assert len({change.shard for change in found}) == 1


def test_a_cursor_may_be_kept_as_text(ledger: ro.Ledger) -> None:
    text = str(ledger.feed.cursor())
    ledger.sync(ro.Provider("host0", "VCPU=8"))
    assert told(ledger, text) == ["define host0"]
    for wrong in ("", "0", "1.2", 7, None):
        with raises_code("InvalidText", match="cursor"):
            ledger.feed.changes(wrong)  # type: ignore[arg-type]
    for limit in (0, -1, "1", 10_001):
        with raises_code("InvalidField", match="limit"):
            ledger.feed.changes(text, limit=limit)  # type: ignore[arg-type]


def test_a_change_tells_who_did_it_and_which_operation(url: str) -> None:
    with ro.connect(url, actor="agent 7") as ledger:
        start = ledger.feed.cursor()
        operations = [new_operation() for _ in range(6)]
        ledger.sync(ro.Provider("host0", "VCPU=8"), operation=operations[0])
        ledger.claim("job", {"host0": "VCPU=1"}, operation=operations[1])
        ledger.adjust("job", {"host0": "VCPU=1"}, operation=operations[2])
        ledger.release("job", operation=operations[3])
        ledger.pools.report("host0", "VCPU=8", operation=operations[4])
        ledger.names.aggregates.ensure("r1", operation=operations[5])
        found = ledger.feed.changes(start)
        by_id = {change.operation: change for change in found}
        assert set(by_id) == set(operations)
        assert {change.actor for change in found} == {"agent 7"}
        assert str(by_id[operations[1]]).endswith("claim job by agent 7")
        told = by_id[operations[0]].to_dict()
        assert (told["kind"], told["actor"]) == ("define", "agent 7")
        assert datetime.datetime.fromisoformat(told["at"]).tzinfo is not None


@pytest.mark.parametrize("actor", ["", 7, "a\0b", "x" * 256])
def test_an_actor_is_printable_text(actor: str) -> None:
    with raises_code("InvalidName", match="actor"):
        ro.connect("memory://", actor=actor)


def test_nobody_needs_an_actor(ledger: ro.Ledger) -> None:
    start = ledger.feed.cursor()
    ledger.sync(ro.Provider("host0", "VCPU=8"))
    (change,) = ledger.feed.changes(start)
    assert change.actor is None
    assert str(change).endswith("define host0")


def test_what_changes_nothing_is_not_told(ledger: ro.Ledger) -> None:
    ledger.sync(ro.Provider("host0", "VCPU=8"))
    start = ledger.feed.cursor()
    ledger.sync(ro.Provider("host0", "VCPU=8"))
    ledger.change("host0", traits=[])
    with pytest.raises(ro.CapacityException):
        ledger.claim("job", {"host0": "VCPU=99"})
    list(ledger.trees())
    ledger.snapshot()
    assert ledger.feed.cursor() == start


def test_pages_tell_everything_in_the_order_of_each_shard(ledger: ro.Ledger) -> None:
    start = ledger.feed.cursor()
    ledger.sync(*(ro.Provider(f"host{n}", "VCPU=8") for n in range(5)))
    for n in range(20):
        ledger.claim(f"job{n}", {f"host{n % 5}": "VCPU=1"})
    for limit in (1, 3, 1000):
        found = all_changes(ledger, start, limit)
        assert len(found) == 25
        assert len({change.shard for change in found}) == 5
        for shard in {change.shard for change in found}:
            numbers = [change.number for change in found if change.shard == shard]
            assert numbers == [1, 2, 3, 4, 5]
        claims = {change.subject for change in found if change.kind == "claim"}
        assert claims == {f"job{n}" for n in range(20)}


def test_a_write_on_several_trees_is_told_in_each_shard(ledger: ro.Ledger) -> None:
    ledger.sync(ro.Provider("host0", "VCPU=8"), ro.Provider("host1", "VCPU=8"))
    start = ledger.feed.cursor()
    ledger.claim("job", {"host0": "VCPU=1", "host1": "VCPU=1"})
    found = ledger.feed.changes(start)
    assert len(found) == 2
    assert len({change.operation for change in found}) == 1
    uuids = {ledger.provider(name).uuid for name in ("host0", "host1")}
    assert {uuid for change in found for uuid in change.providers} == uuids


def test_a_cursor_of_another_ledger_has_expired(ledger: ro.Ledger) -> None:
    ahead = Cursor((5,) * SHARDS)
    with raises_code("CursorExpired"):
        ledger.feed.changes(ahead)


def test_a_snapshot_is_fresh_until_somebody_writes(ledger: ro.Ledger) -> None:
    ledger.sync(ro.Provider("host0", "VCPU=8"))
    snapshot = ledger.snapshot()
    part = ledger.snapshot("host0")
    assert ledger.feed.is_fresh(snapshot)
    assert ledger.feed.is_fresh(part)
    assert snapshot.cursor is not None
    ledger.claim("job", {"host0": "VCPU=1"})
    assert not ledger.feed.is_fresh(snapshot)
    assert not ledger.feed.is_fresh(part)
    assert told(ledger, snapshot.cursor) == ["claim job"]
    assert ledger.feed.is_fresh(ledger.snapshot())


def test_what_is_forgotten_expires_cursors_and_nothing_else(ledger: ro.Ledger) -> None:
    start = ledger.feed.cursor()
    operation = new_operation()
    ledger.sync(ro.Provider("host0", "VCPU=8"), operation=operation)
    ledger.claim("job", {"host0": "VCPU=1"})
    generation = ledger.get_claim("job").generation
    pruned = ledger.backend.prune(datetime.datetime.now(datetime.UTC))
    assert (pruned.operations, pruned.changes) == (1, 1)  # not the last one
    with raises_code("CursorExpired"):
        ledger.feed.changes(start)
    now = ledger.feed.cursor()
    assert ledger.feed.changes(now) == Changes((), now)
    assert ledger.get_claim("job").generation == generation
    ledger.release("job")
    assert told(ledger, now) == ["release job"]
    for wrong in (0, datetime.timedelta(0), datetime.timedelta(hours=1)):
        with raises_code("InvalidField", match="retention"):
            ledger.feed.set_retention(wrong)  # type: ignore[arg-type]


@pytest.mark.law(4)
def test_a_reader_misses_nothing_of_many_writers(ledger: ro.Ledger) -> None:
    names = [f"host{n}" for n in range(3)]
    ledger.sync(*(ro.Provider(name, "VCPU=1000") for name in names))
    cursor = ledger.feed.cursor()
    seen: list[FeedEntry] = []
    done = threading.Event()
    failures: list[BaseException] = []

    def write(number: int) -> None:
        try:
            for turn in range(15):
                ledger.claim(f"job-{number}-{turn}", {names[turn % 3]: "VCPU=1"})
        except BaseException as error:
            failures.append(error)

    def read() -> None:
        nonlocal cursor
        try:
            while True:
                last = done.is_set()
                found = ledger.feed.changes(cursor, limit=4)
                cursor = found.cursor
                seen.extend(found)
                if last and not found:
                    return
        except BaseException as error:
            failures.append(error)

    writers = [threading.Thread(target=write, args=(number,)) for number in range(3)]
    reader = threading.Thread(target=read)
    for thread in (reader, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    reader.join()
    assert failures == []
    assert len(seen) == 45
    assert {change.subject for change in seen} == {
        f"job-{n}-{t}" for n in range(3) for t in range(15)
    }
    assert cursor == ledger.feed.cursor()
