"""Trees that are stated, with moves that say where allocations go: one write, nothing lost.

In memory and on every kind of database.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.ledger import RetryPolicy
from resource_objects.providers import Allocation, Provider
from resource_objects.providers.orders import Write
from resource_objects.providers.plan import Plan
from resource_objects.providers.reshape import Move, Part, Reshape, merge_moves
from resource_objects.resources.pci import DEVICES, Device, PCIInventory
from resource_objects.testing.refusals import raises_code
from tests import databases
from tests.support.killing import all_or_nothing
from tests.support.lengths import examples


@pytest.fixture
def url(everywhere_url: str) -> str:
    return everywhere_url


@pytest.fixture
def memory() -> Iterator[ro.Ledger]:
    with ro.connect() as opened:
        yield opened


def held(ledger: ro.Ledger) -> dict[tuple[str, str, str], int]:
    """Return what everybody holds, by consumer, provider and class."""
    return {
        (who, use.provider, use.resource_class): amount
        for use in ledger.usage()
        for who, amount in use.holders
    }


def units(ledger: ro.Ledger, consumer: str) -> dict[str, tuple[str, ...]]:
    """Return the units that a consumer holds, by provider."""
    return {one.provider: one.units for one in ledger.get_claim(consumer).allocations if one.units}


def by_count(provider: str, kind: str, amount: int, *names: str) -> Allocation:
    return Allocation(
        provider=provider, resource_class=kind, amount=ro.IntegerAmount(amount), units=names
    )


def glommed(ledger: ro.Ledger, *, host: str = "box") -> None:
    """
    box   VCPU=16 VGPU=8      vm-0 .. vm-3 hold VCPU=2 and VGPU=1, vm-0 also 5 GB of a pool
    """
    ledger.sync(Provider(host, "VCPU=16,VGPU=8"))
    ledger.sync(Provider("nfs", "DISK_GB=100"))
    for n in range(4):
        also = [by_count("nfs", "DISK_GB", 5)] if n == 0 else []
        uses = [by_count(host, "VCPU", 2), by_count(host, "VGPU", 1), *also]
        ledger.claim(f"vm-{n}", uses, project=f"p{n}")


def with_gpus(tree: Provider, *totals: int) -> Provider:
    """
    box            VCPU=16
    +- box/gpu0    VGPU=totals[0]
    +- box/gpu1    VGPU=totals[1] ...
    """
    tree.update(inventories=ro.Inventories("VCPU=16"))
    known = {child.name: child for child in tree.children}
    for n, total in enumerate(totals):
        name = f"{tree.name}/gpu{n}"
        if name in known:
            known[name].update(inventories=ro.Inventories({"VGPU": total}))
        else:
            tree.add(name, {"VGPU": total}, traits=["CUSTOM_NVIDIA_11"])
    return tree


def to_gpus(*consumers: Mapping[str, int]) -> list[Move]:
    """Return what says it in the form of a list: of class A on B some has moved to C."""
    return [
        Move("box", "VGPU", (Part(f"box/gpu{n}", consumers=owned),))
        for n, owned in enumerate(consumers)
    ]


EVEN_AND_ODD = to_gpus({"vm-0": 1, "vm-2": 1}, {"vm-1": 1, "vm-3": 1})


# --- by example ---


@pytest.mark.law(1, 2)
def test_vgpus_of_a_host_become_those_of_its_gpus(ledger: ro.Ledger) -> None:
    glommed(ledger)
    before = ledger.get_claim("vm-0")
    cursor = ledger.feed.cursor()
    plan = ledger.diff(with_gpus(ledger.provider("box"), 4, 4), moves=EVEN_AND_ODD)
    assert "VGPU" in ledger.provider("box").inventories
    done = ledger.sync(with_gpus(ledger.provider("box"), 4, 4), moves=EVEN_AND_ODD)
    assert str(done).splitlines() == [
        "+ box/gpu0",
        "+ box/gpu1",
        "~ box: -VGPU",
        "allocations of 4 moved",
    ]
    assert done.moved_consumers == plan.consumers == ("vm-0", "vm-1", "vm-2", "vm-3")
    assert held(ledger) == {
        **{(f"vm-{n}", "box", "VCPU"): 2 for n in range(4)},
        **{(f"vm-{n}", f"box/gpu{n % 2}", "VGPU"): 1 for n in range(4)},
        ("vm-0", "nfs", "DISK_GB"): 5,
    }
    after = ledger.get_claim("vm-0")
    assert (after.id, after.project, after.amounts) == (before.id, "p0", before.amounts)
    assert not ledger.audit()
    [written] = ledger.feed.changes(cursor)
    assert (written.kind, len(written.consumers)) == ("reshape", 4)


@pytest.mark.law(3)
def test_there_and_back(ledger: ro.Ledger) -> None:
    glommed(ledger)
    before = held(ledger)
    ledger.sync(with_gpus(ledger.provider("box"), 4, 4), moves=EVEN_AND_ODD)
    home = ledger.provider("box")
    home.update(inventories=ro.Inventories("VCPU=16,VGPU=8"), children=[])
    back = [Move(f"box/gpu{n}", "VGPU", (Part("box"),)) for n in range(2)]
    done = ledger.sync(home, moves=back)
    assert done.removed == 2
    assert held(ledger) == before


def test_pinned_consumers_are_counted_in_another_class(ledger: ro.Ledger) -> None:
    """Of 16 VCPU, 12 become dedicated; a guest with mixed CPUs has some of both afterwards."""
    ledger.sync(Provider("box", "VCPU=16"))
    for name, amount in [("shared", 2), ("pinned", 4), ("mixed", 6)]:
        ledger.claim(name, {"box": {"VCPU": amount}})
    tree = ledger.provider("box")
    tree.update(inventories=ro.Inventories("VCPU=4,PCPU=12"))
    pinned = Part("box", resource_class="PCPU", consumers={"pinned": 4, "mixed": 4})
    ledger.sync(tree, moves=[Move("box", "VCPU", (pinned,))])
    assert held(ledger) == {
        ("shared", "box", "VCPU"): 2,
        ("pinned", "box", "PCPU"): 4,
        ("mixed", "box", "VCPU"): 2,
        ("mixed", "box", "PCPU"): 4,
    }
    assert not ledger.audit()


def test_allocations_with_units_follow_them(ledger: ro.Ledger) -> None:
    ledger.sync(Provider("box", "VCPU=16,VGPU=4"))
    ledger.claim("a", [by_count("box", "VGPU", 3, "m0", "m1", "m3")])
    ledger.claim("b", [by_count("box", "VGPU", 1, "m2")])
    moves = [
        Move("box", "VGPU", (Part("box/gpu0", units=("m0", "m1")),)),
        Move("box", "VGPU", (Part("box/gpu1", units=("m2", "m3")),)),
    ]
    ledger.sync(with_gpus(ledger.provider("box"), 2, 2), moves=moves)
    assert units(ledger, "a") == {"box/gpu0": ("m0", "m1"), "box/gpu1": ("m3",)}
    assert units(ledger, "b") == {"box/gpu1": ("m2",)}


VF, PF = "CUSTOM_PCI_8086_154C", "CUSTOM_PCI_8086_1572"


def with_devices(tree: Provider) -> Provider:
    """
    box                     VCPU=16
    +- box/0000:81:00.0     a card with two functions split off it
    +- box/0000:82:00.0     another card that nobody has split
    """
    card = Device("0000:81:00.0", "8086", "1572", resource_class=PF, type="type-PF")
    parts = [
        Device(
            f"0000:81:02.{n}",
            "8086",
            "154c",
            resource_class=VF,
            type="type-VF",
            parent=card.address,
        )
        for n in range(2)
    ]
    other = Device("0000:82:00.0", "8086", "1572", resource_class=PF, type="type-PF")
    tree.update(inventories=ro.Inventories("VCPU=16"))
    tree.add_parts(DEVICES, PCIInventory([card, *parts, other]))
    return tree


def pools(ledger: ro.Ledger) -> None:
    """
    box   VCPU=16 PF=2 VF=2     net-0 and net-1 hold a VF, whole a PF
    """
    ledger.sync(Provider("box", {"VCPU": 16, PF: 2, VF: 2}))
    ledger.claim("net-0", {"box": {"VCPU": 1, VF: 1}})
    ledger.claim("net-1", {"box": {VF: 1}})
    ledger.claim("whole", {"box": {PF: 1}})


def to_devices(net_0: str = "0000:81:02.0", net_1: str = "0000:81:02.1") -> list[Move]:
    card = "box/0000:81:00.0"
    return [
        Move("box", VF, (Part(card, owned={"net-0": (net_0,), "net-1": (net_1,)}),)),
        Move("box", PF, (Part("box/0000:82:00.0", consumers={"whole": 1}),)),
    ]


def test_pools_of_devices_become_devices_that_consumers_own_by_address(ledger: ro.Ledger) -> None:
    """Of a pool nobody knew which function was whose; who runs the guests does."""
    pools(ledger)
    moves = to_devices("0000:81:02.1", "0000:81:02.0")
    ledger.sync(with_devices(ledger.provider("box")), moves=moves)
    assert units(ledger, "net-0") == {"box/0000:81:00.0": ("0000:81:02.1",)}
    assert units(ledger, "net-1") == {"box/0000:81:00.0": ("0000:81:02.0",)}
    # the only device there, so nobody has to say which
    assert units(ledger, "whole") == {"box/0000:82:00.0": ("0000:82:00.0",)}
    assert not ledger.audit()
    assert not ledger.snapshot().candidates(f"DEVICES={VF}")


def test_a_card_takes_the_functions_split_off_it_along(ledger: ro.Ledger) -> None:
    ledger.sync(Provider("box", {"VCPU": 16, PF: 2}))
    ledger.claim("whole", {"box": {PF: 1}})
    part = Part("box/0000:81:00.0", owned={"whole": ("0000:81:00.0",)})
    ledger.sync(with_devices(ledger.provider("box")), moves=[Move("box", PF, (part,))])
    assert units(ledger, "whole") == {
        "box/0000:81:00.0": ("0000:81:00.0", "0000:81:02.0", "0000:81:02.1")
    }
    assert not ledger.audit()
    assert not ledger.snapshot().candidates(f"DEVICES={VF}")


def test_devices_become_pools_again(ledger: ro.Ledger) -> None:
    pools(ledger)
    before = held(ledger)
    ledger.sync(with_devices(ledger.provider("box")), moves=to_devices())
    tree = ledger.provider("box")
    tree.update(inventories=ro.Inventories({"VCPU": 16, PF: 2, VF: 2}), children=[])
    back = [
        Move("box/0000:81:00.0", VF, (Part("box"),)),
        Move("box/0000:82:00.0", PF, (Part("box"),)),
    ]
    ledger.sync(tree, moves=back)
    assert held(ledger) == before
    assert not ledger.audit()


def test_all_of_it_goes_to_the_only_place_and_fills_where_that_is_said(ledger: ro.Ledger) -> None:
    glommed(ledger)
    ledger.sync(
        with_gpus(ledger.provider("box"), 1, 7),
        moves=[
            Move("box", "VGPU", (Part("box/gpu0"),), fill=True),
            Move("box", "VGPU", (Part("box/gpu1"),), fill=True),
        ],
    )
    found = Counter(place for _, place, kind in held(ledger) if kind == "VGPU")
    assert found == {"box/gpu0": 1, "box/gpu1": 3}


def test_nothing_else_of_the_change_waits_for_another_write(ledger: ro.Ledger) -> None:
    glommed(ledger)
    tree = with_gpus(ledger.provider("box"), 4, 4)
    tree.update(inventories=ro.Inventories("VCPU=32"), traits=["CUSTOM_NEW"], aggregates=["rack-1"])
    cursor = ledger.feed.cursor()
    ledger.sync(tree, moves=EVEN_AND_ODD)
    assert len(ledger.feed.changes(cursor)) == 1
    kept = ledger.provider("box")
    assert (kept.traits, kept.aggregates) == ({"CUSTOM_NEW"}, {"rack-1"})
    assert ledger.usage()["box", "VCPU"].total == 32


def test_a_host_out_of_service_is_reshaped_as_any_other(ledger: ro.Ledger) -> None:
    """Who upgrades an agent takes its host out of service first. Nothing is taken anew."""
    glommed(ledger)
    ledger.disable("box", reason="upgrade")
    plan = ledger.diff(with_gpus(ledger.provider("box"), 4, 4), moves=EVEN_AND_ODD)
    assert Plan.from_json(plan.to_json()) == plan
    ledger.apply(plan, dry_run=True)
    ledger.sync(with_gpus(ledger.provider("box"), 4, 4), moves=EVEN_AND_ODD)
    assert held(ledger)["vm-3", "box/gpu1", "VGPU"] == 1
    with raises_code("ProviderDisabled"):
        ledger.claim("vm-9", {"box/gpu0": "VGPU=1"})


def test_nothing_goes_where_it_would_be_out_of_service(memory: ro.Ledger) -> None:
    glommed(memory)
    tree = memory.provider("box")
    tree.add("box/gpu0", "VGPU=1")
    memory.sync(tree)
    memory.disable("box/gpu0", reason="fan")
    with raises_code("ProviderDisabled"):
        memory.sync(
            with_gpus(memory.provider("box"), 8), moves=[Move("box", "VGPU", (Part("box/gpu0"),))]
        )


def test_who_stands_for_many_goes_along_whatever_the_unit_rules(ledger: ro.Ledger) -> None:
    """What a record said is used, and nobody is named for, is one consumer's (D5)."""
    ledger.sync(Provider("box", "VCPU=16:max_unit=4,VGPU=8"))
    ledger.adjust("box", {"box": "VCPU=10"}, aggregate=True)
    ledger.claim("vm", {"box": "VCPU=3"})
    tree = ledger.provider("box")
    tree.update(inventories=ro.Inventories("VGPU=8"))
    tree.add("box/cell0", "VCPU=16:max_unit=4")
    plan = ledger.diff(tree, moves=[Move("box", "VCPU", (Part("box/cell0"),))])
    assert Plan.from_json(plan.to_json()) == plan
    ledger.apply(plan)
    assert held(ledger) == {("box", "box/cell0", "VCPU"): 10, ("vm", "box/cell0", "VCPU"): 3}
    with raises_code("UnitRuleViolated"):
        ledger.adjust("vm", {"box/cell0": "VCPU=3"})


# --- said again ---


def test_a_move_that_is_said_again_is_none(ledger: ro.Ledger) -> None:
    glommed(ledger)
    for _ in range(2):
        done = ledger.sync(with_gpus(ledger.provider("box"), 4, 4), moves=EVEN_AND_ODD)
    assert (bool(done), done.moved_consumers) == (False, ())
    before = held(ledger)
    # the rest of the host changes, and its owner goes on saying the same
    tree = with_gpus(ledger.provider("box"), 8, 4)
    done = ledger.sync(tree, moves=EVEN_AND_ODD)
    assert (done.updated, done.moved_consumers, held(ledger)) == (1, (), before)


def test_a_part_that_moved_does_not_move_again_when_the_rest_shrinks(memory: ro.Ledger) -> None:
    memory.sync(Provider("box", "VCPU=16"))
    memory.claim("mixed", {"box": {"VCPU": 6}})
    moves = [Move("box", "VCPU", (Part("box", resource_class="PCPU", consumers={"mixed": 4}),))]
    for inventories in ("VCPU=8,PCPU=8", "VCPU=7,PCPU=8", "VCPU=7,PCPU=9"):
        tree = memory.provider("box")
        tree.update(inventories=ro.Inventories(inventories))
        memory.sync(tree, moves=moves)
        assert held(memory) == {("mixed", "box", "VCPU"): 2, ("mixed", "box", "PCPU"): 4}


def test_who_was_moved_before_may_still_be_named(memory: ro.Ledger) -> None:
    """Both shrink and grow again, as if more had moved; who moved the first time has."""
    memory.sync(Provider("box", "VCPU=16"))
    memory.claim("a", {"box": {"VCPU": 4}})
    memory.claim("b", {"box": {"VCPU": 2}})
    for owners, inventories in (({"a": 4}, "VCPU=12,PCPU=4"), ({"a": 4, "b": 2}, "VCPU=8,PCPU=8")):
        tree = memory.provider("box")
        tree.update(inventories=ro.Inventories(inventories))
        part = Part("box", resource_class="PCPU", consumers=owners)
        memory.sync(tree, moves=[Move("box", "VCPU", (part,))])
    assert held(memory) == {("a", "box", "PCPU"): 4, ("b", "box", "PCPU"): 2}


def test_a_move_from_what_is_not_kept_any_more_is_none(memory: ro.Ledger) -> None:
    memory.sync(Provider("box", "VCPU=16"))
    tree = memory.provider("box")
    tree.update(inventories=ro.Inventories("VCPU=8"))
    gone = [Move("box/gpu0", "VGPU", (Part("box"),)), Move("box", "VGPU", (Part("box/gpu0"),))]
    assert memory.sync(tree, moves=gone).updated == 1


# --- what would lose or invent ---


_REFUSED: list[tuple[Sequence[Move], tuple[int, ...], str]] = [
    (to_gpus({"vm-0": 1, "vm-2": 1}, {"vm-1": 1}), (4, 4), "1 VGPU of box allocated to vm-3"),
    (to_gpus({"vm-0": 1}, {}), (4, 4), "allocated to vm-1 is not specified"),
    (to_gpus({"vm-0": 2, "vm-2": 1}, {"vm-1": 1, "vm-3": 1}), (4, 4), "1 are allocated, not 2"),
    (
        to_gpus({"vm-0": 1, "vm-2": 1}, {"vm-0": 1, "vm-1": 1, "vm-3": 1}),
        (4, 4),
        "vm-0, VGPU of box: 1 are allocated, not 2",
    ),
    (
        [*EVEN_AND_ODD, Move("box", "VGPU", (Part("box/gpu2", consumers={"nobody": 1}),))],
        (3, 3, 2),
        "nobody has no VGPU of box allocated",
    ),
    (EVEN_AND_ODD, (4,), "box/gpu1 is not a provider"),
    (
        [*to_gpus({"vm-0": 1, "vm-2": 1, "vm-1": 1}), *to_gpus({}, {"vm-3": 1})[1:]],
        (2, 6),
        "VGPU",
    ),
    (
        [Move("box", "VGPU", (Part("box/gpu0", 5), Part("box/gpu1", 3)), fill=True)],
        (4, 4),
        "VGPU of box/gpu0 would get 4, not 5",
    ),
    ([Move("box", "VGPU", (Part("box/gpu0"),), total=7)], (8,), "would lose 8, not 7"),
    (
        [Move("box", "VGPU", (Part("box", resource_class="PGPU"),))],
        (8,),
        "declared as moved to PGPU of box, which does not exist",
    ),
    ([Move("box", "VGPU", (Part("box"),))], (8,), "moved to itself"),
]


@pytest.mark.law(1, 2)
@pytest.mark.backend("memory")
@pytest.mark.parametrize(("moves", "totals", "said"), _REFUSED)
def test_what_would_lose_or_invent_is_refused(
    memory: ro.Ledger, moves: Sequence[Move], totals: tuple[int, ...], said: str
) -> None:
    glommed(memory)
    before, kept = memory.usage(), memory.provider("box")
    for write in (memory.diff, memory.sync):
        if write == memory.diff and said == "VGPU":
            continue  # whether there is room, the write itself decides
        with pytest.raises(ro.ResourceObjectsError, match=said):
            write(with_gpus(memory.provider("box"), *totals), moves=moves)
    assert (memory.usage(), memory.provider("box")) == (before, kept)


@pytest.mark.law(1, 2)
def test_one_place_is_moved_once_however_it_is_named(memory: ro.Ledger) -> None:
    glommed(memory)
    before, kept = memory.usage(), memory.provider("box")
    part = (Part("box/gpu0"),)
    moves = [Move("box", "VGPU", part), Move(kept.uuid or "", "VGPU", part)]
    for write in (memory.diff, memory.sync):
        with pytest.raises(exceptions.InvalidPlan, match="VGPU of box is moved twice"):
            write(with_gpus(memory.provider("box"), 8), moves=moves)
    assert (memory.usage(), memory.provider("box")) == (before, kept)


def test_nobody_is_left_on_less_than_is_used(memory: ro.Ledger) -> None:
    """Who is forgotten is noticed too where some of the class stays."""
    glommed(memory)
    tree = with_gpus(memory.provider("box"), 6)
    tree.update(inventories=ro.Inventories("VCPU=16,VGPU=2"))
    with pytest.raises(exceptions.InvalidPlan, match="VGPU of box would have 3 used of 2"):
        memory.sync(tree, moves=to_gpus({"vm-0": 1}))
    memory.sync(tree, moves=to_gpus({"vm-0": 1, "vm-3": 1}))
    assert memory.usage()["box", "VGPU"].used == 2


def test_another_inventory_may_shrink_below_its_use_as_ever(memory: ro.Ledger) -> None:
    glommed(memory)
    tree = with_gpus(memory.provider("box"), 4, 4)
    tree.update(inventories=ro.Inventories("VCPU=6"))
    memory.sync(tree, moves=EVEN_AND_ODD)
    assert memory.usage()["box", "VCPU"].free == -2


def test_what_is_said_to_have_moved_is_not_there_twice(memory: ro.Ledger) -> None:
    glommed(memory)
    tree = with_gpus(memory.provider("box"), 4, 4)
    tree.update(inventories=ro.Inventories("VCPU=16,VGPU=8"))
    with pytest.raises(exceptions.InvalidPlan, match="but its total is still 8"):
        memory.sync(tree, moves=EVEN_AND_ODD)
    shared = [
        Move("box", "VGPU", (Part(f"box/gpu{n}", consumers=owned),), total=0)
        for n, owned in enumerate([{"vm-0": 1}, {"vm-1": 1}])
    ]
    memory.sync(tree, moves=shared)
    assert memory.usage()["box", "VGPU"].used == 2


@pytest.mark.parametrize(
    ("moves", "said"),
    [
        (to_devices("0000:81:02.7"), "VF.*has no 0000:81:02.7|has no 0000:81:02.7"),
        (to_devices("0000:81:00.0"), "has no 0000:81:00.0"),
        (
            [Move("box", VF, (Part("box/0000:81:00.0", consumers={"net-0": 1, "net-1": 1}),))],
            "specify in 'owned' which are allocated to it",
        ),
        (
            [
                Move(
                    "box",
                    VF,
                    (
                        Part(
                            "box/0000:81:00.0",
                            consumers={"net-0": 2},
                            owned={"net-0": ("0000:81:02.0",), "net-1": ("0000:81:02.1",)},
                        ),
                    ),
                )
            ],
            "2 are assigned to",
        ),
    ],
)
def test_devices_are_owned_by_names_that_are_there(
    memory: ro.Ledger, moves: Sequence[Move], said: str
) -> None:
    pools(memory)
    before = held(memory)
    moves = [*[one for one in to_devices() if one.resource_class == PF], *moves[:1]]
    with pytest.raises(exceptions.InvalidPlan, match=said):
        memory.sync(with_devices(memory.provider("box")), moves=moves)
    assert held(memory) == before


def test_units_that_are_held_keep_their_names(memory: ro.Ledger) -> None:
    memory.sync(Provider("box", "VCPU=16,VGPU=4"))
    memory.claim("a", [by_count("box", "VGPU", 1, "m0")])
    moves = [Move("box", "VGPU", (Part("box/gpu0", owned={"a": ("m1",)}),))]
    with pytest.raises(exceptions.InvalidPlan, match="a, VGPU of box: m0 are allocated, not m1"):
        memory.sync(with_gpus(memory.provider("box"), 4), moves=moves)


@pytest.mark.parametrize("moves", [["no move"], [None], [Move("box", "VGPU", (Part("x"),)), 3]])
def test_only_moves_are_moves(memory: ro.Ledger, moves: Any) -> None:
    glommed(memory)
    with raises_code("InvalidField"):
        memory.sync(with_gpus(memory.provider("box"), 8), moves=moves)


@pytest.mark.law(8)
def test_moves_of_one_place_are_one() -> None:
    one, two = to_gpus({"a": 1}, {"b": 1})
    [both] = merge_moves([one, two])
    assert both.to == (*one.to, *two.to)
    with raises_code("InvalidField"):
        merge_moves([one, Move("box", "VGPU", two.to, fill=True)])
    with raises_code("DuplicateKey"):
        merge_moves([one, one])


@pytest.mark.law(10)
def test_owned_units_are_the_same_after_json() -> None:
    reshape = Reshape((Move("box", VF, (Part("x", owned={"net-0": ("0000:81:02.0",)}),)),))
    assert Reshape.from_json(reshape.to_json()) == reshape
    with raises_code("DuplicateKey"):
        Part("x", owned={"a": ("m0",), "b": ("m0",)})
    data = reshape.to_dict()
    data["moves"][0]["to"][0]["owned"]["net-0"] = ["\n"]
    with pytest.raises(exceptions.InvalidInput):
        Reshape.from_dict(data)


# --- others at the same moment ---


@pytest.mark.law(2)
def test_who_comes_in_between_is_moved_too(
    ledger: ro.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the reading and the write somebody claims, changes what it holds, gives it back."""
    glommed(ledger)
    coming: list[Callable[[], Any]] = [
        lambda: ledger.release("vm-3"),
        lambda: ledger.adjust("vm-0", {"box": "VGPU=1"}),
        lambda: ledger.claim("late", {"box": "VGPU=2"}),
    ]
    commit = ledger.backend.commit

    def late(write: Write) -> Any:
        if write.kind == "reshape" and coming:
            coming.pop()()
        return commit(write)

    monkeypatch.setattr(ledger.backend, "commit", late)
    all_of_it = [Move("box", "VGPU", (Part("box/gpu0"),))]
    done = ledger.sync(with_gpus(ledger.provider("box"), 8), moves=all_of_it)
    assert not coming
    assert done.moved_consumers == ("late", "vm-0", "vm-1", "vm-2")
    assert ledger.usage()["box/gpu0", "VGPU"].used == 6
    assert not ledger.audit()


def test_who_changes_the_tree_meanwhile_is_not_overwritten(
    memory: ro.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    glommed(memory)
    tree = with_gpus(memory.provider("box"), 4, 4)
    memory.change("box", traits=["CUSTOM_A"])
    with raises_code("StaleDefinition"):
        memory.sync(tree, moves=EVEN_AND_ODD)
    assert memory.usage()["box", "VGPU"].used == 4


def test_it_is_not_tried_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    with ro.connect(retries=RetryPolicy(definitions=2, assignments=2)) as ledger:
        glommed(ledger)
        tries = []

        def refuse(write: Write) -> Any:
            tries.append(write)
            raise exceptions.InUse("inventory", "box")

        monkeypatch.setattr(ledger.backend, "commit", refuse)
        with raises_code("InventoryInUse"):
            ledger.sync(with_gpus(ledger.provider("box"), 4, 4), moves=EVEN_AND_ODD)
        assert len(tries) == 3


def test_a_repeated_operation_moves_once(ledger: ro.Ledger) -> None:
    glommed(ledger)
    operation = "1fa4cd25-8a38-4bb3-8a37-7b5d4a6f6f33"
    tree = with_gpus(ledger.provider("box"), 4, 4)
    assert ledger.sync(tree, moves=EVEN_AND_ODD, operation=operation).moved_consumers
    assert not ledger.sync(tree, moves=EVEN_AND_ODD, operation=operation)


# --- against a naive model ---


_NUMBER = itertools.count()


@st.composite
def _stories(draw: st.DrawFn) -> tuple[dict[str, int], list[int], dict[str, dict[int, int]]]:
    """Draw what consumers hold, what each child has, and how much of each is said to be where."""
    had = draw(st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 4), max_size=6))
    children = draw(st.lists(st.integers(1, 12), min_size=1, max_size=4))
    said: dict[str, dict[int, int]] = {}
    for name, amount in had.items():
        places = draw(st.lists(st.integers(0, len(children) - 1), min_size=amount, max_size=amount))
        said[name] = dict(Counter(places))
    if had and draw(st.integers(0, 4)) == 0:  # one is wrong
        name = draw(st.sampled_from(sorted(had)))
        said[name] = draw(
            st.dictionaries(st.integers(0, len(children) - 1), st.integers(1, 4), max_size=2)
        )
    return had, children, said


@pytest.mark.law(1, 2, 3)
@hypothesis.settings(
    max_examples=examples(60),
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture],
)
@hypothesis.given(_stories())
def test_a_move_is_what_a_naive_model_says(
    ledger: ro.Ledger,
    story: tuple[dict[str, int], list[int], dict[str, dict[int, int]]],
) -> None:
    """There and back: everybody holds as much, where it was said, or nothing was changed."""
    had, children, said = story
    number = next(_NUMBER)
    host, names = f"host{number}", {name: f"{name}-{number}" for name in had}
    total = max(1, sum(had.values()))
    ledger.sync(Provider(host, {"VCPU": 99, "VGPU": total}))
    for name, amount in had.items():
        ledger.claim(names[name], {host: {"VCPU": 1, "VGPU": amount}})
    before = {key: n for key, n in held(ledger).items() if key[0] in names.values()}
    tree = ledger.provider(host)
    tree.update(inventories=ro.Inventories("VCPU=99"))
    parts = []
    for place, most in enumerate(children):
        tree.add(f"{host}/{place}", {"VGPU": most})
        own = {names[name]: at[place] for name, at in said.items() if place in at}
        parts.append(Move(host, "VGPU", (Part(f"{host}/{place}", consumers=own),)))
    # naively: each holds what it held, at the places that were said, as far as there is room;
    # what nothing is said of goes with the only child there is
    where = {name: at or {0: had[name]} if len(children) == 1 else at for name, at in said.items()}
    adds_up = all(
        sum(where[name].values()) == amount
        or (len(children) == 1 and sum(where[name].values()) < amount)
        for name, amount in had.items()
    )
    if len(children) == 1:
        where = {name: {0: had[name]} for name in had}
    fits = all(
        sum(at.get(place, 0) for at in where.values()) <= most
        for place, most in enumerate(children)
    )
    try:
        ledger.sync(tree, moves=parts)
    except ro.ResourceObjectsError as refusal:
        hypothesis.event(type(refusal).__name__)
        assert not (adds_up and fits)
        assert {k: n for k, n in held(ledger).items() if k[0] in names.values()} == before
        return
    assert adds_up
    assert fits
    hypothesis.event("moved")
    assert {k: n for k, n in held(ledger).items() if k[0] in names.values()} == {
        **{(names[name], host, "VCPU"): 1 for name in had},
        **{
            (names[name], f"{host}/{place}", "VGPU"): amount
            for name, at in where.items()
            for place, amount in at.items()
        },
    }
    home = ledger.provider(host)
    home.update(inventories=ro.Inventories({"VCPU": 99, "VGPU": total}), children=[])
    back = [Move(f"{host}/{place}", "VGPU", (Part(host),)) for place in range(len(children))]
    ledger.sync(home, moves=back)
    assert {k: n for k, n in held(ledger).items() if k[0] in names.values()} == before


# --- killed in between ---


def _nested(ledger: ro.Ledger) -> None:
    ledger.sync(with_gpus(ledger.provider("box"), 4, 4), moves=EVEN_AND_ODD)


@pytest.mark.parametrize("everywhere_kind", databases.KINDS, indirect=True)
@pytest.mark.law(2, 4)
def test_who_is_killed_has_moved_everything_or_nothing(url: str) -> None:
    with ro.connect(url) as ledger:
        glommed(ledger)
        before = held(ledger)
    after = {
        (who, f"box/gpu{who[-1]}" if kind == "VGPU" else place, kind): amount
        for (who, place, kind), amount in before.items()
    }
    after = {
        (who, place.replace("gpu2", "gpu0").replace("gpu3", "gpu1"), kind): amount
        for (who, place, kind), amount in after.items()
    }
    all_or_nothing(url, _nested, held, after, every=1 if examples(100) == 100 else 3)
