"""How many statements each verb sends to SQLite: exact figures, which no change may raise unseen.

What begins and ends a transaction is not counted. Each verb is called twice in the same way, on
what the first call has left as it was before; the second call is counted, so no figure has what a
process or a connection does once.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable

import pytest

import resource_objects as ro
from benchmarks.statements import counted
from tests.tracker.labs import box

HOUR = datetime.timedelta(hours=1)
_PLACED = "DISK_GB=1,NUMA_TOPOLOGY=1:dedicated=2:memory=64,DEVICES=PGPU"

Verb = Callable[[ro.Ledger, int], Callable[[], object]]


def build(ledger: ro.Ledger) -> None:
    """Define ten plain hosts and two hosts with cells and devices."""
    ledger.sync(*(_plain(number) for number in range(10)), box("box-0"), box("box-1"))


def _plain(number: int, vcpus: int = 8) -> ro.Provider:
    host = ro.Provider(f"host{number}", f"VCPU={vcpus},MEMORY_MB=64")
    host.add(f"host{number}/gpu", "PGPU=2", traits=["CUSTOM_A"])
    return host


def _claimed(ledger: ro.Ledger, name: str, **options: object) -> None:
    ledger.claim(name, {"host0": "VCPU=1,MEMORY_MB=1"}, **options)  # type: ignore[arg-type]


# --- the verbs: each prepares, and returns the call to count ---


def _claim(ledger: ro.Ledger, n: int) -> Callable[[], object]:
    return lambda: ledger.claim(f"a{n}", {"host0": "VCPU=1,MEMORY_MB=1"})


def _claim_candidates(ledger: ro.Ledger, n: int) -> Callable[[], object]:
    found = ledger.snapshot().candidates("VCPU=1,PGPU=1")
    return lambda: ledger.claim(f"a{n}", found)


def _claim_placed(ledger: ro.Ledger, n: int) -> Callable[[], object]:
    found = ledger.snapshot().candidates(_PLACED)
    return lambda: ledger.claim(f"a{n}", found)


def _claim_all(ledger: ro.Ledger, n: int) -> Callable[[], object]:
    found = ledger.snapshot().candidates("VCPU=1")
    return lambda: ledger.claim_all({f"a{n}": found, f"b{n}": found})


def _claim_refused(ledger: ro.Ledger, n: int) -> Callable[[], object]:
    def work() -> None:
        with pytest.raises(ro.CapacityException):
            ledger.claim(f"a{n}", {"host0": "VCPU=9"})

    return work


def _release(ledger: ro.Ledger, n: int) -> Callable[[], object]:
    _claimed(ledger, f"a{n}")
    return lambda: ledger.release(f"a{n}")


def _release_placed(ledger: ro.Ledger, n: int) -> Callable[[], object]:
    ledger.claim(f"a{n}", ledger.snapshot().candidates(_PLACED))
    return lambda: ledger.release(f"a{n}")


def _release_expired(ledger: ro.Ledger, n: int) -> Callable[[], object]:
    _claimed(ledger, f"a{n}", expires_in=datetime.timedelta(microseconds=1))
    return lambda: ledger.release_expired()[0]


def _confirm(ledger: ro.Ledger, n: int) -> Callable[[], object]:
    _claimed(ledger, f"a{n}", expires_in=HOUR)
    return lambda: ledger.confirm(f"a{n}")


def _renew(ledger: ro.Ledger, n: int) -> Callable[[], object]:
    _claimed(ledger, f"a{n}", expires_in=HOUR)
    return lambda: ledger.renew(f"a{n}", expires_in=2 * HOUR)


def _replace(ledger: ro.Ledger, n: int) -> Callable[[], object]:
    _claimed(ledger, f"a{n}")
    return lambda: ledger.replace(f"a{n}", {"host1": "VCPU=2"})


def _adjust(ledger: ro.Ledger, n: int) -> Callable[[], object]:
    _claimed(ledger, f"a{n}")
    return lambda: ledger.adjust(f"a{n}", {"host0": "VCPU=1"})


def _move(ledger: ro.Ledger, n: int) -> Callable[[], object]:
    _claimed(ledger, f"a{n}")
    return lambda: ledger.move(f"a{n}", {"host1": "VCPU=2"}, source_consumer=f"left{n}")


def _swap(ledger: ro.Ledger, n: int) -> Callable[[], object]:
    _claimed(ledger, f"a{n}")
    ledger.claim(f"b{n}", {"host1": "VCPU=1"})
    return lambda: ledger.swap(f"a{n}", f"b{n}")


def _sync_unchanged(ledger: ro.Ledger, n: int) -> Callable[[], object]:
    return lambda: ledger.sync(_plain(0))


def _sync_unchanged_placed(ledger: ro.Ledger, n: int) -> Callable[[], object]:
    return lambda: ledger.sync(box("box-0"))


def _sync_changed(ledger: ro.Ledger, n: int) -> Callable[[], object]:
    return lambda: ledger.sync(_plain(0, 9 + n))


def _sync_changed_placed(ledger: ro.Ledger, n: int) -> Callable[[], object]:
    return lambda: ledger.sync(box("box-0", pages=256 >> n))


def _sync_new(ledger: ro.Ledger, n: int) -> Callable[[], object]:
    return lambda: ledger.sync(_plain(20 + n))


def _change(ledger: ro.Ledger, n: int) -> Callable[[], object]:
    return lambda: ledger.change("host0", traits=[f"CUSTOM_B{n}"])


def _remove(ledger: ro.Ledger, n: int) -> Callable[[], object]:
    return lambda: ledger.remove(f"host{5 + n}")


def _disable(ledger: ro.Ledger, n: int) -> Callable[[], object]:
    return lambda: ledger.disable(f"host{n}", reason="fan")


def _enable(ledger: ro.Ledger, n: int) -> Callable[[], object]:
    ledger.disable(f"host{n}", reason="fan")
    return lambda: ledger.enable(f"host{n}")


def _snapshot_unchanged(ledger: ro.Ledger, n: int) -> Callable[[], object]:
    ledger.snapshot()
    return ledger.snapshot


def _snapshot_after_a_claim(ledger: ro.Ledger, n: int) -> Callable[[], object]:
    ledger.snapshot()
    _claimed(ledger, f"a{n}")
    return ledger.snapshot


def _snapshot_after_a_definition(ledger: ro.Ledger, n: int) -> Callable[[], object]:
    ledger.snapshot()
    ledger.change("host0", traits=[f"CUSTOM_B{n}"])
    return ledger.snapshot


def _held(ledger: ro.Ledger, n: int) -> Callable[[], object]:
    _claimed(ledger, f"a{n}")
    return lambda: ledger.get_claim(f"a{n}")


def _assigned(ledger: ro.Ledger, n: int) -> Callable[[], object]:
    ledger.claim(f"a{n}", ledger.snapshot().candidates(_PLACED))
    return lambda: ledger.assigned_amounts(f"a{n}")


def _usage(ledger: ro.Ledger, n: int) -> Callable[[], object]:
    return ledger.usage


def _feed(ledger: ro.Ledger, n: int) -> Callable[[], object]:
    cursor = ledger.feed.cursor()
    _claimed(ledger, f"a{n}")
    return lambda: list(ledger.feed.changes(cursor))


def _node(ledger: ro.Ledger, name: str) -> ro.ComputeNode:
    node = ro.ComputeNode(
        host=name,
        hypervisor_hostname=name,
        vcpus=8,
        vcpus_used=0,
        memory_mb=64,
        memory_mb_used=0,
        local_gb=10,
        local_gb_used=0,
    )
    node.bind(ledger)
    return node


def _save_new(ledger: ro.Ledger, n: int) -> Callable[[], object]:
    return _node(ledger, f"node{n}").save  # type: ignore[no-any-return]


def _save_changed(ledger: ro.Ledger, n: int) -> Callable[[], object]:
    node = _node(ledger, f"node{n}")
    node.save()
    node.inventories["VCPU"].consume(ro.Amounts("VCPU=2")["VCPU"])
    return node.save  # type: ignore[no-any-return]


def _save_unchanged(ledger: ro.Ledger, n: int) -> Callable[[], object]:
    node = _node(ledger, f"node{n}")
    node.save()
    return node.save  # type: ignore[no-any-return]


STATEMENTS: dict[Verb, int] = {
    _claim: 8,
    _claim_candidates: 10,
    _claim_placed: 11,
    _claim_all: 8,
    _claim_refused: 6,
    _release: 9,
    _release_placed: 10,
    _release_expired: 13,
    _confirm: 8,
    _renew: 11,
    _replace: 12,
    _adjust: 10,
    _move: 16,
    _swap: 13,
    _sync_new: 15,
    _sync_unchanged: 9,
    _sync_unchanged_placed: 10,
    _sync_changed: 18,
    _sync_changed_placed: 23,
    _change: 22,
    _remove: 24,
    _disable: 16,
    _enable: 16,
    _snapshot_unchanged: 1,
    _snapshot_after_a_claim: 3,
    _snapshot_after_a_definition: 13,
    _held: 3,
    _assigned: 13,
    _usage: 11,
    _feed: 2,
    _save_new: 22,
    _save_changed: 18,
    _save_unchanged: 0,
}


@pytest.mark.usefixtures("nobody_forgets")
@pytest.mark.parametrize("verb", STATEMENTS, ids=lambda verb: verb.__name__.strip("_"))
def test_a_verb_sends_its_statements(sqlite_url: Callable[..., str], verb: Verb) -> None:
    with counted() as sent, ro.connect(sqlite_url("counted.db", build)) as ledger:
        for number in range(2):
            work = verb(ledger, number)
            sent.reset()
            work()
        assert sent.statements == STATEMENTS[verb], sent.texts
