"""The environment of a job: variables that tell it which part of a host is its own.

:func:`job_environment` makes them of a claim and of the tree of a host; it is pure. A job starts
with all of them; those that name nothing are empty, not unset, for a program that finds
``CUDA_VISIBLE_DEVICES`` unset takes every GPU there is.

==================================  ================================================================
``CUDA_DEVICE_ORDER``               ``PCI_BUS_ID``: GPUs are numbered by address, as below
``CUDA_VISIBLE_DEVICES``            the NVIDIA GPUs: by UUID where that is known of all, always
                                    for MIG; else by number among all that are kept of the host
``RESOURCE_OBJECTS_MIG``            the MIG instances without a known UUID, by commas: the GPU, and
                                    the profile with its placement (``0:1g.10gb:4``) or the resource
                                    class (``0:CUSTOM_MIG_1G``)
``ROCR_VISIBLE_DEVICES``            the AMD GPUs, in the same way
``RESOURCE_OBJECTS_CUDA_PARTS``     of which of them it has a part: ``0:1/2``, by commas
``RESOURCE_OBJECTS_ROCR_PARTS``     the same of AMD's
``RESOURCE_OBJECTS_DEVICES``        addresses of all devices that it holds, GPUs or not
``RESOURCE_OBJECTS_CPUS``           CPUs that it may run on, as the kernel lists them (``4-5,12``):
                                    its dedicated ones, those left empty on purpose excepted, and
                                    the shared ones of the cells where it has shared vCPUs
``RESOURCE_OBJECTS_CELLS``          NUMA cells that it holds something of
``RESOURCE_OBJECTS_UNITS``          names of all units that it holds here, by commas
``RESOURCE_OBJECTS_AMOUNTS``        all that it holds here: ``VCPU=4,PGPU=1``
``RESOURCE_OBJECTS_CONSUMER``,      who it is, the id of its claim, the host
``RESOURCE_OBJECTS_CLAIM``,
``RESOURCE_OBJECTS_HOST``
==================================  ================================================================

**Which GPU is which.** A device that discovery found has an address, a vendor and a class code; a
fact ``uuid`` of it is its UUID. A provider that somebody wrote by hand is a GPU if it has a class
with the word ``GPU``, ``PGPU`` or ``MIG``; its address or UUID is what its name ends in, and it is
AMD's if a trait says ``AMD`` or ``ROCM``, else NVIDIA's. GPUs are numbered by address; where none
is known, by name, and ``gpu2`` comes before ``gpu10``.

**A half** is told twice: the GPU itself is visible, or the job could not use it, and a variable of
its own says how much of it the job may use. A MIG instance is a device to CUDA, which is visible by
its UUID alone. An instance that exists already is a provider whose name ends in its UUID
(:func:`~resource_objects.host.partitions.add_partition`). The UUID of another is not known
before the instance is created: then ``CUDA_VISIBLE_DEVICES`` does not name it, so the job sees no
GPU that is not its own, and ``RESOURCE_OBJECTS_MIG`` describes what a prologue has to create.

Sources: CUDA C++ Programming Guide, *CUDA Environment Variables*; NVIDIA Multi-Instance GPU User
Guide, *Device names*; ROCm, *GPU isolation techniques*; cpuset(7), *List format*.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
import shlex
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
#: What a class is not of whole GPUs by.
_PART_WORDS = {"MIG", "SLICE", "HALF", "THOUSANDTHS"}
_AMD_WORDS = {"AMD", "ROCM"}
_MIG = "MIG"
#: What the name of a provider may end in. The second is MIG's of drivers before R470.
_UUID = re.compile(r"(MIG-GPU-[0-9a-f-]{36}/\d+/\d+|(?:MIG|GPU)-[0-9a-f-]{8,36})$", re.IGNORECASE)
_ADDRESS = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]$", re.IGNORECASE)


def job_environment(
    claim: Claim, host: Provider, assigned: Mapping[str, Amounts] | None = None
) -> dict[str, str]:
    """Return the variables of a job by what it holds of one host. Pure.

    Cost: linear in the providers of the host.

    :param host: the root of its tree, as ``ledger.provider`` returns it
    :param assigned: as ``ledger.assigned`` returns it: it tells CPUs that were left empty on
        purpose from those to run on; without it all are to run on
    :raises NotFound: if the claim does not say which GPU it is about
    :raises InvalidInput: if they are no claim and no provider

    >>> import resource_objects as ro
    >>> host = ro.Provider("lab-0", "VCPU=64")
    >>> for number in range(8):
    ...     gpu = host.add(f"lab-0/gpu{number}", "PGPU=1")
    >>> with ro.connect("memory://") as ledger:
    ...     _ = ledger.sync(host)
    ...     claim = ledger.claim("job-1", {"lab-0/gpu3": "PGPU=1", "lab-0/gpu5": "PGPU=1"})
    >>> found = job_environment(claim, host)
    >>> found["CUDA_VISIBLE_DEVICES"], found["ROCR_VISIBLE_DEVICES"]
    ('3,5', '')
    """
    if not isinstance(claim, Claim):
        raise InvalidInput(
            "value", "claim", claim, "a Claim, as ledger.claim and ledger.held return"
        )
    if not isinstance(host, Provider):
        raise InvalidInput("value", "host", host, "a Provider, as ledger.provider returns")
    known = {one.name for one in host.walk()}
    held = [one for one in claim.allocations if one.provider in known]
    visible, parts, mig = _visible(claim.consumer, host, held)
    return {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        **{f"{name}_VISIBLE_DEVICES": ",".join(visible[name]) for name in (CUDA, ROCR)},
        **{f"RESOURCE_OBJECTS_{name}_PARTS": ",".join(parts[name]) for name in (CUDA, ROCR)},
        "RESOURCE_OBJECTS_MIG": ",".join(mig),
        "RESOURCE_OBJECTS_DEVICES": ",".join(_addresses(host, held)),
        "RESOURCE_OBJECTS_CPUS": str(CPUSet(_cpus(host, held, assigned or {}))),
        "RESOURCE_OBJECTS_CELLS": str(CPUSet(sorted(cell.id for cell, _ in _cells(host, held)))),
        "RESOURCE_OBJECTS_UNITS": ",".join(unit for one in held for unit in one.units),
        "RESOURCE_OBJECTS_AMOUNTS": str(total(held)),
        "RESOURCE_OBJECTS_CONSUMER": claim.consumer,
        "RESOURCE_OBJECTS_CLAIM": claim.id,
        "RESOURCE_OBJECTS_HOST": host.name,
    }


def read_environment(
    ledger: Ledger, consumer: str | Claim, *, host: str | None = None
) -> dict[str, str]:
    """Return the variables of a job, of what a consumer holds now. Cost: three or four reads.

    :param consumer: its name, or the claim that was just made for it
    :param host: a provider of the host's tree, by name or uuid; None: the only one it holds
        something of. Of several those do not count of which it holds neither VCPUs, CPUs, memory
        nor devices, as of a pool of disks that hosts share
    :raises NotFound: if it holds nothing; if the host is not there; as :func:`job_environment`
    :raises InvalidInput: if it holds something of several hosts and none is named
    """
    claim = consumer if isinstance(consumer, Claim) else ledger.get_claim(consumer)
    held: dict[str, list[Allocation]] = {}
    if host is None:
        named = [one.provider for one in claim.allocations]
        roots = {one.name: one.root for one in ledger.providers(name=named)}
        for each in claim.allocations:
            if each.provider in roots:
                held.setdefault(roots[each.provider], []).append(each)
        hosts = [name for name, some in held.items() if any(map(_is_of_host, some))] or [*held]
        if len(hosts) > 1:
            raise InvalidInput(
                "value", f"host of {claim.consumer}", None, f"one of {', '.join(hosts)}"
            )
        if not hosts:
            raise NotFound("provider", named[0] if named else claim.consumer)
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


def _is_of_host(one: Allocation) -> bool:
    return one.resource_class in OF_HOST or bool(one.units) or is_device(one.resource_class)


# --- GPUs ---------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class _GPU:
    """One GPU of a host: who keeps it, the class of the whole, and how it is known."""

    provider: Provider
    vendor: str
    whole: str | None
    address: str | None = None
    uuid: str | None = None


def _visible(
    consumer: str, host: Provider, held: Iterable[Allocation]
) -> tuple[dict[str, list[str]], dict[str, list[str]], list[str]]:
    """Return the visible and partly visible devices by vendor, and MIG instances without UUID."""
    gpus = _gpus(host)
    places: dict[int, Fraction] = {}
    instances: dict[str, list[str]] = {CUDA: [], ROCR: []}
    unnamed: list[tuple[int, str]] = []
    tree = {one.name: one for one in host.walk()}
    for one in held:
        provider = tree[one.provider]
        if _MIG in one.resource_class.split("_"):
            uuid = _uuid_of(provider.name)
            if uuid is not None:
                instances[CUDA].append(uuid)
            else:
                unnamed += [_instance(consumer, one, provider, gpus)] * _count(one)
            continue
        for place, part in _taken(consumer, one, provider, gpus):
            places[place] = places.get(place, Fraction(0)) + part
    visible: dict[str, list[str]] = {}
    parts: dict[str, list[str]] = {}
    for vendor in (CUDA, ROCR):
        of_vendor = [place for place, gpu in enumerate(gpus) if gpu.vendor == vendor]
        mine = [place for place in of_vendor if place in places]
        names = _names(consumer, gpus, of_vendor, mine, instances[vendor])
        visible[vendor] = [*names.values(), *instances[vendor]]
        parts[vendor] = [
            f"{name}:{places[place]}" for place, name in names.items() if places[place] < 1
        ]
    of_cuda = [place for place, gpu in enumerate(gpus) if gpu.vendor == CUDA]
    called = _names(consumer, gpus, of_cuda, sorted({place for place, _ in unnamed}), [])
    return visible, parts, sorted(f"{called[place]}:{what}" for place, what in unnamed)


def _instance(
    consumer: str, one: Allocation, provider: Provider, gpus: list[_GPU]
) -> tuple[int, str]:
    """Return the GPU of a MIG instance, and its profile with the placement, else its class."""
    owners = {s.of for s in provider.shares if s.resource_class == one.resource_class}
    places = [
        place
        for place, gpu in enumerate(gpus)
        if gpu.vendor == CUDA and gpu.provider.name in (owners or {provider.name})
    ]
    if len(places) != 1:
        raise NotFound(
            "device", consumer, f"{one}: no UUID, and it does not say of which GPU it is"
        )
    placement = PLACEMENT.search(provider.name)
    return places[0], f"{placement[1]}:{placement[2]}" if placement else one.resource_class


def _names(
    consumer: str, gpus: list[_GPU], of_vendor: list[int], mine: list[int], instances: list[str]
) -> dict[int, str]:
    """Return what each of some GPUs is called: all by UUID, or all by number."""
    uuids = {place: uuid for place in mine if (uuid := gpus[place].uuid)}
    if len(uuids) == len(mine):
        return uuids
    unknown = next(gpus[place] for place in mine if place not in uuids)
    if instances:
        raise NotFound(
            "device",
            consumer,
            f"{unknown.provider.name}: no UUID, which stands beside those of MIG instances",
        )
    addressed = [gpus[place].address is not None for place in of_vendor]
    if any(addressed) and not all(addressed):
        lacks = of_vendor[addressed.index(False)]
        raise NotFound(
            "device",
            consumer,
            f"{gpus[lacks].provider.name}: no address, so GPUs cannot be numbered",
        )
    return {place: str(of_vendor.index(place)) for place in mine}


def _gpus(host: Provider) -> list[_GPU]:
    """Return the GPUs of a host in the order of their addresses, else of their names."""
    sliced = {(share.of, share.of_class) for one in host.walk() for share in one.shares}
    found = [gpu for one in host.walk() for gpu in _gpus_at(one, sliced)]
    return sorted(found, key=lambda gpu: (gpu.address or "", natural_order(gpu.provider.name)))


def _gpus_at(provider: Provider, sliced: Collection[tuple[str, str]]) -> Iterator[_GPU]:
    devices = _devices(provider)
    for device in devices:
        vendor = _VENDORS.get(device.vendor_id)
        code = device.class_code
        if vendor and device.type in (PCI, PF) and (not code or code.startswith(_GPU_CODES)):
            uuid = dict(device.facts).get("uuid")
            yield _GPU(provider, vendor, device.resource_class, device.address, uuid)
    if devices or any(share.of != provider.name for share in provider.shares):
        return  # a part of one
    named = [name for name in provider.inventories.names() if _GPU_WORDS & {*name.split("_")}]
    if not named:
        return
    tied = {share.resource_class for share in provider.shares}
    plain = [
        name
        for name in named
        if name not in tied
        and (provider.name, name) not in sliced
        and not _PART_WORDS & {*name.split("_")}
    ]
    wholes = [*filter(is_device, named), *plain]
    whole = wholes[0] if wholes else None
    inventory = provider.inventories[whole] if whole else None
    count = inventory.total if isinstance(inventory, IntegerInventory) else 1
    words = {word for trait in provider.traits for word in trait.split("_")}
    address = _ADDRESS.search(provider.name)
    for _ in range(count):
        yield _GPU(
            provider,
            ROCR if words & _AMD_WORDS else CUDA,
            whole,
            address and address[0].lower(),
            _uuid_of(provider.name),
        )


def _taken(
    consumer: str, one: Allocation, provider: Provider, gpus: list[_GPU]
) -> Iterator[tuple[int, Fraction]]:
    """Yield which GPUs an allocation is of, and how much of each."""
    here = {place: gpu for place, gpu in enumerate(gpus) if gpu.provider is provider}
    wholes = {place: gpu for place, gpu in here.items() if gpu.whole == one.resource_class}
    amount = _count(one)
    if wholes:
        if one.units:
            wholes = {place: gpu for place, gpu in wholes.items() if gpu.address in one.units}
        elif amount < len(wholes):
            raise NotFound("device", consumer, f"{one}, of {len(wholes)}: it does not say which")
        yield from dict.fromkeys(wholes, Fraction(1)).items()
        return
    uses = [
        (share.of, share.of_class, share.factor)
        for share in provider.shares
        if share.resource_class == one.resource_class
    ] or [(provider.name, one.resource_class, 1)]
    for owner, some in itertools.groupby(uses, key=lambda use: use[0]):
        mine = [place for place, gpu in enumerate(gpus) if gpu.provider.name == owner]
        if len(mine) != 1:
            continue
        parts = [
            Fraction(amount * factor, of)
            for _, slice_, factor in some
            if (of := _all(gpus[mine[0]], slice_))
        ]
        if parts:  # compute slices and memory slices may differ: what leaves the least counts
            yield mine[0], max(parts)


def _all(gpu: _GPU, slice_: str) -> int:
    """Return how many of a slice make up a GPU, 0 if that is no slice of it."""
    provider = gpu.provider
    for share in provider.shares:
        if (share.resource_class, share.of_class) == (gpu.whole, slice_):
            return share.factor
    inventory = provider.inventories[slice_] if gpu.whole is None else None
    return inventory.total if isinstance(inventory, IntegerInventory) else 0


def _count(one: Allocation) -> int:
    return sum(record.amount for record in one.amount.to_records(one.resource_class))


def _uuid_of(name: str) -> str | None:
    found = _UUID.search(name)
    return found[1] if found else None


# --- devices, cells -----------------------------------------------------------------------------


def _devices(provider: Provider) -> tuple[Device, ...]:
    inventory = provider.inventories.get(DEVICES)
    return inventory.devices if isinstance(inventory, PCIInventory) else ()


def _addresses(host: Provider, held: Iterable[Allocation]) -> list[str]:
    """Return the addresses of the devices of which something is held, as far as that is said."""
    found: set[str] = set()
    tree = {one.name: one for one in host.walk()}
    for one in held:
        devices = _devices(tree[one.provider])
        found.update(each.address for each in devices if each.address in one.units)
        if len(devices) == 1 and not one.units:
            found.add(devices[0].address)
    return sorted(found)


def _cells(host: Provider, held: Iterable[Allocation]) -> list[tuple[HostCell, set[str]]]:
    """Return the cells of which something is held, each with the classes of that."""
    classes: dict[str, set[str]] = {}
    for one in held:
        classes.setdefault(one.provider, set()).add(one.resource_class)
    found = []
    for provider in host.walk():
        inventory = provider.inventories.get(NUMA_TOPOLOGY)
        if provider.name in classes and isinstance(inventory, NUMATopologyInventory):
            found += [(cell, classes[provider.name]) for cell in inventory.cells]
    return found


def _cpus(host: Provider, held: Iterable[Allocation], assigned: Mapping[str, Amounts]) -> list[int]:
    held = list(held)
    units = [unit for one in held if one.resource_class == PCPU for unit in one.units]
    found = {cpu for unit in units if (cpu := cpu_of(unit)) is not None}
    for cell, classes in _cells(host, held):
        if VCPU in classes:
            found.update(cell.shared)
    for name, amount in assigned.get(host.name, Amounts()).by_name():
        if name == NUMA_TOPOLOGY.name and isinstance(amount, NUMATopologyAmount):
            found.difference_update(cpu for placed in amount.placed for cpu in placed.idle)
    return sorted(found)
