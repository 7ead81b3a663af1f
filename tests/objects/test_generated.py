"""Generated constructors, keys, wire forms and copies, compared with oslo.versionedobjects.

``register()`` derives these methods from the fields. The reference is the generic way: a field is
stored as its ``coerce`` returns it, and an object is sent by ``VersionedObject.obj_to_primitive``.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

import resource_objects as ro
from resource_objects import base, providers
from resource_objects._dataclass import fast_init
from resource_objects._ovo import base as ovo
from resource_objects.providers.disabled import Disabled
from resource_objects.resources import IntegerAmount
from resource_objects.resources.numa import NUMATopologyLimit
from tests.objects.versions import Disk, Label, Shelf, Tape

UUID = "6b7c0a9e-0d0f-4f83-9c0b-0a4e8b7c1d2e"


def samples() -> list[base.ResourceObject]:
    """Return objects that hold objects of all registered classes, with few default values."""
    pages = [ro.PagePool(size_kib=2048, total=8)]
    cells = [
        ro.HostCell(
            number,
            shared=range(4 * number, 4 * number + 2),
            dedicated=range(4 * number + 2, 4 * number + 4),
            memory_mb=64,
            pages=pages,
            distances={0: 10, 1: 20},
            physnets=["physnet0"],
        )
        for number in (0, 1)
    ]
    devices = [
        ro.Device("0000:81:00.0", "10de", "2330", numa_node=0, resource_class="PGPU"),
        ro.Device("0000:82:00.0", "10de", "2330", numa_node=1, tags={"rack": "7"}),
    ]
    inventories = ro.Inventories(
        VCPU=8,
        MEMORY_MB=128,
        NUMA_TOPOLOGY=ro.NUMATopologyInventory(cells),
        DEVICES=ro.PCIInventory(devices),
    )
    topology = ro.numa(cells=2, dedicated=2, memory_mb=8)
    assigned = inventories.consume(
        {"VCPU": 2, "NUMA_TOPOLOGY": topology, "DEVICES": ro.devices("PGPU")}
    )
    host = ro.Provider(
        "host0",
        inventories,
        uuid=UUID,
        generation=3,
        traits=["CUSTOM_SSD"],
        shares=[ro.Share(resource_class="PCPU", of="host0", of_class="VCPU", factor=2)],
        disabled=Disabled(reason="fan", since="2026-01-02T03:04:05+01:00"),
    )
    host.add("host0/gpu0", "PGPU=1:allocation_ratio=1.5")
    allocation = ro.Allocation(
        provider="host0",
        provider_uuid=UUID,
        resource_class="VCPU",
        amount=IntegerAmount(2),
        units=["cpu0"],
    )
    request = ro.Request(
        {"VCPU": 2, "NUMA_TOPOLOGY": topology},
        groups=[ro.RequestGroup("PGPU=1", suffix="_A", required=["CUSTOM_H100"])],
    )
    claim = ro.Claim(
        id=UUID,
        consumer="job-1",
        consumer_uuid=UUID,
        allocations=[allocation],
        created_at="2026-01-02T03:04:05+01:00",
        request=request,
    )
    created: list[base.ResourceObject] = [
        host,
        request,
        assigned,
        ro.Candidate(host="host0", allocations=[allocation], located=assigned),
        providers.Consumer(name="job-1", uuid=UUID, generation=7, claim=claim),
        providers.ResourceClass(name="CUSTOM_A"),
        providers.Trait(name="CUSTOM_A"),
        providers.Aggregate(name="r7", level="rack"),
        ro.Limits(VCPU=3, NUMA_TOPOLOGY=NUMATopologyLimit(vcpus={0: 16})),
        *map(ro.resource, ("VCPU", "PCI_DEVICE", "NUMA_TOPOLOGY", "DEVICES")),
        ro.ComputeNode(vcpus=8, memory_mb=4096, host="node-1"),
        Shelf(main=Disk(size_mb=1), row=[Tape(length=2)], stock_dict={"a": [Disk(size_mb=5)]}),
        Label(text="a", inner=[Label(text="b")]),
    ]
    return created


def objects_in(value: Any) -> Iterator[base.ResourceObject]:
    """Yield an object and all objects inside its fields."""
    if isinstance(value, base.ResourceObject):
        yield value
        value = list(value._set_fields().values())
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from objects_in(item)


SAMPLES = list(objects_in(samples()))

each_sample = pytest.mark.parametrize("sample", SAMPLES, ids=lambda one: type(one).__name__)


def test_every_class_has_a_sample() -> None:
    no_sample = {"Amount", "Inventory", "Resource", "DevicePool"}  # or abstract
    missing = set(base.object_classes().values()) - set(map(type, SAMPLES))
    assert {cls.__name__ for cls in missing} <= no_sample


@each_sample
def test_a_constructor_stores_what_each_field_coerces(sample: base.ResourceObject) -> None:
    values = sample._set_fields()
    created = type(sample).__new__(type(sample))
    created._init_fields(**values)
    expected = {name: sample.fields[name].coerce(sample, name, values[name]) for name in values}
    assert {name: getattr(created, f"_obj_{name}") for name in values} == expected
    assert created == sample or type(sample).__eq__ is object.__eq__


@each_sample
def test_a_default_is_the_coerced_default_of_the_field(sample: base.ResourceObject) -> None:
    cls = type(sample)
    optional = {
        name: field.default
        for name, field in cls.fields.items()
        if isinstance(field.default, str | int | tuple | frozenset | None)
    }
    created = cls.__new__(cls)
    try:
        created._init_fields(**{n: v for n, v in sample._set_fields().items() if n not in optional})
    except ValueError:
        return  # the defaults contradict the other fields
    derived = {"resource_class", "usage"} if isinstance(sample, ro.Inventory) else set()
    for name in optional.keys() - derived:
        value = copy.deepcopy(optional[name])
        assert getattr(created, f"_obj_{name}") == cls.fields[name].coerce(created, name, value)


@each_sample
def test_the_wire_form_is_that_of_the_generic_method(sample: base.ResourceObject) -> None:
    assert sample.obj_to_primitive() == ovo.VersionedObject.obj_to_primitive(sample)
    again = base.ResourceObject.obj_from_primitive(sample.obj_to_primitive())
    assert again._set_fields() == sample._set_fields() or isinstance(sample, Shelf | Label)
    assert again.obj_to_primitive() == sample.obj_to_primitive()


@each_sample
def test_equality_compares_the_fields(sample: base.ResourceObject) -> None:
    other = copy.deepcopy(sample) if not sample.FROZEN else sample.replace()
    if not isinstance(sample, Shelf | Label):  # entities that define no equality
        assert sample == other
        assert (sample.FROZEN and hash(sample) == hash(other)) or not sample.FROZEN
    if isinstance(sample, ro.ComputeNode | ro.Resource | ro.Inventories):
        return  # they define equality by other values
    for name in sample.fields.keys() - sample.NOT_COMPARED:
        changed = copy.copy(other) if not sample.FROZEN else sample.replace()
        object.__setattr__(changed, f"_obj_{name}", object())
        assert sample != changed


@each_sample
def test_a_copy_has_equal_fields_that_do_not_change_with_it(sample: base.ResourceObject) -> None:
    twins = [copy.deepcopy(sample), pickle.loads(pickle.dumps(sample))]
    for twin in twins if sample.PARTIAL else [*twins, sample._evolve()]:
        assert type(twin) is type(sample)
        assert twin.obj_to_primitive() == sample.obj_to_primitive()
    if not sample.FROZEN:
        twin = copy.deepcopy(sample)
        for name, value in twin._set_fields().items():
            if isinstance(value, base.ResourceObject) and not value.FROZEN:
                assert value is not getattr(sample, name)


# --- constructors of dataclasses: fast_init ---


@dataclasses.dataclass(frozen=True, slots=True)
class Plain:
    """A value as ``dataclasses`` makes it."""

    name: str
    amount: int = 1
    doubled: int = dataclasses.field(init=False, compare=False)

    def __post_init__(self) -> None:
        if self.amount < 0:
            raise ValueError(self.amount)
        object.__setattr__(self, "doubled", 2 * self.amount)


@fast_init
@dataclasses.dataclass(frozen=True, slots=True)
class Direct(Plain):
    """The same, made by its slots."""


def test_a_value_that_sets_its_slots_is_made_as_it_was() -> None:
    assert inspect.signature(Direct) == inspect.signature(Plain)
    assert Direct.__init__.__doc__ == Plain.__init__.__doc__
    created = Direct("a", amount=2)
    assert (created.name, created.amount, created.doubled) == ("a", 2, 4)
    assert created == Direct("a", 2)
    assert created != Direct("a")
    assert hash(created) == hash(Direct("a", 2))
    assert dataclasses.replace(created, amount=3).doubled == 6
    assert pickle.loads(pickle.dumps(created)) == created  # our own
    with pytest.raises(dataclasses.FrozenInstanceError):
        created.amount = 3  # type: ignore[misc]
    with pytest.raises(TypeError, match=r"Direct\.__init__\(\) missing 1 required .*'name'"):
        Direct()  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="-1"):
        Direct("a", -1)
