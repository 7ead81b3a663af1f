"""One host: NUMA topologies, devices, compute nodes and flavors, next to Nova if it is installed.

Both programs answer the same question in turn, in one process, on CPU time. A refusal of ours
includes its reasons. Nova's ``support_requests`` copies its pools first, which is measured because
Nova has no other entry point.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import resource_objects as ro
from benchmarks import nova_objects
from benchmarks.measure import Row, alternating, milliseconds
from resource_objects.exceptions import CapacityException
from resource_objects.interop import nova
from resource_objects.resources.numa import (
    HostCell,
    NUMATopologyAmount,
    NUMATopologyInventory,
    PagePool,
    numa,
)
from resource_objects.resources.pci import (
    Device,
    DeviceRequest,
    DeviceSpec,
    PCIAmount,
    PCIInventory,
)

CELLS = 8
CPUS = 16  #: of a host cell: half shared, half dedicated, in cores of two threads
MEMORY_MB = 65536
FUNCTIONS = 7  #: virtual functions of a physical function
NIC, VF, GPU = ("8086", "1572"), ("8086", "154c"), ("10de", "2330")


def rows() -> Iterator[Row]:
    """Yield every row."""
    warnings.simplefilter("ignore")
    yield from _numa()
    yield from _pci()
    yield from _joint()
    yield from _compute_nodes()


# --- hosts and requests ---------------------------------------------------------------------------


def cells(count: int = CELLS) -> NUMATopologyInventory:
    """Return equal host cells, two to a socket, with small, large and huge pages."""
    return NUMATopologyInventory([_cell(number) for number in range(count)])


def _cell(number: int) -> HostCell:
    first, middle, end = (number * CPUS + cpu for cpu in (0, CPUS // 2, CPUS))
    small_mb = MEMORY_MB - 1024 * 2 - 8 * 1024
    return HostCell(
        number,
        shared=range(first, middle),
        dedicated=range(middle, end),
        siblings=[(cpu, cpu + 1) for cpu in range(first, end, 2)],
        memory_mb=MEMORY_MB,
        pages=[
            PagePool(size_kib=4, total=small_mb * 256),
            PagePool(size_kib=2048, total=1024),
            PagePool(size_kib=1048576, total=8),
        ],
        socket=number // 2,
    )


def address(number: int, slot: int = 0) -> str:
    """Return the address of the device of a number."""
    return f"{number >> 8:04x}:{number & 0xFF:02x}:{slot:02x}.0"


def gpus(count: int, remote: int = 0) -> PCIInventory:
    """Return GPUs near each host cell in turn, and ``remote`` GPUs without a host cell."""
    return PCIInventory(
        [
            Device(address(number), *GPU, numa_node=number % CELLS if number < count else None)
            for number in range(count + remote)
        ]
    )


def nics(count: int) -> PCIInventory:
    """Return physical functions with their virtual functions, ``count`` functions in total."""
    devices: list[Device] = []
    for number in range(count // (FUNCTIONS + 1)):
        node, parent = number % CELLS, address(number)
        devices.append(Device(parent, *NIC, "type-PF", numa_node=node))
        devices += (
            Device(address(number, slot), *VF, "type-VF", parent=parent, numa_node=node)
            for slot in range(1, FUNCTIONS + 1)
        )
    return PCIInventory(devices)


def devices(*products: tuple[str, str], count: int = 1, affinity: str = "legacy") -> PCIAmount:
    """Return an amount with a request for ``count`` devices of each product."""
    return PCIAmount(
        [
            DeviceRequest(
                [
                    DeviceSpec(
                        vendor_id=vendor,
                        product_id=product,
                        types=["type-PF"] if (vendor, product) == NIC else [],
                    )
                ],
                count,
                affinity,
            )
            for vendor, product in products
        ]
    )


def refused(fit: Callable[[], object]) -> bool:
    """Return True if a fit is refused for lack of capacity, after formatting the reasons."""
    try:
        fit()
    except CapacityException as error:
        return bool(error.reasons)
    return False


# --- NUMA -----------------------------------------------------------------------------------------


def _numa() -> Iterator[Row]:
    for kind, counts in (("dedicated", {"dedicated": 16}), ("shared", {"shared": 16})):
        inventory, amount = cells(), numa(cells=4, memory_mb=4096, **counts)
        yield _beside_nova(
            f"fit: 4 guest cells on 8 host cells, {kind} CPUs",
            lambda inventory=inventory, amount=amount: inventory.fit(amount),
            _nova_fit(inventory, amount),
            least_ratio=4 if kind == "dedicated" else 2,
        )
    for guests, hosts in ((6, 6), (8, 16)):
        inventory = cells(hosts)
        amount = numa(cells=guests, dedicated=guests * (CPUS // 2 + 1), memory_mb=guests * 1024)
        yield _beside_nova(
            f"refusal with its reasons: {guests} guest cells on {hosts} host cells",
            lambda inventory=inventory, amount=amount: refused(lambda: inventory.fit(amount)),
            # Nova tries 720 permutations of 6 cells, and 518,918,400 of 8 on 16
            _nova_fit(inventory, amount, fits=False) if hosts == 6 else None,
            calls=(50, 1),
            limit=1_000,
        )
    inventory = cells()
    for _ in range(2):
        inventory.consume(numa(cells=8, shared=16, dedicated=16, memory_mb=8192))
    text, load = nova.dump_host_numa_topology(inventory), None
    if nova_objects.is_installed():
        objects, _hardware = nova_objects.nova()
        text = nova_objects.host(inventory)._to_json()

        def load() -> Any:
            return objects.NUMATopology.obj_from_db_obj(text)

    name = "topology of 8 host cells from JSON"
    yield _beside_nova(name, lambda: nova.load_host_numa_topology(text), load, least_ratio=3)


def _beside_nova(
    name: str,
    ours: Callable[[], object],
    theirs: Callable[[], object] | None,
    **options: Any,
) -> Row:
    """Return a row in microseconds; ``options`` are those of :func:`alternating`."""
    return alternating(name, "us", ours, theirs, nova_objects.NAME, **options)


def _nova_fit(
    inventory: NUMATopologyInventory, amount: NUMATopologyAmount, *, fits: bool = True
) -> Callable[[], Any] | None:
    """Return Nova's fit of the same request, which is checked to have the same answer."""
    if not nova_objects.is_installed():
        return None
    _, hardware = nova_objects.nova()
    topology, limits = nova_objects.host(inventory), nova_objects.limits()
    request = nova_objects.request(amount)

    def fit() -> Any:
        return hardware.numa_fit_instance_to_host(topology, request, {}, limits)

    if (fit() is not None) is not fits:
        raise AssertionError(f"the answer of nova to {amount} is not {fits}")
    return fit


# --- devices --------------------------------------------------------------------------------------


def _pci() -> Iterator[Row]:
    for title, amount in (
        ("one request for two", devices(VF, count=2)),
        ("a virtual and a physical function", devices(VF, NIC)),
    ):
        inventory = nics(256)
        yield _beside_nova(
            f"fit: 256 functions, {title}",
            lambda inventory=inventory, amount=amount: inventory.fit(amount),
            _nova_support(inventory, amount),
            calls=(200, 5),
            least_ratio=20,
        )
    inventory, amount = nics(256), devices(VF, NIC)
    yield _beside_nova(
        "256 functions: a virtual and a physical function allocated and released",
        lambda: inventory.consume(-inventory.consume(amount)),
        None,
    )


def _nova_support(inventory: PCIInventory, amount: PCIAmount) -> Callable[[], Any] | None:
    if not nova_objects.is_installed():
        return None
    stats = nova_objects.device_stats(inventory, cells())
    requests = nova_objects.device_requests(amount.requests)
    if not stats.support_requests(requests, {}, None):
        raise AssertionError(f"nova refuses {amount}")
    return lambda: stats.support_requests(requests, {}, None)


def _joint() -> Iterator[Row]:
    """Yield fits of guest cells with a GPU near each of them, and of one GPU too many."""
    topology = numa(cells=4, dedicated=16, memory_mb=4096)
    inventories = ro.Inventories({"NUMA_TOPOLOGY": cells(), "DEVICES": gpus(CELLS, remote=1)})
    for title, count in (("", 4), (", one GPU too many: refused", 5)):
        amount = devices(GPU, count=count, affinity="required")
        amounts = ro.Amounts({"NUMA_TOPOLOGY": topology, "DEVICES": amount})
        fits = count == 4
        if refused(lambda amounts=amounts: inventories.fit(amounts)) is fits:
            raise AssertionError(f"the answer to {amounts} is not {fits}")
        yield _beside_nova(
            f"joint fit: 4 guest cells on 8 host cells, each with a GPU near it{title}",
            lambda amounts=amounts: refused(lambda: inventories.fit(amounts)),
            _nova_joint(topology, amount) if fits else None,
            calls=(50, 2),
            least_ratio=1,
        )
    counts = {"VCPU": 64, "PCPU": 64, "MEMORY_MB": CELLS * MEMORY_MB, "NUMA_TOPOLOGY": cells()}
    with_counts = ro.Inventories(counts)
    amounts = ro.Amounts({"PCPU": 16, "MEMORY_MB": 4096, "NUMA_TOPOLOGY": topology})
    name = "joint fit: 4 guest cells on 8 host cells, with their counts"
    yield _beside_nova(name, lambda: with_counts.can_provide(amounts), None)


def _nova_joint(topology: NUMATopologyAmount, amount: PCIAmount) -> Callable[[], Any] | None:
    if not nova_objects.is_installed():
        return None
    _, hardware = nova_objects.nova()
    inventory, limits = cells(), nova_objects.limits()
    host = nova_objects.host(inventory)
    devices = gpus(CELLS, remote=1)
    stats = nova_objects.pools(nova_objects.device_stats(devices, inventory))
    requests = nova_objects.device_requests(amount.requests)

    def fit() -> None:
        request = nova_objects.request(topology)
        if hardware.numa_fit_instance_to_host(host, request, {}, limits, requests, stats) is None:
            raise AssertionError("nova refuses the joint request")

    return fit


# --- compute nodes --------------------------------------------------------------------------------


def _compute_nodes() -> Iterator[Row]:
    numbers = itertools.count()
    with ro.connect("memory://") as ledger:

        def save() -> None:
            _node(f"host{next(numbers)}").bind(ledger).save()

        yield milliseconds("memory: a new host of 2 cells and 4 devices saved", save, calls=10)
        name = "memory: a host of 2 cells and 4 devices loaded"
        yield milliseconds(name, lambda: ro.ComputeNode.load(ledger, "host0", "job"), calls=10)
        node = ro.ComputeNode.load(ledger, "host0", "job")
        request = ro.Request("VCPU=1,MEMORY_MB=64")

        def consume_and_save() -> None:
            for resource, amount in request.resources.items():
                node.inventories[resource].consume(amount)
            node.save()

        yield milliseconds(
            "memory: amounts consumed at a loaded host, and saved", consume_and_save, rounds=3
        )
    specs = {
        "hw:cpu_policy": "dedicated",
        "hw:numa_nodes": "2",
        "trait:HW_CPU_X86_AVX2": "required",
    }
    flavor = nova.Flavor(8, 4096, root_gb=10, extra_specs=specs)
    yield milliseconds("a flavor to a request", lambda: nova.request(flavor), calls=20)


def _node(name: str) -> ro.ComputeNode:
    topology = [
        HostCell(number, shared=range(4 * number, 4 * number + 4), memory_mb=8192)
        for number in range(2)
    ]
    return ro.ComputeNode(
        vcpus=8,
        vcpus_used=0,
        memory_mb=16384,
        memory_mb_used=0,
        hypervisor_hostname=name,
        host=name,
        numa_topology=NUMATopologyInventory(topology),
        pci_stats=PCIInventory(
            [
                Device(address(number), *GPU, numa_node=number % 2, resource_class="PGPU")
                for number in range(4)
            ]
        ),
    )
