"""Nova's own resource tracker in this process, for our hosts and instances.

The measured methods are those that Nova's compute manager calls: ``instance_claim``,
``resize_claim``, ``live_migration_claim``, ``rebuild_claim`` and their drops, ``update_usage`` and
``update_available_resource``. Claims, PCI tracker, NUMA fit and objects are Nova's. These are
replaced by stubs:

* the database: a ``save`` or ``create`` only marks the record as written, and queries return
  records of this process. Each call is counted once; in a deployment it is an RPC to a conductor
  and at least one statement.
* Placement: its client has no allocations and no changes to report, and does not copy the tree.
* the driver of the hypervisor, which returns the same data at each update.
* the query whether an instance is backed by a volume, which is counted and answered no.

No notification, log line or metric is sent, so the figures are Nova's best case. The work of its
manager around the tracker when an instance moves or is shelved (flavor, host, state of the record)
is a few lines here, without the hypervisor, networks and volumes.
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

from benchmarks import nova_objects
from resource_objects.resources.numa import NUMATopologyInventory, numa
from resource_objects.resources.pci import Device, DeviceRequest, DeviceSpec, PCIAmount

_NAMESPACE = uuid.UUID("5d7d0f5e-6f0b-4f0c-9d3e-7a1f2c3b4d5e")


@dataclasses.dataclass(frozen=True)
class Size:
    """The request of an instance: counts, guest cells of pinned CPUs, devices.

    :param cells: guest cells, between which CPUs and memory are split; 0: no topology
    :param devices: pairs of an alias and a count
    """

    vcpus: int
    memory_mb: int
    root_gb: int
    swap_mb: int = 0
    cells: int = 0
    devices: tuple[tuple[str, int], ...] = ()

    def amounts(self, aliases: Mapping[str, DeviceSpec]) -> dict[str, Any]:
        """Return the amounts by resource class; swap is rounded up to GB, as Nova does."""
        amounts: dict[str, Any] = {"DISK_GB": self.root_gb + -(-self.swap_mb // 1024)}
        if self.cells:
            amounts["NUMA_TOPOLOGY"] = numa(
                cells=self.cells, dedicated=self.vcpus, memory_mb=self.memory_mb
            )
        else:
            amounts |= {"VCPU": self.vcpus, "MEMORY_MB": self.memory_mb}
        if self.devices:
            amounts["DEVICES"] = PCIAmount(
                [DeviceRequest([aliases[name]], count=count) for name, count in self.devices]
            )
        return {name: amount for name, amount in amounts.items() if amount}

    def flavor(self) -> Any:
        """Return the flavor of Nova; equal sizes have equal ids."""
        objects, _ = nova_objects.nova()
        specs = {}
        if self.cells:
            specs |= {"hw:cpu_policy": "dedicated", "hw:numa_nodes": str(self.cells)}
        if self.devices:
            aliases = ",".join(f"{name}:{count}" for name, count in self.devices)
            specs["pci_passthrough:alias"] = aliases
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
    """A stub of Nova's database that counts its calls.

    :param copies: whether queries return copies, as those of a database do; False costs less
    """

    def __init__(self, *, copies: bool = False) -> None:
        self.calls: Counter[str] = Counter()
        self.instances: dict[str, Any] = {}
        self.migrations: list[Any] = []
        self._copies = copies
        self._ids = itertools.count(1)

    def writer(self, call: str, **ids: Any) -> Any:
        """Return a ``save`` or ``create`` that counts, and marks the record as written."""

        def write(record: Any, *args: Any, **kwargs: Any) -> None:
            self.calls[call] += 1
            if ids and "id" not in record:
                record.id = next(self._ids)
            record.obj_reset_changes()

        return write

    def write_device(self, device: Any) -> None:
        """Mark a device as written, or as deleted if it was removed."""
        self.calls["PciDevice.save"] += 1
        if device.status == "removed":
            device.status = "deleted"
        if "id" not in device:
            device.id = next(self._ids)
        device.obj_reset_changes()

    def instances_of(self, context: Any, host: str, node: str, **more: Any) -> Any:
        """Return the instances of a host."""
        self.calls["InstanceList.get_by_host_and_node"] += 1
        objects, _ = nova_objects.nova()
        instances = [record for record in self.instances.values() if record.host == host]
        return objects.InstanceList(objects=[self._read(record) for record in instances])

    def migrations_of(self, context: Any, host: str, node: str) -> Any:
        """Return the migrations from or to a host that are in progress."""
        self.calls["MigrationList.get_in_progress_and_error"] += 1
        objects, _ = nova_objects.nova()
        migrations = [
            self._read(record)
            for record in self.migrations
            if host in (record.source_compute, record.dest_compute)
            and record.status not in ("confirmed", "reverted", "completed", "failed", "done")
        ]
        for migration in migrations:
            migration.instance = self._read(self.instances[migration.instance_uuid])
        return objects.MigrationList(objects=migrations)

    def query(self, call: str, answer: Any) -> Any:
        """Return a query that counts, and has always the same answer."""

        def read(*args: Any, **kwargs: Any) -> Any:
            self.calls[call] += 1
            return answer() if callable(answer) else answer

        return read

    def _read(self, record: Any) -> Any:
        return record.obj_clone() if self._copies else record

    @contextlib.contextmanager
    def in_place(self, aliases: Mapping[str, DeviceSpec]) -> Iterator[None]:
        """Replace the database of Nova's objects, and configure devices and aliases."""
        objects, _ = nova_objects.nova()
        from nova.compute import utils
        from nova.objects import instance

        with contextlib.ExitStack() as stack:
            for (target, name), stub in {
                (objects.ComputeNode, "create"): self.writer("ComputeNode.create", id=True),
                (objects.ComputeNode, "save"): self.writer("ComputeNode.save"),
                (objects.ComputeNode, "get_by_uuid"): self.query(
                    "ComputeNode.get_by_uuid", _not_found
                ),
                (objects.Instance, "save"): self.writer("Instance.save"),
                (objects.Migration, "create"): self.writer("Migration.create", id=True),
                (objects.Migration, "save"): self.writer("Migration.save"),
                (objects.PciDevice, "save"): lambda device: self.write_device(device),
                (objects.PciDeviceList, "get_by_compute_node"): self.query(
                    "PciDeviceList.get_by_compute_node", objects.PciDeviceList
                ),
                (objects.InstanceList, "get_by_host_and_node"): self.instances_of,
                (objects.MigrationList, "get_in_progress_and_error"): self.migrations_of,
                (objects.Service, "get_by_compute_host"): self.query(
                    "Service.get_by_compute_host", objects.Service(disabled=False)
                ),
                (instance.db, "instance_extra_update_by_uuid"): self.query(
                    "instance_extra_update_by_uuid", None
                ),
                (utils, "is_volume_backed_instance"): self.query(
                    "BlockDeviceMappingList.get_by_instance_uuid", False
                ),
            }.items():
                stack.enter_context(mock.patch.object(target, name, stub))
            stack.enter_context(_configured(aliases))
            yield


def _not_found() -> None:
    from nova import exception

    raise exception.NotFound


@contextlib.contextmanager
def _configured(aliases: Mapping[str, DeviceSpec]) -> Iterator[None]:
    import nova.conf

    config = nova.conf.CONF
    documents = [
        json.dumps(
            {"name": name, "vendor_id": spec.vendor_id, "product_id": spec.product_id}
            | ({"device_type": spec.types[0]} if spec.types else {})
        )
        for name, spec in aliases.items()
    ]
    values = {
        ("device_spec", "pci"): ['{"address": "*:*:*.*"}'],
        ("alias", "pci"): documents,
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
    """A stub of Placement's client: one tree without allocations."""

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
    """A driver of one host that returns the same data at each update."""

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
    """A compute agent of one host: Nova's tracker, and the work of its manager around it.

    :param cells: the topology of the host, without usage
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
        objects, _ = nova_objects.nova()
        from nova import context
        from nova.compute import resource_tracker

        self.host, self.database = host, database
        self.context = context.get_admin_context()
        topology = nova_objects.host(cells)._to_json()
        documents = json.dumps([driver_document(device) for device in devices])
        self.tracker: Any = resource_tracker.ResourceTracker(
            host, _Hypervisor(host, topology, documents, totals), _Placement()
        )
        self.tracker.set_service_ref(objects.Service(id=1, host=host))

    # --- calls of the manager ---

    def update(self) -> None:
        """Run the periodic task; the first run creates the record."""
        self.tracker.update_available_resource(self.context, self.host)

    def instance(self, name: str, size: Size) -> Any:
        """Return a new instance without a host; names are unique."""
        objects, hardware = nova_objects.nova()
        from nova.pci import request

        flavor = size.flavor()
        key = str(uuid.uuid5(_NAMESPACE, name))
        requests = request.get_pci_requests_from_flavor(flavor)
        requests.instance_uuid = key
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
            pci_requests=requests,
            pci_devices=objects.PciDeviceList(objects=[]),
            migration_context=None,
            resources=None,
            system_metadata={},
        )

    def image(self) -> Any:
        """Return an image without properties."""
        objects, _ = nova_objects.nova()
        return objects.ImageMeta.from_dict({"properties": {}})

    def claim(self, instance: Any, limits: Any = None) -> Any:
        """Claim for a build.

        :param limits: of the scheduler
        :raises ComputeResourcesUnavailable: if it does not fit
        """
        claim = self.tracker.instance_claim(self.context, instance, self.host, {}, limits)
        self.database.instances[instance.uuid] = instance
        return claim

    def finish_build(self, instance: Any) -> None:
        """Mark an instance as running."""
        instance.vm_state = "active"
        self.tracker.update_usage(self.context, instance, self.host)

    def abort(self, claim: Any, instance: Any) -> None:
        """Abort the claim of a build that failed."""
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

    def finish_live_migration(self, instance: Any, migration: Any, source: Agent) -> None:
        """Finish a live migration to this host, and update the source."""
        source.tracker.free_pci_device_allocations_for_instance(self.context, instance)
        self.tracker.allocate_pci_devices_for_instance(self.context, instance)
        instance.apply_migration_context()
        instance.host = instance.node = self.host
        migration.status = "completed"
        self._end(instance, migration)
        source.update()

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

    def finish_evacuation(self, instance: Any, migration: Any) -> None:
        """Finish an evacuation to this host; the source has its usage until it is updated."""
        self.tracker.finish_evacuation(instance, self.host, migration)
        self._end(instance, migration)

    def roll_back(self, instance: Any, migration: Any) -> None:
        """Abort a live migration or an evacuation to this host."""
        self.tracker.drop_move_claim(self.context, instance, self.host, flavor=instance.flavor)
        migration.status = "failed"
        self._end(instance, migration)

    def rebuild(self, instance: Any) -> None:
        """Rebuild an instance in place, which claims nothing."""
        from nova.compute import claims

        instance.task_state = "rebuilding"
        with claims.NopClaim(self.context, instance, self.host, {}):
            pass
        instance.task_state = None

    def shelve(self, instance: Any) -> None:
        """Shelve and offload an instance."""
        instance.vm_state, instance.task_state = "shelved_offloaded", None
        self.tracker.update_usage(self.context, instance, self.host)
        instance.host = instance.node = instance.compute_id = None

    def unshelve(self, instance: Any) -> Any:
        """Claim for a shelved instance, and mark it as running.

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
        objects, _ = nova_objects.nova()
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

    def _claim_move(self, instance: Any, migration: Any, task: str, claim: Any, *args: Any) -> None:
        instance.task_state = task
        try:
            claim(self.context, instance, *args)
        except BaseException:
            instance.task_state = None
            raise
        self.database.migrations.append(migration)

    def _end(self, instance: Any, migration: Any) -> None:
        instance.drop_migration_context()
        instance.old_flavor = instance.new_flavor = None
        instance.vm_state, instance.task_state = "active", None
        self.database.migrations.remove(migration)

    # --- usage ---

    @property
    def record(self) -> Any:
        """The record of the compute node."""
        return self.tracker.compute_nodes[self.host]

    def used(self) -> dict[str, int]:
        """Return the used ``vcpus``, ``memory_mb`` and ``local_gb``."""
        node = self.record
        return {
            "vcpus": node.vcpus_used,
            "memory_mb": node.memory_mb_used,
            "local_gb": node.local_gb_used,
        }

    def pinned(self) -> frozenset[int]:
        """Return the pinned CPUs."""
        objects, _ = nova_objects.nova()
        cells = objects.NUMATopology.obj_from_db_obj(self.record.numa_topology).cells
        return frozenset(cpu for cell in cells for cpu in cell.pinned_cpus)

    def devices(self) -> dict[str, str]:
        """Return the state of each device by its address."""
        return {device.address: device.status for device in self.tracker.pci_tracker.pci_devs}

    def free_devices(self) -> frozenset[str]:
        """Return the addresses of the devices in the pools."""
        devices = self.tracker.pci_tracker.stats.get_free_devs()
        return frozenset(device.address for device in devices)


def driver_document(device: Device) -> dict[str, Any]:
    """Return a device as the driver of a hypervisor reports it to Nova."""
    document = {
        "address": device.address,
        "vendor_id": device.vendor_id,
        "product_id": device.product_id,
        "dev_type": device.type,
        "numa_node": device.numa_node,
        "dev_id": f"pci_{device.address}",
        "label": f"label_{device.vendor_id}_{device.product_id}",
    }
    return document | ({"parent_addr": device.parent} if device.parent else {})
