"""Devices that are had whole or in parts, in a ledger: the examples of the documentation, races,
and what becomes of what is held when a device is divided in another way.

In memory and on every kind of database.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.host.partitions import add_partition, mediated, split, thousandths
from resource_objects.providers.reshape import Reshape
from resource_objects.reasons import Reason, Rule
from resource_objects.testing.conformance.races import processes, together
from resource_objects.testing.refusals import raises_code
from tests.support.columns import columns_of
from tests.support.lengths import examples
from tests.support.naive_search import candidate_faults, hosts_that_fit

SLICE, MEMORY = "CUSTOM_GPU_SLICE", "CUSTOM_GPU_MEMORY_SLICE"
SLICES = {SLICE: 7, MEMORY: 8}
SMALL, MIDDLE, LARGE = "CUSTOM_MIG_1G", "CUSTOM_MIG_2G", "CUSTOM_MIG_3G"
PARTITIONS = {
    SMALL: {SLICE: 1, MEMORY: 1},
    MIDDLE: {SLICE: 2, MEMORY: 2},
    LARGE: {SLICE: 3, MEMORY: 4},
}
THOUSANDTHS = "CUSTOM_PGPU_THOUSANDTHS"


@pytest.fixture
def url(everywhere_url: str) -> str:
    return everywhere_url


def gpus(count: int = 1, host: str = "host0") -> ro.Provider:
    """
    host0           VCPU=64
    +- host0/gpu0   PGPU=1 or MIG_1G up to 7, MIG_2G up to 3, MIG_3G up to 2: of 7 and 8 slices
    """
    root = ro.Provider(host, "VCPU=64")
    for number in range(count):
        split(root.add(f"{host}/gpu{number}", "PGPU=1"), "PGPU", SLICES, PARTITIONS)
    return root


def claim(ledger: ro.Ledger, name: str, request: Any) -> list[str]:
    """Claim what a search finds; return which providers gave."""
    found = ledger.snapshot().candidates(request)
    assert found, str(found.explain())
    return list(ledger.claim(name, found).by_provider())


def told(ledger: ro.Ledger, request: Any) -> str:
    """Return why nobody can hold a request."""
    found = ledger.snapshot().candidates(request)
    assert not found
    return str(found.explain())


def used(ledger: ro.Ledger, provider: str = "host0") -> dict[str, int]:
    return {f"{u.provider} {u.resource_class}": u.used for u in ledger.usage(provider) if u.used}


def left_as_it_was(ledger: ro.Ledger, *consumers: str) -> None:
    """ConsumerOrder everything; check that nothing is used and nothing is wrong."""
    assert str(ledger.audit()) == "nothing found"
    for consumer in consumers:
        ledger.release(consumer)
    assert {use.used for use in ledger.usage()} == {0}
    assert str(ledger.audit()) == "nothing found"


# --- a GPU with partitions ---


@pytest.mark.law(1, 3, 6)
def test_partitions_exclude_the_whole_device(ledger: ro.Ledger) -> None:
    ledger.sync(gpus(2))
    assert claim(ledger, "a", f"{SMALL}=1,VCPU=1") == ["host0", "host0/gpu0"]
    assert claim(ledger, "b", "PGPU=1") == ["host0/gpu1"]
    whole = "whole, none of 2 is whole: b 1; a 1/7"
    assert told(ledger, "PGPU=1") == f"host0: PGPU requested 1 {whole}"
    assert told(ledger, "PGPU=2") == f"host0: PGPU requested 2 {whole}"
    with pytest.raises(exceptions.CapacityException) as refused:
        ledger.claim("c", {"host0/gpu0": "PGPU=1"})
    assert {(r.resource, r.requested, r.free, r.holders) for r in refused.value.reasons} == {
        (SLICE, 7, 6, (("a", 1),)),
        (MEMORY, 8, 7, (("a", 1),)),
    }
    ledger.release("a")
    assert claim(ledger, "c", "PGPU=1") == ["host0/gpu0"]
    left_as_it_was(ledger, "b", "c")


@pytest.mark.law(1, 3, 6)
def test_the_whole_device_excludes_partitions(ledger: ro.Ledger) -> None:
    ledger.sync(gpus())
    claim(ledger, "a", "PGPU=1")
    for name, uses in PARTITIONS.items():
        assert told(ledger, f"{name}=1") == (
            f"host0: host0/gpu0: {MEMORY} requested {uses[MEMORY]}, free 0 of 8 (a holds 8); "
            f"host0/gpu0: {SLICE} requested {uses[SLICE]}, free 0 of 7 (a holds 7)"
        )
        with pytest.raises(exceptions.CapacityException, match="a holds 8"):
            ledger.claim("b", {"host0/gpu0": f"{name}=1"})
    left_as_it_was(ledger, "a")


@pytest.mark.law(1, 6)
def test_partitions_of_several_sizes_fit_as_far_as_slices_go(ledger: ro.Ledger) -> None:
    ledger.sync(gpus())
    claim(ledger, "a", f"{LARGE}=1,{MIDDLE}=1,{SMALL}=2")
    assert used(ledger) == {
        f"host0/gpu0 {LARGE}": 1,
        f"host0/gpu0 {MIDDLE}": 1,
        f"host0/gpu0 {SMALL}": 2,
        f"host0/gpu0 {SLICE}": 7,
        f"host0/gpu0 {MEMORY}": 8,
    }
    assert told(ledger, f"{SMALL}=1") == (
        f"host0: host0/gpu0: {MEMORY} requested 1, free 0 of 8 (a holds 8); "
        f"host0/gpu0: {SLICE} requested 1, free 0 of 7 (a holds 7)"
    )
    ledger.release("a")
    claim(ledger, "b", f"{LARGE}=2")
    assert told(ledger, f"{SMALL}=1") == (
        f"host0: host0/gpu0: {MEMORY} requested 1, free 0 of 8 (b holds 8)"
    ), "a slice is left, and no memory for it"
    left_as_it_was(ledger, "b")


@pytest.mark.law(6)
def test_what_is_asked_together_is_judged_together(ledger: ro.Ledger) -> None:
    ledger.sync(gpus())
    assert told(ledger, f"{LARGE}=1,{SMALL}=5") == (
        f"host0: host0/gpu0: {MEMORY} requested 9, free 8 of 8; "
        f"host0/gpu0: {SLICE} requested 8, free 7 of 7"
    )
    assert told(ledger, f"PGPU=1,{SMALL}=1") == (
        f"host0: host0/gpu0: {MEMORY} requested 9, free 8 of 8; "
        f"host0/gpu0: {SLICE} requested 8, free 7 of 7"
    )
    ledger.sync(gpus(2))
    assert claim(ledger, "a", f"PGPU=1,{SMALL}=7") == ["host0/gpu0", "host0/gpu1"]


@pytest.mark.law(1)
def test_one_may_exchange_all_partitions_for_the_device(ledger: ro.Ledger) -> None:
    ledger.sync(gpus())
    ledger.claim("a", {"host0/gpu0": f"{SMALL}=7"})
    ledger.replace("a", {"host0/gpu0": "PGPU=1"})
    assert used(ledger)[f"host0/gpu0 {SLICE}"] == 7
    ledger.replace("a", {"host0/gpu0": f"{LARGE}=1"})
    ledger.claim("b", {"host0/gpu0": f"{SMALL}=1"})
    with pytest.raises(exceptions.CapacityException, match="b holds 1"):
        ledger.replace("a", {"host0/gpu0": "PGPU=1"})
    ledger.move("b", {"host0": "VCPU=1"})
    ledger.replace("a", {"host0/gpu0": "PGPU=1"})
    left_as_it_was(ledger, "a", "b")


@pytest.mark.law(2)
def test_several_claims_at_once_are_judged_together(ledger: ro.Ledger) -> None:
    ledger.sync(gpus())
    wanted = {"a": {"host0/gpu0": f"{LARGE}=2"}, "b": {"host0/gpu0": f"{SMALL}=1"}}
    with pytest.raises(exceptions.CapacityException, match=f"{MEMORY} requested 9"):
        ledger.claim_all(wanted)
    assert not used(ledger)


def test_what_is_free_is_what_can_be_taken(ledger: ro.Ledger) -> None:
    ledger.sync(gpus(2))
    ledger.claim("a", {"host0/gpu0": f"{SMALL}=2"})
    ledger.claim("b", {"host0/gpu1": "PGPU=1"})

    def free(number: int) -> dict[str, int]:
        usage = ledger.usage()
        return {
            name: usage[f"host0/gpu{number}", name].free for name in ("PGPU", *SLICES, *PARTITIONS)
        }

    assert free(0) == {"PGPU": 0, SLICE: 5, MEMORY: 6, SMALL: 5, MIDDLE: 2, LARGE: 1}
    assert set(free(1).values()) == {0}
    snapshot = ledger.snapshot()
    assert [snapshot.free(name) for name in ("PGPU", SLICE, SMALL, LARGE)] == [0, 5, 5, 1]
    assert ledger.usage().consumers == {"a": {SMALL: 2}, "b": {"PGPU": 1}}
    assert not list(ledger.usage(over_capacity=True))
    assert [one.name for one in ledger.providers(room=f"{SMALL}=1")] == ["host0/gpu0"]
    assert [one.name for one in ledger.providers(room="PGPU=1")] == []


# --- half a GPU ---


@pytest.mark.law(1, 3, 6)
def test_half_a_gpu(ledger: ro.Ledger) -> None:
    host = ro.Provider("host0")
    for number in range(2):
        thousandths(host.add(f"host0/gpu{number}", "PGPU=1"))
    ledger.sync(host)
    assert claim(ledger, "a", f"{THOUSANDTHS}=500") == ["host0/gpu0"]
    assert claim(ledger, "b", "PGPU=1") == ["host0/gpu1"]
    assert told(ledger, "PGPU=1") == (
        "host0: PGPU requested 1 whole, none of 2 is whole: b 1; a a half"
    )
    assert claim(ledger, "c", f"{THOUSANDTHS}=333") == ["host0/gpu0"]
    assert told(ledger, f"{THOUSANDTHS}=168") == (
        f"host0: {THOUSANDTHS} requested 168, free 167 of 2000 "
        "(b holds 1000, a holds 500, c holds 333)"
    )
    left_as_it_was(ledger, "a", "b", "c")


@pytest.mark.law(6)
def test_a_fraction_is_of_one_device(ledger: ro.Ledger) -> None:
    host = ro.Provider("host0")
    for number in range(2):
        thousandths(host.add(f"host0/gpu{number}", "PGPU=1"))
    ledger.sync(host)
    for number in range(2):
        ledger.claim(f"job-{number}", {f"host0/gpu{number}": f"{THOUSANDTHS}=600"})
    assert told(ledger, f"{THOUSANDTHS}=500") == (
        f"host0: host0/gpu0: {THOUSANDTHS} requested 500, free 400 of 1000 (job-0 holds 600)"
    )


# --- an SR-IOV NIC ---

VF, PF, BANDWIDTH = "SRIOV_NET_VF", "CUSTOM_NIC", "NET_BW_EGR_KILOBIT_PER_SEC"


def nics(count: int = 1) -> ro.Provider:
    """
    host0           VCPU=64
    +- host0/nic0   CUSTOM_NIC=1 or 8 functions, some of which are guaranteed some of 25 Gbit/s
    """
    host = ro.Provider("host0", "VCPU=64")
    for number in range(count):
        split(
            host.add(f"host0/nic{number}", traits=[f"CUSTOM_PHYSNET_{number}"]),
            PF,
            {VF: 8, BANDWIDTH: 25_000_000},
            {"CUSTOM_VF_10G": {VF: 1, BANDWIDTH: 10_000_000}},
        )
    return host


@pytest.mark.law(1, 3, 6)
def test_functions_of_a_nic_exclude_the_nic_and_share_its_bandwidth(ledger: ro.Ledger) -> None:
    ledger.sync(nics())
    claim(ledger, "a", "CUSTOM_VF_10G=2")
    assert told(ledger, "CUSTOM_VF_10G=1") == (
        "host0: CUSTOM_VF_10G requested 1, free 0 of 2 (a holds 2)"
    )
    claim(ledger, "b", f"{VF}=6")
    assert told(ledger, f"{VF}=1") == f"host0: {VF} requested 1, free 0 of 8 (b holds 6, a holds 2)"
    assert told(ledger, f"{PF}=1") == (
        f"host0: host0/nic0: {BANDWIDTH} requested 25000000, free 5000000 of 25000000 "
        f"(a holds 20000000); "
        f"host0/nic0: {VF} requested 8, free 0 of 8 (b holds 6, a holds 2)"
    )
    for consumer in ("a", "b"):
        ledger.release(consumer)
    assert claim(ledger, "c", f"{PF}=1") == ["host0/nic0"]
    assert told(ledger, f"{VF}=1") == f"host0: {VF} requested 1, free 0 of 8 (c holds 8)"
    left_as_it_was(ledger, "c")


@pytest.mark.law(6)
def test_functions_may_be_of_several_nics_and_have_their_traits(ledger: ro.Ledger) -> None:
    ledger.sync(nics(2))
    assert claim(ledger, "a", f"{VF}=12") == ["host0/nic0", "host0/nic1"]
    assert claim(ledger, "b", ro.Request(f"{VF}=1", required=["CUSTOM_PHYSNET_1"])) == [
        "host0/nic1"
    ]


# --- an FPGA behind a physical function ---


def fpga() -> ro.Provider:
    """
    host0
    +- host0/fpga0          CUSTOM_FPGA_CARD=1, of 2 regions
       +- .../region0       FPGA=1, of one region   CUSTOM_BITSTREAM_AES
       +- .../region1       FPGA=1, of one region
    """
    host = ro.Provider("host0", "VCPU=64")
    card = split(host.add("host0/fpga0"), "CUSTOM_FPGA_CARD", {"CUSTOM_FPGA_REGION": 2})
    for number, traits in enumerate((["CUSTOM_BITSTREAM_AES"], [])):
        name = f"host0/fpga0/region{number}"
        add_partition(card, name, "FPGA", {"CUSTOM_FPGA_REGION": 1}, traits=traits)
    return host


@pytest.mark.law(1, 3, 6)
def test_regions_of_an_fpga_exclude_its_card(ledger: ro.Ledger) -> None:
    ledger.sync(fpga())
    aes = ro.Request("FPGA=1", required=["CUSTOM_BITSTREAM_AES"])
    assert claim(ledger, "a", aes) == ["host0/fpga0/region0"]
    assert told(ledger, "CUSTOM_FPGA_CARD=1") == (
        "host0: host0/fpga0: CUSTOM_FPGA_REGION requested 2, free 1 of 2 (a holds 1)"
    )
    assert claim(ledger, "b", "FPGA=1") == ["host0/fpga0/region1"]
    for consumer in ("a", "b"):
        ledger.release(consumer)
    assert claim(ledger, "c", "CUSTOM_FPGA_CARD=1") == ["host0/fpga0"]
    assert told(ledger, aes).endswith("CUSTOM_FPGA_REGION requested 1, free 0 of 2 (c holds 2)")
    ledger.release("c")
    assert claim(ledger, "d", "FPGA=2") == ["host0/fpga0/region0", "host0/fpga0/region1"]
    left_as_it_was(ledger, "d")


# --- mediated devices ---


@pytest.mark.law(1, 6)
def test_types_of_a_mediated_device_share_its_measure(ledger: ro.Ledger) -> None:
    gpu = ro.Provider("gpu0")
    ledger.sync(mediated(gpu, {"nvidia-35": 16, "nvidia-38": 4}, device_class="PGPU", mixed=True))
    claim(ledger, "a", "CUSTOM_NVIDIA_38=3")
    assert told(ledger, "CUSTOM_NVIDIA_35=5") == (
        "gpu0: CUSTOM_MDEV_SHARE requested 5, free 4 of 16 (a holds 12)"
    )
    claim(ledger, "b", "CUSTOM_NVIDIA_35=4")
    assert told(ledger, "PGPU=1") == (
        "gpu0: CUSTOM_MDEV_SHARE requested 16, free 0 of 16 (a holds 12, b holds 4)"
    )
    left_as_it_was(ledger, "a", "b")


@pytest.mark.law(1)
def test_another_type_is_chosen_when_nothing_of_the_first_is_held(ledger: ro.Ledger) -> None:
    counts = {"nvidia-35": 16, "nvidia-38": 4}

    def configure(name: str) -> None:
        ledger.sync(mediated(ro.Provider("gpu0"), counts, device_class="PGPU", only=name))

    configure("nvidia-35")
    ledger.claim("a", {"gpu0": "CUSTOM_NVIDIA_35=1"})
    with raises_code("InventoryInUse"):
        configure("nvidia-38")
    assert told(ledger, "CUSTOM_NVIDIA_38=1") == "gpu0: CUSTOM_NVIDIA_38 requested 1, there is none"
    ledger.release("a")
    configure("nvidia-38")
    claim(ledger, "b", "CUSTOM_NVIDIA_38=4")
    assert told(ledger, "PGPU=1").endswith("requested 4, free 0 of 4 (b holds 4)")


def test_types_with_one_at_most_beside_them_are_kept_apart(ledger: ro.Ledger) -> None:
    ledger.sync(mediated(ro.Provider("gpu0"), {"whole": 1, "half": 2, "all": 1}))
    for first, second in itertools.permutations(("WHOLE", "HALF", "ALL"), 2):
        ledger.claim("a", {"gpu0": f"CUSTOM_{first}=1"})
        assert not ledger.snapshot().candidates(f"CUSTOM_{second}=1")
        with pytest.raises(exceptions.CapacityException):
            ledger.claim("b", {"gpu0": f"CUSTOM_{second}=1"})
        ledger.release("a")


# --- where the position matters ---

#: Of an A100: memory slices at which a partition may begin, how many it has, and its slices.
#: Source: NVIDIA's user guide of MIG, ``nvidia-smi mig -lgipp``.
PLACES = {"1G": (range(7), 1, 1), "2G": (range(0, 5, 2), 2, 2), "3G": ((0, 4), 4, 3)}
PLACES["4G"] = (range(1), 4, 4)


def placed_gpu(name: str = "host0/gpu0") -> ro.Provider:
    """A GPU with a provider for each place that a partition may have."""
    host = ro.Provider("host0")
    at = {f"CUSTOM_AT_{number}": 1 for number in range(8)}
    gpu = split(host.add(name), "PGPU", {SLICE: 7, **at})
    for profile, (starts, length, slices) in PLACES.items():
        for start in starts:
            taken = {f"CUSTOM_AT_{number}": 1 for number in range(start, start + length)}
            uses = {SLICE: slices, **taken}
            add_partition(gpu, f"{name}/{profile}-{start}", f"CUSTOM_MIG_{profile}", uses)
    return host


def can_be_placed(wanted: Mapping[str, int]) -> bool:
    """Return whether a GPU can hold partitions, by trying all places."""
    choices = [
        itertools.combinations(PLACES[profile][0], count) for profile, count in wanted.items()
    ]
    for chosen in itertools.product(*choices):
        places: Counter[int] = Counter()
        slices = 0
        for (profile, count), starts in zip(wanted.items(), chosen, strict=True):
            slices += count * PLACES[profile][2]
            for start in starts:
                places.update(range(start, start + PLACES[profile][1]))
        if slices <= 7 and all(count == 1 for count in places.values()):
            return True
    return False


@pytest.mark.law(5, 6)
def test_partitions_with_a_place_each_are_found_just_where_they_can_be(ledger: ro.Ledger) -> None:
    ledger.sync(placed_gpu())
    snapshot = ledger.snapshot()
    for counts in itertools.product(range(8), range(4), range(3), range(2)):
        wanted = {p: n for p, n in zip(PLACES, counts, strict=True) if n}
        if wanted:
            request = ",".join(f"CUSTOM_MIG_{p}={n}" for p, n in wanted.items())
            assert bool(snapshot.candidates(request)) is can_be_placed(wanted), request
    for number, request in enumerate(["CUSTOM_MIG_3G=1,CUSTOM_MIG_1G=4", "PGPU=1"]):
        assert bool(ledger.snapshot().candidates(request)) is not number
        if not number:
            claim(ledger, "a", request)
    left_as_it_was(ledger, "a")


def test_what_is_free_in_the_wrong_places_is_no_place(ledger: ro.Ledger) -> None:
    ledger.sync(placed_gpu())
    for start in (1, 5):
        ledger.claim(f"job-{start}", {f"host0/gpu0/1G-{start}": "CUSTOM_MIG_1G=1"})
    assert "holds 1" in told(ledger, "CUSTOM_MIG_3G=1")
    counted = gpus()
    assert counted  # counts alone would have room: 5 of 7 and 6 of 8 slices
    ledger.release("job-5")
    assert claim(ledger, "a", "CUSTOM_MIG_3G=1") == ["host0/gpu0/3G-4"]


# --- many at once ---


def _take(ledger: ro.Ledger, who: int, tries: int) -> dict[str, dict[str, int]]:
    """Claim wholes and parts at random, by search and by force, and give some back; say what is
    held in the end."""
    chance = random.Random(who)
    holds: dict[str, dict[str, int]] = {}
    for number in range(tries):
        name = f"worker-{who}-{number}"
        kind = chance.choice(["PGPU", *PARTITIONS])
        try:
            if chance.random() < 0.5:
                ledger.claim(name, {f"host0/gpu{chance.randrange(2)}": f"{kind}=1"})
            else:
                ledger.claim(name, ledger.snapshot().candidates(f"{kind}=1"))
            holds[name] = {kind: 1}
        except (exceptions.CapacityException, exceptions.NoCandidates):
            if holds and chance.random() < 0.7:
                given_back = chance.choice(list(holds))
                ledger.release(given_back)
                del holds[given_back]
    return holds


def _take_elsewhere(url: str, who: int, tries: int) -> dict[str, dict[str, int]]:
    with ro.connect(url) as ledger:
        return _take(ledger, who, tries)


def _check_holdings(ledger: ro.Ledger, holdings: list[Any]) -> None:
    for held in holdings:
        assert isinstance(held, dict), held
    expected = {name: held for one in holdings for name, held in one.items()}
    usage = ledger.usage()
    assert usage.consumers == expected
    for number in range(2):
        gpu = f"host0/gpu{number}"
        counts = {kind: usage[gpu, kind].used for kind in ("PGPU", *PARTITIONS)}
        assert not (counts.pop("PGPU") and any(counts.values()))
        for name, total in SLICES.items():
            assert sum(n * PARTITIONS[kind][name] for kind, n in counts.items()) <= total
    left_as_it_was(ledger, *expected)


@pytest.mark.law(1, 4)
def test_threads_never_get_the_whole_and_a_part(ledger: ro.Ledger) -> None:
    ledger.sync(gpus(2))
    _check_holdings(ledger, together(lambda who: _take(ledger, who, 25), 4))


@pytest.mark.law(1, 4)
def test_processes_never_get_the_whole_and_a_part(ledger: ro.Ledger, url: str) -> None:
    if url == "memory://":
        pytest.skip("a ledger in memory is that of one process")
    ledger.sync(gpus(2))
    with ProcessPoolExecutor(2, mp_context=processes()) as pool:
        running = [pool.submit(_take_elsewhere, url, who, 25) for who in range(2)]
        here = _take(ledger, 2, 25)
        _check_holdings(ledger, [here, *(one.result() for one in running)])


# --- while it is held ---


@pytest.mark.law(1)
def test_a_device_may_be_split_while_it_is_held_whole(ledger: ro.Ledger) -> None:
    host = ro.Provider("host0", "VCPU=64")
    host.add("host0/gpu0", "PGPU=1")
    ledger.sync(host)
    ledger.claim("a", {"host0/gpu0": "PGPU=1"})
    [read] = ledger.trees("host0")
    split(read.find("host0/gpu0"), "PGPU", SLICES, PARTITIONS)
    ledger.sync(read)
    assert used(ledger) == {
        "host0/gpu0 PGPU": 1,
        f"host0/gpu0 {SLICE}": 7,
        f"host0/gpu0 {MEMORY}": 8,
    }
    assert told(ledger, f"{SMALL}=1").endswith("(a holds 7)")
    ledger.sync(gpus())  # the same, built: nothing changes
    left_as_it_was(ledger, "a")


@pytest.mark.law(1, 2)
def test_a_partition_that_is_held_stays(ledger: ro.Ledger) -> None:
    ledger.sync(gpus())
    ledger.claim("a", {"host0/gpu0": f"{SMALL}=1"})
    before = used(ledger)
    plain = ro.Provider("host0", "VCPU=64")
    plain.add("host0/gpu0", "PGPU=1")
    with raises_code("InventoryInUse"):
        ledger.sync(plain)
    with pytest.raises(exceptions.InvalidTree):  # shares refer to what would go
        ledger.change("host0/gpu0", inventories="PGPU=1")
    assert used(ledger) == before
    ledger.release("a")
    ledger.sync(plain)
    assert ledger.snapshot().candidates("PGPU=1")
    assert told(ledger, f"{SMALL}=1") == f"host0: {SMALL} requested 1, there is none"


@pytest.mark.law(1, 6)
def test_what_a_held_partition_uses_may_change(ledger: ro.Ledger) -> None:
    """A driver needs more memory for each partition: it counts at once, and shows."""

    def sized(memory: int) -> ro.Provider:
        host = ro.Provider("host0")
        uses = {SMALL: {SLICE: 1, MEMORY: memory}}
        split(host.add("host0/gpu0"), "PGPU", SLICES, uses)
        return host

    ledger.sync(sized(1))
    ledger.claim("a", {"host0/gpu0": f"{SMALL}=2"})
    ledger.claim("b", {"host0/gpu0": f"{SMALL}=3"})
    ledger.sync(sized(2))
    assert used(ledger)[f"host0/gpu0 {MEMORY}"] == 10
    assert str(ledger.audit()).splitlines() == [
        f"host0/gpu0: {MEMORY} has 10 used of 8",
        f"host0/gpu0: {SMALL} has 5 used of 4",
    ]
    assert told(ledger, f"{SMALL}=1").startswith(f"host0: {SMALL} requested 1, free -1 of 4")
    with pytest.raises(exceptions.CapacityException) as refused:
        ledger.claim("c", {"host0/gpu0": f"{SMALL}=1"})
    assert {(r.resource, r.free) for r in refused.value.reasons} >= {(MEMORY, -2)}
    ledger.release("b")
    assert used(ledger)[f"host0/gpu0 {MEMORY}"] == 4
    ledger.sync(sized(1))
    left_as_it_was(ledger, "a")


@pytest.mark.law(1, 2)
def test_a_reshape_moves_what_is_held_to_a_device_that_is_split(ledger: ro.Ledger) -> None:
    """Two GPUs in one inventory of the host become devices of their own, and then parts."""
    ledger.sync(ro.Provider("host0", "VCPU=64,PGPU=2"))
    ledger.claim("a", {"host0": "PGPU=1"})
    device = {
        "parent": "host0",
        "inventories": "PGPU=1,CUSTOM_GPU_SLICE=7",
        "shares": [{"resource_class": "PGPU", "of_class": SLICE, "factor": 7, "of": "host0/gpu{}"}],
    }
    reshape = Reshape.from_dict(
        {
            "version": 1,
            "create": [{"name": f"host0/gpu{n}", **_numbered(device, n)} for n in range(2)],
            "moves": [
                {
                    "from": "host0",
                    "resource_class": "PGPU",
                    "fill": True,
                    "to": [{"provider": f"host0/gpu{n}", "total": 1} for n in range(2)],
                }
            ],
        }
    )
    ledger.reshape(reshape)
    assert used(ledger) == {"host0/gpu0 PGPU": 1, f"host0/gpu0 {SLICE}": 7}
    assert told(ledger, f"{SLICE}=8").endswith("requested 8, free 7 of 14 (a holds 7)")
    left_as_it_was(ledger, "a")


def _numbered(device: dict[str, Any], number: int) -> dict[str, Any]:
    shares = [{**share, "of": share["of"].format(number)} for share in device["shares"]]
    return {**device, "shares": shares}


@pytest.mark.law(1, 2)
@pytest.mark.parametrize(
    ("factor", "there", "uses"),
    [(1, {"a": 2, "b": 1}, 3), (2, {"a": 2, "b": 1}, 6), (3, {"a": 2}, 6)],
)
def test_a_reshape_moves_partitions_as_far_as_slices_go(
    ledger: ro.Ledger, factor: int, there: dict[str, int], uses: int
) -> None:
    host = ro.Provider("host0")
    split(host.add("host0/gpu0"), "PGPU", {SLICE: 7}, {SMALL: {SLICE: 1}})
    ledger.sync(host)
    for name, count in (("a", 2), ("b", 1)):
        ledger.claim(name, {"host0/gpu0": f"{SMALL}={count}"})
    device = {
        "inventories": f"PGPU=1,{SLICE}=7,{SMALL}=7",
        "shares": [
            {"resource_class": "PGPU", "of_class": SLICE, "factor": 7, "of": "host0/gpu{}"},
            {"resource_class": SMALL, "of_class": SLICE, "factor": factor, "of": "host0/gpu{}"},
        ],
    }
    move = {
        "from": "host0/gpu0",
        "resource_class": SMALL,
        "total": 3,
        "fill": True,
        "to": [{"provider": "host0/gpu1", "total": 7}],
    }
    new = {"name": "host0/gpu1", "parent": "host0", **_numbered(device, 1)}
    ledger.reshape(Reshape.from_dict({"version": 1, "create": [new], "moves": [move]}))
    here = 3 - sum(there.values())
    found = used(ledger)
    assert found.pop(f"host0/gpu0 {SLICE}", 0) == found.pop(f"host0/gpu0 {SMALL}", 0) == here
    assert found == {f"host0/gpu1 {SMALL}": sum(there.values()), f"host0/gpu1 {SLICE}": uses}
    assert dict(ledger.usage()["host0/gpu1", SMALL].holders) == there
    left_as_it_was(ledger, "a", "b")


# --- devices that are known by their addresses ---


@pytest.mark.law(1, 3, 6)
def test_a_device_with_an_address_is_had_whole_or_in_parts(ledger: ro.Ledger) -> None:
    """
    host0
    +- host0/0000:01:00.0   DEVICES, counted as PGPU=1; CUSTOM_GPU_SLICE=7, CUSTOM_MIG_1G=7
    +- host0/0000:02:00.0   DEVICES, counted as PGPU=1
    """
    host = ro.Provider("host0")
    devices = [
        ro.Device(f"0000:0{bus}:00.0", "10de", "2330", resource_class="PGPU") for bus in (1, 2)
    ]
    first, second = host.add_parts("DEVICES", ro.PCIInventory(devices))
    split(first, "PGPU", {SLICE: 7}, {SMALL: {SLICE: 1}})
    ledger.sync(host)
    wanted = ro.Request({"DEVICES": ro.devices("PGPU")})
    assert claim(ledger, "part", f"{SMALL}=1") == [first.name]
    assert claim(ledger, "whole", wanted) == [second.name]
    assert not ledger.snapshot().candidates(wanted)
    assert told(ledger, "PGPU=1").endswith("none of 2 is whole: whole 1; part 1/7")
    ledger.release("part")
    assert claim(ledger, "other", wanted) == [first.name]
    assert told(ledger, f"{SMALL}=1").endswith(f"{SLICE} requested 1, free 0 of 7 (other holds 7)")
    left_as_it_was(ledger, "whole", "other")


# --- search and claim agree ---

_requests = st.dictionaries(
    st.sampled_from(["PGPU", SMALL, MIDDLE, LARGE, SLICE, MEMORY]),
    st.integers(1, 9),
    min_size=1,
    max_size=3,
)


@pytest.mark.law(5, 6)
@pytest.mark.backend("memory")
@hypothesis.settings(max_examples=examples(60))
@hypothesis.given(st.lists(_requests, max_size=4), _requests)
def test_every_candidate_can_be_claimed_and_nothing_else_fits(
    held: list[dict[str, int]], request_: dict[str, int]
) -> None:
    with ro.connect("memory://") as ledger:
        ledger.sync(gpus(2))
        for number, each in enumerate(held):
            found = ledger.snapshot().candidates(each)
            if found:
                ledger.claim(f"job-{number}", found)
        before = ledger.usage()
        columns = ledger.backend.read()
        found = ledger.snapshot().candidates(request_)
        assert [one.host for one in found] == hosts_that_fit(columns, ro.Request(request_))
        if found:
            assert candidate_faults(columns, ro.Request(request_), found[0]) == []
            ledger.claim("last", found[0])
            ledger.release("last")
        else:
            _check_told(ledger, found.explain().reasons)
        assert ledger.usage() == before


def _check_told(ledger: ro.Ledger, reasons: tuple[Reason, ...]) -> None:
    """Each reason holds: it names somewhere less than is asked, with all who hold it."""
    assert reasons
    assert len(set(reasons)) == len(reasons)
    for reason in reasons:
        assert reason.rule in (Rule.CAPACITY, Rule.NOT_WHOLE)
        assert reason.requested > reason.free
        in_parts = {device for _, device, *_ in reason.parts}
        assert sum(amount for _, amount in reason.holders) + len(in_parts) == reason.used


def test_columns_of_a_tree_and_a_ledger_agree() -> None:
    with ro.connect("memory://") as ledger:
        ledger.sync(gpus())
        kept = ledger.backend.read().shares
    assert len(kept.factor) == len(columns_of([gpus()]).shares.factor)
