"""The audit: silent on a ledger that is well, and finds each thing that is not as it should be."""

from __future__ import annotations

import dataclasses
import datetime
import json
from collections.abc import Callable
from typing import Any

import pytest

import resource_objects as ro
from resource_objects.providers import Allocation, Provider, Share
from resource_objects.providers.audit import Audit, FindingKind, audit, consumers_of_several_trees
from resource_objects.providers.columns import (
    AllocationColumns,
    Columns,
    InventoryColumns,
    KindColumns,
    ProviderColumns,
    ShareColumns,
    TraitColumns,
    UnitColumns,
)
from resource_objects.testing.refusals import raises_code

HOUR = datetime.timedelta(hours=1)
NOW = datetime.datetime.now(datetime.UTC)


def taken(provider: str, kind: str, amount: int, *units: str) -> Allocation:
    return Allocation(
        provider=provider, resource_class=kind, amount=ro.IntegerAmount(amount), units=units
    )


def filled(ledger: ro.Ledger) -> None:
    """Make a host with a cell that shares, a pool, and two jobs."""
    host = Provider("host0", "VCPU=8,PGPU=2")
    share = Share(resource_class="VCPU", of="host0", of_class="VCPU", factor=2)
    host.add("host0/cell", "VCPU=4", shares=[share])
    ledger.sync(host, Provider("host1", "VCPU=8"), Provider("nfs", "DISK_GB=100"))
    ledger.pools.share("nfs", hosts=["host0", "host1"])
    ledger.claim("job-1", ledger.snapshot().candidates(ro.Request("VCPU=2,DISK_GB=10")))
    ledger.claim("job-2", [taken("host0/cell", "VCPU", 2), taken("host0", "PGPU", 1, "gpu0")])
    ledger.claim("job-3", {"host1": "VCPU=1", "nfs": "DISK_GB=5"})


def test_a_ledger_that_is_well_has_no_findings(ledger: ro.Ledger) -> None:
    filled(ledger)
    found = ledger.audit(older_than=HOUR).of("stale_pool")  # the pool never reported
    assert [finding.provider for finding in found] == ["nfs"]
    assert ledger.audit() == Audit()
    assert str(ledger.audit()) == "nothing found"
    assert ledger.audit().to_dict() == {"counts": {}, "findings": []}


def test_what_is_used_beyond_the_capacity_is_found(ledger: ro.Ledger) -> None:
    filled(ledger)
    ledger.change("host1", inventories="VCPU=8:reserved=8")
    (finding,) = ledger.audit()
    assert finding.kind is FindingKind.OVER_CAPACITY
    assert (finding.provider, finding.resource_class) == ("host1", "VCPU")
    assert (finding.figure, finding.expected) == (1, 0)
    assert str(finding) == "host1: VCPU has 1 used of 0"


def test_what_is_held_of_a_pool_through_a_link_that_is_gone_is_found(ledger: ro.Ledger) -> None:
    filled(ledger)
    ledger.pools.unshare("nfs", hosts=["host1"])
    (finding,) = ledger.audit().of(FindingKind.UNSHARED)
    assert (finding.consumer, finding.provider, finding.figure) == ("job-3", "nfs", 5)
    assert str(finding) == "nfs: 5 DISK_GB are allocated to job-3, but are not provided to host1"


def test_of_a_pool_that_is_none_any_more_what_was_searched_is_found(ledger: ro.Ledger) -> None:
    filled(ledger)
    ledger.pools.unshare("nfs")
    # what somebody decided to take of two hosts may be meant so: job-3
    assert [finding.consumer for finding in ledger.audit().of("unshared")] == ["job-1"]
    assert consumers_of_several_trees(ledger.backend.read()) == ("job-1", "job-3")


def test_what_is_held_of_pools_alone_or_of_two_hosts_is_well(ledger: ro.Ledger) -> None:
    filled(ledger)
    ledger.claim("disk", {"nfs": "DISK_GB=1"})
    ledger.claim("wide", {"host0": "VCPU=1", "host1": "VCPU=1"})
    assert not ledger.audit()


def test_an_expired_claim_is_found(ledger: ro.Ledger) -> None:
    filled(ledger)
    ledger.claim("late", {"host1": "VCPU=1"}, expires_at=NOW)
    (finding,) = ledger.audit(now=NOW + HOUR)
    assert (finding.kind, finding.consumer, finding.at) == (FindingKind.EXPIRED, "late", NOW)
    assert json.loads(json.dumps(finding.to_dict()))["at"] == NOW.isoformat()
    assert not ledger.audit(now=NOW)


def test_a_pool_that_nobody_heard_of_is_found(ledger: ro.Ledger) -> None:
    filled(ledger)
    ledger.pools.report("nfs", "DISK_GB=100")
    assert not ledger.audit(older_than=HOUR)
    (finding,) = ledger.audit(now=NOW + 2 * HOUR, older_than=HOUR)
    assert (finding.kind, finding.provider) == (FindingKind.STALE_POOL, "nfs")
    assert finding.at == ledger.provider("nfs").reported_at


def test_what_to_judge_by_is_checked(ledger: ro.Ledger) -> None:
    for bad in ({"now": NOW.replace(tzinfo=None)}, {"older_than": -HOUR}, {"older_than": 7}):
        with raises_code("InvalidField"):
            ledger.audit(**bad)  # type: ignore[arg-type]


# --- rows that no writer of ours leaves behind ---

UUIDS = [f"{n}fa4cd25-8a38-4bb3-8a37-7b5d4a6f6f33" for n in range(3)]


def rows() -> Columns:
    """Return two hosts, a pool, and what three jobs hold; all is well."""
    sound = Columns(
        ProviderColumns(
            [1, 2, 3], UUIDS, ["host0", "host0/a", "nfs"], [None, 1, None], [1, 1, 3], [0, 0, 0]
        ),
        InventoryColumns(
            [1, 2, 3],
            ["VCPU", "VCPU", "DISK_GB"],
            [8, 4, 90],
            [0, 0, 0],
            [1, 1, 1],
            [None, None, None],
            [1, 1, 1],
            [1000000, 1000000, 1000000],
            [8, 4, 90],
            [5, 2, 7],
        ),
        TraitColumns([3], ["MISC_SHARES_VIA_AGGREGATE"]),
        AllocationColumns(
            [1, 2, 3], ["VCPU", "VCPU", "DISK_GB"], ["job-1", "job-2", "job-1"], [3, 2, 7]
        ),
        units=UnitColumns([1, 2], ["cpu0", "cpu0"], ["VCPU", "VCPU"], ["job-1", "job-2"]),
        shares=ShareColumns([2], ["VCPU"], [1], ["VCPU"], [1]),
    )
    links = type(sound.aggregates)([1, 3], ["rack", "rack"])
    return dataclasses.replace(sound, aggregates=links)


def put(table: str, row: int, column: str, value: Any) -> Callable[[Columns], Columns]:
    def change(columns: Columns) -> Columns:
        found = getattr(columns, table)
        changed = list(getattr(found, column))
        changed[row] = value
        return dataclasses.replace(columns, **{table: found._replace(**{column: changed})})

    return change


def add(table: str, *row: Any) -> Callable[[Columns], Columns]:
    def change(columns: Columns) -> Columns:
        found = getattr(columns, table)
        longer = [[*column, value] for column, value in zip(found, row, strict=True)]
        return dataclasses.replace(columns, **{table: type(found)(*longer)})

    return change


def test_sound_rows_have_no_findings() -> None:
    assert not audit(rows())


@pytest.mark.law(1, 4)
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            put("inventories", 1, "used", 3),
            ["host0/a: VCPU is recorded with 3 used, its allocations sum to 2"],
        ),
        (
            put("shares", 0, "factor", 2),
            ["host0: VCPU is recorded with 5 used, its allocations sum to 7"],
        ),
        (put("inventories", 2, "capacity", 6), ["nfs: DISK_GB has 7 used of 6"]),
        (
            add("units", 1, "cpu0", "VCPU", "job-1"),
            [],  # the same one told twice is one
        ),
        (
            put("units", 1, "provider_id", 1),
            [
                "host0: cpu0 is allocated to job-1 and to job-2",
                "host0: cpu0 is allocated to job-2, which has no VCPU allocated there",
            ],
        ),
        (
            put("units", 0, "resource_class", "PCPU"),
            ["host0: cpu0 is allocated to job-1, which has no PCPU allocated there"],
        ),
        (
            put("aggregates", 0, "aggregate", "other"),
            ["nfs: 7 DISK_GB are allocated to job-1, but are not provided to host0"],
        ),
        (
            lambda columns: add("aggregates", 2, "rack")(
                put("inventories", 2, "resource_class", "VCPU")(
                    put("allocations", 2, "resource_class", "VCPU")(columns)
                )
            ),
            [
                "host0: VCPU is counted here and at the pool nfs",
                "host0/a: VCPU is counted here and at the pool nfs",
            ],
        ),
        (put("providers", 1, "parent_id", 9), ["host0/a: orphaned child"]),
        (add("traits", 9, "CUSTOM_A"), ["provider 9: orphaned trait"]),
        (
            add("allocations", 1, "PGPU", "job-1", 1),
            ["host0: orphaned allocation (PGPU, job-1)"],
        ),
        (
            put("shares", 0, "of_class", "PCPU"),
            [
                "host0: VCPU is recorded with 5 used, its allocations sum to 3",
                "host0: orphaned share (PCPU)",
            ],
        ),
        (
            put("shares", 0, "of_id", 9),
            [
                "host0: VCPU is recorded with 5 used, its allocations sum to 3",
                "host0/a: orphaned share (VCPU)",
            ],
        ),
        (put("providers", 0, "parent_id", 2), None),
    ],
)
def test_each_wrong_row_is_found(
    change: Callable[[Columns], Columns], said: list[str] | None
) -> None:
    found = audit(change(rows()))
    if said is not None:
        assert str(found).splitlines() == (said or ["nothing found"])
    assert len(found) == len(list(found)) == sum(found.counts().values())
    assert json.loads(json.dumps(found.to_dict()))["counts"] == found.counts()


def test_findings_come_by_kind() -> None:
    broken = put("inventories", 1, "used", 9)(put("units", 0, "resource_class", "PCPU")(rows()))
    found = audit(broken)
    kinds = [finding.kind for finding in found]
    assert kinds == [FindingKind.OVER_CAPACITY, FindingKind.WRONG_USED, FindingKind.UNIT_LOOSE]
    assert found.counts() == {"over_capacity": 1, "wrong_used": 1, "unit_loose": 1}
    assert [one.to_dict()["provider"] for one in found.of("wrong_used")] == ["host0/a"]
    with pytest.raises(ValueError, match="colour"):
        found.of("colour")


def test_kinds_and_their_rows_do_not_matter() -> None:
    assert not audit(
        dataclasses.replace(rows(), kinds=KindColumns([1], ["VCPU"], [("VCPU",)], [""]))
    )
