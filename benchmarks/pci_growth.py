"""How the decision grows with the devices of a host and with requests: part of the pci part."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Iterator
from typing import TypeAlias

from benchmarks.measure import Row, per_call
from benchmarks.numa_asked import row
from benchmarks.numa_growth import POINT_NS, exponents
from benchmarks.pci_asked import GPU, NIC, PART, PARTS, address, asked, gpus, nics
from resource_objects.exceptions import CapacityException
from resource_objects.resources.pci import (
    Device,
    DeviceRequest,
    DeviceSpec,
    PCIAmount,
    PCIInventory,
)

DEVICES = (8, 16, 32, 64, 128, 256, 512, 1024)
REQUESTS = (1, 2, 4, 8, 16)
#: The exponents are of hosts with so many devices and more.
LARGE = 64

Question: TypeAlias = tuple[PCIInventory, PCIAmount]


def rows() -> Iterator[Row]:
    """Yield a point for each number of devices and of requests, and the exponents that fit them."""
    for name, question in QUESTIONS.items():
        points = [
            _point(f"growth: {name}", question, devices, requests)
            for devices, requests in itertools.product(DEVICES, REQUESTS)
            if _is_asked(question, devices, requests)
        ]
        yield from points
        yield from exponents(f"growth: {name}", points, ("devices", "requests"), LARGE)


def _is_asked(question: Callable[[int, int], Question], devices: int, requests: int) -> bool:
    """Return whether a question is as its name says."""
    if question is _halves:
        return requests // 2 < devices // (PARTS + 1)
    return requests <= devices and (question is not _clash or requests > 1)


def _alike(devices: int, requests: int) -> Question:
    """GPUs that differ only in where they are, one for each request."""
    return gpus(devices), asked(*[GPU] * requests)


def _stairs(devices: int, requests: int, *, clash: bool = False) -> Question:
    """Of as many kinds of devices as requests, no two alike, each request takes one kind more.

    All devices are asked for, so they fit in one way only: who takes but one kind has all of it,
    and so on up. Who can take any comes first. In a clash, two of them can take one kind alone.
    """
    share = devices // requests
    found = PCIInventory(
        [
            Device(address(number), "10de", f"{number % requests:04x}", tags={"name": str(number)})
            for number in range(share * requests)
        ]
    )
    kinds = [DeviceSpec(vendor_id="10de", product_id=f"{n:04x}") for n in range(requests)]
    counts = list(range(requests, 0, -1))
    if clash:
        counts[-2] = 1
    return found, PCIAmount([DeviceRequest(kinds[:count], share) for count in counts])


def _clash(devices: int, requests: int) -> Question:
    """The same, where any request could be met alone: all at once they cannot."""
    return _stairs(devices, requests, clash=True)


def _halves(devices: int, requests: int) -> Question:
    """Physical functions, wanted whole and in parts by turns."""
    kinds = [PART, NIC] * requests
    return nics(devices), asked(*kinds[:requests])


QUESTIONS: dict[str, Callable[[int, int], Question]] = {
    "devices that are alike": _alike,
    "no two alike, all asked for, fits in one way only": _stairs,
    "refused: each request could be met, all at once they cannot": _clash,
    "functions wanted whole and in parts": _halves,
}


def _point(name: str, question: Callable[[int, int], Question], devices: int, requests: int) -> Row:
    inventory, amount = question(devices, requests)

    def once() -> None:
        with contextlib.suppress(CapacityException):
            inventory.fit(amount)

    once()
    calls = max(1, int(POINT_NS / per_call(once, 1)))
    found = row(name, "us", once, calls=(calls, 1), rounds=3)
    return dataclasses.replace(found, point=(devices, requests), axes=("devices", "request"))
