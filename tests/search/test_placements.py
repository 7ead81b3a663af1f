"""Placements of partitions: the free one that excludes the fewest others is used first."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

import resource_objects as ro
from resource_objects.host.partitions import add_partition, split

#: By card and profile: the memory slices that a partition occupies, and where it may begin.
CARDS: Mapping[str, Mapping[str, tuple[int, tuple[int, ...]]]] = {
    "four profiles": {
        "1G": (1, tuple(range(7))),
        "2G": (2, (0, 2, 4)),
        "3G": (4, (0, 4)),
        "4G": (4, (0,)),
    },
    "A100 40GB": {
        "1G": (1, tuple(range(7))),
        "2G": (2, (0, 2, 4)),
        "3G": (4, (0, 4)),
        "4G": (4, (0,)),
        "7G": (8, (0,)),
    },
    "H100 80GB": {
        "1G": (1, tuple(range(7))),
        "1G_20GB": (2, (0, 2, 4, 6)),
        "2G": (2, (0, 2, 4)),
        "3G": (4, (0, 4)),
        "4G": (4, (0,)),
        "7G": (8, (0,)),
    },
}
ORDERS = ("name", "pack", "spread")


def host(card: str = "four profiles", gpus: int = 1) -> ro.Provider:
    """Return a host with GPUs, of which each placement of each profile is a provider."""
    root = ro.Provider("h", "VCPU=64")
    for number in range(gpus):
        gpu = split(root.add(f"h/gpu{number}"), None, {f"CUSTOM_AT_{at}": 1 for at in range(8)})
        for profile, (size, starts) in CARDS[card].items():
            for start in starts:
                slices = {f"CUSTOM_AT_{at}": 1 for at in range(start, start + size)}
                name = f"{gpu.name}/{profile.lower()}-{start}"
                add_partition(gpu, name, f"CUSTOM_MIG_{profile}", slices)
    return root


@pytest.fixture
def ledger() -> ro.Ledger:
    ledger = ro.connect("memory://")
    ledger.sync(host())
    return ledger


def placed(ledger: ro.Ledger, amounts: str | ro.Request, **options: object) -> list[str]:
    """Return where the first candidate is, below the host."""
    first = ledger.snapshot().candidates(amounts, **options)[0]  # type: ignore[arg-type]
    return [one.provider.removeprefix("h/") for one in first.allocations]


def refused(ledger: ro.Ledger, amounts: str | ro.Request) -> str:
    """Return why there is no candidate."""
    found = ledger.snapshot().candidates(amounts)
    assert not found
    return str(found.explain())


@pytest.mark.parametrize("order", ORDERS)
def test_a_large_partition_fits_after_two_small_ones(ledger: ro.Ledger, order: str) -> None:
    for name in ("a", "b"):
        ledger.claim(name, ledger.snapshot().candidates("CUSTOM_MIG_1G=1", order=order))
    assert placed(ledger, "CUSTOM_MIG_4G=1", order=order) == ["gpu0/4g-0"]


@pytest.mark.parametrize("seed", range(4))
def test_a_seed_decides_between_equal_placements_only(ledger: ro.Ledger, seed: int) -> None:
    assert placed(ledger, "CUSTOM_MIG_1G=1", order="random", seed=seed) == ["gpu0/1g-6"]
    ledger.claim("a", {"h/gpu0/1g-6": "CUSTOM_MIG_1G=1"})
    (second,) = placed(ledger, "CUSTOM_MIG_1G=1", order="random", seed=seed)
    assert second in ("gpu0/1g-4", "gpu0/1g-5")


def test_several_in_one_claim_are_chosen_one_after_the_other(ledger: ro.Ledger) -> None:
    assert placed(ledger, "CUSTOM_MIG_1G=3") == ["gpu0/1g-6", "gpu0/1g-4", "gpu0/1g-5"]
    groups = [ro.RequestGroup("CUSTOM_MIG_1G=1", suffix=name) for name in ("_A", "_B")]
    assert set(placed(ledger, ro.Request(groups=groups))) == {"gpu0/1g-6", "gpu0/1g-4"}
    both = placed(ledger, "CUSTOM_MIG_1G=2,CUSTOM_MIG_4G=1")
    assert both == ["gpu0/1g-6", "gpu0/1g-4", "gpu0/4g-0"]


def reference(card: str, occupied: set[int], profile: str) -> int | None:
    """Return where a partition begins that excludes the fewest free placements, the naive way."""
    profiles = CARDS[card]

    def slices(name: str, start: int) -> set[int]:
        return set(range(start, start + profiles[name][0]))

    free = [
        (name, start)
        for name, (_, starts) in profiles.items()
        for start in starts
        if not slices(name, start) & occupied
    ]

    def excluded(start: int) -> int:
        return sum(bool(slices(profile, start) & slices(*other)) for other in free)

    able = [start for name, start in free if name == profile]
    return min(able, key=lambda start: (excluded(start), start), default=None)


@pytest.mark.parametrize("card", list(CARDS))
@given(chance=st.randoms(use_true_random=False))
def test_the_placement_is_the_one_of_the_reference(card: str, chance: random.Random) -> None:
    ledger = ro.connect("memory://")
    ledger.sync(host(card))
    held: dict[str, set[int]] = {}
    for number in range(12):
        if held and chance.random() < 0.3:
            name = chance.choice(sorted(held))
            ledger.release(name)
            del held[name]
            continue
        profile = chance.choice(list(CARDS[card]))
        occupied = set().union(*held.values())
        start = reference(card, occupied, profile)
        request, order = f"CUSTOM_MIG_{profile}=1", chance.choice(ORDERS)
        if start is None:
            assert refused(ledger, request).startswith(f"h: h/gpu0: CUSTOM_MIG_{profile} ")
            continue
        assert placed(ledger, request, order=order) == [f"gpu0/{profile.lower()}-{start}"]
        ledger.claim(f"job-{number}", ledger.snapshot().candidates(request, order=order))
        held[f"job-{number}"] = set(range(start, start + CARDS[card][profile][0]))


def test_of_several_gpus_the_order_of_the_search_decides() -> None:
    ledger = ro.connect("memory://")
    ledger.sync(host("H100 80GB", gpus=2))
    ledger.claim("a", {"h/gpu0/7g-0": "CUSTOM_MIG_7G=1"})
    assert placed(ledger, "CUSTOM_MIG_1G=1") == ["gpu1/1g-6"]
    ledger.release("a")
    assert placed(ledger, "CUSTOM_MIG_1G=1") == ["gpu0/1g-6"]
    ledger.claim("a", {"h/gpu0/1g-6": "CUSTOM_MIG_1G=1"})
    assert placed(ledger, "CUSTOM_MIG_4G=1") == ["gpu0/4g-0"]
    assert placed(ledger, "CUSTOM_MIG_4G=2") == ["gpu0/4g-0", "gpu1/4g-0"]


def test_any_other_provider_stays_in_its_order() -> None:
    """Regions of an FPGA share the slices of their card, and none of them excludes another."""
    ledger = ro.connect("memory://")
    root = ro.Provider("h")
    card = split(root.add("h/fpga0"), "CUSTOM_CARD", {"CUSTOM_REGION": 2})
    for number in range(3):
        add_partition(card, f"h/fpga0/region{number}", "FPGA", {"CUSTOM_REGION": 1})
    ledger.sync(root)
    assert placed(ledger, "FPGA=2") == ["fpga0/region0", "fpga0/region1"]


# --- refusals -------------------------------------------------------------------------------------


def test_a_refusal_names_the_profile_and_its_placements(ledger: ro.Ledger) -> None:
    ledger.claim("ann", {"h/gpu0/1g-0": "CUSTOM_MIG_1G=1"})
    ledger.claim("bob", {"h/gpu0/2g-4": "CUSTOM_MIG_2G=1"})
    reason = "h: h/gpu0: CUSTOM_MIG_3G requested 1, free 0 of 2 (ann holds 1, bob holds 1)"
    assert refused(ledger, "CUSTOM_MIG_3G=1") == reason
    assert refused(ledger, "CUSTOM_MIG_4G=1") == (
        "h: h/gpu0: CUSTOM_MIG_4G requested 1, free 0 of 1 (ann holds 1)"
    )


def test_profiles_that_exclude_each_other_are_named(ledger: ro.Ledger) -> None:
    assert refused(ledger, "CUSTOM_MIG_3G=2,CUSTOM_MIG_1G=1") == (
        "h: h/gpu0: CUSTOM_MIG_3G next to CUSTOM_MIG_1G=1 requested 2, free 1 of 2"
    )
    assert refused(ledger, "CUSTOM_MIG_4G=1,CUSTOM_MIG_3G=1,CUSTOM_MIG_2G=1") == (
        "h: h/gpu0: CUSTOM_MIG_4G next to CUSTOM_MIG_2G=1 and CUSTOM_MIG_3G=1 "
        "requested 1, free 0 of 1"
    )


def test_placements_of_several_gpus_are_counted_together() -> None:
    ledger = ro.connect("memory://")
    ledger.sync(host("A100 40GB", gpus=2))
    assert refused(ledger, "CUSTOM_MIG_3G=4,CUSTOM_MIG_1G=1") == (
        "h: CUSTOM_MIG_3G next to CUSTOM_MIG_1G=1 requested 4, free 3 of 4"
    )
    ledger.claim("ann", {"h/gpu1/1g-6": "CUSTOM_MIG_1G=1"})
    assert (
        refused(ledger, "CUSTOM_MIG_7G=2")
        == "h: CUSTOM_MIG_7G requested 2, free 1 of 2 (ann holds 1)"
    )
