"""Our reading and writing of Nova's topologies beside the real Nova, by the thousand.

Nova writes and we read, in every version its own ``obj_make_compatible`` makes; we write and Nova
reads; and what each then books on a host is the same.
"""

from __future__ import annotations

import json
import os
import random
import warnings
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest

from resource_objects.exceptions import CannotDowngrade, CapacityException, SearchLimitReached
from resource_objects.interop.nova import (
    dump_host_numa_topology,
    dump_instance_numa_topology,
    load_host_numa_topology,
    load_instance_numa_topology,
)
from resource_objects.resources.numa import CellUsage, NUMATopologyAmount, NUMATopologyInventory
from tests.interop.nova import documents
from tests.support.numa_strategies import question_of

os.environ.setdefault("OS_NOVA_DISABLE_EVENTLET_PATCHING", "true")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # other libraries' own, at import
    import nova.conf
    from nova import exception, objects
    from nova.objects import fields
    from nova.objects import instance_numa as nova_guest
    from nova.virt import hardware

    objects.register_all()

pytestmark = pytest.mark.filterwarnings("ignore")

UUID = "7f5c3b7e-3a4b-4c59-9d0e-0d6f1a2b3c4d"
HOST_VERSIONS = [f"1.{minor}" for minor in range(6)]
GUEST_VERSIONS = [f"1.{minor}" for minor in range(7)]
SEEDS = range(1500)
PAGE_SIZES = {"": None, "small": -1, "large": -2, "any": -3}


@pytest.fixture(scope="module", autouse=True)
def ready() -> None:
    """Let nova read no configuration file."""
    nova.conf.CONF([], project="nova", default_config_files=[])


# --- one inventory, one amount: said in Nova's objects --------------------------------------------


def hosts() -> Iterator[NUMATopologyInventory]:
    """Yield inventories that Nova has words for."""
    for seed in SEEDS:
        given = question_of(seed).inventory
        yield NUMATopologyInventory(
            [documents.sayable(cell) for cell in given.cells],
            usage=[used.replace(loose=0) for used in given.usage],
        )


def nova_host(inventory: NUMATopologyInventory) -> Any:
    """Return an inventory as Nova's objects, made here and not by what is tested."""
    cells = []
    for cell, used in zip(inventory.cells, inventory.usage, strict=True):
        huge = dict(used.pages)
        base = cell.pages[0].size_kib if cell.pages else None
        cells.append(
            objects.NUMACell(
                id=cell.id,
                cpuset=set(cell.shared),
                pcpuset=set(cell.dedicated),
                memory=cell.memory_mb,
                cpu_usage=used.shared,
                memory_usage=used.memory_mb + sum(s * n for s, n in huge.items()) // 1024,
                pinned_cpus=set(used.pinned),
                siblings=[set(core) for core in cell.siblings],
                mempages=[
                    objects.NUMAPagesTopology(
                        size_kb=pool.size_kib,
                        total=pool.total,
                        reserved=pool.reserved,
                        used=used.memory_mb * 1024 // base
                        if pool.size_kib == base
                        else huge.get(pool.size_kib, 0),
                    )
                    for pool in cell.pages
                ],
                network_metadata=objects.NetworkMetadata(
                    physnets=set(cell.physnets), tunneled=cell.tunneled
                ),
                socket=cell.socket,
            )
        )
    return objects.NUMATopology(cells=cells)


def nova_guest_of(amount: NUMATopologyAmount) -> Any:
    """Return an amount that is not assigned as Nova's objects."""
    size = PAGE_SIZES.get(amount.page_size, amount.page_size)
    cells = [
        objects.InstanceNUMACell(
            id=number,
            cpuset=set(cell.shared),
            pcpuset=set(cell.dedicated),
            memory=cell.memory_mb,
            pagesize=size if size is None else int(size),
            cpu_policy=amount.cpu_policy,
            cpu_thread_policy=amount.thread_policy,
        )
        for number, cell in enumerate(amount.cells)
    ]
    return objects.InstanceNUMATopology(
        cells=cells, emulator_threads_policy=amount.emulator_policy, instance_uuid=UUID
    )


def amounts() -> Iterator[NUMATopologyAmount]:
    """Yield amounts that are not assigned and that Nova has words for."""
    for seed in SEEDS:
        given = question_of(seed).amount
        yield given.replace(physnets=frozenset(), tunneled=False, one_socket=False)


def said(thing: Any) -> Any:
    """Return what one of Nova's objects says, by field: some of them do not compare themselves."""
    if isinstance(thing, list):
        return [said(item) for item in thing]
    if not hasattr(thing, "obj_fields"):
        return thing
    return {name: said(getattr(thing, name)) for name in thing.fields if name in thing}


def host_manifest(version: str) -> dict[str, str]:
    """Return what a receiver of cells of a version reads."""
    minor = int(version[2:])
    return {
        "NUMATopology": f"1.{min(minor, 2)}",
        "NUMACell": version,
        "NUMAPagesTopology": f"1.{int(minor > 2)}",
        "NetworkMetadata": "1.0",
    }


def guest_manifest(version: str) -> dict[str, str]:
    """Return what a receiver of guest cells of a version reads."""
    minor = int(version[2:])
    topology = min(minor, 2) if minor < 4 else 3
    return {"InstanceNUMATopology": f"1.{topology}", "InstanceNUMACell": version}


def nova_text(topology: Any, manifest: dict[str, str]) -> str:
    """Return what Nova sends to such a receiver."""
    return json.dumps(
        topology.obj_to_primitive(manifest[topology.obj_name()], version_manifest=manifest)
    )


def nova_reads_guest(text: str) -> Any:
    """Return Nova's reading of ``instance_extra.numa_topology``; what it stores, goes nowhere."""
    with mock.patch.object(nova_guest.db, "instance_extra_update_by_uuid"):
        return objects.InstanceNUMATopology.obj_from_db_obj(None, UUID, text)


# --- hosts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", HOST_VERSIONS)
def test_what_nova_writes_of_a_host_is_read(version: str):
    minor, count = int(version[2:]), 0
    for inventory in hosts():
        if minor < 4:  # nova leaves pcpuset out; what it is then is pinned CPUs' business
            if any(set(u.pinned) - set(c.shared) for c, u in both(inventory)):
                continue
            inventory = NUMATopologyInventory(
                [c.replace(dedicated=c.shared) for c in inventory.cells], usage=inventory.usage
            )
        if minor < 3 and any(pool.reserved for cell in inventory.cells for pool in cell.pages):
            continue
        expected = NUMATopologyInventory(
            [
                cell.replace(
                    socket=cell.socket if minor > 4 else None,
                    physnets=cell.physnets if minor > 2 else (),
                    tunneled=cell.tunneled and minor > 2,
                )
                for cell in inventory.cells
            ],
            usage=inventory.usage,
        )
        text = nova_text(nova_host(inventory), host_manifest(version))
        assert f'"nova_object.version": "{version}"' in text
        # this nova never counts pinned CPUs as used, whatever the version
        assert load_host_numa_topology(text, counts_pinned=False) == expected
        count += 1
    assert count > 200


def both(inventory: NUMATopologyInventory) -> Iterator[tuple[Any, CellUsage]]:
    """Return cells with what is used of them."""
    return zip(inventory.cells, inventory.usage, strict=True)


def test_what_nova_keeps_is_read_and_written_back_the_same():
    for inventory in hosts():
        kept = nova_host(inventory)
        text = dump_host_numa_topology(load_host_numa_topology(kept._to_json()))
        assert said(objects.NUMATopology.obj_from_db_obj(text)) == said(kept)


def test_nova_reads_what_is_written_of_a_host():
    for inventory in hosts():
        found = objects.NUMATopology.obj_from_db_obj(dump_host_numa_topology(inventory))
        for cell, expected in zip(found.cells, nova_host(inventory).cells, strict=True):
            assert cell.VERSION == objects.NUMACell.VERSION
            assert said(cell) == said(expected)


def test_nova_and_we_read_plain_dicts_from_before_liberty_alike():
    chance = random.Random(4)
    for _ in SEEDS:
        cells = [
            {
                "id": number,
                "cpus": ",".join(str(8 * number + cpu) for cpu in range(chance.randint(0, 8))),
                "mem": {"total": chance.randint(512, 4096), "used": chance.randint(0, 512)},
                "cpu_usage": chance.randint(0, 16),
            }
            for number in range(chance.randint(1, 4))
        ]
        text = json.dumps({"cells": cells})
        converted = objects.NUMATopology.from_legacy_object(text)
        assert load_host_numa_topology(text) == load_host_numa_topology(converted)


# --- guests, not assigned -------------------------------------------------------------------------


@pytest.mark.parametrize("version", GUEST_VERSIONS)
def test_what_nova_writes_of_a_guest_is_read(version: str):
    minor, count = int(version[2:]), 0
    for amount in amounts():
        if minor < 4:
            amount = amount.replace(emulator_policy=None)
        if minor < 3 and amount.cpu_policy != "shared":
            continue  # this nova says by the policy alone that vCPUs are dedicated
        try:
            text = nova_text(nova_guest_of(amount), guest_manifest(version))
        except exception.ObjectActionError:
            assert amount.cpu_policy == "mixed"
            continue
        assert load_instance_numa_topology(text, assigned=False) == amount
        count += 1
    assert count > 300


def test_nova_reads_what_is_written_of_a_guest():
    count = 0
    for amount in amounts():
        try:
            text = dump_instance_numa_topology(amount, instance_uuid=UUID)
        except CannotDowngrade:
            continue  # such as networks, which Nova keeps elsewhere
        found, expected = nova_reads_guest(text), nova_guest_of(amount)
        assert found.emulator_threads_policy == expected.emulator_threads_policy
        for cell, wanted in zip(found.cells, expected.cells, strict=True):
            assert (cell.id, cell.memory) == (wanted.id, wanted.memory)
            assert (cell.cpu_policy, cell.cpu_thread_policy) == (
                wanted.cpu_policy,
                wanted.cpu_thread_policy,
            )
            assert (cell.cpuset, cell.pcpuset) == (wanted.cpuset, wanted.pcpuset)
            assert cell.pagesize == wanted.pagesize
        count += 1
    assert count > 300


def test_what_nova_keeps_of_a_guest_is_written_back_the_same():
    for amount in amounts():
        kept = nova_guest_of(amount)
        for cell in kept.cells:  # nova's own defaults, and ours
            cell.cpu_topology = None
        text = dump_instance_numa_topology(
            load_instance_numa_topology(kept._to_json(), assigned=False)
        )
        found = nova_reads_guest(text)
        for cell, expected in zip(found.cells, kept.cells, strict=True):
            assert {n: getattr(cell, n) for n in cell.fields} == {
                n: getattr(expected, n) for n in cell.fields
            }


def test_nova_and_we_read_plain_guests_from_before_liberty_alike():
    chance = random.Random(4)
    for _ in SEEDS:
        count, cells = chance.randint(1, 3), []
        for number in range(count):
            vcpus = ",".join(str(2 * number + cpu) for cpu in range(2))
            size = chance.choice([{}, {"pagesize": -1}, {"pagesize": None}])
            cells.append({"id": number, "cpus": vcpus, "mem": {"total": 64}, **size})
        if len({cell.get("pagesize") for cell in cells}) > 1:
            continue
        text = json.dumps({"cells": cells})
        converted = nova_reads_guest(text)._to_json()
        assert load_instance_numa_topology(text, assigned=False) == load_instance_numa_topology(
            converted, assigned=False
        )


@pytest.mark.parametrize("version", ["1.4", "1.5", "1.6"])
def test_versions_that_lie_are_read_as_nova_migrates_them(version: str):
    """Nova's bug 2097360: content of 1.6 under an older version; and 1.4 as it was."""
    for count, amount in enumerate(amounts()):
        document = json.loads(nova_guest_of(amount)._to_json())
        for cell in document["nova_object.data"]["cells"]:
            cell["nova_object.version"] = version
            data = cell["nova_object.data"]
            if amount.cpu_policy == "dedicated" and version == "1.4" and count % 2:
                data["cpuset"], data["pcpuset"] = data["pcpuset"], []
        text = json.dumps(document)
        migrated = nova_reads_guest(text)
        found = load_instance_numa_topology(text, assigned=False)
        assert found == load_instance_numa_topology(migrated._to_json(), assigned=False)
        assert found == amount


# --- guests, assigned -----------------------------------------------------------------------------


def test_what_nova_assigns_is_read_and_booked_as_nova_books_it():
    count = 0
    for seed in SEEDS:
        question = question_of(seed)
        inventory = NUMATopologyInventory(
            [documents.sayable(cell) for cell in question.inventory.cells],
            usage=[used.replace(loose=0) for used in question.inventory.usage],
            cpu_ratio=1000,
            memory_ratio=1000,
        )
        asked = question.amount.replace(physnets=frozenset(), tunneled=False, one_socket=False)
        alike = {(len(c.shared), len(c.dedicated), c.memory_mb) for c in asked.cells}
        if len(alike) > 1 or asked.has_emulator or not all(c.pages for c in inventory.cells):
            continue  # nova's own search goes wrong there
        kept = nova_host(inventory)
        with mock.patch.object(hardware, "LOG"):
            try:
                fitted = hardware.numa_fit_instance_to_host(kept, nova_guest_of(asked), {})
                if fitted is None:
                    continue
                booked = hardware.numa_usage_from_instance_numa(kept, fitted)
            except (exception.NovaException, ValueError):
                continue
        amount = load_instance_numa_topology(
            fitted._to_json(), host=inventory, assigned=True, page_size=asked.page_size
        )
        assert amount.unassigned() == asked
        assert [placed.cell for placed in amount.placed] == [cell.id for cell in fitted.cells]
        assert amount == load_instance_numa_topology(
            dump_instance_numa_topology(amount, host=inventory),
            host=inventory,
            assigned=True,
            page_size=asked.page_size,
        )
        ours = load_host_numa_topology(kept._to_json(), cpu_ratio=1000, memory_ratio=1000)
        try:
            ours.consume(amount)
        except CapacityException:
            continue  # nova takes more shared vCPUs than it checks
        found = objects.NUMATopology.obj_from_db_obj(dump_host_numa_topology(ours))
        assert said(found) == said(booked)
        ours.consume(-amount)
        assert ours.usage == inventory.usage
        count += 1
    assert count > 200


def test_nova_books_what_we_assign_as_we_do():
    count = 0
    for seed in SEEDS:
        question = question_of(seed)
        inventory = NUMATopologyInventory(
            [documents.sayable(cell) for cell in question.inventory.cells],
            usage=[used.replace(loose=0) for used in question.inventory.usage],
        )
        asked = question.amount.replace(physnets=frozenset(), tunneled=False, one_socket=False)
        if not all(cell.pages for cell in inventory.cells):
            continue
        kept = nova_host(inventory)
        try:
            amount = inventory.consume(asked)
        except (CapacityException, SearchLimitReached):
            continue
        text = dump_instance_numa_topology(amount, host=inventory, instance_uuid=UUID)
        fitted = nova_reads_guest(text)
        assert fitted.instance_uuid == UUID
        assert fitted.cpu_pinning == {cpu for p in amount.placed for _, cpu in p.pins}
        assert fitted.cpuset_reserved == {amount.emulator_cpu} - {None}
        assert fitted.emulator_threads_isolated == asked.has_emulator
        booked = hardware.numa_usage_from_instance_numa(kept, fitted)
        found = objects.NUMATopology.obj_from_db_obj(dump_host_numa_topology(inventory))
        assert said(found) == said(booked)
        count += 1
    assert count > 200


def test_nova_reads_where_we_assign():
    count = 0
    for seed in SEEDS:
        question = question_of(seed)
        asked = question.amount.replace(physnets=frozenset(), tunneled=False, one_socket=False)
        try:
            amount = question.inventory.fit(asked)
            text = dump_instance_numa_topology(amount, host=question.inventory, instance_uuid=UUID)
        except (CapacityException, SearchLimitReached, CannotDowngrade):
            continue
        for cell, guest, placed in zip(
            nova_reads_guest(text).cells, amount.cells, amount.placed, strict=True
        ):
            assert (cell.id, cell.cpuset, cell.pcpuset) == (
                placed.cell,
                set(guest.shared),
                set(guest.dedicated),
            )
            assert (cell.cpu_pinning or {}) == dict(placed.pins)
            assert cell.cpu_policy in fields.CPUAllocationPolicy.ALL
        count += 1
    assert count > 200


def test_what_nova_takes_from_its_host_is_not_assigned():
    count = 0
    for seed in SEEDS:
        question = question_of(seed)
        asked = question.amount.replace(physnets=frozenset(), tunneled=False, one_socket=False)
        try:
            amount = question.inventory.fit(asked)
        except (CapacityException, SearchLimitReached):
            continue
        fitted = nova_reads_guest(dump_instance_numa_topology(amount, host=question.inventory))
        cleared = fitted.clear_host_pinning()._to_json()
        assert load_instance_numa_topology(cleared, page_size=asked.page_size) == asked
        count += 1
    assert count > 200
