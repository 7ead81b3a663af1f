"""The environment of a job: variables that name its allocated part of a host.

:func:`job_environment` makes them from a claim and the tree of a host; it is pure. A job starts
with all of them. A variable without values is empty and not unset, because a program that finds
``CUDA_VISIBLE_DEVICES`` unset uses every GPU.

==================================  ================================================================
``CUDA_DEVICE_ORDER``               ``PCI_BUS_ID``: GPUs are numbered by address, as below
``CUDA_VISIBLE_DEVICES``            the NVIDIA GPUs: by UUID if all UUIDs are known, always for MIG;
                                    else by number among all GPUs of the host in the ledger
``RESOURCE_OBJECTS_MIG``            the MIG instances without a known UUID, with commas: the GPU,
                                    and the profile with its placement (``0:1g.10gb:4``) or the
                                    resource class (``0:CUSTOM_MIG_1G``)
``ROCR_VISIBLE_DEVICES``            the AMD GPUs, in the same way
``RESOURCE_OBJECTS_CUDA_PARTS``     the visible GPUs of which only a part is allocated: ``0:1/2``
``RESOURCE_OBJECTS_ROCR_PARTS``     the same for AMD
``RESOURCE_OBJECTS_DEVICES``        addresses of all allocated devices, GPUs or not
``RESOURCE_OBJECTS_CPUS``           the CPUs to run on, as the kernel lists them (``4-5,12``): the
                                    dedicated ones, without those left empty on purpose, and the
                                    shared CPUs of the cells with allocated shared vCPUs
``RESOURCE_OBJECTS_CELLS``          NUMA cells of which something is allocated
``RESOURCE_OBJECTS_UNITS``          names of all units allocated on this host, with commas
``RESOURCE_OBJECTS_AMOUNTS``        all amounts allocated on this host: ``VCPU=4,PGPU=1``
``RESOURCE_OBJECTS_CONSUMER``,      the consumer, the id of its claim, the host
``RESOURCE_OBJECTS_CLAIM``,
``RESOURCE_OBJECTS_HOST``
==================================  ================================================================

**GPUs.** A discovered device has an address, a vendor and a class code; its fact ``uuid`` is its
UUID. A provider from a site file is a GPU if it has a class with the word ``GPU``, ``PGPU`` or
``MIG``; its address or UUID is the end of its name, and it is AMD's if a trait contains ``AMD`` or
``ROCM``, else NVIDIA's. GPUs are numbered by address; without addresses by name, where ``gpu2``
precedes ``gpu10``.

**Parts.** A GPU of which a part is allocated is visible, because the job could not use it
otherwise, and another variable has the part. A MIG instance is a device of CUDA, visible by its own
UUID. An existing instance is a provider whose name ends in its UUID
(:func:`~resource_objects.host.partitions.add_partition`). The UUID of any other instance is not
known before the instance is created: ``CUDA_VISIBLE_DEVICES`` does not contain it, so the job sees
no GPU of another job, and ``RESOURCE_OBJECTS_MIG`` describes the instance for a prologue to create.

Sources: CUDA C++ Programming Guide, *CUDA Environment Variables*; NVIDIA Multi-Instance GPU User
Guide, *Device names*; ROCm, *GPU isolation techniques*; cpuset(7), *List format*.
"""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING

from resource_objects.exceptions import InvalidInput, NotFound
from resource_objects.host.partitions import PLACEMENT
from resource_objects.names import natural_order
from resource_objects.providers import Allocation, Claim, Provider
from resource_objects.providers.allocation import total
from resource_objects.resources import Amounts
from resource_objects.resources.catalog import is_device
from resource_objects.resources.integer import IntegerInventory
from resource_objects.resources.numa import (
    NUMA_TOPOLOGY,
    OF_HOST,
    HostCell,
    NUMATopologyAmount,
    NUMATopologyInventory,
    cpu_of,
)
from resource_objects.resources.numa.cpuset import CPUSet
from resource_objects.resources.pci import DEVICES, Device, PCIInventory
from resource_objects.resources.pci.device import PCI, PF

if TYPE_CHECKING:
    from resource_objects.ledger import Ledger

__all__ = ["export_lines", "job_environment", "read_environment"]

VCPU, PCPU, _ = OF_HOST
CUDA, ROCR = "CUDA", "ROCR"
_VENDORS = {"10de": CUDA, "1002": ROCR}
#: Class codes of devices that compute: displays (NVIDIA, AMD) and processing accelerators (AMD).
_GPU_CODES = ("03", "12")
_GPU_WORDS = {"PGPU", "GPU", "MIG"}
#: Words in the name of a class that is not of whole GPUs.
_PART_WORDS = {"MIG", "SLICE", "HALF", "THOUSANDTHS"}
_AMD_WORDS = {"AMD", "ROCM"}
_MIG = "MIG"
#: The end of the name of a provider. The second is MIG's of drivers before R470.
_UUID = re.compile(r"(MIG-GPU-[0-9a-f-]{36}/\d+/\d+|(?:MIG|GPU)-[0-9a-f-]{8,36})$", re.IGNORECASE)
_ADDRESS = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]$", re.IGNORECASE)


def job_environment(
    claim: Claim, host: Provider, assigned: Mapping[str, Amounts] | None = None
) -> dict[str, str]:
    """Return the variables of a job from its allocations on one host. Pure.

    Cost: linear in the providers of the host.

    :param host: the root of its tree, as ``ledger.provider`` returns it
    :param assigned: the assigned amounts, as ``ledger.assigned_amounts`` returns them: they tell
        CPUs left empty on purpose from CPUs to run on; without them all are to run on
    :raises NotFound: if an allocation does not determine its GPU
    :raises InvalidInput: if they are not a claim and a provider

    >>> import resource_objects as ro
    >>> host = ro.Provider("lab-0", "VCPU=64")
    >>> for number in range(8):
    ...     gpu = host.add(f"lab-0/gpu{number}", "PGPU=1")
    >>> with ro.connect("memory://") as ledger:
    ...     _ = ledger.sync(host)
    ...     claim = ledger.claim("job-1", {"lab-0/gpu3": "PGPU=1", "lab-0/gpu5": "PGPU=1"})
    >>> variables = job_environment(claim, host)
    >>> variables["CUDA_VISIBLE_DEVICES"], variables["ROCR_VISIBLE_DEVICES"]
    ('3,5', '')
    """
    if not isinstance(claim, Claim):
        raise InvalidInput("value", "claim", claim, "a Claim, as ledger.claim returns")
    if not isinstance(host, Provider):
        raise InvalidInput("value", "host", host, "a Provider, as ledger.provider returns")
    providers = {provider.name: provider for provider in host.walk()}
    allocations = [a for a in claim.allocations if a.provider in providers]
    cells = _cells(host, allocations)
    return {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        **_gpu_variables(claim.consumer, host, allocations),
        "RESOURCE_OBJECTS_DEVICES": ",".join(_addresses(providers, allocations)),
        "RESOURCE_OBJECTS_CPUS": str(_cpus(host, cells, allocations, assigned or {})),
        "RESOURCE_OBJECTS_CELLS": str(CPUSet(cell.id for cell, _ in cells)),
        "RESOURCE_OBJECTS_UNITS": ",".join(unit for a in allocations for unit in a.units),
        "RESOURCE_OBJECTS_AMOUNTS": str(total(allocations)),
        "RESOURCE_OBJECTS_CONSUMER": claim.consumer,
        "RESOURCE_OBJECTS_CLAIM": claim.id,
        "RESOURCE_OBJECTS_HOST": host.name,
    }


def read_environment(
    ledger: Ledger, consumer: str | Claim, *, host: str | None = None
) -> dict[str, str]:
    """Return the variables of a job from its present allocations. Cost: three or four reads.

    :param consumer: its name, or a claim that was just made for it
    :param host: a provider of the host's tree, by name or uuid; None: the only host with
        allocations. A tree without allocated VCPUs, CPUs, memory and devices, such as a pool of
        disks, is not such a host if there is another
    :raises NotFound: if nothing is allocated; if the host does not exist; as
        :func:`job_environment`
    :raises InvalidInput: if there are allocations on several hosts and none is named
    """
    claim = consumer if isinstance(consumer, Claim) else ledger.get_claim(consumer)
    if host is None:
        names = [allocation.provider for allocation in claim.allocations]
        roots = {provider.name: provider.root for provider in ledger.providers(name=names)}
        by_root: dict[str, list[Allocation]] = defaultdict(list)
        for allocation in claim.allocations:
            if allocation.provider in roots:
                by_root[roots[allocation.provider]].append(allocation)
        hosts = [root for root, items in by_root.items() if any(map(_is_of_host, items))]
        hosts = hosts or [*by_root]
        if len(hosts) > 1:
            expected = f"one of {', '.join(hosts)}"
            raise InvalidInput("value", f"host of {claim.consumer}", None, expected)
        if not hosts:
            raise NotFound("provider", names[0] if names else claim.consumer)
        host = hosts[0]
    (tree,) = ledger.trees(host)
    return job_environment(claim, tree, ledger.assigned_amounts(claim.consumer))


def export_lines(variables: Mapping[str, str]) -> str:
    """Return variables as lines that a POSIX shell, and Slurm's task prologue, can read.

    >>> print(export_lines({"CUDA_VISIBLE_DEVICES": "0,1", "NAME": "my job"}))
    export CUDA_VISIBLE_DEVICES=0,1
    export NAME='my job'
    """
    return "\n".join(f"export {name}={shlex.quote(value)}" for name, value in variables.items())


def _is_of_host(allocation: Allocation) -> bool:
    name = allocation.resource_class
    return name in OF_HOST or bool(allocation.units) or is_device(name)


def _amount(allocation: Allocation) -> int:
    return sum(r.amount for r in allocation.amount.to_records(allocation.resource_class))


# --- GPUs -----------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class _GPU:
    """One GPU: its provider, its vendor, and the resource class of the whole, if there is one."""

    provider: Provider
    vendor: str
    resource_class: str | None
    address: str | None
    uuid: str | None

    def slices(self, name: str) -> int:
        """Return the number of slices of a class in the whole GPU, 0 if it has none."""
        for share in self.provider.shares:
            if (share.resource_class, share.of_class) == (self.resource_class, name):
                return share.factor
        inventory = self.provider.inventories[name] if self.resource_class is None else None
        return inventory.total if isinstance(inventory, IntegerInventory) else 0


def _gpu_variables(
    consumer: str, host: Provider, allocations: Iterable[Allocation]
) -> dict[str, str]:
    gpus = _gpus(host)
    providers = {provider.name: provider for provider in host.walk()}
    parts: dict[int, Fraction] = defaultdict(Fraction)
    instances: dict[str, list[str]] = {CUDA: [], ROCR: []}  # MIG instances by UUID
    unnamed: list[tuple[int, str]] = []
    for allocation in allocations:
        provider = providers[allocation.provider]
        if _MIG not in allocation.resource_class.split("_"):
            for number, part in _gpu_parts(consumer, allocation, provider, gpus):
                parts[number] += part
        elif (uuid := _uuid(provider.name)) is not None:
            instances[CUDA].append(uuid)
        else:
            instance = _unnamed_instance(consumer, allocation, provider, gpus)
            unnamed += [instance] * _amount(allocation)
    visible_devices: dict[str, str] = {}
    part_variables: dict[str, str] = {}
    for vendor in (CUDA, ROCR):
        numbers = [number for number, gpu in enumerate(gpus) if gpu.vendor == vendor]
        used = [number for number in numbers if number in parts]
        labels = _labels(consumer, gpus, vendor, used, instances[vendor])
        uuids = instances[vendor]
        visible_devices[f"{vendor}_VISIBLE_DEVICES"] = ",".join([*labels.values(), *uuids])
        part_variables[f"RESOURCE_OBJECTS_{vendor}_PARTS"] = ",".join(
            f"{label}:{parts[number]}" for number, label in labels.items() if parts[number] < 1
        )
    labels = _labels(consumer, gpus, CUDA, sorted({number for number, _ in unnamed}), [])
    mig = sorted(f"{labels[number]}:{profile}" for number, profile in unnamed)
    return {**visible_devices, **part_variables, "RESOURCE_OBJECTS_MIG": ",".join(mig)}


def _labels(
    consumer: str, gpus: list[_GPU], vendor: str, numbers: Iterable[int], instances: list[str]
) -> dict[int, str]:
    """Return the names of GPUs for their driver: all by UUID, or all by number of the vendor."""
    uuids = {number: gpus[number].uuid for number in numbers}
    unknown = next((gpus[number] for number, uuid in uuids.items() if uuid is None), None)
    if unknown is None:
        return {number: uuid for number, uuid in uuids.items() if uuid is not None}
    if instances:
        reason = f"{unknown.provider.name}: no UUID, which is required next to MIG instances"
        raise NotFound("device", consumer, reason)
    of_vendor = [number for number, gpu in enumerate(gpus) if gpu.vendor == vendor]
    without = [gpus[number] for number in of_vendor if gpus[number].address is None]
    if 0 < len(without) < len(of_vendor):
        reason = f"{without[0].provider.name}: no address, so GPUs cannot be numbered"
        raise NotFound("device", consumer, reason)
    return {number: str(of_vendor.index(number)) for number in uuids}


def _unnamed_instance(
    consumer: str, allocation: Allocation, provider: Provider, gpus: list[_GPU]
) -> tuple[int, str]:
    """Return the GPU of a MIG instance, and its profile with the placement, else its class."""
    name = allocation.resource_class
    owners = {owner for owner, _, _ in _uses(provider, name)}
    numbers = [
        number
        for number, gpu in enumerate(gpus)
        if gpu.vendor == CUDA and gpu.provider.name in owners
    ]
    if len(numbers) != 1:
        raise NotFound("device", consumer, f"{allocation}: no UUID, and its GPU is not determined")
    placement = PLACEMENT.search(provider.name)
    return numbers[0], f"{placement[1]}:{placement[2]}" if placement else name


def _gpus(host: Provider) -> list[_GPU]:
    """Return the GPUs of a host in the order of their addresses, else of their names."""
    slices = {(share.of, share.of_class) for child in host.walk() for share in child.shares}
    gpus = [gpu for provider in host.walk() for gpu in _gpus_of(provider, slices)]
    return sorted(gpus, key=lambda gpu: (gpu.address or "", natural_order(gpu.provider.name)))


def _gpus_of(provider: Provider, slices: Collection[tuple[str, str]]) -> Iterator[_GPU]:
    devices = _devices(provider)
    for device in devices:
        vendor, code = _VENDORS.get(device.vendor_id), device.class_code
        if vendor and device.type in (PCI, PF) and (not code or code.startswith(_GPU_CODES)):
            uuid = dict(device.facts).get("uuid")
            yield _GPU(provider, vendor, device.resource_class, device.address, uuid)
    classes = [name for name in provider.inventories.names() if _GPU_WORDS & {*name.split("_")}]
    is_part = any(share.of != provider.name for share in provider.shares)
    if devices or is_part or not classes:
        return
    resource_class = _class_of_whole(provider, classes, slices)
    inventory = provider.inventories[resource_class] if resource_class else None
    words = {word for trait in provider.traits for word in trait.split("_")}
    address = _ADDRESS.search(provider.name)
    gpu = _GPU(
        provider,
        ROCR if words & _AMD_WORDS else CUDA,
        resource_class,
        address and address[0].lower(),
        _uuid(provider.name),
    )
    yield from [gpu] * (inventory.total if isinstance(inventory, IntegerInventory) else 1)


def _class_of_whole(
    provider: Provider, classes: Iterable[str], slices: Collection[tuple[str, str]]
) -> str | None:
    """Return the class of whole GPUs: one of devices, else one that is neither part nor slice."""
    partitions = {share.resource_class for share in provider.shares}
    counted = []
    for name in classes:
        if is_device(name):
            return name
        is_slice = (provider.name, name) in slices
        if name not in partitions and not is_slice and not _PART_WORDS & {*name.split("_")}:
            counted.append(name)
    return counted[0] if counted else None


def _gpu_parts(
    consumer: str, allocation: Allocation, provider: Provider, gpus: list[_GPU]
) -> Iterator[tuple[int, Fraction]]:
    """Yield the GPUs of an allocation, and how much of each is allocated."""
    name, amount = allocation.resource_class, _amount(allocation)
    whole_gpus = [
        number
        for number, gpu in enumerate(gpus)
        if gpu.provider is provider and gpu.resource_class == name
    ]
    if whole_gpus:
        if allocation.units:
            whole_gpus = [n for n in whole_gpus if gpus[n].address in allocation.units]
        elif amount < len(whole_gpus):
            reason = f"{allocation}, of {len(whole_gpus)}: the GPU is not determined"
            raise NotFound("device", consumer, reason)
        yield from ((number, Fraction(1)) for number in whole_gpus)
        return
    parts: dict[int, Fraction] = {}
    for owner, slice_, factor in _uses(provider, name):
        numbers = [number for number, gpu in enumerate(gpus) if gpu.provider.name == owner]
        if len(numbers) == 1 and (count := gpus[numbers[0]].slices(slice_)):
            # the parts of compute and memory slices may differ: the larger one counts
            part = Fraction(amount * factor, count)
            parts[numbers[0]] = max(part, parts.get(numbers[0], part))
    yield from parts.items()


def _uses(provider: Provider, name: str) -> list[tuple[str, str, int]]:
    """Return the owners, classes and numbers of the slices that one unit of a class uses."""
    shares = [share for share in provider.shares if share.resource_class == name]
    uses = [(share.of, share.of_class, share.factor) for share in shares]
    return uses or [(provider.name, name, 1)]


def _uuid(name: str) -> str | None:
    match = _UUID.search(name)
    return match[1] if match else None


# --- devices, cells -------------------------------------------------------------------------------


def _devices(provider: Provider) -> tuple[Device, ...]:
    inventory = provider.inventories.get(DEVICES)
    return inventory.devices if isinstance(inventory, PCIInventory) else ()


def _addresses(providers: Mapping[str, Provider], allocations: Iterable[Allocation]) -> list[str]:
    """Return the addresses of allocated devices, as far as the allocations determine them."""
    addresses: set[str] = set()
    for allocation in allocations:
        devices = _devices(providers[allocation.provider])
        addresses.update(d.address for d in devices if d.address in allocation.units)
        if len(devices) == 1 and not allocation.units:
            addresses.add(devices[0].address)
    return sorted(addresses)


def _cells(
    host: Provider, allocations: Iterable[Allocation]
) -> list[tuple[HostCell, Collection[str]]]:
    """Return the cells with allocations, each with the allocated classes."""
    classes: dict[str, set[str]] = defaultdict(set)
    for allocation in allocations:
        classes[allocation.provider].add(allocation.resource_class)
    return [
        (cell, classes[provider.name])
        for provider in host.walk()
        if provider.name in classes
        and isinstance(inventory := provider.inventories.get(NUMA_TOPOLOGY), NUMATopologyInventory)
        for cell in inventory.cells
    ]


def _cpus(
    host: Provider,
    cells: Iterable[tuple[HostCell, Collection[str]]],
    allocations: Iterable[Allocation],
    assigned: Mapping[str, Amounts],
) -> CPUSet:
    units = [unit for a in allocations if a.resource_class == PCPU for unit in a.units]
    cpus = {cpu for unit in units if (cpu := cpu_of(unit)) is not None}
    for cell, classes in cells:
        if VCPU in classes:
            cpus.update(cell.shared)
    for name, amount in assigned.get(host.name, Amounts()).by_name():
        if name == NUMA_TOPOLOGY.name and isinstance(amount, NUMATopologyAmount):
            cpus.difference_update(cpu for placed in amount.placed for cpu in placed.idle)
    return CPUSet(cpus)
