"""Facts of a machine: contradictions are refused."""

from __future__ import annotations

import dataclasses

import pytest

from resource_objects.exceptions import InvalidInput
from resource_objects.host.machine import (
    Core,
    DeviceKind,
    Disk,
    Machine,
    NUMACell,
    Pages,
    PCIDevice,
)

# --- facts that cannot be -----------------------------------------------------------------------

TWO = (Core(0, 0, (0,)), Core(0, 1, (1,)))


@pytest.mark.parametrize(
    "make",
    [
        lambda: Core(0, 0, ()),
        lambda: Core(0, 0, (1, 0)),
        lambda: Core(0, 0, (-1,)),
        lambda: Pages(0, 1),
        lambda: Pages(4096, -1),
        lambda: Pages(4096, 1, 2),
        lambda: NUMACell(-1, (), 0),
        lambda: NUMACell(0, (), -1),
        lambda: NUMACell(0, (), 4095, pages=(Pages(4096, 1),)),
        lambda: NUMACell(0, (), 1, pages=(Pages(8192, 0), Pages(4096, 0))),
        lambda: Disk("/", 1, 2),
        lambda: Disk("/", -1, -1),
        lambda: PCIDevice("a", "8086", "1", "02", kind=DeviceKind.VF),
        lambda: PCIDevice("a", "8086", "1", "02", kind=DeviceKind.VF, parent_address="a"),
        lambda: PCIDevice("a", "8086", "1", "02", parent_address="b"),
        lambda: Machine(cpus=(), cores=(), memory_bytes=0),
        lambda: Machine(cpus=(0, 1), cores=TWO[:1], memory_bytes=0),
        lambda: Machine(cpus=(0,), cores=TWO, memory_bytes=0),
        lambda: Machine(cpus=(0, 1), cores=(*TWO, TWO[0]), memory_bytes=0),
        lambda: Machine(cpus=(0, 1), cores=TWO, memory_bytes=-1),
        lambda: Machine(cpus=(0, 1), cores=TWO, memory_bytes=0, offline_cpus=(1,)),
        lambda: machine_of(NUMACell(0, (0,), 1), NUMACell(0, (1,), 1)),
        lambda: machine_of(NUMACell(0, (0,), 1), NUMACell(1, (0,), 1)),
        lambda: machine_of(NUMACell(0, (2,), 1)),
        lambda: machine_of(NUMACell(0, (0,), 1, distances=(10, 20))),
        lambda: machine_of().cell(0),
        lambda: machine_of().restrict(cpus=[]),
        lambda: dataclasses.replace(machine_of(), devices=(PCIDevice("a", "1", "1", "1"),) * 2),
    ],
)
def test_facts_that_contradict_each_other_are_refused(make):
    with pytest.raises(InvalidInput):
        make()


def machine_of(*cells: NUMACell) -> Machine:
    return Machine(cpus=(0, 1), cores=TWO, memory_bytes=2, cells=cells)


def test_facts_are_values():
    item, other = machine_of(NUMACell(0, (0, 1), 2)), machine_of(NUMACell(0, (0, 1), 2))
    assert item == other and hash(item) == hash(other)
    with pytest.raises(dataclasses.FrozenInstanceError):
        item.cpus = (0,)
