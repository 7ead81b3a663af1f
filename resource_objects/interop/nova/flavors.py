"""Flavors and images as requests: amounts, a NUMA topology, devices and traits.

:func:`request` returns all that a flavor and its image request. It accounts for every key: a key
has a meaning here, or configures only the guest, or is ignored. An ignored key can select hosts in
Nova (``capabilities:``, ``aggregate_instance_extra_specs:``, encrypted memory, a TPM), and a
request without it would be less than the flavor. So ignored keys are rejected by default.

====================================  ==============================================================
key                                   meaning
====================================  ==============================================================
``resources:CLASS=2``                 an amount, in place of the flavor's own amount of that class
``resources:CLASS=0``                 suppresses the flavor's own amount
``resourcesS:CLASS=2``                an amount of the group named ``S``, from one provider
``trait:NAME=required``, ``traitS:``  the provider of the group must have the trait
``trait:NAME=forbidden``              the provider of the group must not have the trait
``group_policy=none``, ``isolate``    whether named groups need different providers
``resource:CLASS=2``                  the same as ``resources:``, an older form
``hw:`` of CPUs and memory            a topology, see :func:`flavor_topology`
``pci_passthrough:alias``,            devices, see :func:`flavor_devices`
``hw:pci_numa_affinity_policy``
``quota:``, ``hw_rng:``,              configuration of the guest, without a resource
``hw_video:``, others of ``hw:``
any other key of a flavor             none: in ``ignored_keys``
``hw_`` and ``trait:`` of an image    as of a flavor; of the other properties, only those with which
                                      Nova selects hosts are in ``ignored_keys``
====================================  ==============================================================

A flavor requests its vCPUs (``VCPU``), memory (``MEMORY_MB``, MiB) and disks (``DISK_GB``, GiB:
root, ephemeral, and swap rounded up). The own amount of a class counts if no group has that class;
``VCPU`` counts if no group has ``VCPU`` or ``PCPU``. An image can only require traits, of the
unnamed group. The request has the semantics of Placement (``compatibility="placement"``).

A key without an effect in Nova is ignored too: cells beyond the number of guest cells or without a
topology, a real-time mask without real-time vCPUs, and a device affinity (required, socket) without
a topology. The affinity of an alias is not, as an alias serves all flavors.

The rules are those of Nova 34 (``numa_get_constraints``, ``ResourceRequest``, ``pci/request.py``),
checked in its order, so the same one of several broken rules is named. Differences from Nova are
input that Nova rejects late, ignores or accepts by accident:

=====================================  =============================================================
input                                  Nova, and this library
=====================================  =============================================================
``hw:cpu_realtime=maybe``,             no; INVALID_FLAG
``hw:locked_memory=maybe``
``resources:PCPU=four``                ignored; INVALID_RESOURCE_COUNT
``resources_A:PCPU=4``                 allocated in Placement, not pinned; pinned
``resources:PCPU_X``, ``trait:..._X``  read as PCPU and as the trait; another name
hyperthreading trait with another      ignored; INVALID_HYPERTHREADING_TRAIT
value, or forbidden by an image
hyperthreading required and forbidden  the first key; HYPERTHREADING_TRAIT_CONFLICT
``hw:numa_mem.0=many``, ``=``          ValueError; INVALID_CELL_MEMORY
``hw:numa_mem.0=-512``                 added up; INVALID_CELL_MEMORY
an empty guest cell                    requests a host cell; EMPTY_CELL
``hw_numa_nodes=02``                   2 (of an image only); INVALID_CELL_COUNT
``hw_numa_nodes=0`` with               ignored; CELLS_SAID_TWICE
``hw:numa_nodes``
more than 1024 guest cells             never fits; INVALID_CELL_COUNT
``hw:mem_page_size=0``                 no page size; INVALID_PAGE_SIZE
``hw:mem_page_size=3000``, ``16Mb``,   never fits; INVALID_PAGE_SIZE
``0.5MB``, 2 TiB and more
``hw:mem_page_size=2M``, ``2048kB``    rejected, though its API accepts it; 2 MiB
``hw:pmem=6GB-FAST``, ``é``            the class of ``6GB_FAST``, of ``_``; INVALID_PMEM_LABEL
CPU numbers ``+1``, ``1_0``, ``٣``,    read; INVALID_CPU_LIST
and above 65535
more than 65536 vCPUs, 2 PiB and more  never fits; INVALID_FLAVOR_SIZE
``resources:CUSTOM_X=many``, ``=-1``,  ignored; INVALID_RESOURCE_AMOUNT
``=``
``resources:VCPU=+2``, ``1_0``         read; INVALID_RESOURCE_AMOUNT
``resources:vcpu=2``                   ignored; UNKNOWN_FLAVOR_RESOURCE
``resources$:VCPU``, ``resource1:X``   ignored; INVALID_REQUEST_KEY
``resource:VCPU=2``                    ignored; read
``resource:VCPU`` with                 the second; RESOURCE_SAID_TWICE
``resources:VCPU``
``resources:NUMA_TOPOLOGY=1``          ignored; RESOURCE_NOT_COUNTED
``trait:CUSTOM_X=maybe``               ignored; INVALID_TRAIT_VALUE
``trait:CUSTOM_A,CUSTOM_B=required``   two traits; UNKNOWN_FLAVOR_TRAIT
``resources:CUSTOM_A:1,CUSTOM_B=2``    two classes; UNKNOWN_FLAVOR_RESOURCE
``group_policy=apart``                 ignored; INVALID_GROUP_POLICY
an unknown trait; one forbidden and    no valid host; UNKNOWN_FLAVOR_TRAIT, FLAVOR_TRAIT_CONFLICT,
required; one of an empty group        GROUP_WITHOUT_RESOURCES
two named groups without a policy      no valid host; GROUP_POLICY_MISSING
every resource suppressed              no valid host; NOTHING_ASKED
``pci_passthrough:alias=a``, ``a:x``   ValueError; INVALID_ALIAS_COUNT
``pci_passthrough:alias=a:0``,         no device; INVALID_ALIAS_COUNT
``a:-1``
another key with empty text            absent, or for some keys no; absent, but ``hw:numa_cpus.N``
                                       is a cell without vCPUs
=====================================  =============================================================

To read a further key of CPUs and memory, add its name to ``_HW_NAMES``, or to the set of only the
flavor or the image, and its meaning to :func:`flavor_topology`; a key of the guest needs only the
name. Another prefix goes into ``_GROUPED`` or ``_GUEST_KEYS``. A key in none of them is ignored.

Memory encryption, which implies locked memory, is not read, nor are traits that Nova derives
(secure boot, TPM).
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final, TypeVar, cast

import os_resource_classes

from resource_objects import exceptions, names
from resource_objects.fields import MAX_AMOUNT, MAX_FIGURE, FrozenDict
from resource_objects.interop.nova.primitive import (
    Document,
    flavor_data,
    format_cpu_spec,
    image_properties,
    option_flag,
    option_text,
    page_size_kib,
    parse_cpu_spec,
)
from resource_objects.interop.nova.rules import NovaRule
from resource_objects.interop.nova.specs import Alias
from resource_objects.requests import Request, RequestGroup
from resource_objects.requests.request import POLICIES
from resource_objects.resources import IntegerAmount, catalog
from resource_objects.resources.amounts import Amounts
from resource_objects.resources.numa.amount import (
    DEDICATED,
    EMULATOR_POLICIES,
    ISOLATE,
    MAX_GUEST_CELLS,
    MIXED,
    PREFER,
    REQUIRE,
    SHARED,
    THREAD_POLICIES,
    GuestCell,
    NUMATopologyAmount,
)
from resource_objects.resources.numa.cells import ANY, LARGE, PAGE_SIZES
from resource_objects.resources.numa.cpuset import MAX_ID
from resource_objects.resources.pci import DEVICES
from resource_objects.resources.pci.amount import DeviceRequest, PCIAmount
from resource_objects.resources.pci.device import AFFINITIES, MAX_DEVICES, REQUIRED, SOCKET
from resource_objects.resources.traits import checked_traits

__all__ = [
    "Flavor",
    "FlavorExtraSpecs",
    "FlavorTopology",
    "NovaRequest",
    "alias_requests",
    "flavor_devices",
    "flavor_request",
    "flavor_topology",
    "load_flavor",
    "pci_affinity",
    "request",
]

_EMPTY: Final[Mapping[str, Any]] = FrozenDict()
_T = TypeVar("_T")


# --- values ---------------------------------------------------------------------------------------


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
class FlavorTopology:
    """The CPUs and memory that a flavor and its image request.

    ``amount`` is the topology, None if they request none. ``realtime`` (vCPUs) and
    ``locked_memory`` configure the guest and select no host. ``pmem`` is persistent memory,
    ``{resource class: count}``.
    """

    vcpus: int
    memory_mb: int
    amount: NUMATopologyAmount | None
    realtime: tuple[int, ...] = ()
    locked_memory: bool = False
    pmem: Mapping[str, int] = FrozenDict()

    @property
    def resources(self) -> Amounts:
        """CPUs, memory, persistent memory and the topology, without disks and other classes.

        >>> flavor_topology(4, 2048).resources
        Amounts('VCPU=4,MEMORY_MB=2048')
        """
        return Amounts.from_value(self._amounts())

    def _amounts(self) -> dict[str, Any]:
        if self.amount is None:
            return {"VCPU": self.vcpus, "MEMORY_MB": self.memory_mb, **self.pmem}
        return {**self.amount.placed_counts, "NUMA_TOPOLOGY": self.amount, **self.pmem}


@dataclasses.dataclass(frozen=True, slots=True)
class NovaRequest:
    """All that a flavor and its image request.

    ``request`` is complete. ``topology`` has the configuration of the guest: real-time vCPUs,
    locked memory. ``ignored_keys`` are the keys without a meaning here.
    """

    request: Request
    topology: FlavorTopology
    ignored_keys: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class FlavorExtraSpecs:
    """The extra specs of a flavor and the properties of its image.

    ``hw:NAME`` of a flavor and ``hw_NAME`` of an image mean the same: :meth:`flavor` and
    :meth:`image` return the text of a name. Values are text, or integers and booleans, which are
    read as their text. None and empty text mean that the key is absent, but for guest cells.
    ``grouped`` are the keys of resources and traits of the flavor.

    >>> specs = FlavorExtraSpecs.parse({"hw:numa_nodes": 2, "trait_A:CUSTOM_X": "required"},
    ...                                {"hw_cpu_policy": "shared"})
    >>> specs.flavor("numa_nodes"), specs.image("cpu_policy"), specs.flavor("cpu_policy")
    ('2', 'shared', '')
    >>> specs.grouped[0].group, specs.grouped[0].name
    ('_A', 'CUSTOM_X')
    """

    extra_specs: Mapping[Any, Any]
    properties: Mapping[Any, Any]
    grouped: tuple[GroupedKey, ...]

    @classmethod
    def parse(cls, extra_specs: Document = _EMPTY, image: Document = _EMPTY) -> FlavorExtraSpecs:
        """Return the keys of a flavor and an image.

        :param extra_specs: text by key, or an object ``Flavor``
        :param image: text by key, or an object ``ImageMeta``
        :raises InvalidNovaInput: ``NOT_WORDS`` if one of them is something else
        """
        data, properties = flavor_data(extra_specs), image_properties(image)
        specs: Any = extra_specs if data is None else data["extra_specs"]
        for name, keys in (("extra specs", specs), ("image", properties)):
            if not isinstance(keys, dict | Mapping):
                raise NovaRule.NOT_WORDS.error(name, keys, "a mapping of keys to text")
        grouped = [
            GroupedKey.parse(key, value)
            for key, value in specs.items()
            if isinstance(key, str) and key.startswith(_GROUPED) and (":" in key or key in _BARE)
        ]
        return cls(specs, properties, tuple(grouped))

    def flavor(self, name: str) -> str:
        """Return the text of ``hw:NAME`` of the flavor, ``""`` if it is absent."""
        value = self.extra_specs.get(f"hw:{name}", "")
        return value if type(value) is str else option_text(f"hw:{name}", value)

    def image(self, name: str) -> str:
        """Return the text of ``hw_NAME`` of the image, ``""`` if it is absent."""
        value = self.properties.get(f"hw_{name}", "")
        return value if type(value) is str else option_text(f"hw_{name}", value)


_GROUPED: Final = ("resource", "trait")
#: These keys are malformed without a colon; other keys without one are not about resources.
_BARE: Final = ("resource", "resources", "trait")
_GROUPED_KEY = re.compile(r"(resources|trait)([A-Za-z0-9_-]{0,64}):(.*)", re.DOTALL)


@dataclasses.dataclass(frozen=True, slots=True)
class GroupedKey:
    """A key of resources or traits: ``resources_A:PGPU``; ``kind`` is ``""`` if it is malformed."""

    key: str
    value: Any
    kind: str
    group: str
    name: str

    @classmethod
    def parse(cls, key: str, value: object) -> GroupedKey:
        """Return the parts of a key; its value is not read."""
        if key.startswith("resource:"):
            return cls(key, value, "resources", "", key.removeprefix("resource:"))
        match = _GROUPED_KEY.fullmatch(key)
        return cls(key, value, *(match.groups() if match else ("", "", "")))

    @property
    def text(self) -> str:
        """The text of the value."""
        return option_text(self.key, self.value)


def load_flavor(source: Document) -> Flavor:
    """Return a flavor of Nova.

    :param source: an object ``Flavor``, its primitive, or JSON text of that; or the value of
        ``instance_extra.flavor``, whose current flavor is read
    :raises InvalidNovaInput: ``NOT_WORDS`` if it is not such a flavor, or its extra specs are not
        loaded

    >>> load_flavor('''{"nova_object.name": "Flavor", "nova_object.namespace": "nova",
    ...     "nova_object.version": "1.2", "nova_object.data": {"vcpus": 2, "memory_mb": 512,
    ...     "root_gb": 1, "ephemeral_gb": 0, "swap": 0, "extra_specs": {"hw:numa_nodes": "1"}}}''')
    Flavor(vcpus=2, memory_mb=512, root_gb=1, ephemeral_gb=0, swap_mb=0, extra_specs={'hw:n...
    """
    data = flavor_data(source)
    if data is None:
        raise NovaRule.NOT_WORDS.error("flavor", source, "a Flavor, or one of Nova's")
    flavor_fields = ("vcpus", "memory_mb", "root_gb", "ephemeral_gb", "swap", "extra_specs")
    for name in flavor_fields:
        if name not in data:
            raise NovaRule.NOT_WORDS.error(f"flavor.{name}", None, "a whole number")
    return Flavor(*(data[name] for name in flavor_fields))


# --- the whole request ----------------------------------------------------------------------------


def request(
    flavor: Flavor | Document,
    image: Document = _EMPTY,
    *,
    aliases: Mapping[str, Alias] = FrozenDict(),
    request_id: Callable[[], str] | None = None,
    refuse_ignored: bool = True,
) -> NovaRequest:
    """Return all that a flavor and its image request: amounts, topology, devices, traits.

    :param flavor: a :class:`Flavor`, or a document that :func:`load_flavor` reads
    :param image: the properties of the image, text by key; or an object ``ImageMeta``, its
        primitive or JSON text of that
    :param aliases: aliases of devices, as :func:`.parse_alias` returns them
    :param request_id: returns an id for each request of devices, such as a new uuid
    :param refuse_ignored: whether keys without a meaning are rejected, or named in the result
    :raises InvalidNovaInput: for the first broken rule; ``UNREAD_KEY`` for keys without a meaning

    Cost: O(keys + vCPUs).

    >>> result = request(Flavor(2, 1024, extra_specs={"hw:cpu_policy": "dedicated"}))
    >>> print(result.request.resources)
    MEMORY_MB=1024,PCPU=2,NUMA_TOPOLOGY=1:dedicated=2:memory=1024
    >>> request(Flavor(2, 1024, extra_specs={"hw:tpm_version": "2.0"}))
    Traceback (most recent call last):
    resource_objects.interop.nova.rules.InvalidNovaInput: flavor and image: got ['hw:tpm_vers...
    >>> request(Flavor(2, 1024), {"hw_vm_mode": "hvm"}, refuse_ignored=False).ignored_keys
    ('hw_vm_mode of the image',)
    """
    if not isinstance(flavor, Flavor):
        flavor = load_flavor(flavor)
    specs = FlavorExtraSpecs.parse(flavor.extra_specs, image)
    _check_sizes(flavor.vcpus, flavor.memory_mb)
    topology = _topology(flavor.vcpus, flavor.memory_mb, specs)
    devices = _devices(aliases, specs, request_id)
    placed = None if topology.amount is None else topology
    result = _request(flavor, specs, placed, devices)
    ignored_keys = tuple(_ignored_keys(specs, topology))
    if ignored_keys and refuse_ignored:
        expected = "keys with a meaning here; refuse_ignored=False leaves out the others"
        raise NovaRule.UNREAD_KEY.error("flavor and image", list(ignored_keys), expected)
    return NovaRequest(result, topology, ignored_keys)


def _check_sizes(vcpus: object, memory_mb: object) -> None:
    for name, value, most in (("vcpus", vcpus, MAX_ID + 1), ("memory_mb", memory_mb, MAX_FIGURE)):
        if type(value) is not int or not 1 <= value <= most:
            raise NovaRule.INVALID_FLAVOR_SIZE.error(name, value, f"an integer from 1 to {most}")


#: Names after ``hw:`` or ``hw_`` that are read here, or configure only the guest. Source: the
#: validators of Nova 34.
_HW_NAMES: Final = frozenset({
    "cpu_policy", "cpu_thread_policy", "numa_nodes", "mem_page_size", "locked_memory",
    "boot_menu", "cpu_cores", "cpu_max_cores", "cpu_max_sockets", "cpu_max_threads",
    "cpu_sockets", "cpu_threads", "hide_hypervisor_id", "pmu", "serial_port_count",
    "vif_multiqueue_enabled", "watchdog_action",
})  # fmt: skip
_HW_FLAVOR_NAMES: Final = _HW_NAMES | {
    "cpu_realtime", "cpu_dedicated_mask", "emulator_threads_policy", "pmem",
}  # fmt: skip
_HW_IMAGE_NAMES: Final = _HW_NAMES | {
    "auto_disk_config", "cdrom_bus", "device_id", "disk_bus", "disk_type", "firmware_type",
    "floppy_bus", "input_bus", "ipxe_boot", "machine_type", "pointer_model", "qemu_guest_agent",
    "rescue_bus", "rescue_device", "rng_model", "scsi_model", "time_hpet", "video_model",
    "video_ram", "vif_model",
}  # fmt: skip
#: Properties without ``hw_`` with which Nova selects hosts.
_HOST_PROPERTIES: Final = frozenset({
    "architecture", "hypervisor_type", "vm_mode", "img_hv_type", "img_hv_requested_version",
    "os_secure_boot",
})  # fmt: skip
_GUEST_KEYS: Final = ("quota:", "hw_rng:", "hw_video:", "hide_hypervisor_id")
_POLICY, _ALIASES = "group_policy", "pci_passthrough:alias"
_CELL_NAME = re.compile(r"(numa_cpus|numa_mem)\.(0|[1-9][0-9]{0,3})\Z", re.ASCII)


def _ignored_keys(specs: FlavorExtraSpecs, topology: FlavorTopology) -> Iterator[str]:
    cells = () if topology.amount is None else topology.amount.cells
    for values, prefix, suffix, hw_names in (
        (specs.extra_specs, "hw:", "", _HW_FLAVOR_NAMES),
        (specs.properties, "hw_", " of the image", _HW_IMAGE_NAMES),
    ):
        for raw_key, value in values.items():
            if value is None or value == "":
                continue
            key = str(raw_key)
            name = key[3:]
            if not key.startswith(prefix):
                if suffix:
                    has_meaning = key not in _HOST_PROPERTIES
                else:
                    is_grouped = key.startswith(_GROUPED) and ":" in key
                    is_other = key in (_POLICY, _ALIASES) or key.startswith(_GUEST_KEYS)
                    has_meaning = is_grouped or is_other
            elif match := _CELL_NAME.match(name):
                cell, stem = int(match[2]), f"{prefix}{match[1]}"
                has_meaning = cell < len(cells) and all(
                    values.get(f"{stem}.{before}") is not None for before in range(cell)
                )
            elif name == "cpu_realtime_mask":
                has_meaning = bool(topology.realtime)
            elif name == _AFFINITY:
                has_meaning = topology.amount is not None or value not in (REQUIRED, SOCKET)
            else:
                has_meaning = name in hw_names
            if not has_meaning:
                yield f"{key}{suffix}"


# --- topologies -----------------------------------------------------------------------------------


def flavor_topology(
    vcpus: int,
    memory_mb: int,
    *,
    extra_specs: Document = _EMPTY,
    image: Document = _EMPTY,
) -> FlavorTopology:
    """Return the CPUs and memory that a flavor and its image request.

    There is a topology only for a number of guest cells, a page size, persistent memory, dedicated
    or mixed CPUs.

    :param memory_mb: MiB
    :param extra_specs: text by key, or an object ``Flavor``; other keys are ignored
    :param image: the properties of the image, text by key, or an object ``ImageMeta``
    :raises InvalidNovaInput: for the first broken rule

    Cost: O(vCPUs).

    >>> result = flavor_topology(8, 8192, extra_specs={
    ...     "hw:numa_nodes": "2", "hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "^0,4",
    ...     "hw:mem_page_size": "large"}, image={"hw_mem_page_size": "2MB"})
    >>> for cell in result.amount.cells:
    ...     print(cell.shared, cell.dedicated, cell.memory_mb)
    (0,) (1, 2, 3) 4096
    () (4, 5, 6, 7) 4096
    >>> flavor_topology(8, 8192, extra_specs={"hw:numa_nodes": "3"})
    Traceback (most recent call last):
    resource_objects.interop.nova.rules.InvalidNovaInput: vcpus: got 8, expected a multiple of 3...
    """
    specs = FlavorExtraSpecs.parse(extra_specs, image)
    _check_sizes(vcpus, memory_mb)
    return _topology(vcpus, memory_mb, specs)


def _topology(vcpus: int, memory_mb: int, specs: FlavorExtraSpecs) -> FlavorTopology:
    # the order of Nova's checks decides which of several broken rules is named
    policy = _cpu_policy(specs)
    threads = _thread_policy(specs)
    realtime = _realtime_vcpus(vcpus, specs)
    masked = _dedicated_mask(vcpus, specs)
    emulator = _emulator_policy(specs)
    policy = _policy_of_resources(vcpus, specs, policy, emulator)
    threads = _policy_of_trait(specs, threads)
    is_pinned = policy not in ("", SHARED)
    if threads and not is_pinned:
        raise NovaRule.THREAD_POLICY_WITHOUT_PINNING.error(
            "cpu_thread_policy", threads, "none, for no vCPU is dedicated"
        )
    if emulator == ISOLATE and not is_pinned:
        raise NovaRule.EMULATOR_POLICY_WITHOUT_PINNING.error(
            "hw:emulator_threads_policy", emulator, "share or none, for no vCPU is dedicated"
        )
    dedicated = _dedicated_vcpus(vcpus, specs, policy, realtime, masked)
    count = _cell_count(specs)
    size = _page_size(specs)
    pmem = _pmem_classes(specs)
    locked = _locked_memory(specs)
    amount = None
    if count or size or pmem or dedicated:
        amount = NUMATopologyAmount(
            _guest_cells(vcpus, memory_mb, specs, count or 1, frozenset(dedicated)),
            page_size=size,
            thread_policy=threads,
            emulator_policy=emulator,
        )
    return FlavorTopology(vcpus, memory_mb, amount, realtime, locked, pmem)


# --- policies ---

#: ``{policy of the flavor: policies an image may not request}``. Under dedicated an image may
#: request any policy, and it has no effect.
_FORBIDDEN = {SHARED: (DEDICATED, MIXED), MIXED: (DEDICATED,), DEDICATED: ()}


def _policies(
    specs: FlavorExtraSpecs, name: str, policies: Collection[str], rule: NovaRule
) -> tuple[str, str]:
    """Return the policies of the flavor and of the image, ``""`` for none."""
    flavor, image = specs.flavor(name), specs.image(name)
    for key, policy in ((f"hw:{name}", flavor), (f"hw_{name}", image)):
        if policy and policy not in policies:
            raise rule.error(key, policy, _one_of(policies))
    return flavor, image


def _cpu_policy(specs: FlavorExtraSpecs) -> str:
    rule = NovaRule.INVALID_CPU_POLICY
    flavor, image = _policies(specs, "cpu_policy", (SHARED, DEDICATED, MIXED), rule)
    if image in _FORBIDDEN.get(flavor, ()):
        expected = f"none or {flavor}, for hw:cpu_policy of the flavor is {flavor}"
        raise NovaRule.CPU_POLICY_CONFLICT.error("hw_cpu_policy", image, expected)
    return flavor or image


def _thread_policy(specs: FlavorExtraSpecs) -> str | None:
    rule = NovaRule.INVALID_THREAD_POLICY
    flavor, image = _policies(specs, "cpu_thread_policy", THREAD_POLICIES, rule)
    if flavor in ("", PREFER):  # under prefer an image may request any policy, without effect
        return flavor or image or None
    if image and image != flavor:
        expected = f"none or {flavor}, for hw:cpu_thread_policy of the flavor is {flavor}"
        raise NovaRule.THREAD_POLICY_CONFLICT.error("hw_cpu_thread_policy", image, expected)
    return flavor


def _emulator_policy(specs: FlavorExtraSpecs) -> str | None:
    policy = specs.flavor("emulator_threads_policy")  # an image has no such property
    if policy and policy not in EMULATOR_POLICIES:
        key, expected = "hw:emulator_threads_policy", _one_of(EMULATOR_POLICIES)
        raise NovaRule.INVALID_EMULATOR_POLICY.error(key, policy, expected)
    return policy or None


def _one_of(words: Collection[str]) -> str:
    return f"one of {', '.join(words)}"


_COUNT = re.compile(r"[0-9]{1,10}\Z", re.ASCII)


def _policy_of_resources(
    vcpus: int, specs: FlavorExtraSpecs, policy: str, emulator: str | None
) -> str:
    """Return the CPU policy: PCPU implies dedicated, VCPU shared.

    Amounts of all groups are added; Nova reads only numbered groups here. The amount of VCPU does
    not matter, as in Nova: the vCPUs of the flavor count.
    """
    counts = {"VCPU": 0, "PCPU": 0}
    for item in specs.grouped:
        is_cpu = item.kind == "resources" and item.name in counts
        if is_cpu and not item.key.startswith("resource:") and (text := item.text):
            if not _COUNT.match(text):
                raise NovaRule.INVALID_RESOURCE_COUNT.error(item.key, text, "a whole number from 0")
            counts[item.name] += int(text)
    requested = {name: count for name, count in counts.items() if count}
    if not requested:
        return policy
    shown = ", ".join(f"{name}={count}" for name, count in requested.items())
    keys = "resources:VCPU, resources:PCPU"
    if policy:
        expected = f"none, for cpu_policy is {policy}"
        raise NovaRule.RESOURCES_WITH_POLICY.error(keys, shown, expected)
    if len(requested) > 1:
        raise NovaRule.RESOURCES_OF_BOTH_KINDS.error(keys, shown, "one of them")
    if "VCPU" in requested:
        return SHARED
    is_isolated = emulator == ISOLATE
    if requested["PCPU"] != vcpus + is_isolated:
        expected = f"{vcpus + is_isolated}: {vcpus} of the flavor"
        expected += " and 1 for the emulator" if is_isolated else ""
        raise NovaRule.PCPU_COUNT_MISMATCH.error("resources:PCPU", requested["PCPU"], expected)
    return DEDICATED


_HYPERTHREADING: Final = "HW_CPU_HYPERTHREADING"


def _policy_of_trait(specs: FlavorExtraSpecs, policy: str | None) -> str | None:
    """Return the thread policy: the trait implies require, and forbidden implies isolate.

    In Nova the trait selects a host without hyperthreads; isolate gives the guest the same.
    """
    implied = {"forbidden": ISOLATE, "required": REQUIRE}
    keys: dict[str, str] = {}
    for item in specs.grouped:
        if item.kind == "trait" and item.name == _HYPERTHREADING and (text := item.text):
            if text not in implied:
                raise NovaRule.INVALID_HYPERTHREADING_TRAIT.error(
                    item.key, text, "required or forbidden"
                )
            keys[text] = item.key
    trait = f"trait:{_HYPERTHREADING}"
    if text := option_text(trait, specs.properties.get(trait)):
        key = f"{trait} of the image"
        if text != "required":
            raise NovaRule.INVALID_HYPERTHREADING_TRAIT.error(key, text, "required")
        keys[text] = key
    if not keys:
        return policy
    if len(keys) > 1:
        raise NovaRule.HYPERTHREADING_TRAIT_CONFLICT.error(trait, sorted(keys), "one of them")
    ((value, key),) = keys.items()
    if policy:
        expected = f"none, for cpu_thread_policy is {policy}"
        raise NovaRule.HYPERTHREADING_TRAIT_WITH_POLICY.error(key, value, expected)
    return implied[value]


# --- masks: lists of vCPUs; one that begins with an exclusion (^0-1) means all the others ---

_REALTIME, _DEDICATED_MASK = "hw:cpu_realtime", "hw:cpu_dedicated_mask"


def _parse_mask(vcpus: int, key: str, mask: str) -> tuple[int, ...]:
    return parse_cpu_spec(f"0-{vcpus - 1},{mask}" if mask.strip().startswith("^") else mask, key)


def _realtime_vcpus(vcpus: int, specs: FlavorExtraSpecs) -> tuple[int, ...]:
    """Return the real-time vCPUs: of the image's mask, else of the flavor's, else all.

    If all vCPUs are real-time, the emulator threads need a policy.
    """
    if not option_flag(_REALTIME, specs.flavor("cpu_realtime")):
        return ()
    key, mask = "hw_cpu_realtime_mask", specs.image("cpu_realtime_mask")
    if not mask:
        key, mask = "hw:cpu_realtime_mask", specs.flavor("cpu_realtime_mask")
    realtime = _parse_mask(vcpus, key, mask) if mask else tuple(range(vcpus))
    if not realtime:
        raise NovaRule.REALTIME_MASK_EMPTY.error(key, mask, "a mask with at least one vCPU")
    emulator = _emulator_policy(specs)
    if len(realtime) == vcpus > realtime[-1] and not emulator:
        expected = "fewer than all vCPUs, or hw:emulator_threads_policy"
        raise NovaRule.REALTIME_WITHOUT_REST.error(key, mask, expected)
    if realtime[-1] >= vcpus:
        raise NovaRule.REALTIME_MASK_OUT_OF_RANGE.error(key, mask, f"vCPUs below {vcpus}")
    return realtime


def _dedicated_mask(vcpus: int, specs: FlavorExtraSpecs) -> tuple[int, ...]:
    mask = specs.flavor("cpu_dedicated_mask")
    if not mask:
        return ()
    dedicated = _parse_mask(vcpus, _DEDICATED_MASK, mask)
    if not dedicated or not set(range(vcpus)).difference(dedicated):
        expected = "some of the vCPUs, and not all"
        raise NovaRule.DEDICATED_MASK_IMPROPER.error(_DEDICATED_MASK, mask, expected)
    if dedicated[-1] >= vcpus:
        expected = f"vCPUs below {vcpus}"
        raise NovaRule.DEDICATED_MASK_OUT_OF_RANGE.error(_DEDICATED_MASK, mask, expected)
    return dedicated


def _dedicated_vcpus(
    vcpus: int,
    specs: FlavorExtraSpecs,
    policy: str,
    realtime: tuple[int, ...],
    masked: tuple[int, ...],
) -> tuple[int, ...]:
    """Return the dedicated vCPUs; under mixed, those of the only mask."""
    if policy == MIXED:
        if masked and realtime:
            expected = f"none, for {_REALTIME} selects the dedicated vCPUs"
            shown = format_cpu_spec(masked)
            raise NovaRule.MIXED_WITH_TWO_MASKS.error(_DEDICATED_MASK, shown, expected)
        if not masked and not realtime:
            mask = specs.flavor("cpu_dedicated_mask")
            expected = f"a mask, or {_REALTIME}, for the policy is mixed"
            raise NovaRule.MIXED_WITHOUT_MASK.error(_DEDICATED_MASK, mask, expected)
        return masked or realtime
    if masked:
        expected = f"none, for the policy is {policy or SHARED}, not mixed"
        shown = format_cpu_spec(masked)
        raise NovaRule.DEDICATED_MASK_WITHOUT_MIXED.error(_DEDICATED_MASK, shown, expected)
    if policy == DEDICATED:
        return tuple(range(vcpus))
    if realtime:
        raise NovaRule.REALTIME_WITHOUT_PINNING.error(
            _REALTIME, specs.flavor("cpu_realtime"), "no, for no vCPU is dedicated"
        )
    return ()


# --- guest cells ---
#
# Without keys for their content, vCPUs (in order) and memory are split evenly. Otherwise the flavor
# or the image describes every cell. Without a topology, numa_cpus and numa_mem are not read.

#: Cells beyond these are not read.
_MAX_CELLS: Final = 128
_CELL_COUNT = re.compile(r"[1-9][0-9]{0,17}\Z", re.ASCII)


def _cell_count(specs: FlavorExtraSpecs) -> int | None:
    flavor, image = specs.flavor("numa_nodes"), specs.image("numa_nodes")
    if flavor and image:
        raise _cells_conflict("numa_nodes", image)
    text = flavor or image
    if text and not _CELL_COUNT.match(text):
        key = "hw:numa_nodes" if flavor else "hw_numa_nodes"
        raise NovaRule.INVALID_CELL_COUNT.error(key, text, "a number of guest cells from 1")
    return int(text) if text else None


def _cells_conflict(name: str, value: str) -> exceptions.InvalidInput:
    expected = f"none, for the flavor has hw:{name}"
    return NovaRule.CELLS_SAID_TWICE.error(f"hw_{name}", value, expected)


def _guest_cells(
    vcpus: int, memory_mb: int, specs: FlavorExtraSpecs, count: int, dedicated: Collection[int]
) -> list[GuestCell]:
    cpus: list[tuple[int, ...]] | None = _cell_values(specs, "numa_cpus", parse_cpu_spec)
    memory = _cell_values(specs, "numa_mem", _cell_memory)
    if cpus is None and memory is None:
        for name, total in (("vcpus", vcpus), ("memory_mb", memory_mb)):
            if total % count:
                expected = f"a multiple of {count} guest cells"
                raise NovaRule.CELLS_UNEVEN.error(name, total, expected)
        if count > MAX_GUEST_CELLS:
            raise NovaRule.INVALID_CELL_COUNT.error(
                "hw:numa_nodes, hw_numa_nodes", count, f"at most {MAX_GUEST_CELLS} guest cells"
            )
        step = vcpus // count
        cpus = [tuple(range(n * step, (n + 1) * step)) for n in range(count)]
        memory = [memory_mb // count] * count
    else:
        cpus, memory = cpus or [], memory or []
        for name, values in (("numa_cpus", cpus), ("numa_mem", memory)):
            if len(values) != count:
                raise NovaRule.CELLS_INCOMPLETE.error(
                    f"hw:{name}.N, hw_{name}.N",
                    f"of {len(values)} guest cells",
                    f"of {count}: both numa_cpus and numa_mem of each guest cell, or of none",
                )
        _check_cells(vcpus, memory_mb, cpus, memory)
    return [
        GuestCell(
            shared=[vcpu for vcpu in cell if vcpu not in dedicated],
            dedicated=[vcpu for vcpu in cell if vcpu in dedicated],
            memory_mb=size,
        )
        for cell, size in zip(cpus, memory, strict=True)
    ]


def _check_cells(
    vcpus: int, memory_mb: int, cpus: list[tuple[int, ...]], memory: list[int]
) -> None:
    assigned: set[int] = set()
    for number, (cell, size) in enumerate(zip(cpus, memory, strict=True)):
        key = f"numa_cpus.{number}"
        for vcpu in cell:
            if vcpu >= vcpus:
                raise NovaRule.CELL_CPU_OUT_OF_RANGE.error(key, vcpu, f"vCPUs below {vcpus}")
            if vcpu in assigned:
                raise NovaRule.CELL_CPU_TWICE.error(key, vcpu, "each vCPU in one guest cell")
            assigned.add(vcpu)
        if not cell and not size:
            expected = "vCPUs or memory, or both"
            raise NovaRule.EMPTY_CELL.error(f"guest cell {number}", "nothing", expected)
    missing = set(range(vcpus)) - assigned
    if missing:
        raise NovaRule.CELL_CPUS_MISSING.error(
            "numa_cpus", f"without {format_cpu_spec(missing)}", "every vCPU in a guest cell"
        )
    if sum(memory) != memory_mb:
        expected = f"{memory_mb} MiB in total"
        raise NovaRule.CELL_MEMORY_MISMATCH.error("numa_mem", sum(memory), expected)


def _cell_values(
    specs: FlavorExtraSpecs, name: str, read: Callable[[str, str], _T]
) -> list[_T] | None:
    """Return the values of ``NAME.0``, ``NAME.1``, ... up to the first that is absent."""
    values: list[list[_T]] = []
    for prefix, keys in (("hw:", specs.extra_specs), ("hw_", specs.properties)):
        values.append([])
        for number in range(_MAX_CELLS):
            key = f"{prefix}{name}.{number}"
            if keys.get(key) is None:
                break
            values[-1].append(read(option_text(key, keys[key]), key))
    flavor, image = values
    if flavor and image:
        raise _cells_conflict(name, f"{len(image)} guest cells")
    return flavor or image or None


def _cell_memory(text: str, key: str) -> int:
    if not _COUNT.match(text):
        raise NovaRule.INVALID_CELL_MEMORY.error(key, text, "MiB, a whole number from 0")
    return int(text)


# --- memory ---


def _page_size(specs: FlavorExtraSpecs) -> str:
    """Return the page size as a topology stores it; an image may only replace large or any."""
    flavor, image = specs.flavor("mem_page_size"), specs.image("mem_page_size")
    size = _page_size_text("hw:mem_page_size", flavor) if flavor else ""
    if not image:
        return size
    if size not in (LARGE, ANY):
        other = f"hw:mem_page_size={flavor}" if flavor else "no hw:mem_page_size"
        expected = f"none, for the flavor has {other}, not large or any"
        raise NovaRule.PAGE_SIZE_CONFLICT.error("hw_mem_page_size", image, expected)
    return _page_size_text("hw_mem_page_size", image)


def _page_size_text(key: str, text: str) -> str:
    return text if text in PAGE_SIZES else str(page_size_kib(key, text))


def _locked_memory(specs: FlavorExtraSpecs) -> bool:
    flavor = option_flag("hw:locked_memory", specs.flavor("locked_memory"))
    image = option_flag("hw_locked_memory", specs.image("locked_memory"))
    if flavor is not None and image is not None and flavor != image:
        expected = f"{flavor}, as the flavor has it, or none"
        raise NovaRule.LOCKED_MEMORY_CONFLICT.error("hw_locked_memory", image, expected)
    locked = bool(image if flavor is None else flavor)
    if locked and not (specs.flavor("mem_page_size") or specs.image("mem_page_size")):
        expected = "a page size, to lock memory"
        raise NovaRule.LOCKED_MEMORY_WITHOUT_PAGE_SIZE.error("hw:mem_page_size", "", expected)
    return locked


def _pmem_classes(specs: FlavorExtraSpecs) -> Mapping[str, int]:
    """Return ``{resource class: count}`` of the labels of ``hw:pmem``, such as ``6GB,16GB``.

    Nova normalizes labels: ``é`` and ``-`` have the same class, and so have ``6GB-FAST`` and
    ``6GB_FAST``. Labels that normalization changes are rejected, but for the case of letters.
    """
    text = specs.flavor("pmem")
    counts: Counter[str] = Counter()
    for label in (part.strip() for part in text.split(",")) if text else ():
        if not label:
            continue
        name = f"CUSTOM_PMEM_NAMESPACE_{label.upper()}"
        normalized = os_resource_classes.normalize_name(  # type: ignore[no-untyped-call]
            f"PMEM_NAMESPACE_{label}"
        )
        if name != normalized:
            expected = "ASCII letters and digits, with single underscores between them"
            raise NovaRule.INVALID_PMEM_LABEL.error("hw:pmem", label, expected)
        NovaRule.INVALID_PMEM_LABEL.convert("hw:pmem", name, names.resource_class_name)
        counts[name] += 1
    return FrozenDict(counts)


# --- devices --------------------------------------------------------------------------------------

_AFFINITY: Final = "pci_numa_affinity_policy"


def flavor_devices(
    aliases: Mapping[str, Alias],
    extra_specs: Document = _EMPTY,
    image: Document = _EMPTY,
    *,
    request_id: Callable[[], str] | None = None,
) -> PCIAmount | None:
    """Return the devices that a flavor and its image request, None if they request none.

    A NUMA policy of the flavor or its image replaces that of the alias.

    :param aliases: as :func:`.parse_alias` returns them
    :param extra_specs: text by key, or an object ``Flavor``; other keys are ignored
    :param image: the properties of the image, text by key, or an object ``ImageMeta``
    :param request_id: as in :func:`alias_requests`
    :raises InvalidNovaInput: for the first broken rule

    >>> from resource_objects.interop.nova import parse_alias
    >>> aliases = parse_alias({"name": "gpu", "vendor_id": "10de", "product_id": "2330"})
    >>> amount = flavor_devices(aliases, {"pci_passthrough:alias": "gpu:1"},
    ...     {"hw_pci_numa_affinity_policy": "preferred"})
    >>> amount.requests[0].affinity
    'preferred'
    """
    return _devices(aliases, FlavorExtraSpecs.parse(extra_specs, image), request_id)


def _devices(
    aliases: Mapping[str, Alias],
    specs: FlavorExtraSpecs,
    request_id: Callable[[], str] | None,
) -> PCIAmount | None:
    affinity = _affinity(specs)
    text = option_text(_ALIASES, specs.extra_specs.get(_ALIASES))
    if not text:
        return None
    return alias_requests(text, aliases, affinity=affinity, request_id=request_id)


def alias_requests(
    text: str,
    aliases: Mapping[str, Alias],
    *,
    affinity: str | None = None,
    request_id: Callable[[], str] | None = None,
) -> PCIAmount:
    """Return the devices that a flavor requests by alias.

    :param text: ``pci_passthrough:alias`` of the flavor: ``a:2,b:1``
    :param aliases: as :func:`.parse_alias` returns them
    :param affinity: the NUMA policy of flavor and image, in place of those of the aliases
    :param request_id: returns an id for each request, such as a new uuid; None for no ids
    :raises InvalidNovaInput: ``INVALID_ALIAS_COUNT`` if the text is not a list of names and counts
        from 1; ``UNKNOWN_ALIAS``; ``INVALID_ALIAS`` if the aliases are not parsed;
        ``INVALID_AFFINITY_POLICY``

    >>> from resource_objects.interop.nova import parse_alias
    >>> aliases = parse_alias({"name": "gpu", "vendor_id": "10de", "product_id": "2330"})
    >>> amount = alias_requests("gpu:2", aliases, affinity="required")
    >>> amount.requests[0].count, amount.requests[0].alias, amount.requests[0].affinity
    (2, 'gpu', 'required')
    """
    if affinity is not None and affinity not in AFFINITIES:
        raise NovaRule.INVALID_AFFINITY_POLICY.error("affinity", affinity, _one_of(AFFINITIES))
    if not isinstance(cast(object, aliases), Mapping):
        expected = "aliases as parse_alias() returns"
        raise NovaRule.INVALID_ALIAS.error("aliases", aliases, expected)
    expected = f"name:count with commas between, counts from 1 to {MAX_DEVICES}"
    counts, value = [], cast(object, text)
    for item in value.split(",") if isinstance(value, str) else ("",):
        name, _, digits = (part.strip() for part in item.partition(":"))
        is_number = digits.isascii() and digits.isdigit() and len(digits) < 10
        count = int(digits) if is_number else 0
        if not name or not 1 <= count <= MAX_DEVICES:
            raise NovaRule.INVALID_ALIAS_COUNT.error(_ALIASES, text, expected)
        counts.append((name, count))
    requests = []
    for name, count in counts:
        alias = aliases.get(name)
        if alias is None:
            expected = _one_of(aliases or ("none",))
            raise NovaRule.UNKNOWN_ALIAS.error(_ALIASES, name, expected)
        identifier = None if request_id is None else request_id()
        requests.append(
            DeviceRequest(
                alias.specs,
                count,
                affinity or alias.affinity,
                alias=alias.name,
                request_id=identifier,
            )
        )
    return PCIAmount(requests)


def pci_affinity(extra_specs: Document = _EMPTY, image: Document = _EMPTY) -> str | None:
    """Return the NUMA policy of devices that a flavor or its image requests, None if neither does.

    :param extra_specs: text by key, or an object ``Flavor``
    :param image: the properties of the image, text by key, or an object ``ImageMeta``
    :raises InvalidNovaInput: ``INVALID_AFFINITY_POLICY`` for an unknown policy;
        ``AFFINITY_POLICY_CONFLICT`` if flavor and image differ

    >>> pci_affinity({"hw:pci_numa_affinity_policy": "socket"})
    'socket'
    """
    return _affinity(FlavorExtraSpecs.parse(extra_specs, image))


def _affinity(specs: FlavorExtraSpecs) -> str | None:
    flavor, image = specs.flavor(_AFFINITY), specs.image(_AFFINITY)
    if flavor and image and flavor != image:
        expected = f"none, or {flavor} as the flavor"
        raise NovaRule.AFFINITY_POLICY_CONFLICT.error(f"hw_{_AFFINITY}", image, expected)
    policy = flavor or image
    if policy and policy not in AFFINITIES:
        key = f"hw:{_AFFINITY}" if flavor else f"hw_{_AFFINITY}"
        raise NovaRule.INVALID_AFFINITY_POLICY.error(key, policy, _one_of(AFFINITIES))
    return policy or None


# --- amounts and traits ---------------------------------------------------------------------------


def flavor_request(
    vcpus: int,
    memory_mb: int,
    *,
    root_gb: int = 0,
    ephemeral_gb: int = 0,
    swap_mb: int = 0,
    extra_specs: Document = _EMPTY,
    image: Document = _EMPTY,
    topology: FlavorTopology | None = None,
    devices: PCIAmount | None = None,
) -> Request:
    """Return the request of a flavor and its image, with a topology and devices of the same flavor.

    :param memory_mb: MiB
    :param root_gb: GiB; 0 for a server that boots from a volume
    :param ephemeral_gb: GiB
    :param swap_mb: MiB
    :param extra_specs: text by key, or an object ``Flavor``; keys other than resources, traits and
        the group policy are ignored
    :param image: the properties of the image, text by key, or an object ``ImageMeta``; keys other
        than traits are ignored
    :param topology: from :func:`flavor_topology`; its CPUs and memory replace those of the flavor
    :param devices: from :func:`flavor_devices`
    :raises InvalidNovaInput: for the first broken rule

    Cost: O(keys).

    >>> print(flavor_request(4, 2048, root_gb=20, swap_mb=100, extra_specs={
    ...     "resources:VCPU": "0", "resources_GPU:PGPU": "1", "trait_GPU:CUSTOM_H100": "required"}))
    MEMORY_MB=2048,DISK_GB=21; _GPU: PGPU=1 required=CUSTOM_H100; compatibility=placement
    >>> flavor_request(4, 2048, extra_specs={"resources:CUSTOM_X": "many"})
    Traceback (most recent call last):
    resource_objects.interop.nova.rules.InvalidNovaInput: resources:CUSTOM_X: got ...
    """
    specs = FlavorExtraSpecs.parse(extra_specs, image)
    _check_sizes(vcpus, memory_mb)
    flavor = Flavor(vcpus, memory_mb, root_gb, ephemeral_gb, swap_mb)
    return _request(flavor, specs, topology, devices)


#: The classes of a topology.
_OF_TOPOLOGY: Final = ("VCPU", "PCPU", "MEMORY_MB")
_AMOUNT = re.compile(r"[0-9]{1,19}\Z", re.ASCII)


@dataclasses.dataclass(slots=True)
class _Group:
    """The keys of one group; ``classes`` includes those whose amount is 0."""

    amounts: dict[str, int] = dataclasses.field(default_factory=dict)
    classes: set[str] = dataclasses.field(default_factory=set)
    required: set[str] = dataclasses.field(default_factory=set)
    forbidden: set[str] = dataclasses.field(default_factory=set)


def _request(
    flavor: Flavor,
    specs: FlavorExtraSpecs,
    topology: FlavorTopology | None,
    devices: PCIAmount | None,
) -> Request:
    disk_gb = _disk_gb(flavor)
    groups = _groups(specs)
    unnamed = groups.setdefault("", _Group())
    _add_image_traits(unnamed, specs)
    classes = frozenset[str]().union(*(group.classes for group in groups.values()))
    if "PCPU" in classes:
        classes |= {"VCPU"}
    sizes = {"VCPU": flavor.vcpus, "MEMORY_MB": flavor.memory_mb, "DISK_GB": disk_gb}
    amounts: dict[str, Any] = {n: sizes[n] for n in sizes if sizes[n] and n not in classes}
    amounts |= unnamed.amounts
    _check_totals(groups)
    if topology is not None:
        amounts = _with_topology(amounts, topology, groups)
    if devices is not None:
        amounts[DEVICES.name] = devices
    _check_groups(groups, amounts)
    policy = _group_policy(specs)
    named = [suffix for suffix, group in groups.items() if suffix and group.amounts]
    if len(named) > 1 and policy is None:
        expected = f"none or isolate, for the groups {', '.join(named)}"
        raise NovaRule.GROUP_POLICY_MISSING.error(_POLICY, "nothing", expected)
    return Request(
        amounts,
        required=unnamed.required,
        forbidden=unnamed.forbidden,
        groups=[
            RequestGroup(
                groups[suffix].amounts,
                suffix=suffix,
                required=groups[suffix].required,
                forbidden=groups[suffix].forbidden,
            )
            for suffix in named
        ],
        group_policy=policy,
        compatibility="placement",
    )


def _disk_gb(flavor: Flavor) -> int:
    for name in ("root_gb", "ephemeral_gb", "swap_mb"):
        size = getattr(flavor, name)
        if type(size) is not int or not 0 <= size <= MAX_FIGURE:
            expected = f"an integer from 0 to {MAX_FIGURE}"
            raise NovaRule.INVALID_FLAVOR_SIZE.error(name, size, expected)
    return flavor.root_gb + flavor.ephemeral_gb + -(-flavor.swap_mb // 1024)


def _check_totals(groups: Mapping[str, _Group]) -> None:
    totals: Counter[str] = Counter()
    for suffix, group in groups.items():
        for name, amount in group.amounts.items():
            totals[name] += amount
            if totals[name] > MAX_AMOUNT:
                key, expected = f"resources{suffix}:{name}", f"at most {MAX_AMOUNT} over all groups"
                raise NovaRule.INVALID_RESOURCE_AMOUNT.error(key, amount, expected)


def _check_groups(groups: Mapping[str, _Group], amounts: Mapping[str, Any]) -> None:
    for suffix, group in groups.items():
        traits = sorted(group.required | group.forbidden)
        if traits and not (group.amounts if suffix else amounts):
            expected = f"resources{suffix}:CLASS above 0 for the traits of the group"
            raise NovaRule.GROUP_WITHOUT_RESOURCES.error(f"trait{suffix}", traits, expected)
    if not amounts and not any(group.amounts for group in groups.values()):
        expected = "an amount of a resource"
        raise NovaRule.NOTHING_ASKED.error("extra specs", "all suppressed", expected)


def _with_topology(
    amounts: Mapping[str, Any], topology: FlavorTopology, groups: Mapping[str, _Group]
) -> dict[str, Any]:
    """Return amounts with the CPUs and memory of a topology in place of the flavor's."""
    for suffix, group in groups.items():
        for name in sorted(group.classes.intersection(_OF_TOPOLOGY)):
            amount = group.amounts.get(name, 0)
            counts: dict[str, Any] = dict(topology.resources.with_implied_counts().by_name())
            count = int(counts.get(name, 0))
            if suffix or amount != count:
                expected = f"{count} without a group, as the topology has it"
                key = f"resources{suffix}:{name}"
                raise NovaRule.TOPOLOGY_DISAGREES.error(key, amount, expected)
    remaining = {name: amount for name, amount in amounts.items() if name not in _OF_TOPOLOGY}
    return {**remaining, **topology._amounts()}


def _groups(specs: FlavorExtraSpecs) -> dict[str, _Group]:
    """Return the groups by suffix, in the order of the keys."""
    groups: dict[str, _Group] = {}
    for item in specs.grouped:
        if not item.kind:
            expected = (
                "resources:CLASS or trait:NAME; before the colon a group may have a suffix of 1 to "
                "64 of A-Z, a-z, 0-9, _ and -"
            )
            raise NovaRule.INVALID_REQUEST_KEY.error("extra specs", item.key, expected)
        group = groups.setdefault(item.group, _Group())
        text = item.text
        if item.kind == "trait":
            trait = _known_trait(item.key, item.name)
            if text not in ("required", "forbidden"):
                raise NovaRule.INVALID_TRAIT_VALUE.error(item.key, text, "required or forbidden")
            (group.required if text == "required" else group.forbidden).add(trait)
            continue
        rule = NovaRule.UNKNOWN_FLAVOR_RESOURCE
        resource = rule.convert(item.key, item.name, catalog.resource)
        if resource.amount_kind is not IntegerAmount:
            raise NovaRule.RESOURCE_NOT_COUNTED.error(item.key, text, "a class that is counted")
        amount = int(text) if _AMOUNT.match(text) else -1
        if not 0 <= amount <= MAX_AMOUNT:
            expected = f"a whole number from 0 to {MAX_AMOUNT}"
            raise NovaRule.INVALID_RESOURCE_AMOUNT.error(item.key, text, expected)
        if resource.name in group.classes:
            expected = f"resource:{item.name} or resources:{item.name}, not both"
            raise NovaRule.RESOURCE_SAID_TWICE.error(item.key, text, expected)
        group.classes.add(resource.name)
        if amount:
            group.amounts[resource.name] = amount
    return groups


def _known_trait(key: str, name: str) -> str:
    (trait,) = NovaRule.UNKNOWN_FLAVOR_TRAIT.convert(key, name, lambda name: checked_traits([name]))
    return trait


def _add_image_traits(group: _Group, specs: FlavorExtraSpecs) -> None:
    for key, value in specs.properties.items():
        if not isinstance(key, str) or not key.startswith("trait:"):
            continue
        image_key = f"{key} of the image"
        trait = _known_trait(image_key, key.removeprefix("trait:"))
        if option_text(image_key, value) != "required":
            raise NovaRule.INVALID_TRAIT_VALUE.error(image_key, value, "required")
        if trait in group.forbidden:
            expected = "none: the flavor forbids it"
            raise NovaRule.FLAVOR_TRAIT_CONFLICT.error(image_key, value, expected)
        group.required.add(trait)


def _group_policy(specs: FlavorExtraSpecs) -> str | None:
    if _POLICY not in specs.extra_specs:
        return None
    text = option_text(_POLICY, specs.extra_specs[_POLICY])
    if text not in POLICIES:
        raise NovaRule.INVALID_GROUP_POLICY.error(_POLICY, text, " or ".join(POLICIES))
    return text
