"""Nova's own resource tracker in this process, on hosts and instances that stand for ours.

What is called is what Nova's compute manager calls: ``instance_claim``, ``resize_claim``,
``live_migration_claim``, ``rebuild_claim``, the drops of those, ``update_usage`` and
``update_available_resource``. Its claims, PCI tracker, NUMA fit and objects are the real ones.
Stood in for, by what does next to nothing:

* the database: ``save`` and ``create`` of compute nodes, instances, migrations and devices mark
  them as written; a list or a record that is read is one that is kept here. Each is counted, as one
  call whatever it would send (a real one is at least a statement, and an RPC to a conductor first)
* Placement: its client answers from memory that nothing is there and that nothing changed, and
  hands out the tree itself, where the real one copies it. Claims come without allocations
* the hypervisor's driver, which has its answer at hand and says it anew
* whether an instance is backed by a volume, which is a query, counted, answered with no

No notification, log line or metric is sent. So these figures are Nova's best case. What its manager
does around the tracker when an instance is moved or shelved (flavor, host, state of the record) is
here in a few lines of its own, without the hypervisor, networks and volumes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import functools
import itertools
import json
import uuid
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any
from unittest import mock

from benchmarks import nova_numa
from resource_objects.resources.numa import NUMATopologyInventory, numa
from resource_objects.resources.pci import Device, DeviceRequest, DeviceSpec, PCIAmount

NAME = nova_numa.NAME

_NAMESPACE = uuid.UUID("5d7d0f5e-6f0b-4f0c-9d3e-7a1f2c3b4d5e")


def is_installed() -> bool:
    """Return whether there is a nova to be measured beside."""
    return nova_numa.is_installed()


@dataclasses.dataclass(frozen=True)
class Size:
    """What an instance asks for, said to both: counts, guest cells of pinned CPUs, devices.

    :param cells: guest cells, between which CPUs and memory are split; 0: no topology
    :param devices: how many of which alias
    """

    vcpus: int
    memory_mb: int
    root_gb: int
    swap_mb: int = 0
    cells: int = 0
    devices: tuple[tuple[str, int], ...] = ()

    def asked(self, aliases: Mapping[str, DeviceSpec]) -> dict[str, Any]:
        """Return it in our words; swap takes whole GB of the disk, as Nova says to Placement."""
        found: dict[str, Any] = {"DISK_GB": self.root_gb + -(-self.swap_mb // 1024)}
        if self.cells:
            found["NUMA_TOPOLOGY"] = numa(
                cells=self.cells, dedicated=self.vcpus, memory_mb=self.memory_mb
            )
        else:
            found |= {"VCPU": self.vcpus, "MEMORY_MB": self.memory_mb}
        if self.devices:
            found["DEVICES"] = PCIAmount(
                [DeviceRequest([aliases[name]], count=count) for name, count in self.devices]
            )
        return {name: amount for name, amount in found.items() if amount}

    def flavor(self) -> Any:
        """Return Nova's flavor; equal sizes have one id."""
        objects, _ = nova_numa.nova()
        specs = {}
        if self.cells:
            specs |= {"hw:cpu_policy": "dedicated", "hw:numa_nodes": str(self.cells)}
        if self.devices:
            said = ",".join(f"{name}:{count}" for name, count in self.devices)
            specs["pci_passthrough:alias"] = said
        number = zlib.crc32(repr(self).encode()) & 0x7FFFFFFF  # an INTEGER of a database
        return objects.Flavor(
            id=number,
            flavorid=str(number),
            name="flavor",
            vcpus=self.vcpus,
            memory_mb=self.memory_mb,
            root_gb=self.root_gb,
            ephemeral_gb=0,
            swap=self.swap_mb,
            extra_specs=specs,
        )


class Database:
    """What Nova's database would keep, and how often it is called.

    :param copies: whether what is read is a copy, as it is of a real one; without, it costs less
    """

    def __init__(self, *, copies: bool = False) -> None:
        self.calls: Counter[str] = Counter()
        self.instances: dict[str, Any] = {}
        self.migrations: list[Any] = []
        self._copies = copies
        self._ids = itertools.count(1)

    def written(self, of: str, **ids: Any) -> Any:
        """Return a ``save`` or ``create``: counted, and the object is as written."""

        def write(record: Any, *args: Any, **kwargs: Any) -> None:
            self.calls[of] += 1
            if ids and "id" not in record:
                record.id = next(self._ids)
            record.obj_reset_changes()

        return write

    def write_device(self, device: Any) -> None:
        """Write a device, or forget one that was removed."""
        self.calls["PciDevice.save"] += 1
        if device.status == "removed":
            device.status = "deleted"
        if "id" not in device:
            device.id = next(self._ids)
        device.obj_reset_changes()

    def instances_of(self, context: Any, host: str, node: str, **more: Any) -> Any:
        """Return the instances of a host."""
        self.calls["InstanceList.get_by_host_and_node"] += 1
        objects, _ = nova_numa.nova()
        found = [one for one in self.instances.values() if one.host == host]
        return objects.InstanceList(objects=[self._read(one) for one in found])

    def migrations_of(self, context: Any, host: str, node: str) -> Any:
        """Return the migrations from or to a host that are not over."""
        self.calls["MigrationList.get_in_progress_and_error"] += 1
        objects, _ = nova_numa.nova()
        found = [
            self._read(one)
            for one in self.migrations
            if host in (one.source_compute, one.dest_compute)
            and one.status not in ("confirmed", "reverted", "completed", "failed", "done")
        ]
        for migration in found:
            migration.instance = self._read(self.instances[migration.instance_uuid])
        return objects.MigrationList(objects=found)

    def counted(self, of: str, answer: Any) -> Any:
        """Return a query that is counted and has one answer."""

        def ask(*args: Any, **kwargs: Any) -> Any:
            self.calls[of] += 1
            return answer() if callable(answer) else answer

        return ask

    def _read(self, record: Any) -> Any:
        return record.obj_clone() if self._copies else record

    @contextlib.contextmanager
    def in_place(self, aliases: Mapping[str, DeviceSpec]) -> Iterator[None]:
        """Let Nova's objects call this, and configure which devices there may be."""
        objects, _ = nova_numa.nova()
        from nova.compute import utils
        from nova.objects import instance

        with contextlib.ExitStack() as stack:
            for (place, name), stand_in in {
                (objects.ComputeNode, "create"): self.written("ComputeNode.create", id=True),
                (objects.ComputeNode, "save"): self.written("ComputeNode.save"),
                (objects.ComputeNode, "get_by_uuid"): self.counted(
                    "ComputeNode.get_by_uuid", _not_found
                ),
                (objects.Instance, "save"): self.written("Instance.save"),
                (objects.Migration, "create"): self.written("Migration.create", id=True),
                (objects.Migration, "save"): self.written("Migration.save"),
                (objects.PciDevice, "save"): lambda device: self.write_device(device),
                (objects.PciDeviceList, "get_by_compute_node"): self.counted(
                    "PciDeviceList.get_by_compute_node", objects.PciDeviceList
                ),
                (objects.InstanceList, "get_by_host_and_node"): self.instances_of,
                (objects.MigrationList, "get_in_progress_and_error"): self.migrations_of,
                (objects.Service, "get_by_compute_host"): self.counted(
                    "Service.get_by_compute_host", objects.Service(disabled=False)
                ),
                (instance.db, "instance_extra_update_by_uuid"): self.counted(
                    "instance_extra_update_by_uuid", None
                ),
                (utils, "is_volume_backed_instance"): self.counted(
                    "BlockDeviceMappingList.get_by_instance_uuid", False
                ),
            }.items():
                stack.enter_context(mock.patch.object(place, name, stand_in))
            stack.enter_context(_configured(aliases))
            yield


def _not_found() -> None:
    from nova import exception

    raise exception.NotFound


@contextlib.contextmanager
def _configured(aliases: Mapping[str, DeviceSpec]) -> Iterator[None]:
    import nova.conf

    config = nova.conf.CONF
    said = [
        json.dumps({"name": name, "vendor_id": spec.vendor_id, "product_id": spec.product_id})
        if not spec.types
        else json.dumps(
            {
                "name": name,
                "vendor_id": spec.vendor_id,
                "product_id": spec.product_id,
                "device_type": spec.types[0],
            }
        )
        for name, spec in aliases.items()
    ]
    values = {
        ("device_spec", "pci"): ['{"address": "*:*:*.*"}'],
        ("alias", "pci"): said,
        ("reserved_host_memory_mb", None): 0,
    }
    for (name, group), value in values.items():
        config.set_override(name, value, group=group)
    try:
        yield
    finally:
        for name, group in values:
            config.clear_override(name, group=group)


class _Placement:
    """A client that has a tree at hand, and nothing to tell."""

    def __init__(self) -> None:
        from nova.compute import provider_tree

        self._tree = provider_tree.ProviderTree()

    def get_provider_subtree_and_ensure_root(self, context: Any, key: str, name: str) -> Any:
        if not self._tree.exists(key):
            self._tree.new_root(name, key)
        return self._tree

    def get_allocations_for_provider_tree(self, context: Any, name: str) -> dict[str, Any]:
        return {}

    def get_allocations_for_resource_provider(self, context: Any, key: str) -> Any:
        from nova.scheduler.client import report

        return report.ProviderAllocInfo(allocations={})

    def update_from_provider_tree(self, context: Any, tree: Any, allocations: Any = None) -> None:
        pass

    def invalidate_resource_provider(self, *args: Any, **kwargs: Any) -> None:
        pass


class _Hypervisor:
    """A driver of one host, which says each time what it has."""

    def __init__(self, name: str, cells: Any, devices: str, totals: Mapping[str, int]) -> None:
        self._name, self._cells, self._devices = name, cells, devices
        self._totals = totals
        self._inventory = {
            kind: {
                "total": total,
                "reserved": 0,
                "min_unit": 1,
                "max_unit": total,
                "step_size": 1,
                "allocation_ratio": 1.0,
            }
            for kind, total in (
                ("VCPU", totals["vcpus"]),
                ("MEMORY_MB", totals["memory_mb"]),
                ("DISK_GB", totals["local_gb"]),
            )
        }

    def get_available_resource(self, name: str) -> dict[str, Any]:
        return {
            **self._totals,
            "vcpus_used": 0,
            "memory_mb_used": 0,
            "local_gb_used": 0,
            "hypervisor_type": "QEMU",
            "hypervisor_version": 9000000,
            "hypervisor_hostname": self._name,
            "cpu_info": "",
            "disk_available_least": self._totals["local_gb"],
            "supported_instances": [("x86_64", "kvm", "hvm")],
            "numa_topology": self._cells,
            "pci_passthrough_devices": self._devices,
            "uuid": str(uuid.uuid5(_NAMESPACE, self._name)),
        }

    def update_provider_tree(self, tree: Any, name: str, allocations: Any = None) -> None:
        tree.update_inventory(name, self._inventory)

    def capabilities_as_traits(self) -> dict[str, bool]:
        return {"COMPUTE_NODE": True}

    def node_is_available(self, name: str) -> bool:
        return True

    def get_host_ip_addr(self) -> str:
        return "127.0.0.1"


class Agent:
    """A compute agent of one host: Nova's tracker, and what its manager does around it.

    :param cells: the host's topology; nothing may be used of it
    :param totals: ``vcpus``, ``memory_mb`` and ``local_gb`` of the host
    """

    def __init__(
        self,
        host: str,
        database: Database,
        cells: NUMATopologyInventory,
        devices: tuple[Device, ...],
        totals: Mapping[str, int],
    ) -> None:
        objects, _ = nova_numa.nova()
        from nova import context
        from nova.compute import resource_tracker

        self.host, self.database = host, database
        self.context = context.get_admin_context()
        topology = nova_numa.host(cells)._to_json()
        said = json.dumps([said_by_driver(device) for device in devices])
        self.tracker: Any = resource_tracker.ResourceTracker(
            host, _Hypervisor(host, topology, said, totals), _Placement()
        )
        self.tracker.set_service_ref(objects.Service(id=1, host=host))

    # --- what the manager calls ---

    def look(self) -> None:
        """The periodic task, of which the first makes the record."""
        self.tracker.update_available_resource(self.context, self.host)

    def instance(self, name: str, size: Size) -> Any:
        """Return an instance that is nowhere yet; nobody else has its name."""
        objects, hardware = nova_numa.nova()
        from nova.pci import request

        flavor = size.flavor()
        key = str(uuid.uuid5(_NAMESPACE, name))
        asked = request.get_pci_requests_from_flavor(flavor)
        asked.instance_uuid = key
        return objects.Instance(
            context=self.context,
            uuid=key,
            id=1,
            host=None,
            node=None,
            launched_on=None,
            compute_id=None,
            vm_state="building",
            task_state=None,
            os_type="linux",
            project_id="project",
            image_ref="image",
            instance_type_id=flavor.id,
            flavor=flavor,
            old_flavor=None,
            new_flavor=None,
            numa_topology=hardware.numa_get_constraints(flavor, self.image()),
            pci_requests=asked,
            pci_devices=objects.PciDeviceList(objects=[]),
            migration_context=None,
            resources=None,
            system_metadata={},
        )

    def image(self) -> Any:
        """Return an image that says nothing."""
        objects, _ = nova_numa.nova()
        return objects.ImageMeta.from_dict({"properties": {}})

    def claim(self, instance: Any, limits: Any = None) -> Any:
        """Claim for a build.

        :param limits: what the scheduler sends along
        :raises ComputeResourcesUnavailable: if it does not fit
        """
        claim = self.tracker.instance_claim(self.context, instance, self.host, {}, limits)
        self.database.instances[instance.uuid] = instance
        return claim

    def built(self, instance: Any) -> None:
        """Say that it runs."""
        instance.vm_state = "active"
        self.tracker.update_usage(self.context, instance, self.host)

    def abort(self, claim: Any, instance: Any) -> None:
        """Give back a claim for a build that failed."""
        claim.abort()
        self.database.instances.pop(instance.uuid, None)

    def delete(self, instance: Any) -> None:
        """Delete an instance."""
        instance.vm_state, instance.task_state = "deleted", None
        self.database.instances.pop(instance.uuid, None)
        self.tracker.update_usage(self.context, instance, self.host)

    def resize(self, instance: Any, size: Size) -> Any:
        """Claim for a resize to this host, and finish it there; return its migration.

        :raises ComputeResourcesUnavailable: if it does not fit
        """
        old, flavor = instance.flavor, size.flavor()
        instance.new_flavor, instance.task_state = flavor, "resize_prep"
        migration = self._migration(instance, flavor, "resize", "pre-migrating")
        try:
            self.tracker.resize_claim(
                self.context, instance, flavor, self.host, migration, {}, image_meta=self.image()
            )
        except BaseException:
            instance.new_flavor, instance.task_state = None, None
            raise
        self.database.migrations.append(migration)
        instance.old_flavor, instance.flavor, instance.instance_type_id = old, flavor, flavor.id
        instance.apply_migration_context()
        instance.host = instance.node = self.host
        instance.vm_state, instance.task_state = "resized", None
        migration.status = "finished"
        return migration

    def confirm(self, instance: Any, migration: Any) -> None:
        """Confirm a resize from this host."""
        self.tracker.drop_move_claim_at_source(self.context, instance, migration)
        self._end(instance, migration)

    def revert(self, instance: Any, migration: Any) -> None:
        """Revert a resize to this host."""
        self.tracker.drop_move_claim_at_dest(self.context, instance, migration)
        instance.flavor = instance.old_flavor
        instance.instance_type_id = instance.flavor.id
        instance.host = instance.node = migration.source_compute
        self._end(instance, migration)

    def live_migrate(self, instance: Any) -> Any:
        """Claim for a live migration to this host; return its migration.

        :raises ComputeResourcesUnavailable: if it does not fit
        """
        migration = self._migration(instance, instance.flavor, "live-migration", "accepted")
        claim = self.tracker.live_migration_claim
        self._claim_move(instance, migration, "migrating", claim, self.host, migration, None, {})
        return migration

    def arrived(self, instance: Any, migration: Any, source: Agent) -> None:
        """Say that a live migration to this host is done; the source counts anew."""
        source.tracker.free_pci_device_allocations_for_instance(self.context, instance)
        self.tracker.allocate_pci_devices_for_instance(self.context, instance)
        instance.apply_migration_context()
        instance.host = instance.node = self.host
        migration.status = "completed"
        self._end(instance, migration)
        source.look()

    def evacuate(self, instance: Any) -> Any:
        """Claim for an evacuation to this host; return its migration.

        :raises ComputeResourcesUnavailable: if it does not fit
        """
        migration = self._migration(instance, instance.flavor, "evacuation", "accepted")
        claim = functools.partial(
            self.tracker.rebuild_claim, image_meta=self.image(), migration=migration
        )
        self._claim_move(instance, migration, "rebuilding", claim, self.host, {})
        return migration

    def evacuated(self, instance: Any, migration: Any) -> None:
        """Say that it runs here. What it left is there until that host counts anew."""
        self.tracker.finish_evacuation(instance, self.host, migration)
        self._end(instance, migration)

    def roll_back(self, instance: Any, migration: Any) -> None:
        """Give up a live migration or an evacuation to this host."""
        self.tracker.drop_move_claim(self.context, instance, self.host, flavor=instance.flavor)
        migration.status = "failed"
        self._end(instance, migration)

    def rebuild(self, instance: Any) -> None:
        """Rebuild in place, which claims nothing."""
        from nova.compute import claims

        instance.task_state = "rebuilding"
        with claims.NopClaim(self.context, instance, self.host, {}):
            pass
        instance.task_state = None

    def shelve(self, instance: Any) -> None:
        """Shelve an instance, and offload it."""
        instance.vm_state, instance.task_state = "shelved_offloaded", None
        self.tracker.update_usage(self.context, instance, self.host)
        instance.host = instance.node = instance.compute_id = None

    def unshelve(self, instance: Any) -> Any:
        """Claim for what was shelved, and let it run.

        :raises ComputeResourcesUnavailable: if it does not fit
        """
        instance.task_state = "spawning"
        try:
            claim = self.tracker.instance_claim(self.context, instance, self.host, {}, None)
        except BaseException:
            instance.task_state = None
            raise
        instance.vm_state, instance.task_state = "active", None
        return claim

    def _migration(self, instance: Any, flavor: Any, kind: str, status: str) -> Any:
        objects, _ = nova_numa.nova()
        migration = objects.Migration(
            context=self.context,
            uuid=str(uuid.uuid4()),
            instance_uuid=instance.uuid,
            source_compute=instance.host,
            source_node=instance.node,
            old_instance_type_id=instance.flavor.id,
            new_instance_type_id=flavor.id,
            migration_type=kind,
            status=status,
            created_at=datetime.datetime.now(datetime.UTC),
            updated_at=None,
        )
        migration.create()
        return migration

    def _claim_move(
        self, instance: Any, migration: Any, task: str, claim: Any, *given: Any
    ) -> None:
        instance.task_state = task
        try:
            claim(self.context, instance, *given)
        except BaseException:
            instance.task_state = None
            raise
        self.database.migrations.append(migration)

    def _end(self, instance: Any, migration: Any) -> None:
        instance.drop_migration_context()
        instance.old_flavor = instance.new_flavor = None
        instance.vm_state, instance.task_state = "active", None
        self.database.migrations.remove(migration)

    # --- what is used ---

    @property
    def record(self) -> Any:
        """The compute node as it would be saved."""
        return self.tracker.compute_nodes[self.host]

    def used(self) -> dict[str, int]:
        """Return ``vcpus``, ``memory_mb`` and ``local_gb`` that are used."""
        node = self.record
        return {
            "vcpus": node.vcpus_used,
            "memory_mb": node.memory_mb_used,
            "local_gb": node.local_gb_used,
        }

    def pinned(self) -> frozenset[int]:
        """Return the CPUs that are pinned."""
        objects, _ = nova_numa.nova()
        cells = objects.NUMATopology.obj_from_db_obj(self.record.numa_topology).cells
        return frozenset(cpu for cell in cells for cpu in cell.pinned_cpus)

    def devices(self) -> dict[str, str]:
        """Return the state of each device by its address."""
        return {one.address: one.status for one in self.tracker.pci_tracker.pci_devs}

    def free_devices(self) -> frozenset[str]:
        """Return the addresses of what is in the pools."""
        return frozenset(one.address for one in self.tracker.pci_tracker.stats.get_free_devs())


def said_by_driver(device: Device) -> dict[str, Any]:
    """Return a device as a hypervisor's driver says it to Nova."""
    said = {
        "address": device.address,
        "vendor_id": device.vendor_id,
        "product_id": device.product_id,
        "dev_type": device.type,
        "numa_node": device.numa_node,
        "dev_id": f"pci_{device.address}",
        "label": f"label_{device.vendor_id}_{device.product_id}",
    }
    return said | ({"parent_addr": device.parent} if device.parent else {})
