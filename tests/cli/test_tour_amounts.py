"""How much the tour takes: twice fits, three times does not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import resource_objects as ro
from resource_objects.cli import tour

figures = st.fixed_dictionaries(
    {
        "total": st.integers(1, 60),
        "used": st.integers(0, 60),
        "step_size": st.integers(1, 4),
        "min_unit": st.integers(1, 5),
        "max_unit": st.none() | st.integers(5, 60),
    }
).filter(lambda each: each["max_unit"] is None or each["max_unit"] <= each["total"])


@given(st.dictionaries(st.sampled_from(["VCPU", "MEMORY_MB", "DISK_GB"]), figures, min_size=1))
def test_two_fit_and_a_third_does_not(given_figures):
    host = ro.Provider(
        "box",
        {name: ro.resource(name).make_inventory(**each) for name, each in given_figures.items()},
    )
    half = tour.half_of_free(host)
    if half is None:
        return
    with ro.connect("memory://") as ledger:
        ledger.sync(host)
        for kind, inventory in host.inventories.items():
            if inventory.used:  # what others hold
                own = min(inventory.used, inventory.capacity)
                _take(ledger, kind, own, inventory)
        request = ro.Request(half)
        for job in ("ann", "bob"):
            assert ledger.claim(job, ledger.snapshot().candidates(request))
        assert not ledger.snapshot().candidates(request)


def _take(ledger, kind, amount, inventory):
    """Hold an amount whatever the unit rules say: they bind claims, not what was there before."""
    root = ledger.provider("box")
    free_of_rules = kind.make_inventory(inventory.total)
    ruled = root.inventories[kind.name]
    root.inventories[kind.name] = free_of_rules
    ledger.sync(root)
    ledger.claim(f"other-{kind}", {"box": {kind: amount}})
    again = ledger.provider("box")
    again.inventories[kind.name] = ruled
    ledger.sync(again)


@given(st.integers(4, 10**6))
def test_a_single_resource_is_halved_from_four_units_on(total):
    assert tour.half_of_free(ro.Provider("box", {"VCPU": total})) == {"VCPU": total // 2}


@pytest.mark.parametrize(
    ("inventories", "half"),
    [
        ("VCPU=1", None),
        ("VCPU=2", {"VCPU": 1}),
        ("VCPU=3", None),  # a third CPU would fit
        ("VCPU=3,MEMORY_MB=100", {"VCPU": 1, "MEMORY_MB": 50}),
        ("VCPU=1,MEMORY_MB=100", {"MEMORY_MB": 50}),
        ("VCPU=8:used=7,MEMORY_MB=100:used=40", {"MEMORY_MB": 30}),
        ("VCPU=4:used=4", None),
        ("VCPU=4:allocation_ratio=16", {"VCPU": 32}),
        ("VCPU=100:max_unit=10", None),  # nobody may take half
        ("VCPU=10:min_unit=6", None),
        ("VCPU=10:step_size=4", {"VCPU": 4}),
        ("", None),
    ],
)
def test_half_of_what_is_free(inventories, half):
    assert tour.half_of_free(ro.Provider("box", inventories)) == half


def test_what_a_provider_below_has_too_is_left_out():
    host = ro.Provider("box", "VCPU=8,MEMORY_MB=100")
    host.add("box/cell0", "VCPU=4").add("box/cell0/gpu", "PGPU=1")
    assert tour.half_of_free(host) == {"MEMORY_MB": 50}


def test_own_usage_leaves_out_what_is_below_and_above():
    host = ro.Provider("rack")
    box = host.add("rack/box", "VCPU=8")
    box.add("rack/box/gpu", "PGPU=1")
    with ro.connect("memory://") as ledger:
        ledger.sync(host)
        usage = tour.usage_of_host(ledger.usage("rack/box"), "rack/box")
    assert [root.name for root in usage.providers] == ["rack/box"]
    assert usage.providers[0].children == ()
    assert str(usage) == "rack/box: VCPU 0 of 8"
