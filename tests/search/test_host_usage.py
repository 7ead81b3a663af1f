"""Who has what of each host, held against sums over the rows on random fleets."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest

import resource_objects as ro
from resource_objects.host import partitions
from resource_objects.reasons import Rule
from resource_objects.testing.refusals import raises_code

THOUSANDTHS = "CUSTOM_PGPU_THOUSANDTHS"
SLICES = {"CUSTOM_SLICE": 7, "CUSTOM_MEM": 8}
MIG = {"CUSTOM_1G": {"CUSTOM_SLICE": 1, "CUSTOM_MEM": 1}, "CUSTOM_7G": SLICES}
SIZE = {
    "PGPU": Fraction(1),
    "CUSTOM_1G": Fraction(1, 7),
    "CUSTOM_7G": Fraction(1),
    THOUSANDTHS: Fraction(1, 1000),
}


def fleet(dice: random.Random) -> ro.Ledger:
    """Return a ledger of some hosts whose devices are split in several ways, some held."""
    ledger = ro.connect("memory://")
    for number in range(dice.randint(1, 4)):
        host = ro.Provider(f"lab-{number}", "VCPU=64")
        for device in range(dice.randint(0, 4)):
            gpu = host.add(f"lab-{number}/gpu{device}", "PGPU=1")
            way = dice.randint(0, 2)
            if way == 1:
                partitions.thousandths(gpu)
            elif way == 2:
                partitions.split(gpu, "PGPU", SLICES, MIG)
        ledger.sync(host)
    for number in range(dice.randint(0, 25)):
        asked = dice.choice(
            ["PGPU=1", "PGPU=2", "CUSTOM_1G=2", "CUSTOM_7G=1", f"{THOUSANDTHS}=250", "VCPU=3"]
        )
        found = ledger.snapshot().candidates(asked, order="random", seed=dice.randint(0, 99))
        if found:
            ledger.claim(f"job-{number}", found)
    return ledger


@pytest.mark.parametrize("seed", range(30))
def test_figures_are_those_of_the_rows(seed: int) -> None:
    ledger = fleet(random.Random(seed))
    rows = list(ledger.usage())
    for line in ledger.snapshot().host_usage():
        own = [row for row in rows if row.provider.partition("/")[0] == line.host]
        gpus = sorted({row.provider for row in own if row.resource_class == "PGPU"})
        held: dict[str, dict[str, Fraction]] = {gpu: {} for gpu in gpus}
        for row in own:
            for who, amount in row.holders if row.provider in held else ():
                at = held[row.provider]
                at[who] = at.get(who, Fraction(0)) + amount * SIZE[row.resource_class]
        free = [row.free for row in own if row.resource_class == "PGPU"]
        assert [one.resource_class for one in line.classes] == ["PGPU"] * bool(gpus) + ["VCPU"]
        assert line["VCPU"].used == sum(r.used for r in own if r.resource_class == "VCPU")
        if gpus:
            gpu = line["PGPU"]
            assert (gpu.capacity, gpu.used, gpu.free) == (
                len(gpus),
                sum(bool(some) for some in held.values()),
                sum(free),
            )
        sums: dict[str, Fraction] = {}
        for some in held.values():
            for who, part in some.items():
                sums[who] = sums.get(who, Fraction(0)) + part
        shown = {one.consumer: dict(one.shown) for one in line.holders}
        assert {who: some["PGPU"] for who, some in shown.items() if "PGPU" in some} == sums
        for one in line.holders:
            assert sum(amount for _, amount in one.amounts) == sum(
                amount for row in own for who, amount in row.holders if who == one.consumer
            )


def test_parts_are_what_is_left_of_a_device() -> None:
    with ro.connect("memory://") as ledger:
        ledger.sync(partitions.split(ro.Provider("gpu0", "PGPU=1"), "PGPU", SLICES, MIG))
        ledger.claim("job-1", {"gpu0": "CUSTOM_1G=3"})
        (line,) = ledger.snapshot().host_usage()
    assert (line["PGPU"].used, line["PGPU"].parts) == (1, (Fraction(4, 7),))
    assert str(line) == ("gpu0: PGPU 1 of 1, 0 and 4/7 of one free; job-1 PGPU 3/7")
    with raises_code("InvalidName", match="VCPU"):
        line["VCPU"]


def test_a_count_of_cells_is_the_host_s_and_counted_once() -> None:
    with ro.connect("memory://") as ledger:
        host = ro.Provider("host0", "VCPU=16")
        for cell in range(2):
            share = ro.Share(resource_class="VCPU", of="host0", of_class="VCPU", factor=1)
            host.add(f"host0/cell{cell}", "VCPU=8", shares=[share])
        ledger.sync(host)
        ledger.claim("job-1", {"host0/cell1": "VCPU=3"})
        (line,) = ledger.snapshot().host_usage()
    assert str(line) == "host0: VCPU 3 of 16, 13 free; job-1 VCPU 3"


def test_only_some_hosts_and_consumers() -> None:
    with ro.connect("memory://") as ledger:
        for number in (10, 9):
            ledger.sync(ro.Provider(f"host{number}", "VCPU=4"))
        ledger.claim("job-1", {"host9": "VCPU=1"})
        ledger.claim("job-2", {"host9": "VCPU=2"})
        kept = ledger.snapshot()
        assert [one.host for one in kept.host_usage()] == ["host9", "host10"]
        assert [one.host for one in kept.host_usage("host10")] == ["host10"]
        (line,) = kept.host_usage(consumers=["job-1"])
        assert (line["VCPU"].used, [one.consumer for one in line.holders]) == (3, ["job-1"])
        with raises_code("ProviderNotFound", match="nowhere"):
            kept.host_usage("nowhere")
        with raises_code("InvalidName"):
            kept.host_usage(consumers="job-1")


@pytest.mark.parametrize("seed", range(30))
def test_a_refusal_of_whole_devices_names_every_holder_with_true_figures(seed: int) -> None:
    ledger = fleet(random.Random(seed))
    rows = list(ledger.usage())
    told = ledger.snapshot().candidates("PGPU=4", limit=None).explain()
    for host, reasons in told.by_host():
        whole = [one for one in reasons if one.rule is Rule.NOT_WHOLE]
        own = [row for row in rows if row.provider.startswith(f"{host}/gpu")]
        gpus = [row for row in own if row.resource_class == "PGPU"]
        in_parts = {
            (who, row.provider)
            for row in own
            if row.resource_class != "PGPU"
            for who, _ in row.holders
        }
        assert bool(whole) == bool(in_parts and len(gpus) > 1), host
        for one in whole:
            assert (one.requested, one.bound, one.free) == (4, len(gpus), sum(g.free for g in gpus))
            counted: dict[str, int] = {}
            for who, amount in (held for gpu in gpus for held in gpu.holders):
                counted[who] = counted.get(who, 0) + amount
            assert dict(one.holders) == counted
            sums: dict[tuple[str, str], Fraction] = {}
            for row in own:
                for who, amount in row.holders if row.resource_class != "PGPU" else ():
                    key = who, row.provider
                    sums[key] = sums.get(key, Fraction(0)) + amount * SIZE[row.resource_class]
            assert {(w, at): Fraction(n, of) for w, at, n, of in one.parts} == sums
            assert all(who in str(one) for who in {*counted, *(who for who, *_ in one.parts)})
