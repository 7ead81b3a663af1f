"""The compute node as a view of a ledger: its saves, its untouched columns, its refusals."""

from __future__ import annotations

import copy

import pytest

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.host.compute_node import ComputeNode, unattributed
from resource_objects.testing.refusals import raises_code
from tests.host.views import held, lose_connection, used

# --- loading ------------------------------------------------------------------------------------


def test_load_turns_the_ledger_s_figures_into_columns(ledger):
    ledger.claim("job-1", {"host0": "VCPU=3,MEMORY_MB=1024"})
    node = ComputeNode.load(ledger, "host0")
    assert node.to_row() == {
        "uuid": ledger.provider("host0").uuid,
        "host": "host0",
        "hypervisor_hostname": "host0",
        "vcpus": 8,
        "vcpus_used": 3,
        "cpu_allocation_ratio": 2.0,
        "memory_mb": 16384,
        "memory_mb_used": 1536,
        "ram_allocation_ratio": 1.0,
        "local_gb": 0,
        "local_gb_used": 0,
        "free_ram_mb": 14848,
        "free_disk_gb": 0,
    }
    assert node.changes() == {} and not node.pending
    assert node.reserved == ro.Amounts(MEMORY_MB=512)
    assert node.consumer == "host0/unattributed" == unattributed("host0")


def test_load_takes_a_uuid_too(ledger):
    uuid = ledger.provider("host0").uuid
    assert ComputeNode.load(ledger, uuid) == ComputeNode.load(ledger, "host0")


def test_load_of_an_unknown_host_is_refused(ledger):
    with raises_code("ProviderNotFound", match="host9"):
        ComputeNode.load(ledger, "host9")


def test_a_view_decides_by_the_ledger_s_unit_rules(ledger):
    host = ledger.provider("host0")
    host.inventories["VCPU"].update(min_unit=2, max_unit=4, step_size=2)
    ledger.sync(host)
    node = ComputeNode.load(ledger, "host0")
    assert [node.inventories.can_provide(f"VCPU={n}") for n in (1, 2, 3, 4, 6)] == [
        False,
        True,
        False,
        True,
        False,
    ]
    node.inventories["VCPU"].total = 16
    node.save()
    stored = ledger.provider("host0").inventories["VCPU"]
    assert (stored.total, stored.min_unit, stored.max_unit, stored.step_size) == (16, 2, 4, 2)


# --- whose view it is, when names move ----------------------------------------------------------


def moved(ledger: ro.Ledger) -> None:
    """Rename host0 to ``host0-old``; another machine is host0 now."""
    host = ledger.provider("host0")
    host.update(name="host0-old")
    ledger.sync(host)
    ledger.sync(ro.Provider("host0", "VCPU=64,MEMORY_MB=99999"))


def test_a_view_remains_with_its_machine_when_names_move(connect, ledger):
    node = ComputeNode.load(ledger, "host0", "job-1")
    uuid = node.uuid
    moved(connect())
    node.inventories.consume("VCPU=2")
    result = node.save()
    assert str(result.claim) == "job-1 holds VCPU=2 of host0-old"
    assert ledger.usage()["host0", "VCPU"].used == 0
    assert ledger.usage()["host0-old", "VCPU"].used == 2
    node.reload()
    assert (node.uuid, node.vcpus, node.vcpus_used) == (uuid, 8, 2)


def test_a_definition_is_saved_to_its_machine_when_names_move(connect, ledger):
    node = ComputeNode.load(ledger, "host0")
    moved(connect())
    node.inventories["VCPU"].total = 16
    node.inventories.consume("VCPU=20")
    node.save()
    assert ledger.provider("host0").inventories["VCPU"].total == 64
    assert ledger.provider("host0-old").inventories["VCPU"].total == 16
    assert ledger.usage()["host0-old", "VCPU"].used == 20


@pytest.mark.parametrize("total", [8, 16])
def test_a_machine_that_is_gone_is_named_and_its_successor_untouched(connect, ledger, total):
    node = ComputeNode.load(ledger, "host0", "job-1")
    connect().remove("host0")
    connect().sync(ro.Provider("host0", "VCPU=64"))
    before = ledger.provider("host0")
    node.inventories["VCPU"].total = total
    node.inventories.consume("VCPU=2")
    stored = copy.deepcopy(node)
    with raises_code("ProviderNotFound", match=r"^host0 is not a provider"):
        node.save()
    assert node == stored and ledger.provider("host0") == before
    assert held(ledger, "job-1") == "nothing"
    with raises_code("ProviderNotFound", match=r"^host0 is not a provider"):
        node.reload()
    assert node == stored


def test_a_host_that_is_made_by_the_first_save_is_known_by_its_uuid_too(connect, ledger):
    node = ComputeNode(hypervisor_hostname="host1", vcpus=4, vcpus_used=0).bind(ledger)
    node.save()
    host = ledger.provider("host1")
    host.update(name="host1-old")
    ledger.sync(host)
    node.inventories.consume("VCPU=3")
    assert str(node.save().claim) == "host1/unattributed holds VCPU=3 of host1-old"


def test_a_name_taken_by_another_uuid_since_it_was_bound_is_refused(connect, ledger):
    uuid = "6b7c0a9e-0d0f-4f83-9c0b-0a4e8b7c1d2e"
    node = ComputeNode(uuid=uuid, hypervisor_hostname="host1", vcpus=4, vcpus_used=0).bind(ledger)
    connect().sync(ro.Provider("host1", "VCPU=2"))
    before = ledger.provider("host1")
    with raises_code("ProviderExists", match="with the uuid"):
        node.save()
    assert ledger.provider("host1") == before


def test_a_definition_is_merged_as_often_as_the_ledger_tries(ledger, monkeypatch):
    node = ComputeNode.load(ledger, "host0")
    tries = []

    def define(write):
        tries.append(write.definitions)
        raise exceptions.Stale("provider", "host0", "always")

    monkeypatch.setattr(ledger.backend, "commit", define)
    node.inventories["VCPU"].total = 16
    with raises_code("StaleDefinition", match="always"):
        node.save()
    assert len(tries) == 1 + ledger.retries.definitions


# --- saving what is used ------------------------------------------------------------------------


def test_save_is_one_claim_of_the_unattributed_consumer(ledger):
    node = ComputeNode.load(ledger, "host0")
    node.inventories.consume("VCPU=2,MEMORY_MB=1024")
    node.inventories["VCPU"].consume(ro.IntegerAmount(1))
    assert held(ledger, "host0/unattributed") == "nothing"
    result = node.save()
    assert result and str(result) == "host0/unattributed holds VCPU=3,MEMORY_MB=1024 of host0"
    assert str(ledger.get_claim("host0/unattributed")) == str(result.claim)
    assert not node.pending and node.vcpus_used == 3


def test_save_is_a_claim_of_the_consumer_it_is_bound_to(ledger):
    node = ComputeNode.load(ledger, "host0", "job-7")
    node.inventories.consume("VCPU=2")
    node.save()
    node.inventories.consume("VCPU=1")
    node.save()
    assert held(ledger, "job-7") == "VCPU=3" and held(ledger, "host0/unattributed") == "nothing"
    node.inventories.consume("VCPU=-3")
    node.save()
    assert held(ledger, "job-7") == "nothing" and used(ledger) == 0


def test_two_views_never_overwrite_each_other(connect, ledger):
    item = ComputeNode.load(ledger, "host0")
    other = ComputeNode.load(connect(), "host0", "job-1")
    item.inventories.consume("VCPU=3")
    other.inventories.consume("VCPU=4")
    item.save()
    other.save()
    assert used(ledger) == 7 and other.vcpus_used == 7 and item.vcpus_used == 3
    item.inventories.consume("VCPU=-1")
    item.save()
    assert item.vcpus_used == 6 == used(ledger) and held(ledger, "job-1") == "VCPU=4"


def test_two_views_of_one_consumer_add_up(connect, ledger):
    views = [ComputeNode.load(connect(), "host0") for _ in range(3)]
    for view in views:
        view.inventories.consume("VCPU=2")
    for view in views:
        view.save()
    assert held(ledger, "host0/unattributed") == "VCPU=6"


def test_what_was_set_absolutely_is_saved_as_a_difference(connect, ledger):
    node = ComputeNode.load(ledger, "host0")
    connect().claim("job-1", {"host0": "VCPU=5"})
    node.update_inventories(
        {"VCPU": ro.IntegerInventory(8, allocation_ratio=2, used=2)}  # it saw 0 before
    )
    node.save()
    assert used(ledger) == 7 and held(ledger, "host0/unattributed") == "VCPU=2"


def test_after_a_refusal_less_can_be_saved(connect, ledger):
    node = ComputeNode.load(ledger, "host0")
    node.inventories.consume("VCPU=8")
    connect().claim("job-1", {"host0": "VCPU=13"})
    with pytest.raises(ro.CapacityException):
        node.save()
    node.inventories.consume("VCPU=-5")
    node.save()
    assert held(ledger, "host0/unattributed") == "VCPU=3" and node.vcpus_used == 16


def test_all_that_the_consumer_holds_is_bound_by_the_unit_rules(ledger):
    host = ledger.provider("host0")
    host.inventories["VCPU"].max_unit = 8
    ledger.sync(host)
    node = ComputeNode.load(ledger, "host0", "job-0")
    node.inventories.consume("VCPU=6")
    node.check_save()
    node.inventories.consume("VCPU=3")  # one by one, the sum of the consumer is not checked
    before = node.pending, node.to_row()
    for refused in (node.check_save, node.save):
        with raises_code("UnitRuleViolated", match="one claim allocates at most 8"):
            refused()
        assert (node.pending, node.to_row()) == before and used(ledger) == 0
    node.inventories.consume("VCPU=-3")
    node.save()
    again = ComputeNode.load(ledger, "host0", "job-0")
    again.inventories.consume("VCPU=3")
    with raises_code("UnitRuleViolated"):
        again.check_save()
    node.inventories.consume("VCPU=2")
    node.check_save()
    node.save()
    other = ComputeNode.load(ledger, "host0", "job-1")  # holds nothing yet
    other.inventories.consume("VCPU=8")
    other.save()
    assert used(ledger) == 16


def test_a_definition_is_not_saved_for_what_the_unit_rules_refuse_then(ledger):
    host = ledger.provider("host0")
    host.inventories["VCPU"].max_unit = 6
    ledger.sync(host)
    node = ComputeNode.load(ledger, "host0", "job-0")
    node.inventories.consume("VCPU=6")
    node.save()
    node.inventories["VCPU"].total = 9
    node.update_inventories({"VCPU": ro.IntegerInventory(9, allocation_ratio=2, used=7)})
    with raises_code("UnitRuleViolated", match="requested 7, one claim allocates at most 6"):
        node.save()
    assert ledger.provider("host0").inventories["VCPU"].total == 8 and used(ledger) == 6


def test_the_unattributed_consumer_stands_for_many_and_may_overcommit(ledger):
    host = ledger.provider("host0")
    host.inventories["VCPU"].max_unit = 8
    ledger.sync(host)
    node = ComputeNode.load(ledger, "host0")
    node.inventories.consume("VCPU=8")
    node.inventories.consume("VCPU=6")
    with raises_code("UnitRuleViolated", match="requested 9, one claim allocates at most 8"):
        node.inventories.consume("VCPU=9")
    node.save()
    assert used(ledger) == 14


def test_reload_drops_what_is_pending(connect, ledger):
    node = ComputeNode.load(ledger, "host0")
    cpus = node.inventories["VCPU"]
    node.inventories.consume("VCPU=8")
    connect().claim("job-1", {"host0": "VCPU=5"})
    node.reload()
    assert not node.pending and node.vcpus_used == 5 and cpus.used == 5
    assert node.inventories["VCPU"] is cpus
    assert not node.save() and used(ledger) == 5


def test_reload_shows_what_others_defined(connect, ledger):
    node = ComputeNode.load(ledger, "host0")
    memory = node.inventories["MEMORY_MB"]
    host = connect().provider("host0")
    host.inventories["VCPU"].update(total=16, allocation_ratio="1.5")
    host.inventories["DISK_GB"] = 50
    del host.inventories["MEMORY_MB"]
    ledger.sync(host)
    node.reload()
    assert node.changes() == {
        "vcpus": 16,
        "cpu_allocation_ratio": 1.5,
        "memory_mb": 0,
        "memory_mb_used": 0,
        "free_ram_mb": 0,
        "local_gb": 50,
        "free_disk_gb": 50,
    }
    assert not memory.can_provide(ro.IntegerAmount(1)) and "MEMORY_MB" not in node.inventories
    assert not node.save()


def test_carried_columns_and_reports_of_disk_write_nothing_to_the_ledger(ledger):
    node = ComputeNode.load(ledger, "host0")
    before = ledger.provider("host0")
    for free in (50, 40):
        node.update(disk_available_least=free, running_vms=free, stats="{}")
        assert not node.save()
    assert ledger.provider("host0") == before
    assert node.changes() == {"disk_available_least": 40, "running_vms": 40, "stats": "{}"}


def test_a_report_counts_what_others_take_after_it(connect, ledger):
    host = ledger.provider("host0")
    host.inventories["DISK_GB"] = 100
    ledger.sync(host)
    node = ComputeNode.load(ledger, "host0")
    node.disk_available_least = 20
    connect().claim("job-1", {"host0": "DISK_GB=15"})
    node.inventories.consume("DISK_GB=2")
    node.save()
    assert node.local_gb_used == 17 and node.limits == ro.Limits(DISK_GB=20)
    assert not node.inventories.can_provide("DISK_GB=4") and node.inventories.can_provide(
        "DISK_GB=3"
    )


def test_save_does_not_forget_what_a_row_still_has_to_be_reported(ledger):
    node = ComputeNode.load(ledger, "host0")
    node.inventories.consume("VCPU=2")
    node.save()
    assert node.changes() == {"vcpus_used": 2}


# --- lost acknowledgements ----------------------------------------------------------------------


@pytest.mark.parametrize("done", [True, False])
@pytest.mark.parametrize("further", [3, -1, -2])
def test_what_is_consumed_after_a_lost_connection_is_saved_too(ledger, monkeypatch, done, further):
    node = ComputeNode.load(ledger, "host0")
    node.inventories.consume("VCPU=2")
    lose_connection(monkeypatch, ledger, done=done)
    with raises_code("LostConnection"):
        node.save()
    node.inventories.consume({"VCPU": further})
    node.save()
    assert used(ledger) == 2 + further == node.vcpus_used


def test_what_was_sent_and_not_done_can_still_be_refused(connect, ledger, monkeypatch):
    node = ComputeNode.load(ledger, "host0")
    node.inventories.consume("VCPU=8")
    lose_connection(monkeypatch, ledger, done=False)
    with raises_code("LostConnection"):
        node.save()
    connect().claim("job-1", {"host0": "VCPU=8"})
    connect().claim("job-2", {"host0": "VCPU=8"})
    with pytest.raises(ro.CapacityException):
        node.save()
    assert node.pending == ro.Amounts(VCPU=8)
    ledger.release("job-1")
    node.save()
    assert used(ledger) == 16


def test_an_operation_of_one_s_own_is_done_once(connect, ledger):
    operation = "0b6f7c1e-58a5-4a5b-8c39-3d7f3f0f5f11"
    first = ComputeNode.load(connect(), "host0", "job-1")
    first.inventories.consume("VCPU=2")
    again = copy.deepcopy(first)
    first.save(operation=operation)
    again.save(operation=operation)
    assert used(ledger) == 2
    with raises_code("InvalidName"):
        again.save(operation="again")


def test_one_operation_is_not_for_two_changes(ledger, monkeypatch):
    operation = "0b6f7c1e-58a5-4a5b-8c39-3d7f3f0f5f11"
    node = ComputeNode.load(ledger, "host0")
    node.inventories.consume("VCPU=2")
    lose_connection(monkeypatch, ledger, done=True)
    with raises_code("LostConnection"):
        node.save(operation=operation)
    node.inventories.consume("VCPU=1")
    with raises_code("OperationConflict"):
        node.save(operation=operation)
    node.save()
    assert used(ledger) == 3


def test_a_reload_gives_up_what_was_sent(ledger, monkeypatch):
    node = ComputeNode.load(ledger, "host0")
    node.inventories.consume("VCPU=2")
    lose_connection(monkeypatch, ledger, done=True)
    with raises_code("LostConnection"):
        node.save()
    node.reload()
    assert node.vcpus_used == 2 and not node.pending and not node.save()


def test_binding_again_to_the_same_ledger_still_knows_what_was_sent(ledger, monkeypatch):
    node = ComputeNode.load(ledger, "host0")
    node.inventories.consume("VCPU=2")
    lose_connection(monkeypatch, ledger, done=True)
    with raises_code("LostConnection"):
        node.save()
    node.bind(ledger)
    node.save()
    assert used(ledger) == 2


# --- many processes -----------------------------------------------------------------------------


def test_a_class_that_a_pool_gives_is_not_counted_at_the_node_too(ledger):
    ledger.sync(ro.Provider("nfs", "DISK_GB=1000"), ro.Provider("host9", "VCPU=4"))
    ledger.pools.share("nfs", hosts=["host9"])
    node = ComputeNode.load(ledger, "host9")
    node.update_inventories({"DISK_GB": ro.IntegerInventory(100)})
    with raises_code("CountedTwice", match="DISK_GB"):
        node.save()
    assert "DISK_GB" not in ledger.provider("host9").inventories
