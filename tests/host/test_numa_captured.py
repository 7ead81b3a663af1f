"""The cells of captured machines, and of this one: discovered, stored, read back and claimed.

One of the machines was captured by this project's own command and is in every checkout. The others
are skipped where their data is absent; ``test_numa.py`` and ``test_tree_numa.py`` test the same on
generated machines.
"""

from __future__ import annotations

import pathlib

import pytest

import resource_objects as ro
from resource_objects.host.discovery import discover
from resource_objects.host.machine import Machine
from resource_objects.host.tree import numa_inventory, provider_tree
from resource_objects.providers.composite import LocatedView, LocatedViews
from resource_objects.resources.context import Context
from resource_objects.resources.numa import NUMATopologyInventory, numa
from tests.host.trees import configured

#: Captured by this project's own command, and in every checkout.
OWN = "captured_vm"
RESTRICTED = "32amd64-4s2n4c-cgroup2"
#: ``{machine: (ids of its cells, threads per core, sockets that are known)}``
MACHINES = {
    OWN: ((0,), 1, 1),
    "128ia64-17n4s2c": (tuple(range(17)), 1, 0),
    "16amd64-8n2c": (tuple(range(8)), 1, 8),
    "16em64t-4s2c2t": ((0,), 2, 0),
    "16em64t-4s2c2t-offlines": ((0,), 2, 0),
    "20em64t-hybrid-1p6c2t+2ca4co1t": ((0,), 2, 1),
    "256ppc-8n8s4t": ((0, 1, 4, 5, 8, 9, 12, 13), 4, 0),
    "2arm-2c": ((0,), 1, 1),
    "2i386-2c-nohugepage": ((0,), 1, 1),
    RESTRICTED: (tuple(range(6)), 1, 3),
    "32intel64-2p8co2t+8ve": ((0, 1), 2, 2),
    "48amd64-4pa2n6c-sparse": ((0, 1, 2, 33, 34, 45, 72, 73), 1, 4),
    "fakeheteromemtiers": ((0, 1, 2, 4, 6, 8, 9), 1, 1),
    "linux-amd64-8581cf3a529e5d8b97ea876eade2f60d": ((0, 1), 2, 2),
    "linux-amd64-accel-nvidia": ((0,), 1, 1),
    "linux-amd64-offlineCPUs": ((0,), 1, 0),
}
_DATA = pathlib.Path(__file__).resolve().parents[2].parent / "shared" / "data"


@pytest.fixture
def machine(request: pytest.FixtureRequest, captured_machine) -> Machine:
    return captured_machine(request.param, within_cgroup=request.param == RESTRICTED)


every_machine = pytest.mark.parametrize(
    ("machine", "name"), [(each, each) for each in MACHINES], indirect=["machine"]
)


def stored_inventory(machine: Machine, **settings) -> LocatedView:
    """The inventory of the cells of a machine, read from a ledger."""
    with ro.connect("memory://") as ledger:
        tree = configured(provider_tree, machine, name="captured", numa=True, **settings)
        ledger.sync(tree)
        assert str(ledger.sync(tree)) == "nothing changed"
        columns = ledger.backend.read("captured")
    return LocatedViews(columns).of_tree(columns.providers.root_id[0], "NUMA_TOPOLOGY")


def without_room(view: LocatedView) -> NUMATopologyInventory:
    result = view.inventory
    return NUMATopologyInventory(
        result.cells, usage=result.usage, resource_class=result.resource_class
    )


def test_every_machine_of_the_shared_data_is_tested():
    if not _DATA.exists():
        pytest.skip(f"captured machines are not in this checkout: no {_DATA}")
    existing = {path.name.partition(".tar")[0] for path in _DATA.glob("*/*.tar.*")}
    assert existing == MACHINES.keys() - {OWN}


@every_machine
def test_the_cells_are_those_of_the_kernel(machine, name):
    inventory = numa_inventory(machine)
    ids, threads, sockets = MACHINES[name]
    assert tuple(cell.id for cell in inventory.cells) == ids
    assert max(cell.threads_per_core for cell in inventory.cells) == threads
    assert len({cell.socket for cell in inventory.cells} - {None}) == sockets
    assert sorted(cpu for cell in inventory.cells for cpu in cell.shared) == list(machine.cpus)
    assert [cell.memory_mb for cell in inventory.cells] == [c.memory_mb for c in machine.cells]


@every_machine
@pytest.mark.parametrize("dedicated", [False, True], ids=["shared", "dedicated"])
def test_what_a_ledger_keeps_of_it_is_what_was_found(machine, name, dedicated):
    settings = {"dedicated": machine.cpus[1:]} if dedicated else {}
    assert without_room(stored_inventory(machine, **settings)) == configured(
        numa_inventory, machine, **settings
    )


@every_machine
def test_every_cell_can_be_filled(machine, name):
    view = stored_inventory(machine, dedicated=machine.cpus)
    counts = {cell.id: len(cell.dedicated) for cell in view.inventory.cells}
    for cell, count in counts.items():
        request = numa(dedicated=count, memory_mb=1) if count else numa(memory_mb=1)
        taken = view.inventory.fit(request, context=Context(allowed=[cell]))
        assert view.inventory.consume(taken).memory_nodes == str(cell)
    assert view.inventory.free_dedicated == 0
    assert sum(counts.values()) == len(machine.cpus)


def captured_inventory(captured_machine, name: str, **settings) -> NUMATopologyInventory:
    return configured(numa_inventory, captured_machine(name), **settings)


def test_memory_behind_other_memory_is_in_the_socket_of_the_cpus_next_to_it(captured_machine):
    inventory = captured_inventory(captured_machine, "fakeheteromemtiers")
    assert [cell.id for cell in inventory.cells if not cell.cpus] == [4, 6, 8, 9]
    assert {cell.socket for cell in inventory.cells} == {0}


def test_a_core_of_a_hybrid_machine_has_one_thread_or_two(captured_machine):
    (cell,) = captured_inventory(captured_machine, "20em64t-hybrid-1p6c2t+2ca4co1t").cells
    assert [len(core) for core in cell.siblings] == [2] * 6  # the others are cores of one thread
    assert len(cell.cpus) == 20


def test_the_siblings_of_an_offline_cpu_are_cores_by_themselves(captured_machine):
    (cell,) = captured_inventory(captured_machine, "16em64t-4s2c2t-offlines").cells
    assert [core for core in cell.siblings if {6, 10} & set(core)] == []
    assert {6, 10} < set(cell.cpus)
    assert (1, 9) in cell.siblings


def test_huge_pages_are_those_of_their_cell(captured_machine):
    inventory = captured_inventory(
        captured_machine, "32intel64-2p8co2t+8ve", reserved_pages={0: {"2MB": 48}}
    )
    assert [[(p.total, p.reserved) for p in cell.huge_pages[:1]] for cell in inventory.cells] == [
        [(2048, 48)],
        [(2048, 0)],
    ]


def test_kernels_that_count_less_for_the_machine_than_for_its_cells_bind_everyone(captured_machine):
    machine = captured_machine("256ppc-8n8s4t")
    view = stored_inventory(machine)
    in_cells = sum(cell.ordinary_mb for cell in view.inventory.cells)
    assert (machine.memory_mb, in_cells) == (502263, 504320)
    assert view.inventory.free_memory_mb == 502263


@pytest.mark.skipif(
    not pathlib.Path("/sys/devices/system/cpu").is_dir(),
    reason="this machine does not show its CPUs in /sys",
)
def test_the_cells_of_this_machine_are_stored_as_they_are_found():
    machine = discover()
    assert without_room(stored_inventory(machine)) == numa_inventory(machine)
