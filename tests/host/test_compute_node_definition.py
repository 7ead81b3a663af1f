"""The compute node as a view of a ledger: its definition is merged, and what binding takes over."""

from __future__ import annotations

import copy
import json
import pickle

import pytest

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.host.compute_node import ComputeNode
from resource_objects.reasons import Rule
from resource_objects.testing.refusals import raises_code
from tests.host.views import before_next, held, used

# --- saving the definition ----------------------------------------------------------------------


def test_a_changed_definition_touches_nothing_else(ledger):
    before = ledger.provider("host0")
    ledger.claim("job-1", {"host0": "VCPU=3"})
    node = ComputeNode.load(ledger, "host0")
    node.inventories["VCPU"].update(total=16, reserved=1, allocation_ratio="1.5")
    node.update_inventories({"DISK_GB": ro.IntegerInventory(100)})
    result = node.save()
    assert result and result.claim is None
    (update,) = result.definition.updates
    assert [record.resource_class for record in update.changed] == ["VCPU", "DISK_GB"]
    assert str(result) == str(result.definition)
    provider = ledger.provider("host0")
    assert str(provider.inventories) == (
        "VCPU=16:reserved=1:allocation_ratio=1.5:used=3,MEMORY_MB=16384:reserved=512,"
        "DISK_GB=100:max_unit=100,CUSTOM_SEATS=3"
    )
    assert provider.traits == before.traits
    assert [child.uuid for child in provider.children] == [child.uuid for child in before.children]
    assert held(ledger, "job-1") == "VCPU=3" and node.vcpus_used == 4
    assert not node.save()


def test_a_new_class_and_its_use(ledger):
    node = ComputeNode.load(ledger, "host0")
    node.update_inventories({"DISK_GB": ro.IntegerInventory(10, reserved=1, used=6)})
    assert node.pending == ro.Amounts(DISK_GB=6)
    node.save()
    assert held(ledger, "host0/unattributed") == "DISK_GB=6"
    assert ledger.usage()["host0", "DISK_GB"].free == 3


@pytest.mark.parametrize("total", [4, 16])
def test_the_largest_claim_follows_the_total(connect, total):
    ledger = connect()
    ledger.sync(ro.Provider("host0", "VCPU=8:max_unit=8"))
    node = ComputeNode.load(ledger, "host0")
    node.inventories["VCPU"].total = total
    node.save()
    stored = ledger.provider("host0").inventories["VCPU"]
    assert (stored.total, stored.max_unit) == (total, total) and not node.save()


def test_total_zero_takes_the_inventory_away(ledger):
    node = ComputeNode.load(ledger, "host0")
    node.update_inventories({"MEMORY_MB": None})
    node.save()
    assert list(ledger.provider("host0").inventories.names()) == ["VCPU", "CUSTOM_SEATS"]
    assert node.memory_mb == 0


def test_what_is_used_is_not_taken_away(ledger):
    ledger.claim("job-1", {"host0": "MEMORY_MB=1"})
    node = ComputeNode.load(ledger, "host0")
    node.update_inventories({"MEMORY_MB": None})
    with raises_code("InventoryInUse"):
        node.save()
    assert used(ledger, "MEMORY_MB") == 1


def test_shrinking_below_use_is_allowed_and_shows(ledger):
    ledger.claim("job-1", {"host0": "VCPU=12"})
    node = ComputeNode.load(ledger, "host0")
    node.inventories["VCPU"].total = 4
    node.save()
    assert used(ledger) == 12 and ledger.usage()["host0", "VCPU"].free == -4
    assert node.inventories["VCPU"].free == -4


def test_figures_that_different_views_change_are_merged(connect, ledger):
    item, other = ComputeNode.load(ledger, "host0"), ComputeNode.load(connect(), "host0")
    item.inventories["VCPU"].total = 16
    other.inventories["VCPU"].reserved = 2
    other.inventories["MEMORY_MB"].allocation_ratio = "1.5"
    item.save()
    other.save()
    inventories = ledger.provider("host0").inventories
    assert (inventories["VCPU"].total, inventories["VCPU"].reserved) == (16, 2)
    assert inventories["MEMORY_MB"].allocation_ratio == 1.5
    assert other.vcpus == 16


def test_one_figure_changed_by_two_views_is_a_conflict(connect, ledger):
    item, other = ComputeNode.load(ledger, "host0"), ComputeNode.load(connect(), "host0")
    item.inventories["VCPU"].total = 16
    item.save()
    other.inventories["VCPU"].total = 12
    before = copy.deepcopy(other)
    with raises_code("StaleDefinition", match="VCPU total was 8, is 16 now"):
        other.save()
    assert other == before and ledger.provider("host0").inventories["VCPU"].total == 16
    other.reload()
    other.inventories["VCPU"].total = 12
    other.save()
    assert ledger.provider("host0").inventories["VCPU"].total == 12


def test_the_same_change_by_two_views_is_none(connect, ledger):
    item, other = ComputeNode.load(ledger, "host0"), ComputeNode.load(connect(), "host0")
    for view in (item, other):
        view.inventories["VCPU"].total = 16
        view.update_inventories({"DISK_GB": ro.IntegerInventory(9), "MEMORY_MB": None})
    assert item.save() and not other.save()
    assert other.vcpus == 16 and not other.save()
    item.inventories["VCPU"].total = 12
    item.save()
    other.inventories["VCPU"].total = 20
    with raises_code("StaleDefinition", match="VCPU total was 16, is 12 now"):
        other.save()


def test_a_class_that_another_consumer_took_away_does_not_return(connect, ledger):
    node = ComputeNode.load(ledger, "host0")
    host = connect().provider("host0")
    del host.inventories["MEMORY_MB"]
    ledger.sync(host)
    node.inventories["MEMORY_MB"].reserved = 0
    with raises_code("StaleDefinition", match="MEMORY_MB reserved"):
        node.save()


def test_a_child_that_appears_meanwhile_remains(connect, ledger, monkeypatch):
    node = ComputeNode.load(ledger, "host0")
    node.inventories["VCPU"].total = 16

    def add_a_child():
        host = connect().provider("host0")
        host.add("host0/gpu1", "PGPU=1")
        connect().sync(host)

    before_next(monkeypatch, ledger.backend, "commit", add_a_child)
    node.save()
    provider = ledger.provider("host0")
    assert [child.name for child in provider.children] == ["host0/gpu0", "host0/gpu1"]
    assert provider.inventories["VCPU"].total == 16


def test_a_lost_race_for_the_definition_is_merged_again(connect, ledger, monkeypatch):
    node = ComputeNode.load(ledger, "host0")
    other = ComputeNode.load(connect(), "host0")
    other.inventories["MEMORY_MB"].total = 1024
    node.inventories["VCPU"].total = 16
    before_next(monkeypatch, ledger.backend, "commit", other.save)
    node.save()
    inventories = ledger.provider("host0").inventories
    assert (inventories["VCPU"].total, inventories["MEMORY_MB"].total, node.memory_mb) == (
        16,
        1024,
        1024,
    )


# --- both at once -------------------------------------------------------------------------------


def test_a_definition_and_the_usage_it_makes_room_for(ledger):
    node = ComputeNode.load(ledger, "host0")
    node.inventories["VCPU"].total = 16
    node.inventories.consume("VCPU=16")
    node.inventories.consume("VCPU=10")
    result = node.save()
    assert str(result.claim) == "host0/unattributed holds VCPU=26 of host0"
    assert str(result) == f"{result.definition}\n{result.claim}"
    assert used(ledger) == 26 and node.changes() == {"vcpus": 16, "vcpus_used": 26}


def test_usage_that_will_not_fit_leaves_the_definition_alone_too(connect, ledger):
    node = ComputeNode.load(ledger, "host0")
    connect().claim("job-1", {"host0": "VCPU=12"})
    node.inventories["VCPU"].total = 10
    node.inventories.consume("VCPU=9")
    before_ledger, before_view = ledger.provider("host0"), copy.deepcopy(node)
    with pytest.raises(ro.CapacityException, match=r"requested 9, free 8 of 20 \(job-1 holds 12\)"):
        node.save()
    assert ledger.provider("host0") == before_ledger and node == before_view


def test_releasing_too_much_leaves_the_definition_alone_too(ledger):
    ledger.claim("job-1", {"host0": "VCPU=12"})
    node = ComputeNode.load(ledger, "host0")
    node.inventories["VCPU"].total = 10
    node.inventories.consume("VCPU=-9")
    before = ledger.provider("host0")
    with pytest.raises(ro.CapacityException, match="releases 9, only 0 used"):
        node.save()
    assert ledger.provider("host0") == before


def test_usage_of_what_is_taken_away_leaves_the_definition_alone_too(ledger):
    node = ComputeNode.load(ledger, "host0")
    node.inventories.consume("MEMORY_MB=1")
    before = ledger.provider("host0")
    with pytest.raises(exceptions.InvalidInventory, match="MEMORY_MB: got '1 used'"):
        node.update_inventories({"MEMORY_MB": None})
    assert ledger.provider("host0") == before and node.pending == ro.Amounts(MEMORY_MB=1)


def test_a_claim_before_the_write_keeps_capacity_and_definition(connect, ledger, monkeypatch):
    node = ComputeNode.load(ledger, "host0")
    node.inventories["VCPU"].total = 10
    node.inventories.consume("VCPU=9")
    other = connect()

    def claim():
        other.claim("job-1", {"host0": "VCPU=8"})
        other.claim("job-2", {"host0": "VCPU=8"})

    before_next(monkeypatch, ledger.backend, "commit", claim)
    with pytest.raises(ro.CapacityException, match="requested 9, free 4 of 20"):
        node.save()
    assert ledger.provider("host0").inventories["VCPU"].total == 8
    assert held(ledger, "host0/unattributed") == "nothing"
    assert node.pending == ro.Amounts(VCPU=9) and node.vcpus_used == 9
    ledger.release("job-1")
    node.save()
    assert used(ledger) == 17 and node.vcpus_used == 17


# --- binding ------------------------------------------------------------------------------------

ROW = {
    "hypervisor_hostname": "host0",
    "vcpus": 8,
    "vcpus_used": 5,
    "cpu_allocation_ratio": None,
    "memory_mb": 16384,
    "memory_mb_used": 1536,
    "ram_allocation_ratio": 1.0,
}


def test_an_unbound_node_does_not_save():
    node = ComputeNode.from_row(ROW)
    for use in (node.save, node.reload, lambda: node.consumer):
        with raises_code("NotBound", match=r"host0 is not bound to a ledger; use bind"):
            use()
    with pytest.raises(exceptions.LedgerError, match="compute node is not bound"):
        ComputeNode().save()


def test_after_bind_the_ledger_says_what_is_used(ledger):
    ledger.claim("job-1", {"host0": "VCPU=2"})
    node = ComputeNode.from_row({**ROW, "vcpus_used": 1, "memory_mb_used": 512})
    node.inventories.consume("VCPU=1")
    cpus = node.inventories["VCPU"]
    assert node.bind(ledger) is node
    assert (node.vcpus_used, cpus.used, node.pending) == (3, 3, ro.Amounts(VCPU=1))
    node.save()
    assert used(ledger) == 3 and held(ledger, "host0/unattributed") == "VCPU=1"


def test_after_bind_a_report_counts_from_what_the_ledger_says(connect):
    ledger = connect()
    ledger.sync(ro.Provider("host0", "DISK_GB=100"))
    row = {"host": "host0", "local_gb": 100, "local_gb_used": 50, "disk_available_least": 20}
    assert ComputeNode.from_row(row).bind(ledger).limits == ro.Limits(DISK_GB=70)
    ledger.claim("job-1", {"host0": "DISK_GB=60"})
    assert ComputeNode.from_row(row).bind(ledger).limits == ro.Limits(DISK_GB=80)


def test_bind_keeps_what_the_node_states_and_takes_the_rest(ledger):
    unused = {**ROW, "vcpus_used": 1, "memory_mb_used": 512}
    ledger.claim("job-1", {"host0": "VCPU=1"})
    node = ComputeNode.from_row(unused).bind(ledger)
    # reserved and the ratio of VCPU are absent: those of the ledger are used
    assert node.reserved == ro.Amounts(MEMORY_MB=512)
    assert node.inventories["VCPU"].allocation_ratio == 2
    assert node.cpu_allocation_ratio is None and "cpu_allocation_ratio" not in node.changes()
    assert not node.save()
    stating = ComputeNode.from_row(
        {**unused, "vcpus": 12, "ram_allocation_ratio": 1.5, "cpu_allocation_ratio": 0.0},
        reserved="VCPU=1",
    ).bind(ledger)
    assert stating.save()
    inventories = ledger.provider("host0").inventories
    assert str(inventories) == (
        "VCPU=12:reserved=1:allocation_ratio=2:used=1,"
        "MEMORY_MB=16384:allocation_ratio=1.5,CUSTOM_SEATS=3"
    )


def test_bind_leaves_what_is_not_set_to_the_ledger(ledger):
    node = ComputeNode(host="host0").bind(ledger, "job-1")
    assert node.vcpus == 8 and not node.save()
    assert ledger.provider("host0").inventories["VCPU"].total == 8


def test_the_first_save_makes_the_host(connect):
    ledger = connect()
    uuid = "7f5c3b7e-3a4b-4c59-9d0e-0d6f1a2b3c4d"
    unused = {**ROW, "vcpus_used": 0, "memory_mb_used": 512, "uuid": uuid}
    node = ComputeNode.from_row(unused, reserved="MEMORY_MB=512").bind(ledger)
    node.inventories.consume("VCPU=2")
    result = node.save()
    assert [created.name for created in result.definition.creates] == ["host0"]
    assert str(result.claim) == "host0/unattributed holds VCPU=2 of host0"
    provider = ledger.provider("host0")
    assert provider.uuid == uuid
    assert str(provider.inventories) == (
        "VCPU=8:max_unit=8:allocation_ratio=4:used=2,MEMORY_MB=16384:reserved=512:max_unit=16384"
    )
    assert not node.save()


def test_usage_that_will_not_fit_does_not_make_the_host(connect):
    ledger = connect()
    node = ComputeNode.from_row(ROW).bind(ledger)
    node.update_inventories({"VCPU": ro.IntegerInventory(4, used=6)})  # 5 are used already
    with pytest.raises(ro.CapacityException, match="VCPU requested 1, free -1 of 4"):
        node.save()
    with raises_code("ProviderNotFound"):
        ledger.provider("host0")


def test_a_host_made_by_two_at_once_is_made_once(connect, monkeypatch):
    ledger = connect()
    item = ComputeNode.from_row(ROW).bind(ledger)
    other = ComputeNode.from_row({**ROW, "local_gb": 9}).bind(connect())
    item.inventories.consume("VCPU=1")
    other.inventories.consume("VCPU=2")

    before_next(monkeypatch, ledger.backend, "commit", other.save)
    item.save()
    assert used(ledger) == 5 + 3 and item.local_gb == 9  # the usage of both records is adopted once


def test_a_host_is_known_by_its_uuid_too(ledger):
    other = "7f5c3b7e-3a4b-4c59-9d0e-0d6f1a2b3c4d"
    node = ComputeNode.from_row({**ROW, "uuid": other})
    before = copy.deepcopy(node)
    with raises_code("ProviderExists", match=f"not {other}"):
        node.bind(ledger)
    assert node == before
    with raises_code("NotBound"):
        node.save()


def test_names_that_cannot_be_are_refused(ledger):
    for node, provider, consumer in (
        (ComputeNode(), None, None),
        (ComputeNode(host=" "), None, None),
        (ComputeNode(host="host0"), "x" * 201, None),
        (ComputeNode(host="host0"), None, "\n"),
        (ComputeNode(host="host0", uuid="7f5c"), None, None),
    ):
        with raises_code("InvalidName"):
            node.bind(ledger, consumer, provider)
    assert ComputeNode(host="other").bind(ledger, provider="host0").vcpus == 8


def test_what_is_pending_to_be_released_has_to_be_there(ledger):
    with ro.connect("memory://") as other:
        uuid = ledger.provider("host0").uuid
        ComputeNode.from_row({**ROW, "uuid": uuid}).bind(other).save()
        node = ComputeNode.load(other, "host0")
    node.inventories.consume("VCPU=-3")
    before = copy.deepcopy(node)
    with pytest.raises(ro.CapacityException) as refusal:
        node.bind(ledger)
    assert refusal.value.reasons[0].rule is Rule.USED_BELOW_ZERO
    assert node == before


def test_a_reserve_of_the_ledger_that_contradicts_the_node_is_refused(ledger):
    node = ComputeNode.from_row({**ROW, "memory_mb": 256, "memory_mb_used": 0})
    before = copy.deepcopy(node)
    with pytest.raises(
        exceptions.InvalidInventory,
        match=r"reserved: got 512, .* the total of 256",
    ):
        node.bind(ledger)
    assert node == before and node.changes() == before.changes() == {}
    assert node.inventories == before.inventories


def test_two_ledgers_never_mix(ledger):
    other = ro.connect("memory://")
    other.sync(ro.Provider("host0", "VCPU=8"))
    here, existing = ComputeNode.load(ledger, "host0"), ComputeNode.load(other, "host0")
    here.inventories.consume("VCPU=1")
    here.save()
    existing.inventories.consume("VCPU=2")
    existing.save()
    assert (used(ledger), used(other)) == (1, 2)


def test_a_copy_is_a_view_of_the_same_ledger_and_a_pickle_of_none(ledger):
    node = ComputeNode.load(ledger, "host0")
    node.inventories.consume("VCPU=1")
    wire = json.loads(json.dumps(node.obj_to_primitive()))
    for twin in (pickle.loads(pickle.dumps(node)), ComputeNode.obj_from_primitive(wire)):
        with raises_code("NotBound"):
            twin.save()
        twin.bind(ledger)
        assert twin.pending == ro.Amounts(VCPU=1)
    twin = copy.deepcopy(node)
    node.save()
    twin.save()
    assert used(ledger) == 2
