"""Syncs, claims and releases of the devices of a host, in any order."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

import resource_objects as ro
from resource_objects.host.device_rules import machine_devices
from resource_objects.host.holdings import DeviceStatus, read_devices
from resource_objects.host.machine import Core, DeviceKind, Machine, PCIDevice
from resource_objects.host.settings import HostSettings
from resource_objects.host.sync import sync_host
from resource_objects.host.tree import provider_tree
from resource_objects.providers.audit import FindingKind
from tests.host.trees import virtual_functions
from tests.support.lengths import examples

GPUS = tuple(PCIDevice(f"0000:{bus}:00.0", "10de", "2330", "030200") for bus in ("3b", "5e"))
PF = PCIDevice("0000:60:00.0", "8086", "37d2", "020000", kind=DeviceKind.PF, sriov_totalvfs=8)
VFS = virtual_functions(PF, 3)
WHOLE = dataclasses.replace(PF, kind=DeviceKind.PCI, sriov_totalvfs=None)
#: The possible content of the slots of a host.
SHOWN = st.tuples(
    st.sampled_from([(), GPUS[:1], GPUS]),
    st.sampled_from([(), (PF,), (WHOLE,), (PF, *VFS[:1]), (PF, *VFS)]),
    st.sampled_from([None, 0, 1]),
)
RULES = st.sampled_from(
    [
        (),
        ("10de:*=PGPU", "8086:37d2=CUSTOM_NIC", "8086:154c=SRIOV_NET_VF"),
        ("10de:*=PGPU+CUSTOM_H100;pool=a", "8086:154c=SRIOV_NET_VF"),
        ("10de:*=PGPU;one_time_use", "8086:*=CUSTOM_NIC"),
        ("10de:*=CUSTOM_GPU", "8086:37d2=SRIOV_NET_VF", "8086:154c=CUSTOM_NIC"),
    ]
)
CLASSES = ("PGPU", "CUSTOM_GPU", "CUSTOM_NIC", "SRIOV_NET_VF")


class Host(RuleBasedStateMachine):
    """A host that is synced repeatedly while jobs claim and release its devices."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = ro.connect("memory://")
        self.jobs: dict[str, tuple[str, ...]] = {}
        self.count = 0
        self.offered: frozenset[str] = frozenset()
        self.sync(((), (), None), ())

    def teardown(self) -> None:
        self.ledger.close()

    @property
    def kept(self) -> dict[str, DeviceStatus]:
        (host,) = read_devices(self.ledger, "box")
        return {device.device.address: device for device in host.devices}

    # --- what happens ---

    @rule(shown=SHOWN, rules=RULES)
    def sync(self, shown, rules) -> None:
        gpus, nics, node = shown
        devices = tuple(dataclasses.replace(finding, numa_node=node) for finding in (*gpus, *nics))
        self.machine = Machine(
            hostname="box",
            cpus=(0,),
            cores=(Core(0, 0, (0,)),),
            memory_bytes=0,
            devices=devices,
        )
        self.rules = rules
        done = sync_host(self.ledger, provider_tree(self.machine, HostSettings(device_rules=rules)))
        result = {device.address for device in machine_devices(self.machine, rules).devices}
        stays = {finding.subject for finding in done.findings}
        assert set(self.kept) - result <= stays  # stored devices that were removed are reported
        assert result - set(self.kept) <= stays
        self.offered = frozenset(result)

    @rule(kind=st.sampled_from(CLASSES), count=st.integers(1, 2), named=st.booleans())
    def take(self, kind: str, count: int, named: bool) -> None:
        request = f"DEVICES={count}*{kind}" if named else f"{kind}={count}"
        free = {address for address, allocation in self.kept.items() if allocation.is_free}
        result = self.ledger.snapshot().candidates(request)
        if not result:
            return
        self.count += 1
        name = f"job-{self.count}"
        units = [
            u
            for allocation in self.ledger.claim(name, result).allocations
            for u in allocation.units
        ]
        assert set(units) <= free
        assert set(units) <= self.offered  # a removed device is not allocated
        self.jobs[name] = tuple(units)

    @rule(data=st.data())
    def give_back(self, data) -> None:
        if self.jobs:
            name = data.draw(st.sampled_from(sorted(self.jobs)))
            self.ledger.release(name)
            del self.jobs[name]

    @rule()
    def settle(self) -> None:
        """Give everything back, look again, and see what the machine shows."""
        for name in list(self.jobs):
            self.ledger.release(name)
            del self.jobs[name]
        spent = [a for a, item in self.kept.items() if item.state == "spent"]
        tree = provider_tree(self.machine, HostSettings(device_rules=self.rules))
        sync_host(self.ledger, tree, reset=[a for a in spent if self.kept[a].device.one_time_use])
        sync_host(self.ledger, tree)
        now = {a for a, item in self.kept.items() if item.state != "spent"}
        assert now <= self.offered
        assert {a for a in self.offered if a not in now} <= {
            a for a, item in self.kept.items() if item.state == "spent"
        }
        assert not sync_host(self.ledger, tree).result

    # --- what always holds ---

    @invariant()
    def nobody_has_what_somebody_else_has(self) -> None:
        units = [unit for mine in self.jobs.values() for unit in mine]
        assert len(units) == len(set(units))
        stored = self.kept
        for name, mine in self.jobs.items():
            for unit in mine:
                assert unit in stored  # allocated devices are stored
                assert stored[unit].holders in ((name,), ())
                assert not stored[unit].is_free

    @invariant()
    def what_excludes_each_other_is_not_held_at_once(self) -> None:
        stored = self.kept
        for item in stored.values():
            above = stored.get(item.device.parent or "")
            if above is not None and item.is_allocated:
                assert not above.is_allocated
                assert not above.is_free

    @invariant()
    def the_ledger_is_sound(self) -> None:
        """Only removed devices that are allocated are over their capacity."""
        results = [
            item for item in self.ledger.audit() if item.kind is not FindingKind.OVER_CAPACITY
        ]
        assert not results, results
        assert self.jobs or not list(self.ledger.usage(over_capacity=True))


TestHost = pytest.mark.law(4)(Host.TestCase)
TestHost.settings = settings(max_examples=examples(40), stateful_step_count=20, deadline=None)
