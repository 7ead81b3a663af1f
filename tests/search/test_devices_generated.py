"""Devices in the search, on generated fleets: what is found can be had, and what can is found."""

from __future__ import annotations

import pytest

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.resources import Amounts, amounts
from tests.search.device_fleets import DEVICES, TOPOLOGY, fleet
from tests.support.lengths import some

SEEDS = 600


def _units(claim):
    return [
        (one.provider, unit, one.resource_class) for one in claim.allocations for unit in one.units
    ]


def _check_told(told, candidate):
    for kind, amount in candidate.located.by_name():
        placed = {unit for one in amount.placed for unit in getattr(one, "units", ())}
        taken = {unit for one in candidate.allocations for unit in one.units}
        if kind == DEVICES and placed < taken & {d for d in taken if ":" in d}:
            assert {unit for one in told[kind].placed for unit in one.units} <= taken
        else:
            assert told[kind] == amount


def _picture(ledger):
    columns = ledger.backend.read()
    return columns.inventories, columns.units, columns.allocations


@pytest.mark.law(3, 4, 6)
@pytest.mark.parametrize("start", some(range(0, SEEDS, 50)))
def test_every_candidate_can_be_claimed_and_comes_back(start):
    found_any = 0
    for seed in range(start, start + 50):
        ledger, request = fleet(seed)
        before = _picture(ledger)
        found = ledger.snapshot().candidates(request, limit=None)
        for one in found:
            found_any += 1
            claim = ledger.claim("new", one)
            assert not list(ledger.audit()), seed
            taken = _units(claim)
            assert len({(p, u) for p, u, _ in taken}) == len(taken), seed
            _check_told(ledger.assigned_amounts("new")[one.host] if one.located else Amounts(), one)
            ledger.release("new")
            assert _picture(ledger) == before, seed
    assert found_any > 3


def _as_devices(request):
    """Return a request in which counts of devices are devices, wherever they are."""
    (group,) = request.groups
    split = amounts.split_placed(group.resources)
    if split is None:
        located, others = {}, dict(group.resources.by_name())
    else:
        located, others = dict(split.placed), dict(split.unplaced)
    wanted = located.pop(DEVICES, None)
    plain = {}
    for name, amount in others.items():
        if name in ("VCPU", "PCPU", "DISK_GB"):
            plain[name] = amount
        else:
            anywhere = "preferred" if TOPOLOGY in located else "legacy"
            more = ro.devices(name, int(amount), affinity=anywhere)
            wanted = more if wanted is None else wanted + more
    return Amounts({**plain, **located, **({} if wanted is None else {DEVICES: wanted})})


@pytest.mark.law(5)
@pytest.mark.parametrize("start", some(range(0, SEEDS, 50)))
def test_a_host_is_found_when_its_inventories_can_provide(start):
    """The oracle is the decision on what lies over the host, with each count as so many devices."""
    answers = set()
    for seed in range(start, start + 50):
        ledger, request = fleet(seed, traits=False)
        found = ledger.snapshot().candidates(request, limit=None)
        hosts = {one.host for one in found} if found or not found.cut_short else set()
        for host in ledger.snapshot().hosts:
            expected = ledger.inventories(host).can_provide(_as_devices(request))
            assert (host in hosts) is expected, (seed, host, str(request))
            answers.add(expected)
    assert answers == {True, False}


@pytest.mark.law(5)
@pytest.mark.parametrize("start", some(range(0, 300, 50)))
def test_search_claim_and_inventories_decide_the_same(start):
    compared = 0
    for seed in range(start, start + 50):
        ledger, request = fleet(seed, traits=False)
        (group,) = request.groups
        split = amounts.split_placed(group.resources)
        if split is None or any(name not in ("VCPU", "PCPU") for name in split.unplaced):
            continue
        for host in ledger.snapshot().hosts:
            here = ledger.snapshot(host).candidates(request)
            try:
                expected = ledger.inventories(host).fit(request.groups[0].resources)
            except exceptions.CapacityException:
                assert not here, seed
                with pytest.raises(exceptions.CapacityException):
                    ledger.claim("new", {host: group.resources})
                continue
            ledger.claim("new", {host: group.resources})
            told = ledger.assigned_amounts("new")[host]
            for kind in split.placed:
                # which counts stand beside it is of the request, not of where it is
                decided = expected[kind].counting_separately(())
                assert here[0].located[kind] == decided == told[kind], seed
                compared += 1
            ledger.release("new")
    assert compared > 5


@pytest.mark.law(6)
@pytest.mark.parametrize("start", some(range(0, SEEDS, 50)))
def test_who_is_refused_is_told_why(start):
    for seed in range(start, start + 50):
        ledger, request = fleet(seed)
        found = ledger.snapshot().candidates(request)
        for host, reasons in found.explain().by_host():
            assert reasons, (seed, host)
            for reason in reasons:
                assert reason.resource is not None and str(reason), seed
