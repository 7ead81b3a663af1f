"""What nova does otherwise when it looks for devices, by name; and the pools that it looks in."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Sequence

from resource_objects.resources.pci import Device
from tests.peers.nova.pci_sides import PROVIDER, tags_of


class Deviation(enum.Enum):
    """What nova does otherwise; where one tells a difference as well as another, the first does."""

    NEAR_ALONE = "a request that near devices suffice for may have no others, whoever needs these"
    IN_ORDER = "requests are met one after another: the first takes what only the second can use"
    EXCLUSION_UNKNOWN = "a physical function and its parts are counted side by side"
    EXCLUDED_COUNT = "one request counts on a physical function and its parts at once: IndexError"
    NEAR_TOO_EARLY = "devices count as near enough of which the request may have none"
    TYPES_FOR_ALL = "what one alternative asks for by type opens that type for the others"
    CLASS_UNSEEN = "resource class and traits are not looked at"
    CLASS_OPENS_NOTHING = "who names the class of a physical function gets none without its type"
    LISTS_ARE_TEXT = "a tag that is a list has to be the same text"
    PROVIDER_SHORT = "a provider that is short is left out if another has enough for both"
    ONE_POOL = "a provider whose devices are of several pools is refused"


#: What ``support_requests`` and ``apply_requests`` do, and what ``consume_requests`` does.
SCHEDULER = frozenset(Deviation) - {Deviation.EXCLUDED_COUNT}
HOST = frozenset(Deviation) - {Deviation.EXCLUSION_UNKNOWN}
OURS: frozenset[Deviation] = frozenset()


@dataclasses.dataclass
class Pool:
    """Devices that nova tells no difference between; ``count`` is what it believes there are."""

    kind: Device
    members: list[Device]
    count: int = 0

    @property
    def provider(self) -> str | None:
        return self.kind.facts.get(PROVIDER)


def pools_of(devices: Sequence[Device], *, by_class: bool) -> list[Pool]:
    """Return the pools of devices, in nova's order: by the number of what a pool says."""
    found: dict[tuple[object, ...], Pool] = {}
    for device in devices:
        key = (
            device.product_id,
            device.vendor_id,
            device.numa_node,
            device.type,
            device.parent or device.address,
            tuple(sorted(_words(device).items())),
            (device.resource_class, device.traits) if by_class else (),
        )
        pool = found.setdefault(key, Pool(device, []))
        pool.members.append(device)
        pool.count += 1
    return sorted(found.values(), key=lambda pool: len(_words(pool.kind)))


def _words(device: Device) -> dict[str, str]:
    default = {} if device.type == "type-PCI" else {"remote_managed": "false"}
    return default | tags_of(device)
