"""How a request for devices may ask for less: fewer of them, or less near."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import partial

from resource_objects.resources.pci.amount import DeviceRequest, PCIAmount
from resource_objects.resources.pci.device import LEGACY, PREFERRED, REQUIRED, SOCKET
from resource_objects.resources.relaxations import RelaxationLadder, RelaxationStep, stated

#: What is less near, the nearest first.
_LESS_NEAR = {
    REQUIRED: (SOCKET, LEGACY, PREFERRED),
    SOCKET: (PREFERRED,),
    LEGACY: (PREFERRED,),
    PREFERRED: (),
}


def weaker(amount: PCIAmount) -> Iterator[RelaxationLadder[PCIAmount]]:
    """Yield of each request fewer devices, down to none, and other affinities, less near.

    An amount that is assigned stays as it is; so does the count of a request that names a provider
    for each device. What kind of device it is, its traits and tags, is never less.

    >>> from resource_objects.resources.pci import devices
    >>> for one in weaker(devices("PGPU", 3, affinity="socket")):
    ...     for number in range(1, one.steps + 1):
    ...         print(one.kind, "-", one.step(number).told, "->", one.step(number).made())
    amount - PGPU=2 instead of 3 -> 2*PGPU@socket
    amount - PGPU=1 instead of 3 -> PGPU@socket
    amount - PGPU=0 instead of 3 -> None
    policy - affinity of PGPU preferred instead of socket -> 3*PGPU@preferred
    """
    if amount.is_assigned:
        return
    for place, request in enumerate(amount.requests):
        name = request.alias or request.kinds
        if not request.providers:
            fewer = partial(_fewer, amount, place, name)
            yield RelaxationLadder("amount", name, request.count, fewer, is_ordered=True)
        steps = (
            (
                f"affinity of {name} {affinity} instead of {request.affinity}",
                partial(_with, amount, place, request.replace(affinity=affinity)),
            )
            for affinity in _LESS_NEAR[request.affinity]
        )
        if _LESS_NEAR[request.affinity]:
            yield stated("policy", f"affinity of {name}", *steps)


def _fewer(amount: PCIAmount, place: int, name: str, number: int) -> RelaxationStep[PCIAmount]:
    request = amount.requests[place]
    count = request.count - number
    new = request.replace(count=count) if count else None
    told = f"{name}={count} instead of {request.count}"
    return RelaxationStep(told, Fraction(number, request.count), partial(_with, amount, place, new))


def _with(amount: PCIAmount, place: int, request: DeviceRequest | None) -> PCIAmount | None:
    before, after = amount.requests[:place], amount.requests[place + 1 :]
    requests = (*before, *(() if request is None else (request,)), *after)
    return amount.replace(requests=requests) if requests else None
