"""The comparison of two states of rows: what it gives leads from the one to the other."""

from __future__ import annotations

import contextlib
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

import resource_objects as ro
from resource_objects.providers import Allocation, Provider, Share
from resource_objects.providers.columns import Columns, stored_definitions
from resource_objects.providers.plan import Plan, diff_rows, holdings
from resource_objects.testing.refusals import raises_code


def logical(columns: Columns) -> Any:
    """Return what columns say, whatever numbers and generations a backend gave."""
    uuid = dict(zip(columns.providers.provider_id, columns.providers.uuid, strict=True))
    used = {
        (uuid[number], kind): amount
        for number, kind, *_, amount in zip(*columns.inventories, strict=True)
    }
    definitions = {u: kept.definition for u, kept in stored_definitions(columns).items()}
    return definitions, used, holdings(columns)


def filled() -> ro.Ledger:
    """Return a ledger with a host, its cell (which shares) and a GPU, and two jobs."""
    ledger = ro.connect()
    host = Provider("host0", "VCPU=8,DISK_GB=100", traits=["CUSTOM_A"], aggregates=["rack"])
    cell = Share(resource_class="VCPU", of="host0", of_class="VCPU", factor=2)
    host.add("host0/cell", "VCPU=4", shares=[cell])
    host.add("host0/gpu", "PGPU=4", aggregates=["rack", "gpus"])
    ledger.sync(host)
    ledger.claim("job-1", [taken("host0/gpu", "PGPU", 2, "a", "b"), taken("host0", "DISK_GB", 9)])
    ledger.claim("job-2", {"host0/cell": "VCPU=2"})
    return ledger


def taken(provider: str, kind: str, amount: int, *units: str) -> Allocation:
    return Allocation(
        provider=provider, resource_class=kind, amount=ro.IntegerAmount(amount), units=units
    )


def copied(columns: Columns) -> ro.Ledger:
    """Return a ledger in the state of columns, made by a plan alone."""
    ledger = ro.connect()
    ledger.apply(diff_rows(Columns(), columns))
    return ledger


def test_a_ledger_can_be_made_from_rows() -> None:
    with filled() as ledger:
        columns = ledger.backend.read()
        with copied(columns) as copy:
            assert logical(copy.backend.read()) == logical(columns)
            used = copy.usage()["host0", "VCPU"].used
            assert used == 4
        assert not diff_rows(columns, columns)


def test_everything_goes_when_nothing_is_wanted() -> None:
    with filled() as ledger:
        plan = diff_rows(ledger.backend.read(), Columns())
        assert [str(line) for line in str(plan).splitlines()] == [
            "- job-1 releases everything",
            "- job-2 releases everything",
            "- host0/gpu",
            "- host0/cell",
            "- host0",
        ] or str(plan).splitlines()[-1] == "- host0"
        ledger.apply(plan)
        assert logical(ledger.backend.read()) == logical(Columns())


def test_a_difference_is_told_row_by_row() -> None:
    with filled() as ledger:
        before = ledger.backend.read()
        host = ledger.provider("host0")
        host.update(traits=["CUSTOM_B"], name="host00", aggregates=["rack", "row"])
        host.inventories["VCPU"] = ro.IntegerInventory(16)
        host.children[0].update(shares=[Share(resource_class="VCPU", of="host00", of_class="VCPU")])
        ledger.sync(host)
        ledger.release("job-2")
        ledger.claim("job-3", {"host0/cell": "VCPU=1"})
        ledger.adjust("job-1", [taken("host0/gpu", "PGPU", -1, "a")])
        plan = diff_rows(before, ledger.backend.read())
    assert str(plan).splitlines() == [
        "~ host00: VCPU=16 +CUSTOM_B -CUSTOM_A +aggregate row",
        "~ host0/cell: shares",
        "~ job-1 is allocated DISK_GB=9 of host00, PGPU=1 (b) of host0/gpu",
        "- job-2 releases everything",
        "+ job-3 allocates VCPU=1 of host0/cell",
    ]
    assert Plan.from_json(plan.to_json()) == plan


def test_a_plan_is_for_the_definitions_it_was_made_from() -> None:
    with filled() as ledger:
        before = ledger.backend.read()
        ledger.change("host0", traits=["CUSTOM_C"])
        plan = diff_rows(before, Columns())
        for dry_run in (True, False):
            with raises_code("StaleDefinition", match="host0"):
                ledger.apply(plan, dry_run=dry_run)


# --- the property ---

CLASSES = ("VCPU", "CUSTOM_SEAT")
PLACES = [f"host{n}{part}" for n in range(2) for part in ("", "/a", "/b")]
_amounts = st.dictionaries(st.sampled_from(CLASSES), st.integers(1, 6), max_size=2)
_one = st.tuples(
    _amounts.map(lambda totals: {name: 6 * total for name, total in totals.items()}),
    st.sets(st.sampled_from(["CUSTOM_A", "CUSTOM_B"])),
    st.sets(st.sampled_from(["x", "y"])),
    st.integers(0, 2),
)
_host = st.tuples(_one, _one, _one, st.booleans())
_take = st.dictionaries(st.sampled_from(PLACES), _amounts, min_size=1, max_size=3)
_state = st.tuples(
    st.lists(st.none() | _host, min_size=2, max_size=2),
    st.dictionaries(st.sampled_from(["job-1", "job-2", "job-3"]), _take, max_size=3),
)


def build(ledger: ro.Ledger, state: Any) -> None:
    """Bring a ledger into a state, as far as its own rules allow."""
    hosts, jobs = state
    for consumer in list(ledger.usage().consumers):
        if consumer not in jobs:
            ledger.release(consumer)
    for number, host in enumerate(hosts):
        with contextlib.suppress(ro.ResourceObjectsError):
            if host is None:
                ledger.remove(f"host{number}")
            else:
                ledger.sync(_tree(f"host{number}", host))
    for consumer, amounts in jobs.items():
        held = [
            taken(place, kind, amount, *(f"{consumer}-{kind}-{n}" for n in range(amount % 3)))
            for place, some in amounts.items()
            for kind, amount in some.items()
        ]
        with contextlib.suppress(ro.ResourceObjectsError):
            ledger.replace(consumer, held)


def _tree(name: str, host: Any) -> Provider:
    own, first, second, is_nested = host
    root = _provider(name, own, None)
    child = root.add(f"{name}/a")
    below = child if is_nested else root
    below.add(f"{name}/b")
    for place, data in ((f"{name}/a", first), (f"{name}/b", second)):
        made = _provider(place, data, root)
        root.find(place).update(
            inventories=made.inventories,
            traits=made.traits,
            aggregates=made.aggregates,
            shares=made.shares,
        )
    return root


def _provider(name: str, data: Any, root: Provider | None) -> Provider:
    inventories, traits, aggregates, factor = data
    shares = [
        Share(resource_class=kind, of=root.name, of_class=kind, factor=factor)
        for kind in (inventories if root is not None and factor else ())
        if root is not None and kind in root.inventories
    ]
    return Provider(name, inventories, traits=traits, aggregates=aggregates, shares=shares)


@pytest.mark.law(1, 2, 3)
@pytest.mark.backend("memory")
@hypothesis.given(_state, _state)
def test_the_difference_of_two_states_leads_from_one_to_the_other(first: Any, second: Any) -> None:
    with ro.connect() as ledger:
        build(ledger, first)
        before = ledger.backend.read()
        build(ledger, second)
        after = ledger.backend.read()
        hypothesis.assume(not ledger.usage().over_capacity)
    with copied(before) as copy:
        assert logical(copy.backend.read()) == logical(before)
        plan = diff_rows(copy.backend.read(), after)
        assert Plan.from_json(plan.to_json()) == plan
        kept = logical(copy.backend.read())
        copy.apply(plan, dry_run=True)
        assert logical(copy.backend.read()) == kept
        copy.apply(plan)
        assert logical(copy.backend.read()) == logical(after)
        assert not diff_rows(copy.backend.read(), after)
