"""What a ledger keeps, on the wire: the forms of 1.0 are read for ever, and said where they can be.

The forms below are as the release with version 1.0 said them.
"""

from __future__ import annotations

import copy
import datetime
import json
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
from tests.objects.versions import data_of, version_of
from tests.resources.numa.hosts import located

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
    made = ro.Provider("host0", "VCPU=8", uuid=HOST, generation=3, traits=["CUSTOM_SSD"])
    made.add("host0/gpu0", "PGPU=1", uuid=GPU)
    made.obj_reset_changes(recursive=True)
    return made


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
)
LOCATED = ro.Candidate(
    host="host0",
    allocations=(ALLOCATION,),
    generations=((HOST, 3),),
    located=located("NUMA_TOPOLOGY=1:shared=2:on=0;shared>0-1"),
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
)

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
                )
            ],
        ),
    ),
    (ALLOCATION, ALLOCATION_WIRE),
    (HELD, CLAIM_WIRE),
    (
        ro.Candidate(host="host0", allocations=(ALLOCATION,)),
        wire("Candidate", host="host0", allocations=[ALLOCATION_WIRE]),
    ),
]

#: Present versions that are not 1.1.
PRESENT = {"Candidate": "1.3", "Claim": "1.2"}

each_pinned = pytest.mark.parametrize(
    ("ours", "pinned"), PINNED, ids=[type(ours).__name__ for ours, _ in PINNED]
)


@each_pinned
def test_the_first_form_is_read_as_the_present_object(
    ours: base.ResourceObject, pinned: dict[str, Any]
) -> None:
    again = base.ResourceObject.obj_from_primitive(copy.deepcopy(pinned))
    assert again == ours
    assert version_of(again.obj_to_primitive()) == PRESENT.get(type(ours).__name__, "1.1")


@each_pinned
def test_the_first_form_is_still_said(ours: base.ResourceObject, pinned: dict[str, Any]) -> None:
    assert ours.obj_to_primitive("1.0") == pinned


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (ro.Provider("host0", "VCPU=8", aggregates=["r1"]), "it cannot say aggregates"),
        (ro.Provider("host0", children=[ro.Provider("a", aggregates=["r"])]), "aggregates"),
        (
            ro.Provider(
                "host0",
                "VCPU=8",
                children=[
                    ro.Provider(
                        "cell",
                        "VCPU=4",
                        shares=[Share(resource_class="VCPU", of="host0", of_class="VCPU")],
                    )
                ],
            ),
            "it cannot say shares",
        ),
        (ro.Provider("nfs", "DISK_GB=8", reported_at=MADE), "it cannot say reported_at"),
        (ALLOCATION.replace(units=("cpu0", "cpu1")), "it has no units"),
        (ro.Candidate(host="h", allocations=(ALLOCATION.replace(units=("a",)),)), "no units"),
        (LOCATED, "it cannot say located"),
        (HELD.replace(allocations=(ALLOCATION.replace(units=("a",)),)), "it has no units"),
        (HELD.replace(state="confirmed"), "it knows no confirmed claim"),
        (HELD.replace(project="p"), "it cannot say project"),
        (HELD.replace(user="u"), "it cannot say user"),
        (HELD.replace(consumer_type="INSTANCE"), "it cannot say consumer_type"),
        (HELD.replace(expires_at=MADE), "it cannot say expires_at"),
    ],
)
def test_what_the_first_form_cannot_say_is_refused(made: base.ResourceObject, reason: str) -> None:
    before = made.obj_to_primitive()
    with pytest.raises(exceptions.CannotDowngrade, match=reason):
        made.obj_to_primitive("1.0")
    assert made.obj_to_primitive() == before
    again = base.ResourceObject.obj_from_primitive(json.loads(json.dumps(before)))
    assert again == made


def test_what_is_nobodys_loss_goes_silently() -> None:
    """Of nothing said, nothing is lost; a consumer's version is the ledger's, not the claim's."""
    read = ro.Provider("host0", "VCPU=8", aggregates=[])
    assert "aggregates" not in data_of(read.obj_to_primitive("1.0"))
    assert "generation" not in data_of(HELD.replace(generation=7).obj_to_primitive("1.0"))


def test_the_second_form_of_a_candidate_is_read_and_said() -> None:
    allocation = wire("Allocation", **{**data_of(ALLOCATION_WIRE), "units": []})
    pinned = wire(
        "Candidate",
        host="host0",
        allocations=[{**allocation, "versioned_object.version": "1.1"}],
        generations=[[HOST, 3]],
    )
    pinned["versioned_object.version"] = "1.1"
    ours = LOCATED.replace(located=ro.Amounts())
    assert base.ResourceObject.obj_from_primitive(copy.deepcopy(pinned)) == ours
    assert ours.obj_to_primitive("1.1") == pinned
    with pytest.raises(exceptions.CannotDowngrade, match="it cannot say located"):
        LOCATED.obj_to_primitive("1.1")


@pytest.mark.parametrize(
    ("ours", "pinned"),
    [
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
                claim=HELD.obj_to_primitive("1.1"),
            ),
        ),
        (ResourceClass(name="CUSTOM_A"), wire("ResourceClass", name="CUSTOM_A")),
        (Trait(name="CUSTOM_A"), wire("Trait", name="CUSTOM_A")),
        (Aggregate(name="r7", level="rack"), wire("Aggregate", name="r7", level="rack")),
    ],
    ids=lambda case: type(case).__name__,
)
def test_what_is_new_has_its_first_form(ours: base.ResourceObject, pinned: dict[str, Any]) -> None:
    assert ours.obj_to_primitive("1.0") == pinned
    assert ours.obj_to_primitive("1.0") == pinned
    assert base.ResourceObject.obj_from_primitive(copy.deepcopy(pinned)) == ours


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
