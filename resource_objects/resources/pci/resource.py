"""The resource ``DEVICES``, and the relaxations of requested devices."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from typing import Any

from resource_objects import base
from resource_objects.resources import abstract
from resource_objects.resources.pci.amount import PCIAmount, devices, require_devices
from resource_objects.resources.pci.device import LEGACY, PREFERRED, REQUIRED, SOCKET
from resource_objects.resources.pci.inventory import PCIInventory
from resource_objects.resources.placed import PlacedResource
from resource_objects.resources.relaxations import RelaxationLadder, RelaxationStep, listed_steps


@base.register
class PCIResource(PlacedResource[PCIAmount, PCIInventory], abstract.Resource):
    """The resource of PCI devices by address; it adds nothing to their counts.

    The resource class ``PCI_DEVICE`` of Placement is a plain count of devices. The text of an
    amount is ``COUNT*KIND[@option]...``, joined by ``/``.

    >>> print(DEVICES.make_amount("PGPU", 2))
    2*PGPU
    """

    # Version 1.0: Initial version
    VERSION = "1.0"

    amount_kind = PCIAmount
    inventory_kind = PCIInventory
    requested = staticmethod(devices)
    part_kind = "Device"

    def relaxations(self, amount: abstract.Amount) -> Iterator[RelaxationLadder[PCIAmount]]:
        """Yield the relaxations of requested devices (:func:`device_relaxations`)."""
        return device_relaxations(require_devices(amount))


#: The resource of PCI devices by address.
DEVICES = PCIResource("DEVICES", "device", "devices", "PCI devices, each by its address")


# --- relaxations ----------------------------------------------------------------------------------

#: The weaker affinities of each affinity, the strongest first.
_WEAKER_AFFINITIES = {
    REQUIRED: (SOCKET, LEGACY, PREFERRED),
    SOCKET: (PREFERRED,),
    LEGACY: (PREFERRED,),
    PREFERRED: (),
}


def device_relaxations(amount: PCIAmount) -> Iterator[RelaxationLadder[PCIAmount]]:
    """Yield the relaxations of requested devices, none of assigned ones.

    Each request may have fewer devices, down to none, unless it names a provider for each
    device, and a weaker affinity. The kind of device, its traits and its tags are not relaxed.

    >>> from resource_objects.resources.pci import devices
    >>> for ladder in device_relaxations(devices("PGPU", 3, affinity="socket")):
    ...     for number in range(1, ladder.steps + 1):
    ...         step = ladder.step(number)
    ...         print(ladder.kind, "-", step.description, "->", step.make())
    amount - PGPU=2 instead of 3 -> 2*PGPU@socket
    amount - PGPU=1 instead of 3 -> PGPU@socket
    amount - PGPU=0 instead of 3 -> None
    policy - affinity of PGPU preferred instead of socket -> 3*PGPU@preferred
    """
    if amount.is_assigned:
        return
    for position, request in enumerate(amount.requests):
        name, count = request.alias or request.kinds, request.count

        def replaced(position: int = position, **fields: Any) -> PCIAmount | None:
            requests = list(amount.requests)
            if fields.get("count") == 0:
                del requests[position]
            else:
                requests[position] = requests[position].replace(**fields)
            return amount.replace(requests=requests) if requests else None

        def fewer(
            number: int, name: str = name, count: int = count, make: Any = replaced
        ) -> RelaxationStep[PCIAmount]:
            remaining = count - number
            description = f"{name}={remaining} instead of {count}"
            return RelaxationStep(
                description, Fraction(number, count), partial(make, count=remaining)
            )

        if not request.providers:
            yield RelaxationLadder("amount", name, count, fewer, is_ordered=True)
        if _WEAKER_AFFINITIES[request.affinity]:
            yield listed_steps(
                "policy",
                f"affinity of {name}",
                *(
                    (
                        f"affinity of {name} {affinity} instead of {request.affinity}",
                        partial(replaced, affinity=affinity),
                    )
                    for affinity in _WEAKER_AFFINITIES[request.affinity]
                ),
            )
