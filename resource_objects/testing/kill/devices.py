"""What a writer of devices does: cards whole, functions split off them, and GPUs.

A card that is taken takes its functions along, and names them. Nobody takes a device without naming
it, so that each one that is counted must be a unit.
"""

from __future__ import annotations

from collections.abc import Iterator

from resource_objects.providers import Provider, diff
from resource_objects.providers.located import Located, add_parts
from resource_objects.providers.orders import Delta
from resource_objects.resources.pci import Device, PCIAmount, PCIInventory, devices
from resource_objects.testing.kill.located import LocatedWriter

DEVICE_HOSTS = ("dev0", "dev1")
#: Classes of which every one that is taken is a unit.
CARD, FUNCTION, GPU = "CUSTOM_CARD", "SRIOV_NET_VF", "PGPU"
#: How many functions a card is split into.
FUNCTIONS = 3
_KIND = "PCI_DEVICES"


def device_hosts() -> list[Provider]:
    """Return the hosts: two cards of three functions each, and two GPUs."""
    return [_device_host(name) for name in DEVICE_HOSTS]


def _device_host(name: str) -> Provider:
    host = Provider(name, "VCPU=8")
    cards = [device for bus in (1, 2) for device in _card(bus)]
    add_parts(host, _KIND, PCIInventory([*cards, *(_gpu(bus) for bus in (3, 4))]))
    return host


def _card(bus: int) -> Iterator[Device]:
    whole = f"0000:{bus:02x}:00.0"
    yield Device(whole, "8086", "1572", "type-PF", resource_class=CARD)
    for number in range(FUNCTIONS):
        part = f"0000:{bus:02x}:02.{number}"
        yield Device(part, "8086", "154c", "type-VF", resource_class=FUNCTION, parent=whole)


def _gpu(bus: int, model: str = "2330") -> Device:
    return Device(f"0000:{bus:02x}:00.0", "10de", model, resource_class=GPU)


class DeviceWriter(LocatedWriter):
    """A writer of devices, on hosts of its own kind."""

    hosts = DEVICE_HOSTS
    kind = _KIND

    def _amount(self) -> PCIAmount:
        chance = self._chance
        kinds = chance.sample([CARD, FUNCTION, FUNCTION, GPU], chance.choice([1, 1, 2, 3]))
        amounts = [devices(kind, chance.choice([1, 1, 2])) for kind in kinds]
        return sum(amounts[1:], amounts[0])

    def _units(self, located: Located) -> Delta:
        """Take a card whole, or a function of one, or a GPU, be it free or not."""
        spot = self._chance.choice(located.spots)
        address = spot.name.partition("/")[2]
        bus = int(address[5:7], 16)
        if bus > 2:
            return Delta(spot.uuid, GPU, 1, (address,))
        functions = [device.address for device in _card(bus)]
        if self._chance.random() < 0.5:
            return Delta(spot.uuid, CARD, 1, tuple(functions))
        return Delta(spot.uuid, FUNCTION, 1, (self._chance.choice(functions[1:]),))

    def _switch(self) -> None:
        """Make a GPU one of another model, taken or not."""
        kept = self._tree(self._chance.choice(DEVICE_HOSTS))
        wanted = kept.obj_clone()
        gpus = [child for child in wanted.children if ":00.0" in child.name]
        child = self._chance.choice([one for one in gpus if int(one.name[10:12], 16) > 2])
        gpu = _gpu(int(child.name[10:12], 16), self._chance.choice(["2330", "20b0"]))
        child.inventories[_KIND] = PCIInventory([gpu])
        changes = diff(kept, wanted)
        if changes:
            self._write("switch", definitions=changes)
