"""A host that is in use before a ledger knows of it is never freer in the ledger than it was."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.backends.sql.backend import SQLBackend
from resource_objects.host.compute_node import ComputeNode, unattributed
from resource_objects.interop.nova.pci_devices import DevicePool, dump_pci_pools
from resource_objects.ledger import new_operation
from resource_objects.providers.orders import Operation, Write
from resource_objects.testing.refusals import raises_code
from tests import conftest, databases
from tests.host.used_hosts import cells, free, gpus, placed_row, row
from tests.host.views import held

NOBODY = "host1/unattributed"


SERVERS = [kind for kind in databases.KINDS if kind != "sqlite"]

#: on servers too, in the fast run
everywhere = pytest.mark.parametrize("connect", ["memory", "sqlite", *SERVERS], indirect=True)


@pytest.fixture(
    params=["memory", "sqlite", *(pytest.param(kind, marks=pytest.mark.long) for kind in SERVERS)]
)
def connect(
    request: pytest.FixtureRequest, scratch: databases.Scratch
) -> Iterator[Callable[[], ro.Ledger]]:
    """A function that opens one ledger, for a database each time anew, as another process would."""
    kind = request.param
    if kind in SERVERS:
        conftest.require_server(kind)
    with contextlib.ExitStack() as lent:
        url, opened = None, []
        if kind == "memory":
            opened.append(lent.enter_context(ro.connect("memory://")))
        else:
            url = lent.enter_context(scratch.prepared(kind, SQLBackend.upgrade_database))

        def connect() -> ro.Ledger:
            if url is not None:
                opened.append(lent.enter_context(ro.connect(url)))
            return opened[-1]

        yield connect


# --- a host is never freer after it was adopted than before -------------------------------------


def test_a_used_record_is_not_emptied_by_a_bind_and_a_save(connect) -> None:
    ledger = connect()
    node = row().bind(ledger)
    assert not node.inventories.can_provide("VCPU=1") and node.vcpus_used == 8
    before = node.to_row()
    result = node.save()
    assert held(ledger, NOBODY) == "VCPU=8,MEMORY_MB=12288,DISK_GB=30"
    assert str(result.adopted.amounts) == held(ledger, NOBODY) and result.claim is None
    assert node.to_row() == before and not node.pending and not node.drift
    with pytest.raises(ro.CapacityException, match=f"{NOBODY} holds 8"):
        ledger.claim("job-1", {"host1": "VCPU=1"})
    assert ComputeNode.load(ledger, "host1").vcpus_used == 8


@everywhere
def test_a_used_record_of_a_host_that_is_there_is_adopted(connect) -> None:
    ledger = connect()
    ledger.sync(ro.Provider("host1", "VCPU=8,MEMORY_MB=16384,DISK_GB=100"))
    node = row().bind(ledger)
    assert node.vcpus_used == 8 and held(ledger, NOBODY) == "nothing"  # reading is reading
    node.save()
    assert held(ledger, NOBODY) == "VCPU=8,MEMORY_MB=12288,DISK_GB=30"


def test_what_consumers_explain_is_not_adopted(connect) -> None:
    ledger = connect()
    ledger.sync(ro.Provider("host1", "VCPU=8,MEMORY_MB=16384,DISK_GB=100"))
    ledger.claim("vm-1", {"host1": "VCPU=3,MEMORY_MB=4096"})
    row().bind(ledger).save()
    assert held(ledger, NOBODY) == "VCPU=5,MEMORY_MB=8192,DISK_GB=30"
    assert held(ledger, "vm-1") == "VCPU=3,MEMORY_MB=4096"


@everywhere
@pytest.mark.parametrize("is_there", [False, True])
def test_cells_cpus_and_devices_are_adopted_by_name(connect, is_there) -> None:
    ledger = connect()
    record = placed_row()
    usage = record.inventories["NUMA_TOPOLOGY"].usage
    taken = {cpu for allocation in usage for cpu in allocation.pinned}
    assert len(taken) == 4
    before = free(record.inventories)
    if is_there:
        tree = ro.Provider("host1", "VCPU=4,PCPU=12,MEMORY_MB=16384:reserved=512,DISK_GB=100")
        tree.add_parts("NUMA_TOPOLOGY", cells())
        tree.add_parts("DEVICES", gpus())
        ledger.sync(tree)
    node = record.bind(ledger)
    assert node.inventories["NUMA_TOPOLOGY"].usage == usage
    assert {
        n: remaining for n, remaining in free(node.inventories).items() if remaining > before[n]
    } == {}
    node.save()
    assert node.inventories["NUMA_TOPOLOGY"].usage == usage
    assert {
        n: remaining for n, remaining in free(node.inventories).items() if remaining > before[n]
    } == {}
    units = {
        unit for allocation in ledger.get_claim(NOBODY).allocations for unit in allocation.units
    }
    assert units == {*(f"cpu{cpu}" for cpu in taken), "0000:3b:00.0"}
    with pytest.raises(ro.CapacityException, match=NOBODY):
        ledger.claim("job-1", {"host1": "DEVICES=2*PGPU"})
    with pytest.raises(ro.CapacityException, match="PCPU"):
        ledger.claim("job-2", {"host1": "NUMA_TOPOLOGY=2:dedicated=10"})
    ledger.claim("job-3", {"host1": "NUMA_TOPOLOGY=2:dedicated=8"})
    mine = {
        unit for allocation in ledger.get_claim("job-3").allocations for unit in allocation.units
    }
    assert not mine & units


def test_cpus_that_consumers_hold_by_name_are_not_adopted(connect) -> None:
    ledger = connect()
    tree = ro.Provider("host1", "VCPU=4,PCPU=12,MEMORY_MB=16384:reserved=512,DISK_GB=100")
    tree.add_parts("NUMA_TOPOLOGY", cells())
    ledger.sync(tree)
    ledger.claim("vm-1", {"host1": "NUMA_TOPOLOGY=1:dedicated=2:memory=512"})
    used_cells = ledger.inventories("host1")["NUMA_TOPOLOGY"]
    used_cells.consume(ro.numa(dedicated=1))
    node = row(vcpus=4, vcpus_used=3, memory_mb_used=512, local_gb_used=0)
    node.update_inventories({"NUMA_TOPOLOGY": used_cells})
    ComputeNode.from_row(node).bind(ledger).save()
    nobody = ledger.get_claim(NOBODY)
    assert str(nobody.amounts) == "VCPU=1,PCPU=1"  # the vCPU is not known to be the one of the CPU
    theirs = {
        unit for allocation in ledger.get_claim("vm-1").allocations for unit in allocation.units
    }
    assert not theirs & {unit for allocation in nobody.allocations for unit in allocation.units}


def test_above_capacity_it_is_accepted_and_listed(connect) -> None:
    ledger = connect()
    node = row(vcpus_used=11).bind(ledger)
    assert node.vcpus_used == 11 and node.inventories["VCPU"].free == -3
    node.save()
    over = ledger.usage(over_capacity=True)
    assert [(use.provider, use.resource_class, use.used, use.capacity) for use in over] == [
        ("host1", "VCPU", 11, 8)
    ]
    ledger.claim("job-1", {"host1": "MEMORY_MB=1024"})
    node.reload()
    assert node.vcpus_used == 11


def test_what_the_record_takes_in_addition_goes_to_its_own_consumer(connect) -> None:
    ledger = connect()
    node = row(vcpus_used=5)
    node.inventories.consume("VCPU=2")
    node.bind(ledger, consumer="vm-9")
    assert node.pending == ro.Amounts(VCPU=2) and node.vcpus_used == 7
    result = node.save()
    assert held(ledger, "vm-9") == "VCPU=2"
    assert held(ledger, NOBODY) == "VCPU=5,MEMORY_MB=12288,DISK_GB=30"
    assert str(result.claim.amounts) == "VCPU=2" and node.vcpus_used == 7


def test_pending_that_does_not_fit_with_what_is_adopted_is_refused(connect) -> None:
    ledger = connect()
    node = row(vcpus_used=5)
    node.inventories.consume("VCPU=3")
    node.bind(ledger, consumer="vm-9")
    connect().sync(ro.Provider("host1", "VCPU=7,MEMORY_MB=16384,DISK_GB=100"))
    node = row(vcpus=7, vcpus_used=5)
    node.inventories.consume("VCPU=2")
    node.bind(ledger, consumer="vm-9")
    connect().claim("job-1", {"host1": "VCPU=6"})
    with pytest.raises(ro.CapacityException):
        node.save()
    assert held(ledger, "vm-9") == "nothing"


@pytest.mark.parametrize("stored", ["", "VCPU=4,MEMORY_MB=16384,DISK_GB=100"])
def test_a_save_that_changes_the_definition_releases_no_usage_that_it_adopts(
    connect, stored
) -> None:
    ledger = connect()
    if stored:
        ledger.sync(ro.Provider("host1", stored))
    node = row().bind(ledger)
    node.inventories["VCPU"].consume(ro.IntegerAmount(-3))
    for write in (node.check_save, node.save):
        with pytest.raises(ro.CapacityException, match="host1: VCPU releases 3, only 0 used"):
            write()
    assert held(ledger, NOBODY) == "nothing" and node.pending == ro.Amounts("VCPU=-3")
    assert [provider.name for provider in ledger.providers()] == (["host1"] if stored else [])


def test_a_save_without_a_changed_definition_releases_usage_that_it_adopts(connect) -> None:
    ledger = connect()
    ledger.sync(ro.Provider("host1", "VCPU=8,MEMORY_MB=16384,DISK_GB=100"))
    node = row().bind(ledger)
    node.inventories["VCPU"].consume(ro.IntegerAmount(-3))
    node.check_save()
    assert held(ledger, NOBODY) == "nothing"
    node.save()
    assert held(ledger, NOBODY) == "VCPU=5,MEMORY_MB=12288,DISK_GB=30" and node.vcpus_used == 5


def test_what_the_ledger_s_host_keeps_for_itself_is_within_a_record_s_figures(connect) -> None:
    ledger = connect()
    ledger.sync(ro.Provider("host1", "VCPU=8,MEMORY_MB=16384:reserved=512,DISK_GB=100"))
    node = row().bind(ledger)
    assert node.memory_mb_used == 12288 and node.inventories["MEMORY_MB"].free == 16384 - 12288
    node.save()
    assert held(ledger, NOBODY) == "VCPU=8,MEMORY_MB=11776,DISK_GB=30"


def test_a_record_without_a_total_of_what_it_uses_is_adopted_where_there_is_some(connect) -> None:
    ledger = connect()
    ledger.sync(ro.Provider("host1", "VCPU=8,DISK_GB=500"))
    node = ComputeNode.from_row(
        {"hypervisor_hostname": "host1", "local_gb_used": 11, "disk_available_least": 500}
    ).bind(ledger)
    assert node.disk_limit_gb == 511 and node.local_gb_used == 11
    node.save()
    assert held(ledger, NOBODY) == "DISK_GB=11"


# --- devices of which a record counts the free ones ---------------------------------------------


VF = {"type": "type-VF", "address": "0000:81:00.0"}


def nic(parts: int = 3) -> list[ro.Device]:
    """Return a network card and the functions split off it."""
    full = "0000:81:00.0"
    return [
        ro.Device(full, "8086", "1572", "type-PF"),
        *(
            ro.Device(f"0000:81:02.{n}", "8086", "154c", "type-VF", parent=full)
            for n in range(parts)
        ),
    ]


def with_devices(ledger: ro.Ledger, *devices: ro.Device) -> None:
    """Make host1 with such devices."""
    tree = ro.Provider("host1", "VCPU=8,MEMORY_MB=16384,DISK_GB=100")
    if devices:
        tree.add_parts("DEVICES", ro.PCIInventory(devices))
    ledger.sync(tree)


def units_of(ledger: ro.Ledger, consumer: str = NOBODY) -> list[str]:
    try:
        claim = ledger.get_claim(consumer)
    except exceptions.NotFound as error:
        if not error.is_about("consumer"):
            raise
        return []
    return sorted(unit for allocation in claim.allocations for unit in allocation.units)


@pytest.mark.parametrize("text", [dump_pci_pools([DevicePool("10de", "2330", 1)]), "unreadable"])
def test_counts_of_free_devices_adopt_nothing(connect, text) -> None:
    """They do not report which devices are in use."""
    ledger = connect()
    with_devices(ledger, *gpus(3).devices)
    node = row(vcpus_used=0, memory_mb_used=0, local_gb_used=0, pci_stats=text).bind(ledger)
    assert not node.drift and not node.save().adopted
    assert node.inventories["DEVICES"].free == 3 and not units_of(ledger)


# --- once ---------------------------------------------------------------------------------------


@everywhere
def test_what_a_later_row_says_more_is_drift_and_reported(connect) -> None:
    ledger = connect()
    row(vcpus_used=5).bind(ledger).save()
    later = row(vcpus_used=7).bind(ledger)
    assert str(later.drift) == "host1: VCPU=2 that no consumer holds"
    assert later.vcpus_used == 5 and not later.save()
    assert held(ledger, NOBODY) == "VCPU=5,MEMORY_MB=12288,DISK_GB=30"
    assert not row(vcpus_used=5).bind(ledger).drift
    assert not row(vcpus_used=3).bind(ledger).drift  # less than the ledger knows is no drift


def test_a_host_that_was_adopted_empty_is_not_adopted_again(connect) -> None:
    ledger = connect()
    ledger.sync(ro.Provider("host1", "VCPU=8"))
    assert not row(vcpus_used=0, memory_mb_used=0, local_gb_used=0).bind(ledger).save().adopted
    assert row().bind(ledger).drift and not row().bind(ledger).save()
    assert held(ledger, NOBODY) == "nothing"


@everywhere
def test_of_two_that_adopt_at_once_one_does(connect) -> None:
    ledger = connect()
    ledger.sync(ro.Provider("host1", "VCPU=8,MEMORY_MB=16384,DISK_GB=100"))
    item, other = row().bind(ledger), row().bind(connect())
    assert item.save().adopted and not other.save().adopted
    assert held(ledger, NOBODY) == "VCPU=8,MEMORY_MB=12288,DISK_GB=30"
    assert other.vcpus_used == 8


@everywhere
def test_a_report_of_the_host_is_no_adoption_and_an_adoption_no_report(connect) -> None:
    ledger = connect()
    ledger.sync(ro.Provider("host1", "VCPU=8,MEMORY_MB=16384,DISK_GB=100"))
    uuid = ledger.provider("host1").uuid

    def report() -> None:
        ledger.backend.commit(Write(Operation(), "report", uuid, reported=(uuid,)))

    report()
    provider = ledger.provider("host1")
    assert provider.reported_at is not None and provider.adopted_at is None
    assert row().bind(ledger).save().adopted
    provider, was = ledger.provider("host1"), provider
    assert provider.reported_at == was.reported_at and provider.adopted_at >= was.reported_at
    report()
    assert ledger.provider("host1").adopted_at == provider.adopted_at
    assert not row(vcpus_used=3).bind(ledger).save().adopted
    assert row(vcpus_used=9).bind(ledger).drift


def test_a_node_of_a_ledger_brings_nothing_of_it_to_another(connect) -> None:
    ledger = connect()
    row().bind(ledger).save()
    with ro.connect("memory://") as other:
        view = ComputeNode.load(ledger, "host1").bind(other)
        assert view.vcpus_used == 0
        view.save()
        assert held(other, NOBODY) == "nothing"


# --- attribute ----------------------------------------------------------------------------------


@everywhere
def test_attribute_moves_what_is_unattributed_in_one_transaction(connect) -> None:
    ledger = connect()
    row(vcpus_used=11).bind(ledger).save()
    cursor = ledger.feed.cursor()
    claim = ledger.attribute("host1", "vm-1", {"host1": "VCPU=9,MEMORY_MB=4096"}, project="p")
    assert str(claim) == "vm-1 holds VCPU=9,MEMORY_MB=4096 of host1" and claim.project == "p"
    assert held(ledger, NOBODY) == "VCPU=2,MEMORY_MB=8192,DISK_GB=30"
    assert len({change.operation for change in ledger.feed.changes(cursor)}) == 1
    ledger.attribute("host1", "vm-1", {"host1": "VCPU=1"})
    assert held(ledger, "vm-1") == "VCPU=10,MEMORY_MB=4096"
    assert str(ledger.attribute("host1", "vm-2").amounts) == "VCPU=1,MEMORY_MB=8192,DISK_GB=30"
    with raises_code("ConsumerNotFound", match=unattributed("host1")):
        ledger.attribute("host1", "vm-3")


def test_attribute_moves_cpus_and_devices_by_name(connect) -> None:
    ledger = connect()
    placed_row().bind(ledger).save()
    item = next(a for a in ledger.get_claim(NOBODY).allocations if a.resource_class == "PCPU")
    several = ro.Allocation(
        provider=item.provider,
        resource_class="PCPU",
        amount=ro.IntegerAmount(1),
        units=item.units[:1],
    )
    ledger.attribute("host1", "vm-1", [several])
    (mine,) = ledger.get_claim("vm-1").allocations
    assert mine.units == item.units[:1]
    with raises_code("InvalidAmount", match="by name"):
        ledger.attribute("host1", "vm-1", {"host1/numa1": "PCPU=1"})
    ledger.attribute("host1", "vm-2", {"host1/0000:3b:00.0": "PGPU=1"})
    (gpu,) = ledger.get_claim("vm-2").allocations
    assert gpu.units == ("0000:3b:00.0",)


def test_attribute_takes_no_more_than_is_unattributed(connect) -> None:
    ledger = connect()
    row(vcpus_used=3).bind(ledger).save()
    before = ledger.get_claim(NOBODY)
    with pytest.raises(ro.CapacityException, match="releases"):
        ledger.attribute("host1", "vm-1", {"host1": "VCPU=4"})
    assert ledger.get_claim(NOBODY) == before and held(ledger, "vm-1") == "nothing"


def test_attribute_repeated_by_its_operation_is_done_once(connect) -> None:
    ledger = connect()
    row().bind(ledger).save()
    doing = new_operation()
    first = ledger.attribute("host1", "vm-1", {"host1": "VCPU=2"}, operation=doing)
    assert ledger.attribute("host1", "vm-1", {"host1": "VCPU=2"}, operation=doing) == first
    assert held(ledger, "vm-1") == "VCPU=2"
