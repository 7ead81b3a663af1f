"""A claim is not refused while there is room: schedulers who want exactly what there is get it."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.backends.sql.backend import SQLBackend
from resource_objects.ledger import RetryPolicy
from resource_objects.testing.conformance.races import together
from resource_objects.testing.refusals import raises_code
from tests import conftest, databases
from tests.ledger.device_hosts import FUNCTION, card, host_of

SCHEDULERS, EACH = 16, 4

#: What a host gives, and how many consumers that is enough for.
ASKED: dict[str, tuple[Callable[[str], ro.Provider], ro.Request, int]] = {
    "whole hosts": (lambda name: ro.Provider(name, "VCPU=8"), ro.Request("VCPU=8"), 1),
    "parts of hosts": (lambda name: ro.Provider(name, "VCPU=8"), ro.Request("VCPU=2"), 4),
    "functions": (lambda name: host_of(card(1, 4), name), ro.Request(f"{FUNCTION}=1"), 4),
    "devices": (
        lambda name: host_of(card(1, 4), name),
        ro.Request({"DEVICES": ro.devices(FUNCTION)}),
        4,
    ),
}


@pytest.mark.long
@pytest.mark.law(4, 6)
@pytest.mark.parametrize("order", ["name", "pack"])
@pytest.mark.parametrize("what", ASKED)
@pytest.mark.parametrize("kind", ["memory", *databases.KINDS])
def test_schedulers_who_want_all_there_is_get_it(
    kind: str, what: str, order: str, scratch: databases.Scratch
) -> None:
    make, request, per_host = ASKED[what]
    with _connect(kind, scratch) as (ledger, another):
        count = SCHEDULERS * EACH
        ledger.sync(*(make(f"host-{number:03}") for number in range(count // per_host)))

        def place(scheduler: int) -> int:
            with another() as own:
                for job in range(EACH):
                    found = own.snapshot().candidates(request, order=order)
                    own.claim(f"job-{scheduler}-{job}", found)
            return EACH

        assert together(place, SCHEDULERS) == [EACH] * SCHEDULERS
        assert not ledger.snapshot().candidates(request)
        assert list(ledger.audit()) == []


@contextlib.contextmanager
def _connect(kind: str, scratch: databases.Scratch) -> Iterator[tuple[ro.Ledger, Any]]:
    """Yield a ledger, and what opens it once more, for a scheduler of its own."""
    if kind == "memory":
        with ro.connect() as ledger:
            yield ledger, lambda: contextlib.nullcontext(ledger)
        return
    if kind != "sqlite":
        conftest.require_server(kind)
    with (
        scratch.prepared(kind, SQLBackend.upgrade_database) as url,
        ro.connect(url) as ledger,
    ):
        yield ledger, lambda: ro.connect(url)


# --- who is faster each time ---


def _overtaken(ledger: ro.Ledger, hosts: int) -> None:
    """Have somebody take the host of each claim right before it does, of so many hosts."""
    backend: Any = ledger.backend
    commit, left, others = backend.commit, iter(range(hosts)), ro.Ledger(backend)

    def second(write: Any) -> Any:
        if write.subject == "job" and next(left, None) is not None:
            (order,) = write.orders
            (use,) = order.uses
            others.claim(f"before-{use.provider_uuid}", {use.provider_uuid: "VCPU=8"})
        return commit(write)

    backend.commit = second


def _hosts(ledger: ro.Ledger, count: int) -> ro.Candidates:
    ledger.sync(*(ro.Provider(f"host-{number:03}", "VCPU=8") for number in range(count)))
    return ledger.snapshot().candidates("VCPU=8")


def _policy(**given: Any) -> RetryPolicy:
    """Return a policy by which each look at the clock takes a second, and pauses take none."""
    clock = itertools.count()
    return RetryPolicy(**given, clock=lambda: float(next(clock)), sleep=lambda seconds: None)


@pytest.mark.parametrize("order", ["name", "pack"])
def test_who_loses_every_race_but_the_last_gets_the_last_place(url: str, order: str) -> None:
    with ro.connect(url, retries=_policy()) as ledger:
        _hosts(ledger, 100)
        found = ledger.snapshot().candidates("VCPU=8", order=order)
        _overtaken(ledger, 99)
        assert ledger.claim("job", found).allocations
        assert not ledger.snapshot().candidates("VCPU=8")


def test_who_loses_every_race_is_told_who_holds_what(url: str) -> None:
    with ro.connect(url, retries=_policy()) as ledger:
        found = _hosts(ledger, 30)
        _overtaken(ledger, 30)
        with pytest.raises(ro.NoCandidates, match="VCPU requested 8, free 0 of 8"):
            ledger.claim("job", found)


@pytest.mark.parametrize("policy", [{"seconds": 3}, {"searches": 2}, {"seconds": 0}])
def test_the_policy_bounds_how_long_and_how_often_it_is_searched(
    url: str, policy: dict[str, int]
) -> None:
    with ro.connect(url, retries=_policy(**policy)) as ledger:
        found = _hosts(ledger, 60)
        _overtaken(ledger, 60)
        with pytest.raises(exceptions.CapacityException, match="VCPU requested 8, free 0 of 8"):
            ledger.claim("job", found)
        taken = sum(use.used for use in ledger.usage()) // 8
        assert taken == 10 * (1 + max(policy.get("searches", 0), policy.get("seconds", 1) - 1))


def test_a_refusal_that_nobody_caused_is_not_searched_again_for_long(url: str) -> None:
    with ro.connect(url) as ledger:
        found = _hosts(ledger, 20)
        with pytest.raises(exceptions.CapacityException) as refused:
            ledger.claim("job", {"host-000": "VCPU=9"})
        refusals = []

        def refuse(write: Any) -> Any:
            refusals.append(write)
            raise refused.value

        backend: Any = ledger.backend
        backend.commit = refuse
        with pytest.raises(exceptions.CapacityException, match="requested 9"):
            ledger.claim("job", found)
        assert len(refusals) == 20  # of the search that is given, and of one more


@pytest.mark.parametrize("seconds", [-1, float("nan"), "x", None])
def test_a_policy_has_seconds_from_0(seconds: Any) -> None:
    with raises_code("InvalidField", match=r"RetryPolicy\.seconds"):
        RetryPolicy(seconds=seconds)


def test_a_policy_may_try_as_often_as_one_likes() -> None:
    slept: list[float] = []
    policy = RetryPolicy(sleep=slept.append, uniform=lambda least, most: most)
    policy.pause(5000)
    assert slept == [0.25]
