"""Random lives of small hosts with devices, a number each."""

from __future__ import annotations

import random
from collections.abc import Iterator

from resource_objects.resources.pci import Device, DeviceRequest, DeviceSpec
from tests.peers.nova.pci_tracker import Drift, Host

_GPU, _NIC, _PART = ("10de", "1db4"), ("8086", "1572"), ("8086", "154c")


class Life:
    """Random steps, a number each."""

    def __init__(self, number: int) -> None:
        self.chance = random.Random(number)
        self.every = tuple(self._devices())
        self.count = 0
        self.allocated: set[str] = set()

    def _devices(self) -> Iterator[Device]:
        for bus in range(1, self.chance.randint(2, 4)):
            whole = f"0000:{bus:02x}:00.0"
            if self.chance.random() < 0.4:
                yield Device(whole, *_GPU, numa_node=0)
                continue
            yield Device(whole, *_NIC, "type-PF", numa_node=0)
            for slot in range(self.chance.randint(1, 3)):
                address = f"0000:{bus:02x}:02.{slot}"
                yield Device(address, *_PART, "type-VF", parent=whole, numa_node=0)

    def begin(self) -> Host:
        """Return the host at the beginning: seldom without some of its devices."""
        return Host(self._some(self.every, 0.1))

    def _some(self, devices: tuple[Device, ...], share: float) -> tuple[Device, ...]:
        return tuple(device for device in devices if self.chance.random() >= share)

    def step(self, host: Host) -> Drift | None:
        """Do something on both sides, and return what nova says otherwise then."""
        held = sorted(host.held)
        what = self.chance.choice(["claim", "claim", "claim", "allocate", "free", "free", "look"])
        if what == "look":
            host.look(self._look(host))
        elif what == "claim" or not held:
            self.count += 1
            drift = host.claim(f"owner-{self.count}", self._request())
            return drift or host.drift()
        elif what == "allocate":
            waiting = [owner for owner in held if owner not in self.allocated]
            for owner in waiting[:1]:
                self.allocated.add(owner)
                host.allocate(owner)
        else:
            host.free(self.chance.choice(held))
        return host.drift()

    def _request(self) -> DeviceRequest:
        ids = self.chance.choice([_GPU, _NIC, _PART, _PART])
        types = ["type-PF"] if ids == _NIC else []
        spec = DeviceSpec(vendor_id=ids[0], product_id=ids[1], types=types)
        return DeviceRequest([spec], self.chance.choice([1, 1, 2]))

    def _look(self, host: Host) -> tuple[Device, ...]:
        """Return what is there now: some went, some came back, seldom one is another."""
        there = tuple(host.there.values())
        what = self.chance.choice(["go", "go", "come", "come", "come", "change"])
        if what == "go":
            return self._some(there, 0.3)
        if what == "come":
            return self.every
        if not there:
            return there
        one = self.chance.choice(there)
        other = self._another(one, there)
        return tuple(other if device is one else device for device in there)

    def _another(self, one: Device, there: tuple[Device, ...]) -> Device:
        """Return what a device is then: next to another cell, or not to be split any more."""
        is_split = any(device.parent == one.address for device in there)
        if one.can_be_split and not is_split and self.chance.random() < 0.7:
            return one.replace(type="type-PCI")
        return one.replace(numa_node=self.chance.choice([0, 0, 0, 1, None]))
