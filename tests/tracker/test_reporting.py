"""What a tracker tells besides: statistics of its hosts, and that these are heard of."""

from __future__ import annotations

import datetime
import functools
from collections.abc import Callable
from typing import Any

import pytest

import resource_objects as ro
from resource_objects import clock, exceptions
from resource_objects.host.compute_node import ComputeNode
from resource_objects.host.tracker import FindingKind, ResourceTracker
from resource_objects.host.tracker.adopting import Adopter
from resource_objects.ledger import RetryPolicy
from resource_objects.providers import Backend
from resource_objects.providers.statistics import Statistic, StatisticsOrder
from resource_objects.testing.refusals import raises_code
from tests.host.used_hosts import row
from tests.tracker.agents import Agent
from tests.tracker.test_adopting import Rows

LOAD = functools.partial(Statistic, "cpu.percent")
BUILDS = functools.partial(Statistic, "failed_builds")
MINUTE = datetime.timedelta(minutes=1)


class Clock:
    """A clock that a test turns on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds = 1000.0
        monkeypatch.setattr(clock, "monotonic", lambda: self.seconds)


@pytest.fixture
def turned(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def written(ledger: ro.Ledger, monkeypatch: pytest.MonkeyPatch) -> list[StatisticsOrder]:
    """The orders that the backend is given."""
    put, orders = ledger.backend.put_statistics, []

    def noted(self: Backend, order: StatisticsOrder) -> int:
        orders.append(order)
        return put(order)

    monkeypatch.setattr(type(ledger.backend), "put_statistics", noted)
    return orders


def values(ledger: ro.Ledger) -> dict[str, dict[str, Any]]:
    return {
        host: {name: one.value for name, one in some.items()}
        for host, some in ledger.statistics.read().items()
    }


def reported(ledger: ro.Ledger) -> dict[str, datetime.datetime | None]:
    return {one.name: one.reported_at for one in ledger.providers()}


def test_what_hosts_tell_is_one_write(ledger: ro.Ledger, written: list[StatisticsOrder]) -> None:
    agent = Agent(a="VCPU=8", b="VCPU=8", c="VCPU=8")
    agent.tells = {"a": [LOAD(12.5), BUILDS(0)], "b": [LOAD(3)]}
    tracker = ResourceTracker(ledger, agent)
    assert not tracker.update_available_resource().findings
    assert len(written) == 1
    assert values(ledger) == {"a": {"cpu.percent": LOAD(12.5).value, "failed_builds": 0}, **_b(3)}
    first = ledger.statistics.read()
    assert str(tracker.update_available_resource()) == "nothing changed"
    assert ledger.statistics.read() == first
    agent.tells["a"] = [LOAD(12.5)]
    tracker.update_available_resource("b")
    assert values(ledger)["a"].keys() == {"cpu.percent", "failed_builds"}, "a was not asked"
    tracker.update_available_resource()
    assert values(ledger) == {"a": {"cpu.percent": LOAD(12.5).value}, **_b(3)}


def _b(load: int) -> dict[str, dict[str, Any]]:
    return {"b": {"cpu.percent": load}}


def test_a_driver_that_tells_nothing_costs_nothing(
    ledger: ro.Ledger, written: list[StatisticsOrder]
) -> None:
    ledger.sync(ro.Provider("a", "VCPU=8"))
    ledger.statistics.put({"a": [LOAD(1)]}, source="agent")
    tracker = ResourceTracker(ledger, Agent(a="VCPU=8"))
    written.clear()
    tracker.update_available_resource()
    assert written == []
    assert values(ledger) == {"a": {"cpu.percent": 1}}, "who says none does not say that it is gone"


def test_wrong_statistics_of_one_host_stop_nobody(ledger: ro.Ledger) -> None:
    agent = Agent(a="VCPU=8", b="VCPU=8", c="VCPU=8", d="VCPU=8", e="VCPU=8")
    agent.tells = {
        "a": OSError("no such sensor"),
        "b": [LOAD(3)],
        "c": [LOAD(1), LOAD(2)],
        "d": ["cpu.percent"],  # type: ignore[list-item]
        "e": 7,  # type: ignore[dict-item]
    }
    report = ResourceTracker(ledger, agent).update_available_resource()
    assert [(one.subject, one.kind) for one in report.findings] == [
        (host, FindingKind.STATISTICS) for host in "acde"
    ]
    assert str(report.findings[0]) == "a: statistics: OSError: no such sensor"
    assert values(ledger) == _b(3)
    assert sorted(report.changed) == list("abcde"), "what they have is in step"


def test_nobody_reports_unless_it_is_asked_for(ledger: ro.Ledger) -> None:
    agent = Agent(a="VCPU=8")
    agent.tells = {"a": [LOAD(1)]}
    ResourceTracker(ledger, agent).update_available_resource()
    assert reported(ledger) == {"a": None}


def test_hosts_report_once_a_minute_in_one_write(
    ledger: ro.Ledger, turned: Clock, written: list[StatisticsOrder]
) -> None:
    agent = Agent(a="VCPU=8", b="VCPU=8")
    tracker = ResourceTracker(ledger, agent, report_every=MINUTE)
    for _ in range(6):
        tracker.update_available_resource()
        tracker.update_available_resource("a")  # not all of them: nobody reports
        turned.seconds += 20
    assert [len(order.reported) for order in written] == [2, 2]
    first = reported(ledger)
    assert first["a"] == first["b"] is not None
    cursor = ledger.feed.cursor()
    turned.seconds += 60
    tracker.update_available_resource()
    assert reported(ledger)["a"] != first["a"]
    assert ledger.feed.cursor() == cursor, "who follows the ledger is not told"


def test_what_was_not_heard_of_does_not_look_alive(ledger: ro.Ledger, turned: Clock) -> None:
    agent = Agent(a="VCPU=8", b="VCPU=8", c="VCPU=8", d="VCPU=8", e="VCPU=8")
    tracker = ResourceTracker(ledger, agent, report_every=MINUTE)
    agent.uuids = {"d": "6b7c0a9e-0d0f-4f83-9c0b-0a4e8b7c1d2e"}
    tracker.update_available_resource()
    ledger.claim("job", {"c": "VCPU=8"})
    before = reported(ledger)
    assert None not in before.values()
    turned.seconds += 60
    agent.has = {
        "a": OSError("the hypervisor is gone"),
        "c": "VCPU=4",
        "d": "VCPU=8",
        "e": "VCPU=x",
    }
    agent.uuids = {"d": "0b7c0a9e-0d0f-4f83-9c0b-0a4e8b7c1d2e"}
    tracker.update_available_resource()
    now = reported(ledger)
    assert [host for host in now if now[host] == before[host]] == ["a", "b", "d"]
    moment = before["a"]
    assert moment is not None
    late = ledger.providers(reported_before=moment + datetime.timedelta(microseconds=1))
    assert [one.name for one in late] == ["a", "b", "d"]


@pytest.mark.parametrize(
    "every", [0, 60, MINUTE - datetime.timedelta(microseconds=1), -MINUTE, "1m", True]
)
def test_hosts_report_no_more_often_than_once_a_minute(ledger: ro.Ledger, every: Any) -> None:
    with raises_code("InvalidField", match=r"report_every: got .* at least a minute"):
        ResourceTracker(ledger, Agent(), report_every=every)


def test_a_host_that_somebody_removes_meanwhile_keeps_nobody_from_telling(
    ledger: ro.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = Agent(a="VCPU=8", b="VCPU=8")
    agent.tells = {"a": [LOAD(1)], "b": [LOAD(3)]}
    tracker = ResourceTracker(ledger, agent, report_every=MINUTE)
    put = ledger.backend.put_statistics

    def removed_first(self: Backend, order: StatisticsOrder) -> int:
        if len(order.values) == 2:
            ledger.remove("a")
        return put(order)

    monkeypatch.setattr(type(ledger.backend), "put_statistics", removed_first)
    assert not tracker.update_available_resource().findings
    assert values(ledger) == _b(3)
    monkeypatch.undo()
    tracker.update_available_resource()
    assert values(ledger) == {**_b(3), "a": {"cpu.percent": 1}}


# --- how often a write is repeated ---

CHANGED = "changed by another process"
STALE_PROVIDER = exceptions.Stale("provider", "host1", CHANGED)


def _sync(ledger: ro.Ledger) -> None:
    ledger.sync(ro.Provider("host1", "VCPU=16"))


def _update(ledger: ro.Ledger) -> None:
    agent = Agent(host1="VCPU=16")
    ResourceTracker(ledger, agent).update_available_resource()
    raise exceptions.Stale("provider", "host1", "it became a finding")


def _save_definition(ledger: ro.Ledger) -> None:
    node = ComputeNode.load(ledger, "host1")
    node.inventories["VCPU"].total = 16
    node.save()


def _adopt_record(ledger: ro.Ledger) -> None:
    row().bind(ledger).save()


def _adopt_host(ledger: ro.Ledger) -> None:
    Adopter(ledger, Rows(host1=row())).adopt("host1")


def _report_statistics(ledger: ro.Ledger) -> None:
    agent = Agent(host1="VCPU=8")
    agent.tells = {"host1": [LOAD(1)]}
    ResourceTracker(ledger, agent).update_available_resource()


@pytest.mark.parametrize("repetitions", [0, 1, 5])
@pytest.mark.parametrize(
    ("write", "method", "error"),
    [
        (_sync, "commit", STALE_PROVIDER),
        (_update, "commit", STALE_PROVIDER),
        (_save_definition, "commit", STALE_PROVIDER),
        (_adopt_record, "commit", exceptions.Stale("consumer", "host1", CHANGED)),
        (_adopt_host, "commit", STALE_PROVIDER),
        (_report_statistics, "put_statistics", exceptions.NotFound("provider", "host1", CHANGED)),
    ],
)
def test_the_policy_counts_repetitions_in_each_loop(
    ledger: ro.Ledger,
    monkeypatch: pytest.MonkeyPatch,
    write: Callable[[ro.Ledger], None],
    method: str,
    error: exceptions.LedgerError,
    repetitions: int,
) -> None:
    ledger.sync(ro.Provider("host1", "VCPU=8,MEMORY_MB=16384,DISK_GB=100"))
    attempts = []

    def refused(order: Any) -> None:
        attempts.append(order)
        raise error

    policy = RetryPolicy(definitions=repetitions)
    monkeypatch.setattr(ledger.backend, method, refused)
    with raises_code(error.code):
        write(ro.Ledger(ledger.backend, retries=policy))
    assert len(attempts) == 1 + repetitions
