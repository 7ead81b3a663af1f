"""A snapshot is a picture: it does not change, can be shared, and costs little to ask."""

from __future__ import annotations

import concurrent.futures
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from resource_objects import exceptions, search
from resource_objects.providers import Provider
from resource_objects.providers.columns import (
    AggregateColumns,
    AllocationColumns,
    Columns,
    InventoryColumns,
    ProviderColumns,
    ShareColumns,
    TraitColumns,
    UnitColumns,
)
from resource_objects.providers.feed import SHARDS, Cursor
from resource_objects.requests import Request
from resource_objects.search import Snapshot
from resource_objects.testing.refusals import raises_code
from tests.support.columns import columns_of


def lab():
    for n in range(3):
        host = Provider(f"host{n}", "VCPU=8:used=3,MEMORY_MB=100", traits=["CUSTOM_A"])
        host.add(f"host{n}/gpu", "PGPU=1", traits=["CUSTOM_B"])
        yield host


def fleet(hosts):
    """Return columns of many equal hosts: one root with CPUs and four GPUs of which one is free."""
    ids = range(hosts * 5)
    gpus = [i for i in ids if i % 5]
    some = len(gpus)
    return Columns(
        ProviderColumns(
            provider_id=ids,
            uuid=[f"{i:032x}" for i in ids],
            name=[f"host{i // 5:05}/{i % 5}" if i % 5 else f"host{i // 5:05}" for i in ids],
            parent_id=[i - i % 5 if i % 5 else None for i in ids],
            root_id=[i - i % 5 for i in ids],
            generation=[0] * len(ids),
        ),
        InventoryColumns(
            provider_id=[*range(0, hosts * 5, 5), *gpus],
            resource_class=["VCPU"] * hosts + ["PGPU"] * some,
            total=[64] * hosts + [1] * some,
            reserved=[0] * (hosts + some),
            min_unit=[1] * (hosts + some),
            max_unit=[None] * (hosts + some),
            step_size=[1] * (hosts + some),
            ratio_millionths=[1_000_000] * (hosts + some),
            capacity=[64] * hosts + [1] * some,
            used=[0] * hosts + [int(i % 5 != 4) for i in gpus],
        ),
        TraitColumns(gpus, ["CUSTOM_H100"] * some),
    )


# --- a picture ------------------------------------------------------------------------------------


def test_a_snapshot_tells_what_there_is():
    snapshot = Snapshot(columns_of(lab()))
    assert snapshot.hosts == ("host0", "host1", "host2")
    assert (snapshot.capacity("VCPU"), snapshot.used("VCPU"), snapshot.free("VCPU")) == (24, 9, 15)
    assert (snapshot.capacity("PGPU"), snapshot.free("DISK_GB")) == (3, 0)
    assert repr(snapshot) == "<Snapshot: 3 hosts, 6 providers>"


@pytest.mark.law(7)
def test_sums_are_exact_beyond_64_bits():
    hosts = [Provider(f"host{n}", f"VCPU=8:used={2**63 - 1}") for n in range(3)]
    snapshot = Snapshot(columns_of(hosts))
    assert snapshot.used("VCPU") == 3 * (2**63 - 1)
    assert not snapshot.candidates("VCPU=1")
    assert str(snapshot.candidates(f"VCPU={2**63 - 1}").explain()).startswith(
        "host0: VCPU requested"
    )


def test_a_snapshot_does_not_change():
    snapshot = Snapshot(columns_of(lab()))
    with pytest.raises(exceptions.FrozenValue):
        snapshot._fleet = None
    with pytest.raises(exceptions.FrozenValue):
        del snapshot._fleet
    with pytest.raises(AttributeError):
        snapshot.anything = 1


def test_no_array_of_it_can_be_written():
    kept = Snapshot(columns_of(lab()))._fleet
    arrays = [kept.parent, kept.tree, *kept.traits.values()]
    for rows in kept.classes.values():
        names = [name for name in rows._fields if name != "first"]
        arrays += [getattr(rows, name) for name in names]
    assert len(arrays) > 30
    for array in arrays:
        assert isinstance(array, np.ndarray)
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0


def test_what_becomes_of_the_columns_does_not_matter():
    columns = columns_of(lab(), [("job-1", "host0", "VCPU", 5)])
    snapshot = Snapshot(columns)
    before = str(snapshot.candidates("VCPU=6").explain())
    for table in (columns.providers, columns.inventories, columns.traits, columns.allocations):
        for column in table:
            column.clear()
    assert before == str(snapshot.candidates("VCPU=6").explain())
    assert "job-1 holds 5" in before


@pytest.mark.law(5)
def test_asking_leaves_no_trace():
    snapshot = Snapshot(columns_of(lab()))
    first = list(snapshot.candidates("PGPU=1"))
    for _ in range(3):
        assert list(snapshot.candidates("PGPU=1")) == first
        assert not snapshot.candidates("PGPU=2")
    assert snapshot.free("PGPU") == 3


def test_threads_may_share_one():
    snapshot = Snapshot(fleet(200))
    requests = [Request(f"VCPU={n},PGPU={1 + n % 2}") for n in range(1, 20)]

    def answer(request):
        found = snapshot.candidates(request)
        return [str(candidate) for candidate in found], str(found.explain())

    expected = list(map(answer, requests))
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert list(pool.map(answer, requests)) == expected


# --- the cost -------------------------------------------------------------------------------------


def looked_at(found):
    """Return what was found, when all of it was looked for."""
    assert found.steps >= 0
    return found


def lines_run(function):
    """Return how many lines of the search room are run by a function, and its outcome."""
    room = str(pathlib.Path(search.__file__).parent)
    count = 0

    def trace(frame, event, _):
        nonlocal count
        if not frame.f_code.co_filename.startswith(room):
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        outcome = function()
    finally:
        sys.settrace(before)
    return count, outcome


@pytest.mark.law(9)
@pytest.mark.parametrize(
    "request_",
    [
        Request("PGPU=2"),
        Request("VCPU=65,PGPU=1"),
        Request("PGPU=2", required=["CUSTOM_H100"]),
        Request("VCPU=1,PGPU=1", required=["CUSTOM_H100", "CUSTOM_NOBODY"]),
        Request("PGPU=1", forbidden=["CUSTOM_H100"]),
        Request("CUSTOM_NOBODY=1"),
    ],
    ids=str,
)
def test_refusing_ten_thousand_hosts_runs_as_many_lines_as_refusing_ten(request_):
    few, many = Snapshot(fleet(10)), Snapshot(fleet(10_000))
    few.candidates(request_)  # what is computed once is not counted
    many.candidates(request_)
    lines, found = lines_run(lambda: looked_at(few.candidates(request_)))
    lines_of_many, found_of_many = lines_run(lambda: looked_at(many.candidates(request_)))
    assert lines_of_many == lines > 10
    assert not found
    assert not found_of_many
    assert found_of_many.steps == 0


def test_what_no_device_shares_is_ruled_out_without_a_step():
    host = Provider("host0")
    host.add("host0/numa0", "VCPU=4")
    host.add("host0/numa1", "VCPU=4")
    found = Snapshot(columns_of([host])).candidates("VCPU=6")
    assert not found
    assert found.steps == 0


@pytest.mark.law(9)
def test_the_work_of_finding_follows_the_limit_and_not_the_fleet():
    few, many = Snapshot(fleet(10)), Snapshot(fleet(10_000))
    request = Request("VCPU=1,PGPU=1", required=["CUSTOM_H100"])
    assert few.candidates(request, limit=5).steps == many.candidates(request, limit=5).steps <= 20
    assert many.candidates(request, limit=None).steps <= 4 * 10_000


# --- columns that cannot be -----------------------------------------------------------------------


def replaced(table, **columns):
    good = fleet(2)
    changed = getattr(good, table)._replace(**columns)
    return Columns(**{
        name: changed if name == table else getattr(good, name)
        for name in ("providers", "inventories", "traits", "allocations")
    })  # fmt: skip


@pytest.mark.parametrize(
    ("columns", "error"),
    [
        (replaced("providers", name=["host0"]), "InvalidRow"),
        (replaced("inventories", provider_id=[77] * 10), "InvalidRow"),
        (replaced("traits", provider_id=[-1] * 8), "InvalidRow"),
        (replaced("providers", parent_id=[77] * 10), "InvalidRow"),
        (replaced("providers", parent_id=[1, 0, 0, 0, 0, None, 5, 5, 5, 5]),
         exceptions.InvalidTree),
        (Columns(traits=TraitColumns([1], ["CUSTOM_A"])), "InvalidRow"),
        (Columns(aggregates=AggregateColumns([1], ["rack"])), "InvalidRow"),
        (Columns(aggregates=AggregateColumns([1], [])), "InvalidRow"),
        (Columns(shares=ShareColumns([1], ["VCPU"], [1], ["VCPU"], [])), "InvalidRow"),
        (Columns(units=UnitColumns([1], ["cpu0"], ["VCPU"], [])), "InvalidRow"),
    ],
)  # fmt: skip
def test_columns_that_do_not_belong_together_are_refused(columns, error):
    with raises_code(error):
        Snapshot(columns)


def test_an_allocation_of_nobody_is_refused_when_the_holders_are_asked():
    columns = Columns(*[getattr(fleet(1), n) for n in ("providers", "inventories", "traits")],
                      AllocationColumns([99], ["PGPU"], ["job"], [1]))  # fmt: skip
    with raises_code("InvalidRow"):
        str(Snapshot(columns).candidates("PGPU=2").explain())


def test_who_does_not_say_when_it_reported_is_read_all_the_same():
    plain = fleet(2)
    assert plain.providers.reported_at == ()
    told = plain.providers._replace(reported_at=[None] * 10)
    columns = Columns(told, plain.inventories, plain.traits)
    assert list(Snapshot(columns).candidates("PGPU=1")) == list(
        Snapshot(plain).candidates("PGPU=1")
    )
    with raises_code("InvalidRow"):
        Snapshot(Columns(told._replace(reported_at=[None])))


def test_a_snapshot_tells_where_the_change_feed_was():
    assert Snapshot(Columns()).cursor is None
    cursor = Cursor((0,) * SHARDS)
    assert Snapshot(Columns(cursor=cursor)).cursor is cursor


def test_what_is_not_there_costs_nothing():
    kept = Snapshot(fleet(100))._fleet
    rows = kept.rows("VCPU")
    assert not kept.shares
    assert not kept.pools
    assert np.array_equal(rows.free, rows.capacity - rows.used)
    assert rows.capacity.base is kept.inventories.capacity


def test_empty_columns_are_an_empty_ledger():
    assert Snapshot(Columns()).hosts == ()
    assert Snapshot(Columns()).capacity("VCPU") == 0


def test_numpy_is_loaded_when_a_snapshot_is_made_and_not_for_candidates():
    script = (
        "import sys, resource_objects.ledger.claims, resource_objects.search.candidates\n"
        "assert 'numpy' not in sys.modules\n"
        "resource_objects.search.Snapshot\n"
        "assert 'numpy' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", script], check=True)
