"""The record under a compute node: its fields, and what of them can be set.

The counted columns, and what else belongs to the inventories, follow the inventories only.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from resource_objects import exceptions, fields
from resource_objects.host._compute_columns import (
    COUNTED,
    DISK_REPORT,
    KINDS,
    CarriedField,
    OtherColumnsField,
    RatioColumnField,
    RatiosField,
)
from resource_objects.host._compute_numa import COLUMN, Topology, TopologyColumnField
from resource_objects.host._compute_pci import COLUMN as DEVICES_COLUMN
from resource_objects.host._compute_pci import DevicesColumnField, HostDevices
from resource_objects.host._compute_tracking import UNSET, Tracked
from resource_objects.host.ratios import counted_class, read_ratios
from resource_objects.resources import Amounts
from resource_objects.resources.numa import NUMATopologyAmount
from resource_objects.resources.pci import PCIAmount

NOTHING = Amounts()

#: Fields that only the inventories change.
FOLLOWING = frozenset(
    {
        *COUNTED,
        COLUMN,
        DEVICES_COLUMN,
        "reserved",
        "ratios",
        "pending",
        "pending_topologies",
        "pending_devices",
        "disk_limit_gb",
        "loose_cpus",
        "cell_ratios",
    }
)


class Record(Tracked):
    """The fields; the public half is ``ComputeNode``."""

    fields = {
        "id": CarriedField(read_only=True),
        "uuid": fields.TextField(nullable=True, read_only=True),
        "service_id": CarriedField(),
        "host": fields.TextField(nullable=True),
        "hypervisor_hostname": fields.TextField(nullable=True),
        "hypervisor_type": CarriedField(),
        "hypervisor_version": CarriedField(),
        "host_ip": CarriedField(),
        "vcpus": fields.IntegerField(0, fields.MAX_FIGURE),
        "vcpus_used": fields.IntegerField(0),
        "cpu_allocation_ratio": RatioColumnField(),
        "memory_mb": fields.IntegerField(0, fields.MAX_FIGURE),
        "memory_mb_used": fields.IntegerField(0),
        "ram_allocation_ratio": RatioColumnField(),
        "local_gb": fields.IntegerField(0, fields.MAX_FIGURE),
        "local_gb_used": fields.IntegerField(0),
        "disk_allocation_ratio": RatioColumnField(),
        "disk_available_least": fields.IntegerField(
            -fields.MAX_FIGURE, fields.MAX_FIGURE, nullable=True
        ),
        "cpu_info": CarriedField(),
        "numa_topology": TopologyColumnField(),
        "pci_stats": DevicesColumnField(),
        "supported_instances": CarriedField(),
        "current_workload": CarriedField(),
        "running_vms": CarriedField(),
        "stats": CarriedField(),
        "metrics": CarriedField(),
        "mapped": CarriedField(),
        "extra_resources": CarriedField(),
        "created_at": CarriedField(),
        "updated_at": CarriedField(),
        "deleted_at": CarriedField(),
        "deleted": CarriedField(),
        "other_columns": OtherColumnsField(read_only=True),
        "reserved": fields.ObjectField("Amounts"),
        "ratios": RatiosField(),
        "pending": fields.ObjectField("Amounts", default=NOTHING),
        "pending_topologies": fields.TupleOfObjectsField("NUMATopologyAmount", default=()),
        "pending_devices": fields.TupleOfObjectsField("PCIAmount", default=()),
        "disk_limit_gb": fields.IntegerField(0, nullable=True, default=None),
        "loose_cpus": fields.IntegerField(-fields.MAX_AMOUNT, default=0),
        "cell_ratios": RatiosField(),
    }
    id: Any
    uuid: str | None
    service_id: Any
    host: str | None
    hypervisor_hostname: str | None
    hypervisor_type: Any
    hypervisor_version: Any
    host_ip: Any
    vcpus: int
    vcpus_used: int
    cpu_allocation_ratio: float | Decimal | None
    memory_mb: int
    memory_mb_used: int
    ram_allocation_ratio: float | Decimal | None
    local_gb: int
    local_gb_used: int
    disk_allocation_ratio: float | Decimal | None
    disk_available_least: int | None
    cpu_info: Any
    numa_topology: Any
    pci_stats: Any
    supported_instances: Any
    current_workload: Any
    running_vms: Any
    stats: Any
    metrics: Any
    mapped: Any
    extra_resources: Any
    created_at: Any
    updated_at: Any
    deleted_at: Any
    deleted: Any
    other_columns: Mapping[str, Any]
    reserved: Amounts
    ratios: Mapping[str, Decimal]
    pending: Amounts
    pending_topologies: tuple[NUMATopologyAmount, ...]
    pending_devices: tuple[PCIAmount, ...]
    disk_limit_gb: int | None
    loose_cpus: int
    cell_ratios: Mapping[str, Decimal]

    def _fill(self, values: Mapping[str, Any]) -> None:
        given = dict(values)
        if "reserved" in given:
            given["reserved"] = read_reserved(given["reserved"])
        if "ratios" in given:
            given["ratios"] = read_ratios(given["ratios"])
        self._originals = dict.fromkeys(self.fields, UNSET)
        super()._fill(given)
        if "disk_limit_gb" not in given:
            self._store("disk_limit_gb", self._limit_by_report())
        self._originals = dict.fromkeys(self._changed_fields, UNSET)

    def update(self, **values: Any) -> bool:
        """Set several columns at once, checked together; return whether anything changed.

        :raises FrozenValue: for a field that follows the inventories; nothing changed
        """
        for name in values:
            self._refuse_following(name)
        if DISK_REPORT not in values:
            return super().update(**values)
        with self._all_or_nothing():
            changed = super().update(**values)
            self._set("disk_limit_gb", self._limit_by_report())
        return changed

    def __delattr__(self, name: str) -> None:
        self._refuse_following(name)
        super().__delattr__(name)
        self._forget(name)
        if name == DISK_REPORT:
            self._set("disk_limit_gb", None)

    def _refuse_following(self, name: str) -> None:
        if name in FOLLOWING:
            raise exceptions.FrozenValue(
                f"ComputeNode.{name} follows the inventories: change them, or update_inventories()"
            )

    def obj_make_compatible(self, primitive: dict[str, Any], target_version: str) -> None:
        """Say columns as text, which is all that 1.1 knows of devices and 1.0 of cells."""
        if target_version in ("1.0", "1.1"):
            self._without_devices(primitive, target_version)
        if target_version == "1.0":
            self._without_cells(primitive, target_version)
        super().obj_make_compatible(primitive, target_version)

    def _without_devices(self, primitive: dict[str, Any], version: str) -> None:
        if primitive.pop("pending_devices", None):
            raise exceptions.CannotDowngrade(
                self.obj_name(), version, "it cannot say pending_devices"
            )
        said = primitive.get(DEVICES_COLUMN)
        if isinstance(said, dict) and "devices" in said:
            kept = HostDevices.from_primitive(said)
            if kept.known is not None and kept.known.devices:
                raise exceptions.CannotDowngrade(
                    self.obj_name(), version, "it knows pools, and no devices"
                )
            primitive[DEVICES_COLUMN] = kept.column

    def _without_cells(self, primitive: dict[str, Any], version: str) -> None:
        for name in ("pending_topologies", "cell_ratios"):
            if primitive.pop(name, None):
                raise exceptions.CannotDowngrade(self.obj_name(), version, f"it cannot say {name}")
        if primitive.pop("loose_cpus", 0):
            raise exceptions.CannotDowngrade(
                self.obj_name(), version, "it does not count dedicated CPUs"
            )
        said = primitive.get(COLUMN)
        if isinstance(said, dict) and "topology" in said:
            primitive[COLUMN] = Topology.from_primitive(said).column

    @property
    def reserved_amounts(self) -> Amounts:
        """What the host keeps for itself; nothing where that is not known."""
        known: Amounts = self._value("reserved", NOTHING)
        return known

    # --- the report of disk ---

    def _limit_by_report(self) -> int | None:
        """Return how much disk may be used in all, by what is reported as free now."""
        least, used = self._value(DISK_REPORT, None), self._value("local_gb_used", None)
        if least is None or used is None:
            return None
        kind = KINDS["DISK_GB"].resource_class
        saved = used - units(self.reserved_amounts, kind) - units(self.pending, kind)
        return max(0, min(int(saved + least), fields.MAX_AMOUNT))


def units(amounts: Amounts, resource_class: str) -> int:
    """Return how many units of a resource there are in amounts.

    >>> units(Amounts("VCPU=-2"), "VCPU"), units(Amounts("VCPU=-2"), "DISK_GB")
    (-2, 0)
    """
    for name, amount in amounts.by_name():
        if name == resource_class:
            return sum(record.amount for record in amount.to_records(name))
    return 0


def with_units(amounts: Amounts, resource_class: str, value: int) -> Amounts:
    """Return amounts with so many units of a resource.

    >>> print(with_units(Amounts("VCPU=2,DISK_GB=3"), "VCPU", 5))
    VCPU=5,DISK_GB=3
    """
    return Amounts({**dict(amounts.by_name()), resource_class: value})


def read_reserved(given: Any) -> Amounts:
    """Return what a host keeps for itself: amounts, or what they are made from.

    :raises InvalidInput: if they cannot be amounts
    :raises NegativeAmount: if one gives back
    :raises InvalidInventory: for a resource that a compute node does not count
    """
    reserved = Amounts.of(given)
    for name, amount in reserved.by_name():
        counted_class(name, "reserved")
        if amount.is_negative:
            raise exceptions.NegativeAmount(f"reserved {name}", amount, "0 or more")
    return reserved


__all__ = ["FOLLOWING", "NOTHING", "Record", "read_reserved", "units", "with_units"]
