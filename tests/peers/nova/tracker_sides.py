"""Two hosts that nova's resource trackers and ours follow, step by step.

Instances are built, given up, resized on their host or to the other one, migrated, evacuated,
confirmed, reverted, rebuilt, shelved and deleted; now and then nova's periodic task counts anew.
Nova chooses cells, CPUs and devices, and we take the same. After each step both say what is used;
the first thing they say otherwise is a :class:`Drift`, and it has a name or is an error.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
from collections.abc import Iterable, Iterator
from typing import Any

import resource_objects as ro
from benchmarks.nova_tracker import Agent, Database, Size
from resource_objects.exceptions import CapacityException
from resource_objects.host.tracker import Driver, MigrationKind, ResourceTracker
from resource_objects.resources.numa import (
    HostCell,
    NUMATopologyAmount,
    NUMATopologyInventory,
    PagePool,
    PlacedCell,
)
from resource_objects.resources.pci import (
    Device,
    DeviceRequest,
    DeviceSpec,
    PCIAmount,
    PCIInventory,
    PlacedDevice,
)

HOSTS = ("box-0", "box-1")
#: CPUs and MiB of each of two cells; what is left of the memory is for who has no topology.
CPUS, MEMORY_MB = 4, 2560
VCPUS, DISK_GB = 64, 100

ALIASES = {
    "gpu": DeviceSpec(vendor_id="10de", product_id="2330"),
    "pf": DeviceSpec(vendor_id="8086", product_id="1572", types=["type-PF"]),
    "vf": DeviceSpec(vendor_id="8086", product_id="154c", types=["type-VF"]),
}
WHOLE = "0000:3b:00.0"
DEVICES = (
    *(
        Device(f"0000:{n + 1}0:00.0", "10de", "2330", resource_class="PGPU", numa_node=n % 2)
        for n in range(4)
    ),
    Device(WHOLE, "8086", "1572", "type-PF", resource_class="CUSTOM_PF", numa_node=0),
    *(
        Device(
            f"0000:3b:02.{n}",
            "8086",
            "154c",
            "type-VF",
            parent=WHOLE,
            resource_class="CUSTOM_VF",
            numa_node=0,
        )
        for n in range(3)
    ),
)


class Drift(enum.Enum):
    """A difference of nova's tracker, from the step on that is named."""

    SWAP = "swap is added to whole GB as a fraction, and each sum is cut"
    COUNTS_UNSEEN = "CPUs, memory and disk are not looked at by a claim"
    SEEN_AND_NOT_TAKEN = "a test passes for a function and its parts, and taking them raises"
    FORGOTTEN = "who moved is not tracked: deleting or shelving it gives nothing back"
    LIVE_DEVICES = "a live migration looks at devices and takes none"


def cells() -> NUMATopologyInventory:
    """Return the cells of a host."""
    return NUMATopologyInventory(
        [
            HostCell(
                number,
                dedicated=cpus,
                siblings=[[cpu] for cpu in cpus],
                memory_mb=MEMORY_MB,
                pages=[PagePool(size_kib=4, total=MEMORY_MB * 256)],
            )
            for number in (0, 1)
            for cpus in [range(CPUS * number, CPUS * (number + 1))]
        ]
    )


class _Lab(Driver):
    """An agent that says which hosts it has."""

    def hosts(self) -> Iterable[str]:
        return HOSTS

    def get_available_resource(self, host: str) -> str:
        raise AssertionError("claims do not ask what a host has")


@dataclasses.dataclass
class Held:
    """An instance that both have, and its move while there is one."""

    instance: Any
    host: str  #: "" of one that is shelved
    size: Size
    migration: Any = None
    kind: MigrationKind = MigrationKind.RESIZE
    source: str = ""
    before: Size | None = None


class Site:
    """Both sides of two hosts.

    :param database: nova's, in place
    """

    def __init__(self, ledger: ro.Ledger, database: Database) -> None:
        self.ledger = ledger
        self.tracker = ResourceTracker(ledger, _Lab())
        totals = {"vcpus": VCPUS, "memory_mb": 2 * MEMORY_MB, "local_gb": DISK_GB}
        self.agents = {host: Agent(host, database, cells(), DEVICES, totals) for host in HOSTS}
        for host, agent in self.agents.items():
            ledger.sync(_provider(host))
            agent.update()
        self.held: dict[str, Held] = {}
        self.sizes: list[Size] = []

    # --- steps ---

    def claim(self, name: str, host: str, size: Size, *, aborts: bool = False) -> Drift | None:
        """Both claim for a build, or neither can; and if it fails, give it up again."""
        agent = self.agents[host]
        instance = agent.instance(name, size)
        before = self._devices(host)
        ours = self._refusal(name, host, size)
        said, claim = self._nova(lambda: agent.claim(instance))
        if (drift := self._differ(said, ours)) or ours:
            return drift
        taken = self._taken(host, size, instance.numa_topology, before)
        held = self.tracker.claim(name, host, taken)
        self.sizes.append(size)
        if aborts:
            agent.abort(claim, instance)
            held.revert()
        else:
            agent.finish_build(instance)
            held.confirm()
            self.held[name] = Held(instance, host, size)
        return self.drift()

    def resize(self, name: str, host: str, size: Size) -> Drift | None:
        """Both resize to a host, as far as it waits to be confirmed; or neither can."""
        return self._move(name, host, size, MigrationKind.RESIZE)

    def live_migrate(self, name: str, host: str) -> Drift | None:
        """Both copy to another host, as far as it waits to be done; or neither can."""
        return self._move(name, host, self.held[name].size, MigrationKind.LIVE_MIGRATION)

    def evacuate(self, name: str, host: str) -> Drift | None:
        """Both claim elsewhere, as the host is dead; it is until that is decided."""
        return self._move(name, host, self.held[name].size, MigrationKind.EVACUATION)

    def _move(self, name: str, host: str, size: Size, kind: MigrationKind) -> Drift | None:
        held, agent = self.held[name], self.agents[host]
        begin = {
            MigrationKind.RESIZE: lambda: agent.resize(held.instance, size),
            MigrationKind.LIVE_MIGRATION: lambda: agent.live_migrate(held.instance),
            MigrationKind.EVACUATION: lambda: agent.evacuate(held.instance),
        }[kind]
        before = self._devices(host)
        ours = self._refusal(name, host, size)
        said, migration = self._nova(begin)
        if (drift := self._differ(said, ours)) or ours:
            return drift
        topology = held.instance.numa_topology
        if kind is not MigrationKind.RESIZE:  # that applies it at once
            topology = held.instance.migration_context.new_numa_topology
        taken = self._taken(host, size, topology, before)
        self.tracker.move(name, host, taken, kind=kind, migration=migration.uuid)
        self.sizes.append(size)
        self.held[name] = Held(held.instance, host, size, migration, kind, held.host, held.size)
        return self.drift()

    def confirm(self, name: str) -> Drift | None:
        """Both confirm a move; an evacuation, when the host is back."""
        held = self.held[name]
        here, there = self.agents[held.source], self.agents[held.host]
        if held.kind is MigrationKind.RESIZE:
            here.confirm(held.instance, held.migration)
        elif held.kind is MigrationKind.LIVE_MIGRATION:
            there.finish_live_migration(held.instance, held.migration, here)
        else:
            there.finish_evacuation(held.instance, held.migration)
            here.update()
        self.tracker.confirm_move(name, held.migration.uuid)
        self.held[name] = Held(held.instance, held.host, held.size)
        return self.drift()

    def revert(self, name: str) -> Drift | None:
        """Both revert a move."""
        held = self.held[name]
        assert held.before is not None
        there = self.agents[held.host]
        back = there.revert if held.kind is MigrationKind.RESIZE else there.roll_back
        back(held.instance, held.migration)
        self.tracker.revert_move(name, held.migration.uuid)
        self.held[name] = Held(held.instance, held.source, held.before)
        return self.drift()

    def rebuild(self, name: str) -> Drift | None:
        """Both rebuild in place, with the same size."""
        held = self.held[name]
        self.agents[held.host].rebuild(held.instance)
        taken = self.ledger.get_claim(name).request or self.ledger.get_claim(name).amounts
        self.tracker.move(name, held.host, taken, kind=MigrationKind.REBUILD)
        return self.drift()

    def shelve(self, name: str) -> Drift | None:
        """Both shelve an instance that does not move."""
        held = self.held[name]
        agent = self.agents[held.host]
        is_tracked = held.instance.uuid in agent.tracker.tracked_instances
        agent.shelve(held.instance)
        self.tracker.move(name, None, kind=MigrationKind.SHELVE)
        held.host = ""
        return self._given_back(is_tracked)

    def unshelve(self, name: str, host: str, *, aborts: bool = False) -> Drift | None:
        """Both claim for what was shelved, or neither can; and if it fails, give it up again."""
        held, agent = self.held[name], self.agents[host]
        before = self._devices(host)
        ours = self._refusal(name, host, held.size)
        said, claim = self._nova(lambda: agent.unshelve(held.instance))
        if (drift := self._differ(said, ours)) or ours:
            return drift
        taken = self._taken(host, held.size, held.instance.numa_topology, before)
        move = self.tracker.move(name, host, taken, kind=MigrationKind.UNSHELVE)
        if aborts:
            claim.abort()
            held.instance.vm_state = "shelved_offloaded"
            move.revert()
        else:
            move.confirm()
            held.host = host
        return self.drift()

    def delete(self, name: str) -> Drift | None:
        """Both delete an instance that is not resized."""
        held = self.held.pop(name)
        agent = self.agents[held.host]
        is_tracked = held.instance.uuid in agent.tracker.tracked_instances
        agent.delete(held.instance)
        self.tracker.release(name)
        return self._given_back(is_tracked)

    def _given_back(self, is_tracked: bool) -> Drift | None:
        if not is_tracked and self.differences():
            return Drift.FORGOTTEN
        return self.drift()

    def look(self) -> Drift | None:
        """Nova counts anew what is used of the hosts, but for those that are dead."""
        for host, agent in self.agents.items():
            if host not in self.dead:
                agent.update()
        return self.drift()

    @property
    def dead(self) -> set[str]:
        """The hosts from which somebody is evacuated."""
        evacuated = (held for held in self.held.values() if held.kind is MigrationKind.EVACUATION)
        return {held.source for held in evacuated if held.migration is not None}

    # --- what both say ---

    def drift(self) -> Drift | None:
        """Return what nova says otherwise.

        :raises AssertionError: if that has no name
        """
        found = self.differences()
        if not found:
            return None
        if {what for _, what in found} == {"local_gb"} and any(
            size.swap_mb % 1024 for size in self.sizes
        ):
            return Drift.SWAP
        moves = [h for h in self.held.values() if h.kind is MigrationKind.LIVE_MIGRATION]
        if set(found) <= {(h.host, "devices") for h in moves if h.size.devices}:
            return Drift.LIVE_DEVICES
        raise AssertionError(found)

    def differences(self) -> dict[tuple[str, str], tuple[Any, Any]]:
        """Return the different usages by host: nova's and ours."""
        return {
            (host, what): (theirs, ours)
            for host, agent in self.agents.items()
            for (what, theirs), ours in zip(
                _nova_uses(agent).items(), self._uses(host).values(), strict=True
            )
            if theirs != ours
        }

    def _uses(self, host: str) -> dict[str, Any]:
        has = self.tracker.inventories(host)
        mine = [
            amounts[host]
            for one in self.ledger.consumers()
            for amounts in [self.ledger.assigned_amounts(one.name)]
            if host in amounts
        ]
        cpus = [a["NUMA_TOPOLOGY"].placed for a in mine if "NUMA_TOPOLOGY" in a]
        devices = [a["DEVICES"].addresses for a in mine if "DEVICES" in a]
        return {
            "vcpus": has["VCPU"].used + has["PCPU"].used,
            "memory_mb": has["MEMORY_MB"].used,
            "local_gb": has["DISK_GB"].used,
            "pinned": sorted(cpu for there in cpus for cell in there for cpu in cell.pinned),
            "devices": sorted(address for there in devices for address in there),
        }

    # --- how they are asked ---

    def _refusal(self, name: str, host: str, size: Size) -> CapacityException | None:
        try:
            self.tracker.plan(name, host, size.amounts(ALIASES))
        except CapacityException as refusal:
            return refusal
        return None

    def _nova(self, ask: Any) -> tuple[str, Any]:
        from nova import exception

        try:
            return "yes", ask()
        except exception.ComputeResourcesUnavailable:
            return "no", None
        except (exception.PciDeviceRequestFailed, exception.PciDeviceInvalidStatus):
            return "raised", None

    def _differ(self, said: str, ours: CapacityException | None) -> Drift | None:
        """Return why the answers differ, None if they do not."""
        if said == "raised":
            assert ours is not None
            return Drift.SEEN_AND_NOT_TAKEN
        if (said == "no") == (ours is not None):
            return None
        if ours is not None and said == "yes" and _is_of_counts(ours):
            return Drift.COUNTS_UNSEEN
        raise AssertionError((said, ours))

    def _devices(self, host: str) -> set[str]:
        return {one for one, state in self.agents[host].devices().items() if state == "allocated"}

    def _taken(self, host: str, size: Size, topology: Any, before: set[str]) -> dict[str, Any]:
        """Return the requested amounts in the cells and with the devices that nova chose."""
        asked = size.amounts(ALIASES)
        if size.cells:
            wanted: NUMATopologyAmount = asked["NUMA_TOPOLOGY"]
            placed = [PlacedCell(cell.id, pins=dict(cell.cpu_pinning)) for cell in topology.cells]
            asked["NUMA_TOPOLOGY"] = wanted.replace(placed=placed)
        if size.devices:
            new = sorted(self._devices(host) - before)
            asked["DEVICES"] = _assigned(asked["DEVICES"].requests, new)
        return asked


def _assigned(requests: Iterable[DeviceRequest], addresses: Iterable[str]) -> PCIAmount:
    requests = tuple(requests)
    known = {device.address: device for device in DEVICES}
    placed = []
    for address in addresses:
        device = known[address]
        number = next(
            place
            for place, request in enumerate(requests)
            if request.specs[0].product_id == device.product_id
        )
        placed.append(
            PlacedDevice(
                number,
                address,
                device.resource_class,
                numa_node=device.numa_node,
                parts=sorted(one.address for one in DEVICES if one.parent == address),
            )
        )
    return PCIAmount(requests, placed=placed)


def _is_of_counts(refusal: CapacityException) -> bool:
    """Whether it is for CPUs without a cell, memory or disk alone."""
    kinds = {reason.resource for reason in refusal.reasons}
    return bool(kinds) and kinds <= {"VCPU", "MEMORY_MB", "DISK_GB"}


def _nova_uses(agent: Agent) -> dict[str, Any]:
    states = agent.devices()
    held = sorted(one for one, state in states.items() if state in ("claimed", "allocated"))
    return {**agent.used(), "pinned": sorted(agent.pinned()), "devices": held}


def _provider(host: str) -> ro.Provider:
    counts = f"VCPU={VCPUS},PCPU={2 * CPUS},MEMORY_MB={2 * MEMORY_MB},DISK_GB={DISK_GB}"
    found = ro.Provider(host, counts)
    found.add_parts("NUMA_TOPOLOGY", cells())
    found.add_parts("DEVICES", PCIInventory(DEVICES))
    return found


@contextlib.contextmanager
def opened() -> Iterator[Site]:
    """Open both sides, of which none knows anything yet."""
    database = Database(copies=True)
    with database.in_place(ALIASES), ro.connect("memory://") as ledger:
        yield Site(ledger, database)
