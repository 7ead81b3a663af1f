"""Stand-ins for Nova's objects: versioned objects of its names, versions and namespaces.

:func:`made` makes the object of a primitive, class by class. They are in no registry, so no other
test notices them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oslo_utils import timeutils
from oslo_versionedobjects import base, fields

_MANY = fields.ListOfObjectsField


class NovaObject(base.VersionedObject):
    """The base of Nova's objects."""

    OBJ_SERIAL_NAMESPACE = "nova_object"
    OBJ_PROJECT_NAMESPACE = "nova"


#: Fields that every record of Nova's database has too.
_TIMES = {
    name: fields.DateTimeField(nullable=True) for name in ("created_at", "updated_at", "deleted_at")
}


def _class(name: str, version: str, /, **value: Any) -> type[NovaObject]:
    members = {"VERSION": version, "fields": value, "__doc__": f"``nova.objects.{name}``."}
    created: type[NovaObject] = base.VersionedObjectRegistry.register_if(False)(
        type(name, (NovaObject,), members)
    )
    return created


def _text(**options: Any) -> Any:
    return fields.StringField(nullable=True, **options)


def _number() -> Any:
    return fields.IntegerField(nullable=True)


#: ``{name: class}``
CLASSES = {
    made.__name__: made
    for made in (
        _class(
            "NUMAPagesTopology",
            "1.1",
            size_kb=_number(),
            total=_number(),
            used=_number(),
            reserved=_number(),
        ),
        _class(
            "NetworkMetadata",
            "1.0",
            physnets=fields.SetOfStringsField(),
            tunneled=fields.BooleanField(),
        ),
        _class(
            "NUMACell",
            "1.5",
            id=_number(),
            cpuset=fields.SetOfIntegersField(),
            pcpuset=fields.SetOfIntegersField(),
            memory=_number(),
            cpu_usage=_number(),
            memory_usage=_number(),
            pinned_cpus=fields.SetOfIntegersField(),
            siblings=fields.ListOfSetsOfIntegersField(),
            mempages=_MANY("NUMAPagesTopology"),
            network_metadata=fields.ObjectField("NetworkMetadata"),
            socket=_number(),
        ),
        _class("NUMATopology", "1.2", cells=_MANY("NUMACell")),
        _class("VirtCPUTopology", "1.0", sockets=_number(), cores=_number(), threads=_number()),
        _class(
            "InstanceNUMACell",
            "1.6",
            id=_number(),
            cpuset=fields.SetOfIntegersField(),
            pcpuset=fields.SetOfIntegersField(),
            cpuset_reserved=fields.SetOfIntegersField(nullable=True),
            memory=_number(),
            pagesize=_number(),
            cpu_topology=fields.ObjectField("VirtCPUTopology", nullable=True),
            cpu_pinning_raw=fields.DictOfIntegersField(nullable=True),
            cpu_policy=_text(),
            cpu_thread_policy=_text(),
        ),
        _class(
            "InstanceNUMATopology",
            "1.3",
            instance_uuid=_text(),
            cells=_MANY("InstanceNUMACell"),
            emulator_threads_policy=_text(),
        ),
        _class(
            "PciDevicePool",
            "1.1",
            vendor_id=_text(),
            product_id=_text(),
            numa_node=_number(),
            tags=fields.DictOfNullableStringsField(),
            count=_number(),
        ),
        _class("PciDevicePoolList", "1.1", objects=_MANY("PciDevicePool")),
        _class(
            "PciDevice",
            "1.7",
            **_TIMES,
            deleted=fields.BooleanField(),
            id=_number(),
            uuid=_text(),
            compute_node_id=_number(),
            dev_id=_text(),
            label=_text(),
            address=_text(),
            vendor_id=_text(),
            product_id=_text(),
            dev_type=_text(),
            status=_text(),
            instance_uuid=_text(),
            request_id=_text(),
            numa_node=_number(),
            parent_addr=_text(),
            extra_info=fields.DictOfStringsField(),
        ),
        _class("PciDeviceList", "1.3", objects=_MANY("PciDevice")),
        _class(
            "InstancePCIRequest",
            "1.4",
            count=_number(),
            spec=fields.ListOfDictOfNullableStringsField(),
            alias_name=_text(),
            is_new=fields.BooleanField(),
            numa_policy=_text(),
            request_id=_text(),
            requester_id=_text(),
        ),
        _class(
            "InstancePCIRequests",
            "1.1",
            instance_uuid=_text(),
            requests=_MANY("InstancePCIRequest"),
        ),
        _class(
            "Flavor",
            "1.2",
            **_TIMES,
            id=_number(),
            name=_text(),
            flavorid=_text(),
            vcpus=_number(),
            memory_mb=_number(),
            root_gb=_number(),
            ephemeral_gb=_number(),
            swap=_number(),
            rxtx_factor=fields.FloatField(nullable=True),
            is_public=fields.BooleanField(),
            extra_specs=fields.DictOfStringsField(),
        ),
        _class(
            "ImageMetaProps",
            "1.44",
            hw_cpu_policy=_text(),
            hw_disk_bus=_text(),
            hw_mem_page_size=_text(),
            hw_numa_nodes=_number(),
            hw_numa_cpus=fields.ListOfSetsOfIntegersField(),
            hw_numa_mem=fields.ListOfIntegersField(),
            hw_pci_numa_affinity_policy=_text(),
            hw_vif_multiqueue_enabled=fields.BooleanField(),
            img_mappings=fields.ListOfDictOfNullableStringsField(),
            os_distro=_text(),
            traits_required=fields.ListOfStringsField(),
        ),
        _class(
            "ImageMeta",
            "1.8",
            id=_text(),
            name=_text(),
            min_ram=_number(),
            properties=fields.ObjectField("ImageMetaProps"),
        ),
        _class("HVSpec", "1.2", arch=_text(), hv_type=_text(), vm_mode=_text()),
        _class(
            "ComputeNode",
            "1.19",
            **_TIMES,
            **dict.fromkeys(
                ("id", "vcpus", "vcpus_used", "memory_mb", "memory_mb_used"), _number()
            ),
            **dict.fromkeys(("local_gb", "local_gb_used", "running_vms", "mapped"), _number()),
            **dict.fromkeys(("uuid", "host", "hypervisor_hostname", "numa_topology"), _text()),
            cpu_allocation_ratio=fields.FloatField(),
            stats=fields.DictOfNullableStringsField(nullable=True),
            host_ip=fields.IPAddressField(nullable=True),
            supported_hv_specs=_MANY("HVSpec"),
            pci_device_pools=fields.ObjectField("PciDevicePoolList", nullable=True),
        ),
    )
}


def made(primitive: Mapping[str, Any]) -> NovaObject:
    """Return the object of a primitive."""
    result = CLASSES[primitive["nova_object.name"]]()
    for name, value in primitive["nova_object.data"].items():
        setattr(result, name, _value(result.fields[name], value))
    return result


def _value(field: Any, value: Any) -> Any:
    """Return the value of a field for its form in a primitive."""
    if value is None:
        return None
    if isinstance(field, fields.DateTimeField):
        return timeutils.parse_isotime(value)
    if isinstance(field, fields.ListOfSetsOfIntegersField):
        return [set(item) for item in value]
    if isinstance(field, fields.SetOfIntegersField | fields.SetOfStringsField):
        return set(value)
    return _objects(value)


def _objects(value: Any) -> Any:
    if isinstance(value, Mapping):
        return made(value) if "nova_object.name" in value else value
    return [_objects(item) for item in value] if isinstance(value, list) else value
