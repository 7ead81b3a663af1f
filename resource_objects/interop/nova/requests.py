"""A flavor and its image as one request: counts, topology, devices and traits.

:func:`request` reads every key, so that none vanishes: a key has a meaning here, or is about the
guest alone (how its disks and screens look, what of a CPU it may use), or is named. Keys that are
named may choose a host in Nova, such as ``capabilities:``, ``aggregate_instance_extra_specs:``,
encrypted memory or a TPM; a request that ignored them would ask for less than the flavor does. So
they are refused unless the caller says otherwise.

================================  =================================================================
keys                              what they say
================================  =================================================================
``resources:``, ``trait:``,       amounts and traits:
``group_policy``                  :mod:`~resource_objects.interop.nova.extra_specs`
``hw:`` about CPUs and memory     a topology: :mod:`~resource_objects.interop.nova.flavor`
``pci_passthrough:alias``,        devices: :mod:`~resource_objects.interop.nova.pci_alias`
``hw:pci_numa_affinity_policy``
``quota:``, ``hw_rng:``,          the guest's configuration, which asks for no resource
``hw_video:``, others of ``hw:``
any other of a flavor             no meaning here: named in ``ignored_keys``
``hw_`` and ``trait:`` of an      as of a flavor. Of an image's other properties only those are
image                             named that Nova chooses a host by
================================  =================================================================

A word that Nova itself reads only beside another one is named where it has no effect: what is in
guest cells, beyond their number or where there is no topology, a real-time mask of a guest that is
not real-time, and an affinity of devices (required, socket) where there is no topology. That of an
alias, which serves all flavors, is not looked at there, as in Nova.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from resource_objects.fields import FrozenDict
from resource_objects.interop.nova.extra_specs import flavor_request
from resource_objects.interop.nova.flavor import FlavorTopology, flavor_topology
from resource_objects.interop.nova.nova_objects import flavor_fields, image_properties
from resource_objects.interop.nova.pci_alias import Alias, flavor_devices
from resource_objects.interop.nova.primitive import Document
from resource_objects.interop.nova.rules import InvalidNovaInput, NovaRule
from resource_objects.requests import Request
from resource_objects.resources.pci.device import REQUIRED, SOCKET

__all__ = ["Flavor", "NovaRequest", "load_flavor", "request"]

_NOTHING: Final[Mapping[str, Any]] = FrozenDict()

#: Names behind ``hw:`` of a flavor and ``hw_`` of an image that are read here.
_READ: Final = frozenset({
    "cpu_policy", "cpu_thread_policy", "cpu_realtime_mask", "numa_nodes", "mem_page_size",
    "locked_memory", "pci_numa_affinity_policy",
})  # fmt: skip
#: The same, of a flavor alone.
_READ_OF_FLAVOR: Final = frozenset({
    "cpu_realtime", "cpu_dedicated_mask", "emulator_threads_policy", "pmem",
})  # fmt: skip
#: Names that are about the guest alone, of both. Source: the validators of Nova 34.
_OF_GUEST: Final = frozenset({
    "boot_menu", "cpu_cores", "cpu_max_cores", "cpu_max_sockets", "cpu_max_threads",
    "cpu_sockets", "cpu_threads", "hide_hypervisor_id", "pmu", "serial_port_count",
    "vif_multiqueue_enabled", "watchdog_action",
})  # fmt: skip
#: The same, of an image alone.
_OF_GUEST_IMAGE: Final = frozenset({
    "auto_disk_config", "cdrom_bus", "device_id", "disk_bus", "disk_type", "firmware_type",
    "floppy_bus", "input_bus", "ipxe_boot", "machine_type", "pointer_model", "qemu_guest_agent",
    "rescue_bus", "rescue_device", "rng_model", "scsi_model", "time_hpet", "video_model",
    "video_ram", "vif_model",
})  # fmt: skip
_GUEST_KEYS: Final = ("quota:", "hw_rng:", "hw_video:", "hide_hypervisor_id")
_OTHERS_READ: Final = ("group_policy", "pci_passthrough:alias")
#: Properties of an image, apart from those that begin with ``hw_``, that Nova chooses a host by.
_CHOOSE_A_HOST: Final = frozenset({
    "architecture", "hypervisor_type", "vm_mode", "img_hv_type", "img_hv_requested_version",
    "os_secure_boot",
})  # fmt: skip
_GROUPED: Final = re.compile(r"(?:resources?|trait)[A-Za-z0-9_-]{0,64}:")
_OF_CELL: Final = re.compile(r"(numa_cpus|numa_mem)\.(0|[1-9][0-9]{0,3})\Z", re.ASCII)


@dataclasses.dataclass(frozen=True, slots=True)
class Flavor:
    """A flavor: vCPUs, memory (MiB), disks (GiB; swap MiB), and extra specs, text by key.

    ``root_gb`` is 0 for a server that boots from a volume.
    """

    vcpus: int
    memory_mb: int
    root_gb: int = 0
    ephemeral_gb: int = 0
    swap_mb: int = 0
    extra_specs: Mapping[str, Any] = FrozenDict()


@dataclasses.dataclass(frozen=True, slots=True)
class NovaRequest:
    """What a flavor and its image ask.

    ``request`` is the whole of it. ``topology`` has the guest's configuration beside it: real-time
    vCPUs, locked memory. ``ignored_keys`` are the keys without a meaning here.
    """

    request: Request
    topology: FlavorTopology
    ignored_keys: tuple[str, ...] = ()


def load_flavor(source: Document) -> Flavor:
    """Return a flavor of Nova's.

    :param source: Nova's own ``Flavor``, its primitive, or JSON text of it; or what
        ``instance_extra.flavor`` holds, of which the flavor is read that the server has
    :raises InvalidNovaInput: ``NOT_WORDS`` if it is no such flavor, or its extra specs were not
        loaded: then nobody knows what it asks

    >>> load_flavor('''{"nova_object.name": "Flavor", "nova_object.namespace": "nova",
    ...     "nova_object.version": "1.2", "nova_object.data": {"vcpus": 2, "memory_mb": 512,
    ...     "root_gb": 1, "ephemeral_gb": 0, "swap": 0, "extra_specs": {"hw:numa_nodes": "1"}}}''')
    Flavor(vcpus=2, memory_mb=512, root_gb=1, ephemeral_gb=0, swap_mb=0, extra_specs={'hw:n...
    """
    return Flavor(**flavor_fields(source))


def request(
    flavor: Flavor | Document,
    image: Document = _NOTHING,
    *,
    aliases: Mapping[str, Alias] = FrozenDict(),
    request_id: Callable[[], str] | None = None,
    refuse_ignored: bool = True,
) -> NovaRequest:
    """Return all that a flavor and its image ask: counts, topology, devices, traits.

    :param flavor: a :class:`Flavor`, or anything that :func:`load_flavor` reads
    :param image: the image's properties, text by key; or Nova's own ``ImageMeta``, its primitive or
        JSON text of it
    :param aliases: of devices, as :func:`.parse_alias` returns them
    :param request_id: what makes an id for each request of devices, such as a new uuid
    :param refuse_ignored: whether keys without a meaning are refused; else the result names them
    :raises InvalidNovaInput: by the first rule that is broken; ``UNREAD_KEY`` for keys that have no
        meaning here
    :returns: the request and what stands beside it; O(keys + vCPUs)

    >>> asked = request(Flavor(2, 1024, extra_specs={"hw:cpu_policy": "dedicated"}))
    >>> print(asked.request.resources)
    MEMORY_MB=1024,PCPU=2,NUMA_TOPOLOGY=1:dedicated=2:memory=1024
    >>> request(Flavor(2, 1024, extra_specs={"hw:tpm_version": "2.0"}))
    Traceback (most recent call last):
    resource_objects.interop.nova.rules.InvalidNovaInput: flavor and image: got ['hw:tpm_versi...
    >>> request(Flavor(2, 1024), {"hw_vm_mode": "hvm"}, refuse_ignored=False).ignored_keys
    ('hw_vm_mode of the image',)
    """
    if not isinstance(flavor, Flavor):
        flavor = load_flavor(flavor)
    properties = image_properties(image)
    topology = flavor_topology(
        flavor.vcpus, flavor.memory_mb, extra_specs=flavor.extra_specs, image=properties
    )
    of_flavor = flavor_request(
        flavor.vcpus,
        flavor.memory_mb,
        root_gb=flavor.root_gb,
        ephemeral_gb=flavor.ephemeral_gb,
        swap_mb=flavor.swap_mb,
        extra_specs=flavor.extra_specs,
        image=properties,
        topology=None if topology.amount is None else topology,
        devices=flavor_devices(aliases, flavor.extra_specs, image, request_id=request_id),
    )
    unread = (
        *_unread(flavor.extra_specs, "hw:", topology, _is_read_of_flavor),
        *(f"{key} of the image" for key in _unread(properties, "hw_", topology, _is_read_of_image)),
    )
    if unread and refuse_ignored:
        expected = "keys that have a meaning here; refuse_ignored=False leaves others aside"
        raise InvalidNovaInput(NovaRule.UNREAD_KEY, "flavor and image", list(unread), expected)
    return NovaRequest(of_flavor, topology, unread)


def _unread(
    said: Mapping[Any, Any],
    prefix: str,
    topology: FlavorTopology,
    is_read: Callable[[str], bool],
) -> Iterator[str]:
    """Yield the keys that say something and have no meaning."""
    for key, value in said.items():
        if value is None or value == "":
            continue
        name = str(key).removeprefix(prefix) if str(key).startswith(prefix) else None
        of_cell = None if name is None else _OF_CELL.match(name)
        if of_cell is not None:
            has_meaning = _says_a_cell(said, f"{prefix}{of_cell[1]}", int(of_cell[2]), topology)
        elif name == "cpu_realtime_mask":
            has_meaning = bool(topology.realtime)
        elif name == "pci_numa_affinity_policy":
            has_meaning = topology.amount is not None or value not in (REQUIRED, SOCKET)
        else:
            has_meaning = is_read(str(key))
        if not has_meaning:
            yield str(key)


def _says_a_cell(
    said: Mapping[Any, Any], prefix: str, number: int, topology: FlavorTopology
) -> bool:
    """Return whether what is said of a guest cell was read: up to the first that is missing."""
    cells = () if topology.amount is None else topology.amount.cells
    return number < len(cells) and all(
        said.get(f"{prefix}.{before}") is not None for before in range(number)
    )


def _is_read_of_flavor(key: str) -> bool:
    if key.startswith("hw:"):
        return key.removeprefix("hw:") in _READ | _READ_OF_FLAVOR | _OF_GUEST
    return key in _OTHERS_READ or key.startswith(_GUEST_KEYS) or _GROUPED.match(key) is not None


def _is_read_of_image(key: str) -> bool:
    if key.startswith("hw_"):
        return key.removeprefix("hw_") in _READ | _OF_GUEST | _OF_GUEST_IMAGE
    return key not in _CHOOSE_A_HOST
