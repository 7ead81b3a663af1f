"""Two calls about one consumer at once end as one after the other would.

The second call runs as a whole just before each call that the first one makes to the backend. What
both return or raise, and what is allocated afterwards, has to be what one of the two serial orders
leads to.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import pytest

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.host.tracker import (
    HostClaim,
    Migration,
    MigrationKind,
    MigrationState,
    ResourceTracker,
)
from resource_objects.host.tracker.moves import migration_of
from resource_objects.ledger import RetryPolicy
from resource_objects.providers import Claim
from resource_objects.testing.refusals import raises_code
from tests.support.lengths import some
from tests.tracker.labs import tracker, used

#: A call of a tracker about a consumer.
Call: TypeAlias = Callable[[ResourceTracker, str], Any]

PINNED = ",NUMA_TOPOLOGY=1:dedicated=2:memory=512"
SMALL, LARGE = "VCPU=1,DISK_GB=10", "VCPU=3,DISK_GB=20"


def _boot(host: str, request: str) -> Call:
    return lambda mine, vm: mine.claim(vm, host, request)


def _run(mine: ResourceTracker, vm: str) -> None:
    mine.claim(vm, "box-0", SMALL).confirm()


def _move(
    kind: MigrationKind, host: str | None, migration: str, request: str | None = None
) -> Call:
    return lambda mine, vm: mine.move(vm, host, request, kind=kind, migration=migration)


def _end(verb: str, migration: str) -> Call:
    return lambda mine, vm: getattr(mine, verb)(vm, migration)


def _delete(mine: ResourceTracker, vm: str) -> Claim:
    return mine.release(vm)


def _revert_claim(mine: ResourceTracker, vm: str) -> None:
    mine.get_claim(vm).revert()


KIND = MigrationKind

CALLS: dict[str, Call] = {
    "boot": _boot("box-0", SMALL),
    "boot elsewhere": _boot("box-1", SMALL),
    "boot large": _boot("box-1", LARGE),
    "boot pinned": _boot("box-0", SMALL + PINNED),
    "resize": _move(KIND.RESIZE, "box-1", "m", LARGE),
    "resize same host": _move(KIND.RESIZE, "box-0", "m", LARGE),
    "cold migration": _move(KIND.COLD_MIGRATION, "box-1", "m"),
    "live migration": _move(KIND.LIVE_MIGRATION, "box-1", "m"),
    "evacuation": _move(KIND.EVACUATION, "box-1", "m"),
    "other resize": _move(KIND.RESIZE, "box-1", "n", LARGE),
    "other live migration": _move(KIND.LIVE_MIGRATION, "box-1", "n"),
    "rebuild": _move(KIND.REBUILD, "box-0", "b", LARGE),
    "shelve": _move(KIND.SHELVE, None, "p"),
    "other shelve": _move(KIND.SHELVE, None, "q"),
    "unshelve": _move(KIND.UNSHELVE, "box-0", "u", SMALL),
    "unshelve elsewhere": _move(KIND.UNSHELVE, "box-1", "u", SMALL),
    "other unshelve": _move(KIND.UNSHELVE, "box-1", "v", LARGE),
    "delete": _delete,
    **{
        f"{verb.removesuffix('_move')} {migration}": _end(verb, migration)
        for migration in "mnu"
        for verb in ("confirm_move", "revert_move")
    },
}

#: How a consumer came to where it is, by what is tried from there.
SITUATIONS: dict[str, Sequence[Call]] = {
    "nothing": (),
    "claimed": (CALLS["boot"],),
    "claimed pinned": (CALLS["boot pinned"],),
    "runs": (_run,),
    **{f"{name} begun": (_run, CALLS[name]) for name in ("resize", "resize same host")},
    "cold migration begun": (_run, CALLS["cold migration"]),
    "unshelve begun": (_run, CALLS["shelve"], CALLS["unshelve"]),
    "unshelve, resize begun": (CALLS["unshelve"], CALLS["resize"]),
    "unshelve, resize same host begun": (CALLS["unshelve"], CALLS["resize same host"]),
    "unshelve, resized": (CALLS["unshelve"], CALLS["resize"], CALLS["confirm m"]),
    "unshelve, resize reverted": (CALLS["unshelve"], CALLS["resize"], CALLS["revert m"]),
    "live migration begun": (_run, CALLS["live migration"]),
    "evacuation begun": (_run, CALLS["evacuation"]),
    "resized": (_run, CALLS["resize"], CALLS["confirm m"]),
    "resize reverted": (_run, CALLS["resize"], CALLS["revert m"]),
    "shelved": (_run, CALLS["shelve"]),
    "unshelved": (CALLS["unshelve"], CALLS["confirm u"]),
    "unshelve reverted": (CALLS["unshelve"], CALLS["revert u"]),
    "deleted": (_run, CALLS["delete"]),
    "deleted while it moved": (_run, CALLS["resize"], CALLS["delete"]),
}

#: Situations and calls of the fast command. Pinned CPUs need hosts with cells.
PLAIN = tuple(one for one in SITUATIONS if "pinned" not in one)
PLAIN_CALLS = tuple(one for one in CALLS if "pinned" not in one)
FAST_CALLS = tuple(one for one in PLAIN_CALLS if not one.startswith("other") and "large" not in one)


class Interrupted:
    """A backend before one call of which another program does something."""

    def __init__(self, backend: Any, number: int, interrupt: Callable[[], None]) -> None:
        self._backend, self._left, self._interrupt = backend, number, interrupt

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._backend, name)
        if not callable(found) or name in ("check", "require", "close"):
            return found

        @functools.wraps(found)
        def call(*args: Any, **said: Any) -> Any:
            self._left -= 1
            if self._left == 0:
                self._interrupt()
            return found(*args, **said)

        return call


@dataclasses.dataclass
class Trials:
    """Pairs of calls about ever new consumers of one ledger."""

    ledger: ro.Ledger
    accept: Any = None
    count: int = 0
    serial: dict[tuple[str, str, str], Any] = dataclasses.field(default_factory=dict)
    ends: dict[tuple[str, ...], Any] = dataclasses.field(default_factory=dict)

    def tracker(self, backend: Any = None) -> ResourceTracker:
        policy = RetryPolicy(sleep=lambda seconds: None)
        ledger = ro.Ledger(backend or self.ledger.backend, retries=policy)
        return tracker(ledger) if self.accept is None else tracker(ledger, accept=self.accept)

    def begin(self, situation: str) -> str:
        """Return a new consumer in a situation."""
        self.count += 1
        consumer = f"vm-{self.count}"
        for step in SITUATIONS[situation]:
            step(self.tracker(), consumer)
        return consumer

    def end(self, consumer: str) -> tuple[Any, ...]:
        """Return what a consumer and its migration have allocated, and release it."""
        both = [consumer, migration_of(consumer)]
        claims = [one.claim for one in self.ledger.consumers(name=both) if one.claim is not None]
        found = tuple(
            (claim.consumer.removeprefix(consumer), claim.state, claim.consumer_type, held(claim))
            for claim in claims
        )
        for claim in claims:
            self.ledger.release(claim.consumer)
        assert not used(self.ledger)
        return found

    def one_after_the_other(self, situation: str, first: str, second: str) -> Any:
        key = situation, first, second
        if key not in self.serial:
            vm = self.begin(situation)
            before = answer(CALLS[first], self.tracker(), vm)
            after = answer(CALLS[second], self.tracker(), vm)
            self.serial[key] = before, after, self.end(vm)
        return self.serial[key]

    def at_once(self, situation: str, first: str, second: str) -> Iterator[tuple[int, Any]]:
        """Yield what comes of two calls, by the call of the backend that is interrupted."""
        for number in itertools.count(1):
            vm = self.begin(situation)
            answers: list[Any] = []

            def interrupt(vm: str = vm, answers: list[Any] = answers) -> None:
                answers.append(answer(CALLS[second], self.tracker(), vm))

            backend = Interrupted(self.ledger.backend, number, interrupt)
            mine = answer(CALLS[first], self.tracker(backend), vm)
            end = self.end(vm)
            if not answers:
                return
            yield number, (mine, answers[0], end)

    def wrong(self, situation: str, first: str, second: str) -> Iterator[str]:
        """Yield what comes of two calls and of neither serial order of them."""
        one = self.one_after_the_other(situation, first, second)
        later, earlier, end = self.one_after_the_other(situation, second, first)
        for number, found in self.at_once(situation, first, second):
            if found not in (one, (earlier, later, end)):
                yield f"{situation}: {first}, before call {number} {second}: {found}"

    def matters(self, situation: str, first: str, second: str) -> bool:
        """Return whether the second call changes what is allocated, before or after the first."""
        if self.end_of(situation, second) != self.end_of(situation):
            return True
        both = self.one_after_the_other(situation, first, second)
        return bool(both[-1] != self.end_of(situation, first))

    def end_of(self, situation: str, *calls: str) -> Any:
        """Return what is allocated after calls, one after the other."""
        key = situation, *calls
        if key not in self.ends:
            consumer = self.begin(situation)
            for call in calls:
                answer(CALLS[call], self.tracker(), consumer)
            self.ends[key] = self.end(consumer)
        return self.ends[key]


def held(claim: Claim | None) -> Any:
    """Return the amounts of a claim by host: in which cell they are depends on what was free."""
    if claim is None:
        return None
    hosts = ((one.provider.partition("/")[0], one) for one in claim.allocations)
    return sorted((host, one.resource_class, str(one.amount)) for host, one in hosts)


def answer(call: Call, mine: ResourceTracker, consumer: str) -> Any:
    """Return what a call returns, as what can be compared; of an error its type."""
    try:
        found = call(mine, consumer)
    except exceptions.ResourceObjectsError as error:
        return error.code
    if isinstance(found, Migration):
        ends = held(found.source), held(found.destination)
        return found.kind, found.state, found.from_host, found.to_host, *ends
    if isinstance(found, HostClaim):
        return found.host, found.state, str(found.amounts)
    return held(found)


def _pairs(
    trials: Trials, situation: str, firsts: Sequence[str], seconds: Sequence[str], one_in: int
) -> Iterator[tuple[str, str]]:
    for first, second in itertools.product(firsts, seconds):
        drawn = zlib.crc32(f"{situation} {first} {second}".encode()) % one_in
        if drawn == 0 and trials.matters(situation, first, second):
            yield first, second


def _other_cpus(host: str, consumer: str, allocated: Mapping[str, ro.Amounts]) -> Any:
    """Accept a consumer on the last two CPUs of its cell, which has four."""
    found: dict[str, Any] = {name: dict(some.by_name()) for name, some in allocated.items()}
    amount = found[host].get("NUMA_TOPOLOGY")
    if amount is None:
        return None
    ends = (4 * (min(dict(one.pins).values()) // 4) + 3 for one in amount.placed)
    placed = [
        one.replace(pins={0: end - 1, 1: end}) for one, end in zip(amount.placed, ends, strict=True)
    ]
    found[host]["NUMA_TOPOLOGY"] = amount.replace(placed=placed)
    return found


@pytest.fixture
def small(everywhere_with: Callable[[Callable[[ro.Ledger], object]], ro.Ledger]) -> ro.Ledger:
    return everywhere_with(_declare)


def _declare(ledger: ro.Ledger) -> None:
    ledger.sync(*(ro.Provider(name, "VCPU=4,DISK_GB=100") for name in ("box-0", "box-1")))


def _check(
    trials: Trials, situation: str, firsts: Sequence[str], seconds: Sequence[str], one_in: int = 1
) -> None:
    pairs = _pairs(trials, situation, firsts, seconds, one_in)
    assert not [told for pair in pairs for told in trials.wrong(situation, *pair)]
    assert not trials.ledger.audit()


@pytest.mark.parametrize("situation", PLAIN[:8])
def test_two_calls_at_once_end_as_one_after_the_other(
    small: ro.Ledger, everywhere_kind: str, situation: str
) -> None:
    _check(Trials(small), situation, FAST_CALLS, FAST_CALLS, _one_in(everywhere_kind))


@pytest.mark.long
@pytest.mark.parametrize("situation", PLAIN)
def test_all_pairs_of_calls_at_once_end_as_one_after_the_other(
    small: ro.Ledger, everywhere_kind: str, situation: str
) -> None:
    """On servers a sample: a trial takes tens of round trips there."""
    one_in = 1 if everywhere_kind in ("memory", "sqlite") else 24
    _check(Trials(small), situation, PLAIN_CALLS, PLAIN_CALLS, one_in)


@pytest.mark.parametrize("accept", [lambda *_: None, _other_cpus], ids=["as it is", "other CPUs"])
@pytest.mark.parametrize("situation", ["nothing", "claimed", "claimed pinned", "runs"])
def test_a_boot_that_a_host_has_to_accept_is_not_repeated(
    lab: ro.Ledger, everywhere_kind: str, situation: str, accept: Any
) -> None:
    """What was released or moved while the driver was asked is not allocated again."""
    one_in = _one_in(everywhere_kind) // 3
    _check(Trials(lab, accept), situation, ("boot", "boot pinned"), tuple(CALLS), one_in)


def _one_in(kind: str) -> int:
    """Return of how many pairs the fast command tries one.

    ``--long`` tries all of them in memory and on SQLite, and one in 24 on a server.
    """
    return 12 if kind == "memory" else 96


# --- chains of moves, one call after the other ---

#: The answer of each exception that reports how a move ended.
ENDED = {
    "MoveConfirmed": MigrationState.CONFIRMED,
    "MoveReverted": MigrationState.REVERTED,
}

CHAIN: dict[str, Call] = {
    name: CALLS[name]
    for name in (
        *("resize", "resize same host", "confirm m", "revert m"),
        *("confirm n", "revert n", "unshelve", "confirm u", "revert u"),
    )
} | {"resize back": _move(KIND.RESIZE, "box-0", "n", SMALL)}


def _contradictions(trials: Trials, calls: Sequence[str]) -> Iterator[str]:
    """Yield how answers of a chain of calls contradict each other, or what it has allocated."""
    consumer = trials.begin("unshelve begun")
    ended: dict[str, MigrationState] = {}
    for call in calls:
        found = answer(CHAIN[call], trials.tracker(), consumer)
        state: Any = ENDED.get(found) if isinstance(found, str) else found[1]
        migration = {"resize": "m", "resize same host": "m", "resize back": "n", "unshelve": "u"}
        which = migration.get(call) or call[-1]
        if state in ENDED.values() and ended.setdefault(which, state) is not state:
            yield f"{', '.join(calls)}: {which} was {ended[which]}, is {state}"
        if state is MigrationState.MOVING and which in ended:
            yield f"{', '.join(calls)}: {which} was {ended[which]}, is {state}"
    is_allocated = bool(trials.end(consumer))
    if is_allocated is (ended.get("u") is MigrationState.REVERTED):
        yield f"{', '.join(calls)}: allocated {is_allocated}, {ended}"


@pytest.mark.parametrize("length", some([3, 4, 5]))
def test_a_move_that_ended_is_answered_the_same_for_ever(
    small: ro.Ledger, everywhere_kind: str, length: int
) -> None:
    trials = Trials(small)
    chains = itertools.product(CHAIN, repeat=length)
    one_in = _one_in(everywhere_kind) // 3 * 10 ** (length - 3)
    drawn = (one for one in chains if zlib.crc32(" ".join(one).encode()) % one_in == 0)
    assert not [told for calls in drawn for told in _contradictions(trials, calls)]


@pytest.mark.law(4)
def test_an_unshelving_that_is_confirmed_while_the_consumer_moves_stays_confirmed(
    lab: ro.Ledger,
) -> None:
    mine = tracker(lab)
    for host, migration in (("box-1", "r"), ("box-0", "s")):
        mine.move("vm", "box-0", SMALL, kind=KIND.UNSHELVE, migration=f"u-{migration}")
        mine.move("vm", host, LARGE, migration=migration)
        with raises_code("MoveInProgress"):
            mine.revert_move("vm", f"u-{migration}")
        assert mine.confirm_move("vm", f"u-{migration}").state is MigrationState.CONFIRMED
        assert mine.revert_move("vm", migration).state is MigrationState.REVERTED
        with raises_code("MoveConfirmed"):
            mine.revert_move("vm", f"u-{migration}")
        assert lab.get_claim("vm").by_provider() == {"box-0": ro.Amounts(SMALL)}
        mine.release("vm")


@pytest.mark.law(4)
def test_an_unshelved_consumer_that_moved_on_is_confirmed_for_good(lab: ro.Ledger) -> None:
    mine = tracker(lab)
    mine.move("vm", "box-0", SMALL, kind=KIND.UNSHELVE, migration="u")
    mine.move("vm", "box-1", LARGE, migration="r").confirm()
    with raises_code("MoveConfirmed"):
        mine.revert_move("vm", "u")
    mine.move("vm", "box-0", SMALL, migration="s").confirm()
    with raises_code("MoveConfirmed"):
        mine.revert_move("vm", "u")
    assert lab.get_claim("vm").by_provider() == {"box-0": ro.Amounts(SMALL)}
