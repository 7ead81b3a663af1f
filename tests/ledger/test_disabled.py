"""Hosts, devices and other providers out of service, as whoever runs the ledger sees it."""

from __future__ import annotations

import datetime
import json
import pickle
import time

import os_traits
import pytest

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.providers.disabled import TRAIT, Disabled
from resource_objects.providers.reshape import Move, Part, Reshape
from resource_objects.reasons import Rule
from resource_objects.testing.refusals import is_one_of, raises_code

DAY = datetime.timedelta(days=1)


@pytest.fixture
def ledger() -> ro.Ledger:
    """Three hosts with two GPUs each."""
    made = ro.connect("memory://", actor="admin")
    hosts = []
    for number in range(3):
        host = ro.Provider(f"host{number}", "VCPU=8")
        for gpu in range(2):
            host.add(f"host{number}/gpu{gpu}", "PGPU=1")
        hosts.append(host)
    made.sync(*hosts)
    return made


def found(ledger: ro.Ledger, request: object) -> set[str]:
    """Return the hosts that a search of a new snapshot finds."""
    return {str(one.host) for one in ledger.snapshot().candidates(request, limit=None)}


def test_the_trait_is_the_one_that_others_know() -> None:
    assert TRAIT == os_traits.COMPUTE_STATUS_DISABLED


def test_no_search_finds_it_and_says_why(ledger: ro.Ledger) -> None:
    before = ledger.snapshot()
    done = ledger.disable("host0", reason="fan")
    assert (done.name, done.disabled and done.disabled.by) == ("host0", "admin")
    after = ledger.snapshot()
    assert after.refreshed.trees == 1
    assert found(ledger, "VCPU=1") == {"host1", "host2"}
    candidates = after.candidates("VCPU=9")
    [reason] = [one for one in candidates.explain().reasons if one.where == "host0"]
    assert (reason.rule, reason.disabled) == (Rule.DISABLED, done.disabled)
    today = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}"
    assert f"host0: disabled since {today} by admin: fan" in str(candidates.explain())
    assert any(one.rule is Rule.DISABLED for one in candidates.explain().stages)
    assert json.loads(json.dumps(reason.to_dict()))["disabled"]["reason"] == "fan"
    assert "host0" in {str(one.host) for one in before.candidates("VCPU=1")}
    assert ledger.enable("host0").disabled is None
    assert found(ledger, "VCPU=1") == {"host0", "host1", "host2"}


def test_of_one_device_only_that_one_is_lost(ledger: ro.Ledger) -> None:
    ledger.disable("host0/gpu0", reason="xid 79")
    for other in ("host1", "host2"):
        ledger.disable(other, reason="fan")
    [one] = ledger.snapshot().candidates("PGPU=1", limit=None)
    assert [part.provider for part in one.allocations] == ["host0/gpu1"]
    assert "host0/gpu0: disabled since" in str(ledger.snapshot().candidates("PGPU=2").explain())
    assert "gpu0" not in str(ledger.snapshot().candidates("VCPU=9").explain())
    ledger.claim("job-1", ledger.snapshot().candidates("VCPU=1,PGPU=1"))
    with pytest.raises(exceptions.NoCandidates, match=r"host0/gpu0: disabled .*: xid 79"):
        ledger.claim("job-2", ledger.snapshot().candidates("PGPU=1"))


GPUS = {"a": 1, "b": 1, "c": 4}


@pytest.mark.parametrize(
    ("request_", "told"),
    [
        (ro.Request("PGPU=9"), "abc"),
        (ro.Request("PGPU=9", required=["CUSTOM_BIG"]), "bc"),
        (ro.Request("PGPU=9", forbidden=["CUSTOM_BIG"]), "a"),
        (ro.Request("PGPU=9", member_of=[["fast"]]), "c"),
        (ro.Request("PGPU=9,VCPU=1", required=["CUSTOM_BIG"]), "bc"),
        (ro.Request("PGPU=9,VCPU=1", required=["CUSTOM_HOST"]), "abc"),
        (ro.Request(groups=[ro.RequestGroup("PGPU=3", suffix="_A")]), "c"),
        (
            ro.Request(groups=[ro.RequestGroup("PGPU=1", suffix="_A", required=["CUSTOM_BIG"])]),
            "bc",
        ),
        (ro.Request(groups=[ro.RequestGroup("PGPU=1", suffix="_A", required=["CUSTOM_NO"])]), ""),
        (ro.Request("VCPU=9"), ""),
    ],
)
def test_only_what_would_count_is_told(request_: ro.Request, told: str) -> None:
    with ro.connect("memory://", actor="admin") as ledger:
        host = ro.Provider("host", "VCPU=8", traits=["CUSTOM_HOST"])
        for name, count in GPUS.items():
            host.add(
                f"host/{name}",
                f"PGPU={count}",
                traits=[] if name == "a" else ["CUSTOM_BIG"],
                aggregates=["fast"] if name == "c" else [],
            )
        ledger.sync(host)
        for name in GPUS:
            ledger.disable(f"host/{name}", reason="xid 79")
        found = ledger.snapshot().candidates(request_)
        assert not found
        reasons = [one for one in found.explain().reasons if one.disabled is not None]
        assert [one.where for one in reasons] == [f"host/{name}" for name in told]


def test_a_candidate_of_a_host_that_was_disabled_since_is_passed_over(ledger: ro.Ledger) -> None:
    candidates = ledger.snapshot().candidates("VCPU=1")
    assert candidates[0].host == "host0"
    ledger.disable("host0", reason="fan")
    claim = ledger.claim("job-1", candidates)
    assert [one.provider for one in claim.allocations] == ["host1"]
    with raises_code("ProviderDisabled", match=r"host0: disabled .* by admin: fan") as refused:
        ledger.claim("job-2", candidates[0])
    again = pickle.loads(pickle.dumps(refused.value))
    assert again.reasons == refused.value.reasons


def test_it_ends_in_a_snapshot_that_was_taken_before(ledger: ro.Ledger) -> None:
    until = ledger.backend.now() + datetime.timedelta(seconds=1)
    ledger.disable("host0", reason="reboot", until=until)
    snapshot = ledger.snapshot()
    required = ro.Request("VCPU=1", required=[TRAIT])
    assert [one.host for one in snapshot.candidates(required)] == ["host0"]
    assert {one.host for one in snapshot.candidates("VCPU=1")} == {"host1", "host2"}
    time.sleep(1.1)
    assert {one.host for one in snapshot.candidates("VCPU=1")} == {"host0", "host1", "host2"}
    assert not snapshot.candidates(required)
    ledger.claim("job-1", snapshot.candidates("VCPU=1")[0])


def test_who_asks_for_the_trait_finds_what_is_disabled(ledger: ro.Ledger) -> None:
    ledger.disable("host0", reason="fan")
    for compatibility in (None, "placement"):
        required = ro.Request("VCPU=1", required=[TRAIT], compatibility=compatibility)
        forbidden = ro.Request("VCPU=1", forbidden=[TRAIT], compatibility=compatibility)
        assert found(ledger, required) == {"host0"}
        assert found(ledger, forbidden) == {"host1", "host2"}
    assert found(ledger, ro.Request("VCPU=1", root_required=[TRAIT])) == {"host0"}
    assert [one.name for one in ledger.providers(required=[TRAIT])] == ["host0"]
    candidates = ledger.snapshot().candidates(ro.Request("VCPU=1", required=[TRAIT]))
    with raises_code("ProviderDisabled"):
        ledger.claim("job-1", candidates[0])
    cursor = ledger.feed.cursor()
    ledger.claim("job-1", candidates, ignore_maintenance=True)
    [told] = ledger.feed.changes(cursor)
    assert (told.actor, told.overrides) == ("admin", (ledger.provider("host0").uuid,))
    assert told.to_dict()["overrides"] == told.overrides
    assert ledger.get_claim("job-1").request == ro.Request("VCPU=1")
    again = ledger.snapshot().candidates(ledger.get_claim("job-1").request)
    assert ledger.move("job-1", again).allocations[0].provider == "host1"


def test_nobody_overrides_without_a_name() -> None:
    with ro.connect("memory://") as ledger:
        ledger.sync(ro.Provider("host0", "VCPU=8"))
        for name in ("claim", "adjust", "replace", "move"):
            with raises_code("InvalidField", match=r"ignore_maintenance.*actor"):
                getattr(ledger, name)("job-1", {"host0": "VCPU=1"}, ignore_maintenance=True)
        with raises_code("InvalidField", match="True or False"):
            ledger.claim("job-1", {"host0": "VCPU=1"}, ignore_maintenance="yes")  # type: ignore[arg-type]


def test_every_verb_that_takes_may_override(ledger: ro.Ledger) -> None:
    ledger.disable("host0", reason="fan")
    here = {"host0": "VCPU=1"}
    ledger.claim_all({"job-1": here}, ignore_maintenance=True)
    ledger.adjust("job-1", here, ignore_maintenance=True)
    ledger.replace("job-1", {"host0": "VCPU=3"}, ignore_maintenance=True)
    ledger.claim("job-2", {"host1": "VCPU=1"})
    with raises_code("ProviderDisabled"):
        ledger.move("job-2", here)
    ledger.move("job-2", here, ignore_maintenance=True)
    assert str(ledger.get_claim("job-2")) == "job-2 holds VCPU=1 of host0"


def test_the_definition_cannot_say_it(ledger: ro.Ledger) -> None:
    with raises_code("InvalidTrait", match="disable"):
        ro.Provider("host9", traits=[TRAIT])
    with raises_code("InvalidTrait", match="disable"):
        ledger.change("host0", traits=[TRAIT])


def test_it_stays_across_syncs_and_is_shown_with_the_host(ledger: ro.Ledger) -> None:
    said = ledger.disable("host0", reason="fan", until=ledger.backend.now() + DAY).disabled
    host = ro.Provider("host0", "VCPU=16")
    host.add("host0/gpu9", "PGPU=1")
    ledger.sync(host)
    assert ledger.provider("host0").disabled == said
    read = ledger.provider("host0")
    read.update(traits={"CUSTOM_A"})
    ledger.sync(read)
    assert [one.disabled for one in ledger.trees("host0")] == [said]
    ledger.enable("host0")
    ledger.sync(ro.Provider("host0", "VCPU=8"))  # of one read before, nothing is said
    assert ledger.provider("host0").disabled is None
    assert isinstance(said, Disabled)
    assert Disabled.obj_from_primitive(said.obj_to_primitive()) == said


def test_who_is_still_there_is_told_until_nobody_is(ledger: ro.Ledger) -> None:
    ledger.claim("job-1", {"host0": "VCPU=1"})
    ledger.claim("job-2", {"host0/gpu0": "PGPU=1"})
    ledger.claim("job-3", {"host1": "VCPU=1"})
    with raises_code("InvalidField", match="reason"):
        ledger.drain("host0")
    drained = ledger.drain("host0", reason="fan")
    assert [one.name for one in drained] == ["job-1", "job-2"]
    assert "job-1 holds VCPU=1 of host0" in str(drained)
    assert drained.to_dict()["consumers"] == ["job-1", "job-2"]
    assert [one.name for one in ledger.drain("host0/gpu0", reason="fan")] == ["job-2"]
    ledger.confirm("job-1")
    ledger.move("job-1", {"host1": "VCPU=1"})
    ledger.release("job-2")
    drained = ledger.drain("host0")
    assert not drained and len(drained) == 0 and "no consumers" in str(drained)
    assert drained.disabled is not None and drained.disabled.reason == "fan"


def test_a_migration_away_can_be_taken_back(ledger: ro.Ledger) -> None:
    ledger.claim("vm", {"host0": "VCPU=1"})
    ledger.disable("host0", reason="fan")
    ledger.move("vm", {"host1": "VCPU=1"}, source_consumer="vm-old")
    ledger.swap("vm", "vm-old")
    ledger.release("vm-old")
    assert str(ledger.get_claim("vm")) == "vm holds VCPU=1 of host0"


def test_a_reshape_within_it_is_none_to_it(ledger: ro.Ledger) -> None:
    ledger.claim("vm", {"host1": "VCPU=1"})
    ledger.disable("host0", reason="fan")
    moved = Reshape(moves=(Move("host1", "VCPU", (Part("host0/gpu0"),)),))
    for dry_run in (True, False):
        with raises_code("ProviderDisabled", match="host0: disabled"):
            ledger.reshape(moved, dry_run=dry_run)
    assert str(ledger.get_claim("vm")) == "vm holds VCPU=1 of host1"


def test_a_pool_is_disabled_by_itself_and_not_with_a_host() -> None:
    with ro.connect("memory://") as ledger:
        ledger.sync(*(ro.Provider(f"host{n}", "VCPU=8") for n in range(2)))
        ledger.sync(ro.Provider("nfs", "DISK_GB=100"))
        ledger.pools.share("nfs", hosts=["host0", "host1"])
        asked = "VCPU=1,DISK_GB=1"
        ledger.disable("host0", reason="fan")
        assert found(ledger, asked) == {"host1"}
        ledger.disable("nfs", reason="disk")
        assert found(ledger, asked) == set()
        assert "nfs: disabled" in str(ledger.snapshot().candidates(asked).explain())
        with raises_code("ProviderDisabled", match="nfs: disabled"):
            ledger.claim("job-1", {"host1": "VCPU=1", "nfs": "DISK_GB=1"})
        assert found(ledger, "VCPU=1") == {"host1"}


def test_named_groups_do_not_get_it_either(ledger: ro.Ledger) -> None:
    request = ro.Request(
        "VCPU=1",
        groups=[ro.RequestGroup("PGPU=1", suffix="_A"), ro.RequestGroup("PGPU=1", suffix="_B")],
    )
    assert found(ledger, request) == {"host0", "host1", "host2"}
    ledger.disable("host0/gpu0", reason="xid 79")
    ledger.disable("host1", reason="fan")
    assert found(ledger, request) == {"host2"}
    told = str(ledger.snapshot().candidates(request, limit=None).explain())
    assert "host0/gpu0: disabled" in told and "host1: disabled" in told


def test_a_topology_goes_to_the_cells_that_are_in_service() -> None:
    with ro.connect("memory://", actor="admin") as ledger:
        host = ro.Provider("host0", "PCPU=8")
        cells = [ro.HostCell(n, dedicated=range(4 * n, 4 * n + 4)) for n in (0, 1)]
        host.add_parts("NUMA_TOPOLOGY", ro.NUMATopologyInventory(cells))
        gpus = [
            ro.Device(f"0000:8{n}:00.0", "10de", "20b0", resource_class="PGPU", numa_node=n)
            for n in (0, 1)
        ]
        host.add_parts("DEVICES", ro.PCIInventory(gpus))
        ledger.sync(host)
        ledger.disable("host0/numa0", reason="dimm")
        ledger.disable("host0/0000:80:00.0", reason="xid 79")
        asked = ro.Amounts(
            {"NUMA_TOPOLOGY": ro.numa(1, dedicated=2), "DEVICES": ro.devices("PGPU")}
        )
        assert str(ledger.claim("job-1", {"host0": asked})).endswith(
            "PCPU=2 of host0/numa1, PGPU=1 of host0/0000:81:00.0"
        )
        with pytest.raises(exceptions.CapacityException) as refused:
            ledger.claim("job-2", {"host0": "NUMA_TOPOLOGY=1:dedicated=4"})
        short, out = refused.value.reasons
        assert (short.cell, short.bound, short.holders) == (1, 4, (("job-1", 2),))
        assert (out.where, out.disabled and out.disabled.reason) == ("host0/numa0", "dimm")
        assert not is_one_of(refused.value, "ProviderDisabled")  # job-1 may go
        taken = ledger.claim(
            "job-2", {"host0": "NUMA_TOPOLOGY=1:dedicated=4"}, ignore_maintenance=True
        )
        assert [part.provider for part in taken.allocations if part.units] == ["host0/numa0"]
        ledger.release("job-2")
        [one] = ledger.snapshot().candidates("NUMA_TOPOLOGY=1:dedicated=2")
        assert [part.provider for part in one.allocations] == ["host0/numa1"]
        told = str(ledger.snapshot().candidates({"DEVICES": ro.devices("PGPU")}).explain())
        assert "host0/0000:80:00.0: disabled" in told


def test_a_search_below_a_disabled_host_says_so(ledger: ro.Ledger) -> None:
    ledger.disable("host0", reason="fan")
    candidates = ledger.snapshot(at="host0/gpu0").candidates("PGPU=1")
    assert not candidates
    assert "host0: disabled" in str(candidates.explain())


def test_bad_input_is_refused(ledger: ro.Ledger) -> None:
    for bad in ("", "two\nlines", 7, None):
        with pytest.raises(exceptions.InvalidInput):
            ledger.disable("host0", reason=bad)  # type: ignore[arg-type]
    for until in ("tomorrow", datetime.datetime(2030, 1, 1), ledger.backend.now() - DAY):
        with raises_code("InvalidField", match="until"):
            ledger.disable("host0", reason="fan", until=until)  # type: ignore[arg-type]
    for verb in (ledger.enable, lambda name: ledger.disable(name, reason="fan")):
        with raises_code("ProviderNotFound", match="host7"):
            verb("host7")
    with raises_code("InvalidField", match="until"):
        ledger.disable("host0", reason="fan")
        ledger.drain("host0", until=ledger.backend.now() + DAY)


def test_a_repeated_operation_is_done_once(ledger: ro.Ledger) -> None:
    from resource_objects.ledger import new_operation

    once = new_operation()
    ledger.disable("host0", reason="fan", operation=once)
    ledger.enable("host0")
    assert ledger.disable("host0", reason="fan", operation=once).disabled is None
    with raises_code("OperationConflict"):
        ledger.enable("host0", operation=once)


def test_a_compute_node_is_saved_as_it_is_and_takes_no_more() -> None:
    with ro.connect("memory://", actor="admin") as ledger:
        row = {"hypervisor_hostname": "host0", "vcpus": 8, "vcpus_used": 2}
        node = ro.ComputeNode.from_row(row).bind(ledger)
        node.save()
        ledger.disable("host0", reason="fan")
        node.reload()
        node.inventories["VCPU"].total = 16
        node.save()
        assert ledger.provider("host0").disabled is not None
        node.inventories["VCPU"].total = 32
        node.inventories["VCPU"].consume(ro.IntegerAmount(1))
        for refused in (node.check_save, node.save):
            with raises_code("ProviderDisabled", match="host0: disabled"):
                refused()
        assert ledger.provider("host0").inventories["VCPU"].total == 16
        node.inventories["VCPU"].consume(ro.IntegerAmount(-2))
        node.save()
        assert ledger.provider("host0").inventories["VCPU"].used == 1


def test_a_record_of_a_disabled_host_is_adopted() -> None:
    with ro.connect("memory://", actor="admin") as ledger:
        ledger.sync(ro.Provider("host0", "VCPU=8"))
        ledger.disable("host0", reason="fan")
        row = {"hypervisor_hostname": "host0", "vcpus": 8, "vcpus_used": 2}
        ro.ComputeNode.from_row(row).bind(ledger).save()
        assert str(ledger.attribute("host0", "vm-1", {"host0": "VCPU=1"})) == (
            "vm-1 holds VCPU=1 of host0"
        )


# --- one virtual function ---


def test_a_virtual_function_that_somebody_has_is_held_when_it_is_given_back(url: str) -> None:
    """The card is disabled meanwhile, so that nobody else gets it, also who searched before."""
    card = ro.Device("0000:3b:00.0", "8086", "1563", "type-PF", resource_class="CUSTOM_NIC")
    functions = [
        ro.Device(
            f"0000:3b:02.{n}",
            "8086",
            "154c",
            "type-VF",
            parent=card.address,
            resource_class="SRIOV_NET_VF",
        )
        for n in range(3)
    ]

    def host() -> ro.Provider:
        made = ro.Provider("host", "VCPU=8")
        made.add_parts("DEVICES", ro.PCIInventory([card, *functions]))
        return made

    where = f"host/{card.address}"
    with ro.connect(url, actor="admin") as ledger:
        ledger.sync(host())
        (function,) = (
            ledger.claim("job", ledger.snapshot().candidates("SRIOV_NET_VF=1")).allocations[0].units
        )
        this = f"DEVICES=address={function}"
        ledger.disable(where, reason="link")
        before = ledger.snapshot().candidates(
            ro.Request("SRIOV_NET_VF=1", required=[TRAIT]), limit=None
        )
        ledger.release("job")
        with raises_code("ProviderDisabled"):
            ledger.claim("other", before)
        again = ledger.snapshot().candidates(ro.Request(this, required=[TRAIT]))
        held = ledger.claim("out-of-service", again, ignore_maintenance=True)
        assert held.allocations[0].units == (function,)
        ledger.enable(where)
        assert not ledger.sync(host())
        refused = ledger.snapshot().candidates(this)
        assert not refused and "out-of-service holds 1" in str(refused.explain())
        with pytest.raises(exceptions.CapacityException, match="out-of-service"):
            ledger.claim("other", {where: "SRIOV_NET_VF=3"})
        with pytest.raises(exceptions.CapacityException, match="out-of-service"):
            ledger.claim("other", ledger.snapshot().candidates("CUSTOM_NIC=1"))
        (two,) = ledger.claim("other", {"host": "DEVICES=2*SRIOV_NET_VF"}).allocations
        assert function not in two.units and len(two.units) == 2
