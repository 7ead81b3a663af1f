"""Reshapes: inventories go elsewhere and what is held goes along; nothing is lost or invented."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import json
import threading
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.ledger import RetryPolicy, new_operation
from resource_objects.providers import Allocation, Provider
from resource_objects.providers.columns import KindColumns
from resource_objects.providers.orders import Write
from resource_objects.providers.plan import Plan
from resource_objects.providers.reshape import Move, NewProvider, NewShare, Part, Reshape
from resource_objects.providers.reshape_plan import ReshapePlanner
from resource_objects.testing.refusals import raises_code


def taken(provider: str, kind: str, amount: int, *units: str) -> Allocation:
    return Allocation(
        provider=provider, resource_class=kind, amount=ro.IntegerAmount(amount), units=units
    )


def glommed(ledger: ro.Ledger) -> None:
    """Make host0, whose eight GPUs are one inventory, and two jobs that hold five of them."""
    ledger.sync(Provider("host0", "VCPU=64,PGPU=8"))
    ledger.claim(
        "job-1", [taken("host0", "PGPU", 3, "gpu0", "gpu3", "gpu7"), taken("host0", "VCPU", 8)]
    )
    ledger.claim("job-2", [taken("host0", "PGPU", 2, "gpu1", "gpu2")], project="p")


def split(count: int = 8) -> Reshape:
    """Return what gives each GPU of host0 a child."""
    names = [f"host0/gpu{n}" for n in range(count)]
    return Reshape(
        create=tuple(
            NewProvider(name, "host0", traits=frozenset({"CUSTOM_H100"})) for name in names
        ),
        moves=(
            Move(
                "host0",
                "PGPU",
                tuple(Part(name, 1, units=(name.rpartition("/")[2],)) for name in names),
            ),
        ),
    )


def by_place(ledger: ro.Ledger, consumer: str) -> dict[str, tuple[str, int, tuple[str, ...]]]:
    return {
        one.provider: (one.resource_class, int(one.amount), one.units)  # type: ignore[call-overload]
        for one in ledger.get_claim(consumer).allocations
    }


# --- units ---


@pytest.mark.law(1, 2)
def test_each_allocation_follows_the_unit_it_owns(ledger: ro.Ledger) -> None:
    glommed(ledger)
    before = ledger.get_claim("job-2")
    plan = ledger.reshape(split())
    assert by_place(ledger, "job-1") == {
        "host0": ("VCPU", 8, ()),
        "host0/gpu0": ("PGPU", 1, ("gpu0",)),
        "host0/gpu3": ("PGPU", 1, ("gpu3",)),
        "host0/gpu7": ("PGPU", 1, ("gpu7",)),
    }
    assert set(by_place(ledger, "job-2")) == {"host0/gpu1", "host0/gpu2"}
    after = ledger.get_claim("job-2")
    assert (after.id, after.project) == (before.id, "p")
    assert (after.amounts, after.created_at) == (before.amounts, before.created_at)
    assert "PGPU" not in ledger.provider("host0").inventories
    assert ledger.usage()["host0/gpu3", "PGPU"].used == 1
    assert ledger.usage()["host0/gpu4", "PGPU"].used == 0
    assert "~ job-2 is allocated PGPU=1 (gpu1) of host0/gpu1, PGPU=1 (gpu2) of host0/gpu2" in str(
        plan
    )
    assert not ledger.audit()


@pytest.mark.law(3)
def test_children_become_one_again(ledger: ro.Ledger) -> None:
    glommed(ledger)
    before = ledger.usage()
    ledger.reshape(split())
    names = [f"host0/gpu{n}" for n in range(8)]
    ledger.reshape(
        Reshape(
            moves=tuple(Move(name, "PGPU", (Part("host0"),)) for name in names),
            remove=tuple(names),
        )
    )
    assert [root.name for root in ledger.provider("host0").walk()] == ["host0"]
    assert ledger.usage()["host0", "PGPU"] == before["host0", "PGPU"]
    assert by_place(ledger, "job-2") == {"host0": ("PGPU", 2, ("gpu1", "gpu2"))}


def test_some_of_an_inventory_may_go_and_the_rest_stay(ledger: ro.Ledger) -> None:
    glommed(ledger)
    ledger.reshape(split(2))  # gpu0 and gpu1 only
    assert ledger.provider("host0").inventories["PGPU"].capacity == 6  # type: ignore[attr-defined]
    assert by_place(ledger, "job-2") == {
        "host0": ("PGPU", 1, ("gpu2",)),
        "host0/gpu1": ("PGPU", 1, ("gpu1",)),
    }


def test_what_is_more_than_its_units_is_told_by_name(ledger: ro.Ledger) -> None:
    ledger.sync(Provider("host0", "VGPU=16"))
    ledger.claim("job", [taken("host0", "VGPU", 8, "a", "b")])
    create = (NewProvider("x", "host0"), NewProvider("y", "host0"))
    to = [Part("x", 8, units=("a",)), Part("y", 8, units=("b",))]
    with pytest.raises(exceptions.InvalidPlan, match="specify the amount at VGPU of x") as refused:
        ledger.reshape(Reshape((Move("host0", "VGPU", tuple(to)),), create))
    assert refused.value.consumers == ("job",)
    assert len(refused.value.problems) >= 1
    to = [
        Part("x", 8, units=("a",), consumers={"job": 6}),
        Part("y", 8, units=("b",), consumers={"job": 2}),
    ]
    ledger.reshape(Reshape((Move("host0", "VGPU", tuple(to)),), create))
    assert by_place(ledger, "job") == {"x": ("VGPU", 6, ("a",)), "y": ("VGPU", 2, ("b",))}


def test_a_unit_that_goes_nowhere_is_not_lost(ledger: ro.Ledger) -> None:
    ledger.sync(Provider("host0", "VGPU=16"))
    ledger.claim("job", [taken("host0", "VGPU", 8, "a", "b")])
    part = Part("x", 16, units=("a",), consumers={"job": 8})
    reshape = Reshape((Move("host0", "VGPU", (part,)),), (NewProvider("x", "host0"),))
    with pytest.raises(exceptions.InvalidPlan, match="job would not have all of its units"):
        ledger.reshape(reshape)


# --- without units ---


def cells(ledger: ro.Ledger, **jobs: int) -> Reshape:
    """Make host0 with 8 VCPU and jobs; return what splits it into two cells of 4."""
    ledger.sync(Provider("host0", "VCPU=8"))
    for name, amount in jobs.items():
        ledger.claim(name, {"host0": {"VCPU": amount}})
    return Reshape(
        (Move("host0", "VCPU", (Part("cell0", 4), Part("cell1", 4)), fill=True),),
        (NewProvider("cell0", "host0"), NewProvider("cell1", "host0")),
    )


def test_the_largest_are_filled_in_first(ledger: ro.Ledger) -> None:
    reshape = cells(ledger, a=1, b=2, c=2, d=3)
    ledger.reshape(reshape)
    assert {name: list(by_place(ledger, name)) for name in "abcd"} == {
        "d": ["cell0"],
        "b": ["cell1"],
        "c": ["cell1"],
        "a": ["cell0"],
    }


def test_who_fits_nowhere_is_named_and_nobody_moved(ledger: ro.Ledger) -> None:
    reshape = cells(ledger, a=3, b=3, c=2)
    with pytest.raises(
        exceptions.InvalidPlan, match="2 VCPU of host0 allocated to c fit"
    ) as refused:
        ledger.reshape(reshape)
    assert refused.value.consumers == ("c",)
    assert list(by_place(ledger, "a")) == ["host0"]
    assert [one.name for one in ledger.provider("host0").walk()] == ["host0"]


def test_one_may_be_split_where_that_is_allowed(ledger: ro.Ledger) -> None:
    reshape = cells(ledger, a=3, b=3, c=2)
    move = reshape.moves[0]
    ledger.reshape(
        Reshape((Move("host0", "VCPU", move.to, fill=True, split=True),), reshape.create)
    )
    assert by_place(ledger, "c") == {"cell0": ("VCPU", 1, ()), "cell1": ("VCPU", 1, ())}


def test_a_split_allocation_uses_capacity_of_each_destination(ledger: ro.Ledger) -> None:
    reshape = cells(ledger, a=3, b=2, c=2, d=1)
    to = (Part("cell0", 4), Part("cell1", 3), Part("cell2", 1))
    create = (*reshape.create, NewProvider("cell2", "host0"))
    ledger.reshape(Reshape((Move("host0", "VCPU", to, fill=True, split=True),), create))
    assert by_place(ledger, "c") == {"cell0": ("VCPU", 1, ()), "cell1": ("VCPU", 1, ())}
    assert by_place(ledger, "d") == {"cell2": ("VCPU", 1, ())}


def test_what_is_told_by_name_goes_before_what_is_filled_in(ledger: ro.Ledger) -> None:
    reshape = cells(ledger, a=3, b=1)
    told = Part("cell1", 4, consumers={"a": 3})
    to = (reshape.moves[0].to[0], told)
    ledger.reshape(Reshape((Move("host0", "VCPU", to, fill=True),), reshape.create))
    assert (list(by_place(ledger, "a")), list(by_place(ledger, "b"))) == (["cell1"], ["cell0"])


def test_unit_rules_bind_what_is_filled_in(ledger: ro.Ledger) -> None:
    ledger.sync(Provider("host0", "VCPU=8"))
    ledger.claim("job", {"host0": "VCPU=3"})
    create = (
        NewProvider("even", "host0", inventories="VCPU=4:step_size=2"),
        NewProvider("odd", "host0", inventories="VCPU=4"),
    )
    move = Move("host0", "VCPU", (Part("even"), Part("odd")), fill=True)
    ledger.reshape(Reshape((move,), create))
    assert list(by_place(ledger, "job")) == ["odd"]


@pytest.mark.parametrize(
    ("to", "said"),
    [
        ([Part("cell0", 4), Part("cell1", 4)], "3 VCPU of host0 allocated to a is not specified"),
        ([Part("cell0", 4, consumers={"a": 4}), Part("cell1", 4)], "3 are allocated, not 4"),
        (
            [Part("cell0", 4, consumers={"z": 1}), Part("cell1", 4)],
            "z has no VCPU of host0 allocated",
        ),
        (
            [Part("cell0", 8, consumers={"a": 3}), Part("cell1")],
            "the total .* cell1 is not specified",
        ),
        ([Part("cell0", 9, consumers={"a": 3})], "would lose 9 of 8"),
    ],
)
@pytest.mark.law(1, 2)
def test_a_plan_that_would_lose_or_invent_is_refused(
    ledger: ro.Ledger, to: list[Part], said: str
) -> None:
    create = cells(ledger, a=3).create
    before = ledger.usage()
    for dry_run in (True, False):
        with pytest.raises(exceptions.InvalidPlan, match=said):
            ledger.reshape(Reshape((Move("host0", "VCPU", tuple(to)),), create), dry_run=dry_run)
    assert ledger.usage() == before


def test_what_is_left_has_room_for_those_who_stay(ledger: ro.Ledger) -> None:
    create = cells(ledger, a=6).create
    with pytest.raises(exceptions.InvalidPlan, match="VCPU of host0 would have 6 used of 4"):
        ledger.reshape(Reshape((Move("host0", "VCPU", (Part("cell0", 4),)),), create[:1]))


def test_what_is_told_to_go_where_no_room_is_is_refused(ledger: ro.Ledger) -> None:
    create = cells(ledger, a=6).create
    part = Part("cell0", 4, consumers={"a": 6})
    move = Move("host0", "VCPU", (part, Part("cell1", 4)))
    for dry_run in (True, False):
        with pytest.raises(exceptions.CapacityException, match="cell0: VCPU"):
            ledger.reshape(Reshape((move,), create), dry_run=dry_run)
    assert list(by_place(ledger, "a")) == ["host0"]


# --- figures ---


def test_a_class_may_be_renamed_on_the_way(ledger: ro.Ledger) -> None:
    ledger.sync(Provider("host0", "VCPU=10:reserved=2:allocation_ratio=2"))
    ledger.claim("a", {"host0": "VCPU=3"})
    ledger.claim("b", {"host0": "VCPU=4"})
    part = Part("host0", 4, resource_class="PCPU", consumers={"a": 3})
    ledger.reshape(Reshape((Move("host0", "VCPU", (part,)),)))
    assert str(ledger.provider("host0").inventories) == (
        "VCPU=6:reserved=2:allocation_ratio=2:used=4,PCPU=4:allocation_ratio=2:used=3"
    )
    assert by_place(ledger, "a") == {"host0": ("PCPU", 3, ())}


def test_all_of_it_goes_with_what_is_reserved(ledger: ro.Ledger) -> None:
    ledger.sync(Provider("host0", "DISK_GB=100:reserved=10:max_unit=50:min_unit=5"))
    ledger.sync(Provider("host1", "VCPU=1"))
    ledger.claim("a", {"host0": "DISK_GB=30"})
    ledger.reshape(Reshape((Move("host0", "DISK_GB", (Part("host1"),), fill=True),)))
    inventories = str(ledger.provider("host1").inventories)
    assert inventories == "VCPU=1,DISK_GB=100:reserved=10:min_unit=5:max_unit=50:used=30"
    assert not ledger.provider("host0").inventories


def test_a_maximum_is_never_more_than_there_is(ledger: ro.Ledger) -> None:
    ledger.sync(Provider("host0", "PGPU=4:max_unit=4"))
    ledger.reshape(split(4))
    assert str(ledger.provider("host0/gpu0").inventories) == "PGPU=1:max_unit=1"
    assert not ledger.provider("host0").inventories


@pytest.mark.parametrize(
    ("host", "create", "to", "said"),
    [
        ("VCPU=8:reserved=2", "", [Part("x", 4), Part("y", 4)], "2 of VCPU of host0 are reserved"),
        ("VCPU=8", "VCPU=5", [Part("x"), Part("y", 4)], "would lose 9 of 8"),
        ("VCPU=8", "VCPU=5", [Part("x", 4), Part("y", 4)], "total of 5, but 4 are moved to it"),
        (
            "VCPU=8:min_unit=5:max_unit=8",
            "",
            [Part("x", 4), Part("y", 4)],
            "VCPU of x would be invalid",
        ),
        ("VCPU=8:reserved=2", "", [Part("x", 7)], "VCPU of host0 would be invalid"),
        ("VCPU=8", "", [Part("host0", 4)], "moved to itself"),
        ("DISK_GB=8", "", [Part("x")], "there is no VCPU of host0"),
    ],
)
def test_figures_that_do_not_add_up_are_refused(
    ledger: ro.Ledger, host: str, create: str, to: list[Part], said: str
) -> None:
    ledger.sync(Provider("host0", host))
    new = (NewProvider("x", "host0", create), NewProvider("y", "host0"))
    with pytest.raises(exceptions.InvalidPlan, match=said):
        ledger.reshape(Reshape((Move("host0", "VCPU", tuple(to)),), new), dry_run=True)


def test_a_total_that_differs_is_told(ledger: ro.Ledger) -> None:
    ledger.sync(Provider("host0", "VGPU=4"))
    ledger.claim("a", {"host0": "VGPU=4"})
    move = Move("host0", "VGPU", (Part("x", 16, consumers={"a": 4}),), total=4)
    ledger.reshape(Reshape((move,), (NewProvider("x", "host0"),)))
    assert str(ledger.provider("x").inventories) == "VGPU=16:used=4"


@pytest.mark.law(1)
def test_an_inventory_that_the_parts_share_stays(ledger: ro.Ledger) -> None:
    """A NUMA host: what is taken of a cell is taken of the host too."""
    ledger.sync(Provider("host0", "VCPU=8"))
    ledger.claim("a", {"host0": "VCPU=4"})
    ledger.claim("b", {"host0": "VCPU=3"})
    ledger.claim("c", {"host0": "VCPU=1"})
    share = NewShare("VCPU", "host0", "VCPU")
    create = tuple(NewProvider(f"cell{n}", "host0", shares=(share,)) for n in range(2))
    move = Move("host0", "VCPU", (Part("cell0", 4), Part("cell1", 4)), total=0, fill=True)
    ledger.reshape(Reshape((move,), create))
    use = {(one.provider, one.resource_class): (one.used, one.capacity) for one in ledger.usage()}
    assert use == {("host0", "VCPU"): (8, 8), ("cell0", "VCPU"): (4, 4), ("cell1", "VCPU"): (4, 4)}
    assert {n: list(by_place(ledger, n)) for n in "abc"} == {
        "a": ["cell0"],
        "b": ["cell1"],
        "c": ["cell1"],
    }
    assert not ledger.audit()


def test_moves_do_not_see_each_other(ledger: ro.Ledger) -> None:
    ledger.sync(Provider("host0", "PGPU=2,FPGA=4"))
    ledger.claim("a", {"host0": "PGPU=2,FPGA=3"})
    moves = (
        Move("host0", "PGPU", (Part("host0", resource_class="FPGA"),), fill=True),
        Move("host0", "FPGA", (Part("host0", resource_class="PGPU"),), fill=True),
    )
    ledger.reshape(Reshape(moves))
    assert str(ledger.get_claim("a").amounts) == "FPGA=2,PGPU=3"
    assert str(ledger.provider("host0").inventories) == "FPGA=2:used=2,PGPU=4:used=3"


def test_a_part_of_a_structured_inventory_does_not_go_by_itself() -> None:
    with ro.connect() as ledger:
        ledger.sync(Provider("host0", "VCPU=8"), Provider("host1", "VCPU=8"))
        columns = ledger.backend.read()
    number = columns.providers.provider_id[0]
    kinds = KindColumns([number], ["NUMA_TOPOLOGY"], [("VCPU",)], ["{}"])
    reshape = Reshape((Move("host0", "VCPU", (Part("host1"),)),))
    with pytest.raises(exceptions.InvalidPlan, match="part of a structured inventory"):
        ReshapePlanner(reshape, dataclasses.replace(columns, kinds=kinds)).plan({})


def test_what_was_read_at_two_moments_is_not_used() -> None:
    with ro.connect() as ledger:
        glommed(ledger)
        columns = ledger.backend.read()
        claims = ledger.backend.held_by(["job-1", "job-2"])
    with raises_code("StaleConsumer", match="job-2"):
        ReshapePlanner(split(), columns).plan({"job-1": claims["job-1"]})
    assert ReshapePlanner(split(), columns).consumers == ("job-1", "job-2")


def test_two_names_of_one_provider_are_one(ledger: ro.Ledger) -> None:
    ledger.sync(Provider("host0", "VCPU=8"), Provider("host1", "VCPU=8"))
    uuid = ledger.provider("host0").uuid or ""
    twice = Reshape(tuple(Move(name, "VCPU", (Part("host1"),)) for name in ("host0", uuid)))
    with pytest.raises(exceptions.InvalidPlan, match="VCPU of host0 is moved twice"):
        ledger.reshape(twice)
    ledger.reshape(Reshape((Move(uuid, "VCPU", (Part("host1"),)),)))
    assert str(ledger.provider("host1").inventories) == "VCPU=16"


# --- providers ---


def test_providers_are_made_below_each_other_and_beside(ledger: ro.Ledger) -> None:
    ledger.sync(Provider("host0", "PGPU=2"))
    create = (
        NewProvider(
            "host0/shelf", ledger.provider("host0").uuid, "VCPU=4", aggregates=frozenset({"rack"})
        ),
        NewProvider("host0/shelf/gpu", "host0/shelf"),
        NewProvider("tray"),
    )
    to = (Part("host0/shelf/gpu", 1), Part("tray", 1))
    plan = ledger.reshape(Reshape((Move("host0", "PGPU", to),), create))
    assert [one.name for one in ledger.provider("host0").walk()] == [
        "host0",
        "host0/shelf",
        "host0/shelf/gpu",
    ]
    assert ledger.provider("host0/shelf").aggregates == {"rack"}
    assert str(ledger.provider("tray")) == "tray: PGPU=1"
    assert plan.names[create[2].uuid] == "tray"


@pytest.mark.parametrize(
    ("reshape", "error"),
    [
        (Reshape(create=(NewProvider("host0"),)), "ProviderExists"),
        (Reshape(create=(NewProvider("host1", "host9"),)), "ProviderNotFound"),
        (Reshape((Move("host9", "VCPU", (Part("host0"),)),)), "ProviderNotFound"),
        (Reshape((Move("host0", "VCPU", (Part("host9"),)),)), "ProviderNotFound"),
        (Reshape(remove=("host9",)), "ProviderNotFound"),
        (Reshape(remove=("host0/gpu",)), "ProviderInUse"),
        (Reshape(remove=("host0",)), exceptions.InvalidPlan),
        (
            Reshape(create=(NewProvider("x", "host0/gpu"),), remove=("host0/gpu",)),
            exceptions.InvalidPlan,
        ),
    ],
)
def test_providers_that_cannot_be_made_or_removed(
    ledger: ro.Ledger, reshape: Reshape, error: type[Exception] | str
) -> None:
    host = Provider("host0", "VCPU=1")
    host.add("host0/gpu", "PGPU=1")
    ledger.sync(host)
    ledger.claim("a", {"host0/gpu": "PGPU=1"})
    before = ledger.usage()
    for dry_run in (True, False):
        with raises_code(error):
            ledger.reshape(reshape, dry_run=dry_run)
    assert ledger.usage() == before


def test_a_whole_tree_may_go(ledger: ro.Ledger) -> None:
    old = Provider("old", "VCPU=2")
    old.add("old/gpu", "PGPU=1")
    ledger.sync(old, Provider("new", "VCPU=2"))
    ledger.claim("a", {"old": "VCPU=2", "old/gpu": "PGPU=1"})
    moves = (
        Move("old", "VCPU", (Part("new"),), fill=True),
        Move("old/gpu", "PGPU", (Part("new"),), fill=True),
    )
    ledger.reshape(Reshape(moves, remove=("old", "old/gpu")))
    assert [root.name for root in ledger.trees()] == ["new"]
    assert str(ledger.get_claim("a")) == "a holds VCPU=2,PGPU=1 of new"


# --- as a write ---


@pytest.mark.law(2, 11)
def test_a_dry_run_gives_the_plan_and_writes_nothing(ledger: ro.Ledger) -> None:
    glommed(ledger)
    before, at = ledger.usage(), ledger.backend.cursor()
    reshape = split()
    plan = ledger.reshape(reshape, dry_run=True)
    assert (ledger.usage(), ledger.backend.cursor()) == (before, at)
    assert plan == ledger.reshape(reshape)
    assert len(plan.orders) == 2
    assert Plan.from_json(plan.to_json()) == plan


def test_a_plan_that_was_kept_is_applied_later(ledger: ro.Ledger) -> None:
    glommed(ledger)
    kept = ledger.reshape(split(), dry_run=True).to_json()
    claims = ledger.apply(Plan.from_json(kept))
    assert [claim.consumer for claim in claims] == ["job-1", "job-2"]
    with raises_code("StaleDefinition", "ProviderExists"):
        ledger.apply(Plan.from_json(kept))


def test_a_repeated_operation_reshapes_once(ledger: ro.Ledger) -> None:
    glommed(ledger)
    text = json.loads(split().to_json())
    for new in text["create"]:
        del new["uuid"]  # as somebody writes it by hand
    operation = new_operation()
    assert ledger.reshape(Reshape.from_dict(text), operation=operation)
    assert not ledger.reshape(Reshape.from_dict(text), operation=operation)
    with raises_code("OperationConflict"):
        ledger.reshape(split(2), operation=operation)


def test_nothing_to_reshape_is_nothing_done(ledger: ro.Ledger) -> None:
    assert not ledger.reshape(Reshape())
    with raises_code("InvalidField"):
        ledger.reshape({})  # type: ignore[arg-type]


@pytest.mark.law(2)
def test_who_comes_in_between_is_moved_too(
    ledger: ro.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the reading and the write somebody claims, and somebody changes what it holds."""
    glommed(ledger)
    coming = [
        lambda: ledger.claim("late", [taken("host0", "PGPU", 1, "gpu4")]),
        lambda: ledger.adjust("job-2", [taken("host0", "PGPU", 1, "gpu5")]),
        lambda: ledger.change("host0", traits=["CUSTOM_A"]),
    ]
    commit = ledger.backend.commit

    def late(write: Write) -> Any:
        if write.kind == "reshape" and coming:
            coming.pop()()
        return commit(write)

    monkeypatch.setattr(ledger.backend, "commit", late)
    ledger.reshape(split())
    assert not coming
    assert list(by_place(ledger, "late")) == ["host0/gpu4"]
    assert set(by_place(ledger, "job-2")) == {"host0/gpu1", "host0/gpu2", "host0/gpu5"}


@pytest.mark.law(2, 4)
@pytest.mark.parametrize("how", ["reshape", "sync"])
@pytest.mark.parametrize("is_held", [False, True])
def test_who_comes_in_between_where_some_stays_is_moved_too(
    ledger: ro.Ledger, monkeypatch: pytest.MonkeyPatch, how: str, is_held: bool
) -> None:
    """The inventory that GPUs go from stays, so it is not refused because somebody holds of it."""
    ledger.sync(Provider("host0", "VCPU=8,PGPU=4"))
    if is_held:
        ledger.claim("job", [taken("host0", "PGPU", 2, "gpu1", "gpu2")])
    commit, tries = ledger.backend.commit, []

    def late(write: Write) -> Any:
        if write.definitions:
            if not tries:
                ledger.claim("late", [taken("host0", "PGPU", 1, "gpu0")])
            elif len(tries) == 1:
                ledger.claim("elsewhere", {"host0": "VCPU=1"})  # which moves nothing
            tries.append(write)
        return commit(write)

    monkeypatch.setattr(ledger.backend, "commit", late)
    if how == "reshape":
        ledger.reshape(split(2))
    else:
        tree = Provider("host0", "VCPU=8,PGPU=2")
        for n in range(2):
            tree.add(f"host0/gpu{n}", "PGPU=1")
        ledger.sync(tree, moves=split(2).moves)
    assert len(tries) == 2
    assert by_place(ledger, "late") == {"host0/gpu0": ("PGPU", 1, ("gpu0",))}
    if is_held:
        assert by_place(ledger, "job") == {
            "host0": ("PGPU", 1, ("gpu2",)),
            "host0/gpu1": ("PGPU", 1, ("gpu1",)),
        }
    assert not ledger.usage().over_capacity and not ledger.audit()


@pytest.mark.law(2)
def test_a_plan_that_was_kept_is_refused_once_somebody_takes_of_what_moves(
    ledger: ro.Ledger,
) -> None:
    ledger.sync(Provider("host0", "VCPU=8,PGPU=4"))
    plan = Plan.from_json(ledger.reshape(split(2), dry_run=True).to_json())
    ledger.claim("late", [taken("host0", "PGPU", 1, "gpu0")])
    with raises_code("StaleDefinition", match="PGPU"):
        ledger.apply(plan)
    ledger.release("late")
    ledger.apply(plan)
    assert [one.name for one in ledger.provider("host0").children] == ["host0/gpu0", "host0/gpu1"]


def test_it_is_not_tried_for_ever(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with ro.connect(url, retries=RetryPolicy(definitions=2, assignments=2)) as ledger:
        glommed(ledger)
        tries = []

        def refuse(write: Write) -> Any:
            tries.append(write)
            raise exceptions.Stale("consumer", "job-1")

        monkeypatch.setattr(ledger.backend, "commit", refuse)
        with raises_code("StaleConsumer"):
            ledger.reshape(split())
        assert len(tries) == 3


def test_reshapes_and_claims_at_once_lose_nothing(ledger: ro.Ledger) -> None:
    ledger.sync(Provider("host0", "VCPU=40"))
    ledger.sync(Provider("host1", "VCPU=40"))
    done = threading.Event()
    problems: list[BaseException] = []

    def claim() -> None:
        n = 0
        while not done.is_set():
            try:
                ledger.claim(f"job-{n}", {f"host{n % 2}": "VCPU=1"})
                if n % 3:
                    ledger.release(f"job-{n}")
            except (exceptions.CapacityException, exceptions.NotFound):
                pass
            except BaseException as error:
                problems.append(error)
                return
            n += 1

    worker = threading.Thread(target=claim)
    worker.start()
    for n in range(20):
        source, target = f"host{n % 2}", f"host{(n + 1) % 2}"
        parts = (Part(target, 5),)
        with contextlib.suppress(exceptions.InvalidPlan, exceptions.CapacityException):
            ledger.reshape(Reshape((Move(source, "VCPU", parts, fill=True),)))
    done.set()
    worker.join()
    assert not problems
    assert not ledger.audit()
    assert sum(int(use.capacity) for use in ledger.usage()) == 80


# --- from and to a file ---


def whole() -> Reshape:
    return Reshape(
        (
            Move("host0", "PGPU", (Part("a", 1, 0, None, ("gpu0",)), Part("b", 1)), 2, True, True),
            Move("host1", "VCPU", (Part("b", 3, 1, "PCPU", (), {"job-1": 2}),)),
        ),
        (
            NewProvider(
                "a",
                "host0",
                "VCPU=1",
                frozenset({"CUSTOM_A"}),
                frozenset({"x"}),
                (NewShare("VCPU", "host0", "VCPU", 2),),
            ),
            NewProvider("b"),
        ),
        ("old", "1FA4CD258A384BB38A377B5D4A6F6F33"),
    )


@pytest.mark.law(10)
def test_a_reshape_is_the_same_after_json() -> None:
    made = whole()
    assert Reshape.from_json(made.to_json()) == made
    assert hash(Reshape.from_json(made.to_json())) == hash(made)
    assert made.remove == ("old", "1fa4cd25-8a38-4bb3-8a37-7b5d4a6f6f33")
    assert made.providers == ("a", "host0", "b", "host1", *made.remove)
    assert str(made).splitlines() == [
        "create a below host0: VCPU=1 CUSTOM_A",
        "create b",
        "move PGPU of host0: 1 to a (gpu0), 1 to b, filled",
        "move VCPU of host1: 3 to PCPU of b",
        "remove old",
        "remove 1fa4cd25-8a38-4bb3-8a37-7b5d4a6f6f33",
    ]


def _with(**changes: Any) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(whole().to_json())
    for path, value in changes.items():
        place: Any = data
        *way, last = path.split("__")
        for step in way:
            place = place[int(step)] if step.isdigit() else place[step]
        place[last] = value
    return data


@pytest.mark.law(8)
@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        ({"version": 2}, exceptions.UnsupportedVersion, "version 2"),
        ({"move": []}, "UnknownField", "'move'"),
        ({"moves": {}}, "InvalidField", "reshape.moves: got {}"),
        ({"moves__0__from": 7}, "InvalidField", r"reshape.moves\[0\].from: got 7"),
        ({"moves__0__to": []}, "InvalidField", "at least one"),
        ({"moves__0__too": 1}, "UnknownField", "'too'"),
        ({"moves__0__fill": 1}, "InvalidField", "true or false"),
        ({"moves__0__total": -1}, "InvalidField", "from 0"),
        ({"moves__0__to__0__total": "1"}, "InvalidField", r"to\[0\].total"),
        ({"moves__0__to__1__units": ["gpu0"]}, "DuplicateKey", "gpu0"),
        ({"moves__0__to__1__provider": "a"}, "DuplicateKey", "each once"),
        ({"moves__1__to__0__consumers": {"j": 0}}, "InvalidField", "from 1"),
        ({"moves__1__to__0__consumers": {"j": "1"}}, "InvalidField", "an integer"),
        ({"moves__1__to__0__consumers": ["j"]}, "InvalidField", "an object"),
        (
            {"moves__1__from": "host0", "moves__1__resource_class": "PGPU"},
            "DuplicateKey",
            "PGPU",
        ),
        ({"moves__0__resource_class": "GPU"}, "UnknownResourceClass", "GPU"),
        ({"create__0__inventories": "VCPU=x"}, "InvalidText", "whole number"),
        ({"create__0__traits": ["HW_NO"]}, "UnknownTrait", "HW_NO"),
        ({"create__1__name": "a"}, "DuplicateKey", "'a'"),
        ({"remove": ["old", "old"]}, "DuplicateKey", "old"),
    ],
)
def test_a_file_that_cannot_be_is_refused(
    change: dict[str, Any], error: type[Exception] | str, said: str
) -> None:
    with raises_code(error, match=said):
        Reshape.from_dict(_with(**change))


# --- the law ---

_amount = st.integers(1, 4)
_jobs = st.dictionaries(
    st.sampled_from([f"job-{n}" for n in range(5)]),
    st.dictionaries(st.sampled_from(["VCPU", "PCPU"]), _amount, min_size=1),
    max_size=5,
)
_part = st.tuples(
    st.sampled_from(["x", "y", "other"]),
    st.none() | st.integers(0, 8),
    st.sampled_from([None, "PCPU", "CUSTOM_CORE"]),
    st.dictionaries(st.sampled_from(["job-0", "job-1"]), st.integers(1, 3), max_size=1),
)
_move = st.tuples(
    st.sampled_from(["VCPU", "PCPU"]),
    st.lists(_part, min_size=1, max_size=3, unique_by=lambda part: (part[0], part[2])),
    st.none() | st.integers(0, 8),
    st.booleans(),
    st.booleans(),
)


def _reshape(moves: Any) -> Reshape:
    return Reshape(
        tuple(
            Move(
                "host0",
                kind,
                tuple(Part(name, total, 0, to, (), told) for name, total, to, told in parts),
                out,
                fill,
                cut,
            )
            for kind, parts, out, fill, cut in moves
        ),
        (NewProvider("x", "host0"), NewProvider("y", "host0")),
    )


def _sums(ledger: ro.Ledger) -> dict[str, collections.Counter[str]]:
    """Return what each consumer holds of each class, all that may become each other as one."""
    return {
        consumer: collections.Counter({"any": sum(amounts.values())})
        for consumer, amounts in ledger.usage().consumers.items()
    }


@pytest.mark.law(1, 2, 5)
@pytest.mark.backend("memory")
@hypothesis.given(_jobs, st.lists(_move, min_size=1, max_size=2, unique_by=lambda move: move[0]))
def test_a_reshape_keeps_what_everybody_holds(jobs: Any, moves: Any) -> None:
    with ro.connect() as ledger:
        ledger.sync(Provider("host0", "VCPU=8,PCPU=8"), Provider("other", "VCPU=2"))
        for name, amounts in jobs.items():
            with contextlib.suppress(exceptions.CapacityException):
                ledger.claim(name, {"host0": amounts})
        held, before = _sums(ledger), ledger.usage()
        try:
            reshape = _reshape(moves)
        except exceptions.InvalidInput as error:
            if not error.is_about("repetition"):
                raise
            hypothesis.reject()
        columns = ledger.backend.read()
        claims = ledger.backend.held_by(list(held))
        try:
            plan = ledger.reshape(reshape, dry_run=True)
        except (exceptions.InvalidPlan, exceptions.CapacityException) as refusal:
            hypothesis.event(type(refusal).__name__)
            assert ledger.usage() == before
            with pytest.raises(type(refusal)):
                ledger.reshape(reshape)
            assert ledger.usage() == before
            return
        hypothesis.event("carried out")
        assert ledger.usage() == before
        planner = ReshapePlanner(reshape, columns)
        assert set(planner.consumers) >= set(plan.consumers)
        assert planner.plan(claims) == plan
        assert ledger.reshape(reshape) == plan
        assert _sums(ledger) == held
        assert not ledger.audit()
        if all(out is None for _, _, out, _, _ in moves):
            assert sum(use.total for use in ledger.usage()) == 18


@pytest.mark.law(1, 2)
@pytest.mark.backend("memory")
@hypothesis.given(
    st.lists(st.integers(0, 4), min_size=1, max_size=12), st.lists(st.integers(0, 3), max_size=12)
)
def test_every_unit_is_where_it_is_said_to_be(homes: list[int], owners: list[int]) -> None:
    """GPU n goes to child ``homes[n]`` and is held by ``owners[n]``, if by anybody."""
    children = {f"part{home}": [n for n, own in enumerate(homes) if own == home] for home in homes}
    owned = {f"job-{job}": [n for n, one in enumerate(owners) if one == job] for job in owners}
    with ro.connect() as ledger:
        ledger.sync(Provider("host0", {"PGPU": len(homes)}))
        for job, gpus in owned.items():
            here = [f"gpu{n}" for n in gpus if n < len(homes)]
            if here:
                ledger.claim(job, [taken("host0", "PGPU", len(here), *here)])
        parts = tuple(
            Part(name, len(gpus), units=tuple(f"gpu{n}" for n in gpus))
            for name, gpus in children.items()
        )
        create = tuple(NewProvider(name, "host0") for name in children)
        held = _sums(ledger)
        ledger.reshape(Reshape((Move("host0", "PGPU", parts),), create))
        assert _sums(ledger) == held
        for job, gpus in owned.items():
            there = {n for n in gpus if n < len(homes)}
            if not there:
                continue
            for one in ledger.get_claim(job).allocations:
                own = {f"gpu{n}" for n in there} & {f"gpu{n}" for n in children[one.provider]}
                assert set(one.units) == own
                assert int(one.amount) == len(own)  # type: ignore[call-overload]
        assert not ledger.audit()


# --- what else is held --------------------------------------------------------------------------


def test_jobs_that_also_hold_a_shared_pool_keep_it(ledger: ro.Ledger) -> None:
    """Other hosts' trees are not read for a reshape; what is held there stays as it is."""
    ledger.sync(Provider("host0", "PGPU=2"))
    ledger.sync(Provider("nfs", "DISK_GB=100"))
    ledger.claim("job", [taken("host0", "PGPU", 2), taken("nfs", "DISK_GB", 5)])
    wanted = Reshape(
        create=(NewProvider("host0/gpus", "host0"),),
        moves=(Move("host0", "PGPU", (Part("host0/gpus", 2),)),),
    )
    planned = ledger.reshape(wanted, dry_run=True)
    assert "nfs" in planned.names.values()
    assert ledger.reshape(wanted) == planned
    assert by_place(ledger, "job") == {
        "host0/gpus": ("PGPU", 2, ()),
        "nfs": ("DISK_GB", 5, ()),
    }
    assert not list(ledger.audit())
