"""Rules of devices: kept whole, a card or its functions, none twice."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor

import pytest

from resource_objects import exceptions
from resource_objects.exceptions import Rule
from resource_objects.ledger import Ledger
from resource_objects.ledger.retries import RetryPolicy
from resource_objects.providers import Backend, Provider
from resource_objects.providers.located import Located, LocatedViews, add_parts
from resource_objects.providers.orders import ClaimOrder, Delta, Replacement
from resource_objects.resources import Amount
from resource_objects.resources.pci import Device, PCIInventory, devices
from resource_objects.testing.conformance.base import (
    Kit,
    changes_to,
    define,
    kept,
    law,
    order,
    picture,
    release,
)
from resource_objects.testing.conformance.concurrency import together
from resource_objects.testing.conformance.workers import claim_devices, processes

DEVICES = "PCI_DEVICES"
#: The classes of the devices here: a card whole, a function split off one, a GPU.
CARD, FUNCTION, GPU = "CUSTOM_CARD", "SRIOV_NET_VF", "PGPU"
_WHOLE, _PARTS = "0000:01:00.0", tuple(f"0000:01:02.{number}" for number in range(3))
_SECOND = tuple(f"0000:02:02.{number}" for number in range(3))


def _card(bus: int) -> Iterator[Device]:
    whole = f"0000:{bus:02x}:00.0"
    yield Device(whole, "8086", "1572", "type-PF", resource_class=CARD, numa_node=bus)
    for number in range(3):
        yield Device(
            f"0000:{bus:02x}:02.{number}",
            "8086",
            "154c",
            "type-VF",
            resource_class=FUNCTION,
            parent=whole,
            numa_node=bus,
            tags={"physnet": "red"},
            facts={"mac_address": f"00:00:00:00:00:0{number}"},
        )


def _lab() -> PCIInventory:
    """Return two cards of three functions each, and a GPU that says all that can be said."""
    gpu = Device(
        "0000:03:00.0",
        "10de",
        "2330",
        resource_class=GPU,
        class_code="030200",
        traits=["CUSTOM_H100"],
        live_migratable=False,
        one_time_use=True,
    )
    return PCIInventory([*_card(1), *_card(2), gpu])


def _host() -> Provider:
    host = Provider("host0", "VCPU=8")
    add_parts(host, DEVICES, _lab())
    return host


def _define(backend: Backend) -> dict[str, str]:
    return define(backend, _host())


def _view(backend: Backend) -> Located:
    views = LocatedViews(backend.read("host0"))
    [root] = views.trees(DEVICES)
    located = views.of_tree(root, DEVICES)
    assert located is not None
    return located


def _take(backend: Backend, consumer: str, amount: Amount) -> Amount:
    """Take an amount where it fits; return it assigned."""
    located = _view(backend)
    assigned = located.fit(amount)
    order(backend, ClaimOrder(consumer, located.deltas(assigned)))
    return assigned


class DeviceRules(Kit):
    """What becomes of devices."""

    def test_devices_come_back_whole(self, backend: Backend) -> None:
        _define(backend)
        assert not changes_to(backend, _host())
        assert _view(backend).inventory == PCIInventory(_lab().devices, resource_class=DEVICES)
        gpu = next(one for one in kept(backend, "host0").children if one.name.endswith("03:00.0"))
        assert gpu.traits == {"CUSTOM_H100"}

    @law(1, 4)
    def test_a_card_that_is_taken_takes_its_functions(self, backend: Backend) -> None:
        names = _define(backend)
        _take(backend, "job", devices(CARD))
        found = picture(backend)
        where = f"host0/{_WHOLE}"
        assert [found.used(where, name) for name in (CARD, FUNCTION)] == [1, 3]
        assert set(found.units) == {(where, unit) for unit in (_WHOLE, *_PARTS)}
        for delta in (
            Delta(names[where], FUNCTION, 1, _PARTS[:1]),
            Delta(names[where], FUNCTION, 1),
            Delta(names[where], CARD, 1, (_WHOLE, *_PARTS)),
        ):
            with pytest.raises(exceptions.CapacityException):
                order(backend, ClaimOrder("more", (delta,)))
        assert picture(backend) == found

    @law(1, 4)
    def test_a_function_that_is_taken_keeps_its_card(self, backend: Backend) -> None:
        names = _define(backend)
        _take(backend, "job", devices(FUNCTION))
        where = f"host0/{_WHOLE}"
        before = picture(backend)
        for delta in (
            Delta(names[where], CARD, 1, (_WHOLE, *_PARTS)),
            Delta(names[where], CARD, 1),
        ):
            with pytest.raises(exceptions.CapacityException) as refused:
                order(backend, ClaimOrder("more", (delta,)))
            [reason] = [one for one in refused.value.reasons if one.rule is Rule.CAPACITY]
            assert (reason.resource, reason.requested, reason.free) == (FUNCTION, 3, 2)
        assert picture(backend) == before
        assert _take(backend, "other", devices(CARD)) is not None  # the other one

    @law(3)
    def test_what_is_given_back_can_be_had_whole_again(self, backend: Backend) -> None:
        _define(backend)
        before = picture(backend)
        _take(backend, "whole", devices(CARD, 2))
        release(backend, "whole")
        assert picture(backend).units == before.units == {}
        _take(backend, "parts", devices(FUNCTION, 6))
        with pytest.raises(exceptions.CapacityException):
            _view(backend).fit(devices(CARD))
        release(backend, "parts")
        _take(backend, "whole", devices(CARD, 2))

    @law(3, 5)
    def test_the_view_is_the_inventory_that_consumed_the_same(self, backend: Backend) -> None:
        _define(backend)
        model = _lab()
        model.update(resource_class=DEVICES)
        said = {}
        amounts = (
            devices(FUNCTION, 2) + devices(CARD),
            devices([FUNCTION, GPU], requester="either"),
            devices(GPU),
        )
        for number, asked in enumerate(amounts):
            said[f"job-{number}"] = assigned = _take(backend, f"job-{number}", asked)
            taken = model.consume(asked)
            assert taken == assigned
            model.allocate(taken)
            assert _view(backend).inventory == model
        for name, assigned in said.items():
            record = backend.held(name)
            assert record is not None
            assert _view(backend).placed(assigned.unassigned(), record.held) == assigned

    @law(2)
    def test_devices_change_hands_in_one_write(self, backend: Backend) -> None:
        _define(backend)
        located = _view(backend)
        first, second = (
            located.inventory.fit_within(devices(FUNCTION, 3), [number]) for number in (0, 1)
        )
        order(backend, ClaimOrder("a", located.deltas(first)))
        order(backend, ClaimOrder("b", located.deltas(second)))
        order(
            backend,
            Replacement("a", located.deltas(second)),
            Replacement("b", located.deltas(first)),
        )
        owners = {unit: who for (_, unit), (_, who) in picture(backend).units.items()}
        assert owners == {**dict.fromkeys(_SECOND, "a"), **dict.fromkeys(_PARTS, "b")}

    @law(2, 4)
    def test_a_card_and_a_function_change_places(self, backend: Backend) -> None:
        """What one gives back in a write, the other has in it, whole or in parts."""
        names = _define(backend)
        where = names[f"host0/{_WHOLE}"]
        whole = (Delta(where, CARD, 1, (_WHOLE, *_PARTS)),)
        part = (Delta(where, FUNCTION, 1, _PARTS[:1]),)
        order(backend, ClaimOrder("job", whole))
        order(backend, Replacement("job", part))
        assert picture(backend).used(f"host0/{_WHOLE}", FUNCTION) == 1
        order(backend, Replacement("job", whole))
        found = picture(backend)
        assert found.used(f"host0/{_WHOLE}", FUNCTION) == 3 and len(found.units) == 4

    @law(4)
    def test_threads_never_get_one_device_twice(self, backend: Backend) -> None:
        """All want the same functions first; each gets one, for there are enough."""
        _define(backend)
        ledger = Ledger(backend, retries=RetryPolicy(fits=200))
        asked = {"host0": {DEVICES: devices(FUNCTION)}}
        outcomes = together(lambda n: ledger.claim(f"job-{n}", asked), 6)
        assert [one for one in outcomes if isinstance(one, BaseException)] == []
        assert len(picture(backend).units) == 6
        with pytest.raises(exceptions.CapacityException):
            ledger.claim("more", asked)

    @law(4)
    def test_threads_get_a_card_or_its_functions(self, backend: Backend) -> None:
        """One wants it whole and others parts of it, at the same moment: never both."""
        _define(backend)
        ledger = Ledger(backend, retries=RetryPolicy(fits=200))

        def claim(number: int) -> object:
            kind = CARD if number % 2 else FUNCTION
            return ledger.claim(f"job-{number}", {"host0": {DEVICES: devices(kind)}})

        together(claim, 8)
        found = picture(backend)
        for bus in ("01", "02"):
            where = f"host0/0000:{bus}:00.0"
            whole, parts = found.used(where, CARD), found.used(where, FUNCTION)
            assert parts == 3 if whole else parts <= 3
            assert len([unit for at, unit in found.units if at == where]) == parts + whole

    @law(4)
    def test_processes_never_get_one_device_twice(self, backend: Backend, url: str) -> None:
        self.need("multi_process")
        _define(backend)
        with ProcessPoolExecutor(3, mp_context=processes()) as pool:
            futures: list[Future[dict[str, list[str]]]] = [
                pool.submit(claim_devices, self.backend_class, url, "host0", f"w{n}", 12)
                for n in range(3)
            ]
            told = {name: had for one in futures for name, had in one.result().items()}
        held: dict[str, list[str]] = {}
        for (_, unit), (_, consumer) in sorted(picture(backend).units.items()):
            held.setdefault(consumer, []).append(unit)
        assert held == {name: sorted(had) for name, had in told.items()}
