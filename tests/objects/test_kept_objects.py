"""Objects of a ledger on the wire: the forms of 1.0, which remain readable.

Forms of libraries before 0.1.0, whose versions began at 1.0 too, are refused by name.
"""

from __future__ import annotations

import copy
import datetime
from typing import Any

import pytest

import resource_objects as ro
from resource_objects import base, exceptions
from resource_objects.providers import (
    Aggregate,
    Allocation,
    Claim,
    Consumer,
    ResourceClass,
    Share,
    Trait,
)
from resource_objects.resources import IntegerAmount
from resource_objects.testing.refusals import raises_code

pytestmark = pytest.mark.law(10)

HOST, GPU, CLAIM, CONSUMER = (f"0000000{n}-0000-4000-8000-000000000000" for n in range(1, 5))
MADE = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)


def wire(kind: str, /, **data: Any) -> dict[str, Any]:
    """Return a wire form of version 1.0, written out."""
    return {
        "versioned_object.name": f"resource_objects.{kind}",
        "versioned_object.namespace": "resource_objects",
        "versioned_object.version": "1.0",
        "versioned_object.data": data,
    }


def inventories(**totals: int) -> dict[str, Any]:
    figures = {
        name: wire(
            "IntegerInventory",
            total=total,
            reserved=0,
            min_unit=1,
            max_unit=None,
            step_size=1,
            allocation_ratio="1",
            used=0,
            resource_class=name,
        )
        for name, total in totals.items()
    }
    return wire("Inventories", by_class=figures)


def host() -> ro.Provider:
    created = ro.Provider("host0", "VCPU=8", uuid=HOST, generation=3, traits=["CUSTOM_SSD"])
    created.add("host0/gpu0", "PGPU=1", uuid=GPU)
    created.obj_reset_changes(recursive=True)
    return created


ALLOCATION = Allocation(
    provider="host0", provider_uuid=HOST, resource_class="VCPU", amount=IntegerAmount(2)
)
HELD = Claim(
    id=CLAIM,
    consumer="job-1",
    consumer_uuid=CONSUMER,
    allocations=(ALLOCATION,),
    created_at=MADE,
)
ALLOCATION_WIRE = wire(
    "Allocation",
    provider="host0",
    provider_uuid=HOST,
    resource_class="VCPU",
    amount=wire("IntegerAmount", value=2),
    units=[],
)
CLAIM_WIRE = wire(
    "Claim",
    id=CLAIM,
    consumer="job-1",
    consumer_uuid=CONSUMER,
    state="held",
    allocations=[ALLOCATION_WIRE],
    created_at="2026-01-02T03:04:05+00:00",
    request=None,
    generation=None,
    project=None,
    user=None,
    consumer_type=None,
    expires_at=None,
    group=None,
)
UNSAID: dict[str, Any] = {
    "aggregates": None,
    "shares": [],
    "reported_at": None,
    "adopted_at": None,
    "disabled": None,
}

PINNED: list[tuple[base.ResourceObject, dict[str, Any]]] = [
    (
        host(),
        wire(
            "Provider",
            uuid=HOST,
            name="host0",
            generation=3,
            inventories=inventories(VCPU=8),
            traits=["CUSTOM_SSD"],
            children=[
                wire(
                    "Provider",
                    uuid=GPU,
                    name="host0/gpu0",
                    generation=None,
                    inventories=inventories(PGPU=1),
                    traits=[],
                    children=[],
                    **UNSAID,
                )
            ],
            **UNSAID,
        ),
    ),
    (ALLOCATION, ALLOCATION_WIRE),
    (HELD, CLAIM_WIRE),
    (
        ro.Candidate(host="host0", allocations=(ALLOCATION,), generations=((HOST, 3),)),
        wire(
            "Candidate",
            host="host0",
            allocations=[ALLOCATION_WIRE],
            generations=[[HOST, 3]],
            located=wire("Amounts", by_class={}),
            mappings={},
        ),
    ),
    (
        Share(resource_class="PCPU", of="host0", of_class="VCPU", factor=2),
        wire("Share", resource_class="PCPU", of="host0", of_class="VCPU", factor=2),
    ),
    (
        Consumer(name="job-1", uuid=CONSUMER, generation=7, project="p", claim=HELD),
        wire(
            "Consumer",
            name="job-1",
            uuid=CONSUMER,
            generation=7,
            project="p",
            user=None,
            consumer_type=None,
            group=None,
            claim=CLAIM_WIRE,
        ),
    ),
    (ResourceClass(name="CUSTOM_A"), wire("ResourceClass", name="CUSTOM_A")),
    (Trait(name="CUSTOM_A"), wire("Trait", name="CUSTOM_A")),
    (Aggregate(name="r7", level="rack"), wire("Aggregate", name="r7", level="rack")),
]

each_pinned = pytest.mark.parametrize(
    ("ours", "pinned"), PINNED, ids=[type(ours).__name__ for ours, _ in PINNED]
)


@each_pinned
def test_the_first_form_is_specified_and_read(
    ours: base.ResourceObject, pinned: dict[str, Any]
) -> None:
    assert ours.obj_to_primitive("1.0") == ours.obj_to_primitive() == pinned
    again = base.ResourceObject.obj_from_primitive(copy.deepcopy(pinned))
    assert again == ours
    assert again.obj_to_primitive() == pinned


# --- what was written before ----------------------------------------------------------------------

JOB = ro.Request("VCPU=2,NUMA_TOPOLOGY=1:shared=2")
#: The newest version that libraries before 0.1.0 wrote.
BEFORE: list[tuple[base.ResourceObject, str]] = [
    (ALLOCATION, "1.1"),
    (HELD, "1.2"),
    (Consumer(name="job-1", uuid=CONSUMER, generation=7, claim=HELD), "1.1"),
    (host(), "1.1"),
    (ro.Candidate(host="host0", allocations=(ALLOCATION,)), "1.3"),
    (JOB, "1.1"),
    (ro.ComputeNode(vcpus=8), "1.2"),
]


@pytest.mark.parametrize(("created", "version"), BEFORE, ids=[type(m).__name__ for m, _ in BEFORE])
def test_a_version_from_before_is_refused_by_name(
    created: base.ResourceObject, version: str
) -> None:
    primitive = created.obj_to_primitive() | {"versioned_object.version": version}
    with pytest.raises(exceptions.UnsupportedVersion, match=f"{version} of {created.obj_name()} "):
        base.ResourceObject.obj_from_primitive(primitive)


@pytest.mark.parametrize(
    ("created", "since"),
    [
        (ro.numa(shared=2), "beside"),
        (ro.NUMATopologyInventory([ro.HostCell(0, shared=range(4), memory_mb=1024)]), "taken"),
        (ro.PCIInventory([]), "taken"),
    ],
    ids=lambda case: getattr(case, "obj_name", lambda: case)(),
)
def test_a_first_version_from_before_is_refused_by_name(
    created: base.ResourceObject, since: str
) -> None:
    """Their 1.0 is not ours: it lacks a field."""
    primitive = created.obj_to_primitive()
    del primitive["versioned_object.data"][since]
    with raises_code("InvalidPrimitive", match=f"{created.obj_name()} 1.0.*{since}"):
        base.ResourceObject.obj_from_primitive(primitive)


def test_a_field_that_its_version_never_had_is_refused_by_name() -> None:
    primitive = ALLOCATION.obj_to_primitive()
    primitive["versioned_object.data"]["colour"] = "red"
    with raises_code("InvalidPrimitive", match=r"Allocation 1\.0.*colour"):
        base.ResourceObject.obj_from_primitive(primitive)


def test_a_consumer_shows_what_its_claim_says() -> None:
    claim = HELD.replace(expires_at=MADE, state="confirmed")
    consumer = Consumer(name="job-1", uuid=CONSUMER, generation=1, claim=claim)
    assert (consumer.state, consumer.allocations) == ("confirmed", (ALLOCATION,))
    assert (consumer.created_at, consumer.expires_at) == (MADE, MADE)
    assert consumer.request is None
    assert str(consumer) == "job-1 holds VCPU=2 of host0"


@pytest.mark.parametrize("bad", ["", " r", "a\0b", 7, None, "x" * 256])
def test_the_name_of_an_aggregate_is_printable_text(bad: Any) -> None:
    with pytest.raises(exceptions.InvalidInput):
        Aggregate(name=bad)
    with pytest.raises(exceptions.InvalidInput):
        ro.Provider("host0", aggregates=[bad])
