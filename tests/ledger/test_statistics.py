"""The statistics of a ledger, from the front door."""

from __future__ import annotations

import datetime
import functools
import uuid

import pytest

import resource_objects as ro
from resource_objects.providers.statistics import Statistic
from resource_objects.testing.refusals import raises_code

LOAD = functools.partial(Statistic, "cpu.percent")
BUILDS = functools.partial(Statistic, "failed_builds")


@pytest.fixture
def lab(ledger: ro.Ledger) -> ro.Ledger:
    ledger.sync(ro.Provider("a", "VCPU=8"), ro.Provider("b", "VCPU=8"))
    return ledger


def test_hosts_are_given_by_name_or_uuid(lab: ro.Ledger) -> None:
    b = lab.provider("b").uuid or ""
    assert lab.statistics.put({"a": [LOAD(1)], b.upper(): (LOAD(2), BUILDS(0))}) == 3
    assert list(lab.statistics.read()) == ["a", "b"]
    assert lab.statistics.read(b, "a") == lab.statistics.read()
    assert lab.statistics.read("b", names=["failed_builds"])["b"]["failed_builds"].value == 0
    assert lab.statistics.forget(b) == 2
    assert lab.statistics.forget("a", "b", names=["failed_builds"]) == 0
    assert list(lab.statistics.read()) == ["a"]


def test_another_process_reads_what_a_host_told(
    url: str, lab: ro.Ledger, request: pytest.FixtureRequest
) -> None:
    lab.statistics.put({"a": [LOAD(12.5)]})
    if not url.startswith("memory"):
        with ro.connect(url) as scheduler:
            assert scheduler.statistics.read() == lab.statistics.read()
            scheduler.statistics.put({"a": [BUILDS(3)]}, source="scheduler")
    assert lab.statistics.read()["a"]["cpu.percent"].since is not None


def test_what_is_put_keeps_no_snapshot_from_being_fresh(lab: ro.Ledger) -> None:
    before = lab.snapshot()
    lab.statistics.put({"a": [LOAD(1)]}, reported=["a", "b"])
    assert lab.snapshot() is before
    assert all(one.reported_at is not None for one in lab.providers())
    assert list(lab.providers(reported_before=lab.now() - datetime.timedelta(hours=1))) == []


def test_a_renamed_host_keeps_its_statistics(lab: ro.Ledger) -> None:
    lab.statistics.put({"a": [LOAD(1)]})
    lab.change("a", name="c")
    assert list(lab.statistics.read("c")) == ["c"]


def test_an_order_of_nothing_asks_nobody(lab: ro.Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(lab.backend), "put_statistics", None)
    assert lab.statistics.put({}) == 0


@pytest.mark.law(2, 8)
def test_one_host_that_is_not_there_refuses_all(lab: ro.Ledger) -> None:
    for nobody in ("nobody", str(uuid.uuid4())):
        with raises_code("ProviderNotFound", match=nobody):
            lab.statistics.put({"a": [LOAD(1)], nobody: [LOAD(1)]})
        with raises_code("ProviderNotFound", match=nobody):
            lab.statistics.put({"a": [LOAD(1)]}, reported=[nobody])
    with raises_code("ProviderNotFound", match="nobody"):
        lab.statistics.read("nobody")
    twice = {"a": [LOAD(1)], lab.provider("a").uuid or "": [LOAD(1)]}
    with raises_code("DuplicateKey", match="each host once"):
        lab.statistics.put(twice)
    with raises_code("InvalidField", match="hosts, or names of statistics"):
        lab.statistics.forget()
    assert lab.statistics.read() == {}
