"""Changes as lines of text, each done in a scenario as its method does it."""

from __future__ import annotations

import pytest

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.resources.pci import Device
from resource_objects.search.script import VERBS, Change, read_script
from resource_objects.testing.refusals import raises_code
from tests.search.doors import told


@pytest.fixture
def lab():
    """Two hosts with disks of a pool, and a card whose functions can go alone."""
    with ro.connect("memory://", actor="admin") as ledger:
        hosts = [ro.Provider(f"host{n}", "VCPU=8", aggregates=["store"]) for n in range(2)]
        card = Device("0000:3b:00.0", "8086", "1572", "type-PF", resource_class="CUSTOM_CARD")
        function = {"resource_class": "SRIOV_NET_VF", "parent": card.address}
        part = Device("0000:3b:02.0", "8086", "154c", "type-VF", **function)
        hosts[0].add_parts("DEVICES", ro.PCIInventory([card, part]))
        pool = ro.Provider("nfs", "DISK_GB=100", traits=["MISC_SHARES_VIA_AGGREGATE"])
        pool.update(aggregates=["store"])
        ledger.sync(*hosts, pool)
        ledger.claim("job", ledger.snapshot().candidates("VCPU=6,DISK_GB=60"))
        yield ledger


def after(ledger, *lines, requests=None):
    """Return what differs after some changes."""
    scenario = ledger.snapshot().fork()
    for one in read_script(lines):
        one.apply(scenario, requests or {})
    return str(scenario.diff()).splitlines()


def test_each_verb_does_what_its_method_does(lab):
    assert {line.split()[0] for line in SCRIPT} == set(VERBS)
    ledger, scenario = lab, lab.snapshot().fork()
    for line in SCRIPT:
        Change.parse(line).apply(scenario)
    other = ledger.snapshot().fork()
    other.release("job")
    other.claim("new", other.candidates(ro.Request("VCPU=2", in_tree="host0")))
    for host in (scenario.tree("host9"), scenario.tree("host8")):
        other.add(bare(host))
    other.resize("host1", "VCPU=16")
    other.move("new", other.candidates(ro.Request("VCPU=2", in_tree="host1")))
    other.disable("host0", reason="drained")
    other.enable("host0")
    other.disable("host0/0000:3b:00.0", reason="link down")
    assert told(scenario.snapshot) == told(other.snapshot)


SCRIPT = (
    "release job",
    "claim new VCPU=2",
    "add host8 like host0",
    "add host9 VCPU=4",
    "add host9/gpu PGPU=1 below host9",
    "reparent host9/gpu -",
    "reparent host9/gpu host9",
    "resize host1 VCPU=16",
    "move new host1",
    "drain host0",
    "enable host0",
    "remove host9/gpu",
    "disable host1 fan",
    "enable host1",
    "disable host0/0000:3b:00.0 link down",
)


def bare(host):
    """Return a tree as it would be added: read of nobody."""
    return ro.Provider(
        host.name,
        host.inventories,
        traits=host.traits,
        aggregates=host.aggregates,
        uuid=host.uuid,
        shares=host.shares,
        children=[bare(one) for one in host.children],
    )


def test_who_moves_takes_what_pools_give_along_and_keeps_its_request(lab):
    fast = ro.Request("VCPU=6,DISK_GB=60")
    scenario = lab.snapshot().fork()
    Change.parse("move job host1").apply(scenario, {"job": fast})
    assert str(scenario.diff()) == "~ job is allocated VCPU=6 of host1, DISK_GB=60 of nfs"
    lab.apply(scenario.diff())
    assert {one.name: one.request for one in lab.consumers()} == {"job": fast}


def test_who_cannot_move_there_is_told_of_that_host_alone(lab):
    lab.claim("other", {"host1": "VCPU=4"})
    with pytest.raises(exceptions.NoCandidates) as refused:
        after(lab, "move job host1")
    told_of = "no candidate for job on host1: host1: VCPU requested 6, free 4 of 8 (other holds 4)"
    assert str(refused.value) == told_of
    assert [reason.free for reason in refused.value.reasons] == [4]


def test_a_request_may_be_a_query(lab):
    query = "resources=VCPU:1&resources_NET=SRIOV_NET_VF:1&group_policy=none"
    (line,) = after(lab, f"claim new {query}")
    assert (
        line
        == "+ new allocates VCPU=1 of host0, SRIOV_NET_VF=1 (0000:3b:02.0) of host0/0000:3b:00.0"
    )


def test_names_may_have_what_shells_quote(lab):
    lines = after(lab, "add 'my host'  VCPU=1  # for a day", "  ", "# nothing", "add part#1 VCPU=2")
    assert lines == ["+ my host: VCPU=1", "+ part#1: VCPU=2"]
    change = Change("disable", ("my host", "it smokes"))
    assert str(change) == "disable 'my host' 'it smokes'"
    assert Change.parse(str(change)) == change


@pytest.mark.parametrize(
    ("line", "told_of"),
    [
        ("explode", "one of claim, move, release, drain, add"),
        ("release", "release NAME"),
        ("release a b", "release NAME"),
        ("drain", "drain PROVIDER ..."),
        ("add host9 VCPU=1 above host0", "NAME INVENTORIES below PROVIDER"),
        ("add host9 as host0", "NAME like HOST"),
        ("enable host0 host1", "enable PROVIDER"),
        ("release 'job", "quotes that end"),
    ],
)
def test_what_is_no_change_is_refused_by_its_line(line, told_of):
    with raises_code("InvalidText", match="line 2: got") as refused:
        read_script(f"release job\n{line}")
    assert told_of in str(refused.value)
