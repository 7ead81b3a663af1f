"""Devices over their lives, in any order: claimed, allocated, freed, rediscovered, reset.

A list of consumers and a naive account of waiting changes know the state of each device; the
inventory never differs.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
)

from resource_objects.exceptions import CapacityException, ForeignAmount
from resource_objects.interop.nova.pci_devices import device_pools
from resource_objects.resources.pci import Device, DeviceUse, PCIAmount, PCIInventory, devices
from tests.support.lengths import examples
from tests.support.pci_devices import put_in_state
from tests.support.pci_reference import has_assignment, states
from tests.support.pci_strategies import pci_amounts, pci_devices

#: The kinds of most requests: many of the devices match them.
KINDS = ["10de:*", "8086:*", "15b3:*", "*:*"]

chances = st.randoms(use_true_random=False)


def plainly(device: Device) -> Device:
    """Return a physical function after SR-IOV was switched off."""
    return device.replace(type="type-PCI")


class Lives(RuleBasedStateMachine):
    """A host whose devices are added and removed while they are allocated."""

    claims = Bundle("claims")
    allocations = Bundle("allocations")

    @initialize(existing=pci_devices(max_groups=3))
    def begin(self, existing: tuple[Device, ...]) -> None:
        self.inventory = PCIInventory(existing)
        self.there = {device.address: device for device in existing}
        self.ever = dict(self.there)
        self.uses: dict[str, DeviceUse] = {}

    # --- the naive account ---

    def is_held(self, address: str) -> bool:
        return address in self.uses and self.uses[address].state in ("claimed", "allocated")

    def let_go(self, address: str) -> None:
        """A removed or spent device is not allocated again."""
        use = self.uses.pop(address)
        if use.gone or self.there[address].one_time_use:
            self.uses[address] = DeviceUse(address, "spent")

    def look(self, now: dict[str, Device]) -> None:
        """An allocated device does not change; others are discovered anew, unless they clash."""
        allocated = {address for address in self.there if self.is_held(address)}
        cards = {address for address in allocated if self.there[address].type == "type-PF"}
        stored = {a for a, device in self.there.items() if a in allocated or device.parent in cards}
        then = {**now, **{a: self.there[a].replace(withdrawn=a not in now) for a in stored}}
        while self.resolve(then, stored, cards):
            pass
        for address in {*self.uses} - allocated:
            if address not in then or self.there[address].withdrawn:
                del self.uses[address]
        for address in then.keys() & stored:
            if address in allocated:
                self.uses[address] = self.uses[address].replace(gone=address not in now)
            elif address not in now:
                self.uses[address] = DeviceUse(address, "spent")
        self.there = then

    def resolve(self, then: dict[str, Device], stored: set[str], cards: set[str]) -> bool:
        """Resolve one contradiction; return False if there is none."""
        for part in sorted(then.values(), key=lambda device: device.address):
            full = then.get(part.parent or "")
            is_new = part.address not in self.there and part.parent in cards
            if full is None or (full.type == "type-PF" and not is_new):
                continue
            if part.address not in stored:
                del then[part.address]
            elif full.address in self.there and self.there[full.address].type == "type-PF":
                then[full.address] = self.there[full.address]
            else:
                del then[full.address]
            return True
        return False

    # --- what may happen ---

    def claim(self, request: PCIAmount) -> object:
        expected = has_assignment(self.there.values(), self.uses.values(), request)
        try:
            assigned = self.inventory.consume(request)
        except CapacityException:
            assert not expected
            return multiple()
        assert expected
        for address in assigned.addresses:
            self.uses[address] = DeviceUse(address, "claimed")
        return assigned

    @rule(target=claims, request=pci_amounts(max_requests=2))
    def claim_any(self, request: PCIAmount) -> object:
        return self.claim(request)

    @rule(target=claims, kind=st.sampled_from(KINDS), count=st.integers(1, 2))
    def claim_some(self, kind: str, count: int) -> object:
        return self.claim(devices(kind, count))

    @rule(target=claims, kind=st.sampled_from(KINDS))
    def claim_a_whole_function(self, kind: str) -> object:
        return self.claim(devices(kind, types=["type-PF"]))

    @rule(target=allocations, assigned=consumes(claims))
    def allocate(self, assigned: PCIAmount) -> PCIAmount:
        put_in_state(self.inventory, assigned, "allocated")
        for address in assigned.addresses:
            self.uses[address] = self.uses[address].replace(state="allocated")
        return assigned

    def free(self, assigned: PCIAmount) -> None:
        self.inventory.consume(-assigned)
        for address in assigned.addresses:
            self.let_go(address)

    @rule(assigned=consumes(claims))
    def free_a_claim(self, assigned: PCIAmount) -> None:
        self.free(assigned)

    @rule(assigned=consumes(allocations))
    def free_an_allocation(self, assigned: PCIAmount) -> None:
        self.free(assigned)

    @rule(assigned=st.one_of(claims, allocations))
    def take_again(self, assigned: PCIAmount) -> None:
        """It is allocated; and the PF may have other VFs now."""
        with pytest.raises((CapacityException, ForeignAmount)):
            self.inventory.fit(assigned)

    @rule(chance=chances)
    def reset(self, chance: random.Random) -> None:
        if not self.there:
            return
        spent = [address for address, use in self.uses.items() if use.state == "spent"]
        spent = [address for address in spent if not self.there[address].withdrawn]
        if not spent:
            return
        address = chance.choice(sorted(spent))
        put_in_state(self.inventory, address, None)
        del self.uses[address]

    @rule(chance=chances, split=st.booleans())
    def rediscover(self, chance: random.Random, split: bool) -> None:
        """Some are gone, some are back, some are others; a PF may have lost its VFs."""
        now = {
            address: device.replace(traits={"CUSTOM_NEW"}, numa_node=chance.choice([None, 0, 1]))
            if chance.randrange(4) == 3
            else device
            for address, device in sorted(self.ever.items())
            if chance.randrange(4) != 3
        }
        now.update({a: self.there[a] for a in now if a in self.there and chance.randrange(2)})
        for address in [a for a, device in now.items() if device.parent is None]:
            parts = [a for a, device in now.items() if device.parent == address]
            is_plain = address in self.there and self.there[address].type == "type-PCI"
            can_wait = is_plain and self.is_held(address)
            if now[address].type == "type-PF" and (can_wait or (split and not chance.randrange(3))):
                now[address] = plainly(now[address])
            if now[address].type == "type-PCI":
                for part in parts:
                    del now[part]
        before = self.there
        values = self.inventory.rediscover(now.values())
        self.look(now)
        assert set(values.added) == self.there.keys() - before.keys()
        assert set(values.removed) == before.keys() - self.there.keys()

    # --- what is always so ---

    @invariant()
    def it_is_what_the_account_says(self) -> None:
        if not hasattr(self, "inventory"):
            return
        expected = states(self.there.values(), self.uses.values())
        assert self.inventory.states() == expected
        assert {device.address: device for device in self.inventory.devices} == self.there
        assert {use.address: use for use in self.inventory.usage} == self.uses
        assert self.inventory.free == list(expected.values()).count("available")

    @invariant()
    def it_is_as_one_made_anew(self) -> None:
        """The working form never differs from the fields."""
        if not hasattr(self, "inventory"):
            return
        anew = PCIInventory.obj_from_primitive(self.inventory.obj_to_primitive())
        assert anew == self.inventory and anew.states() == self.inventory.states()
        assert device_pools(anew) == device_pools(self.inventory)


Lives.TestCase.settings = settings(max_examples=examples(100), stateful_step_count=20)
TestLives = pytest.mark.law(1, 3, 4)(Lives.TestCase)
