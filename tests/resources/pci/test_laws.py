"""The laws, for devices: as properties of any devices and any request."""

from __future__ import annotations

import contextlib
import copy
import random
from collections.abc import Iterator

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from resource_objects import exceptions
from resource_objects.exceptions import CapacityException, InvalidInput, SearchLimitReached
from resource_objects.interop.nova.pci_devices import device_pools
from resource_objects.reasons import Reason, Rule
from resource_objects.resources.context import CellMap, ChosenCells, Context
from resource_objects.resources.pci import (
    Device,
    DeviceRequest,
    DeviceSpec,
    DeviceUse,
    PCIAmount,
    PCIInventory,
    devices,
)
from tests.resources.pci.hosts import host, how, nic, rarely_fits, refused
from tests.support.lengths import examples
from tests.support.pci_devices import put_in_state
from tests.support.pci_reference import faults
from tests.support.pci_reference import states as pci_reference_states
from tests.support.pci_strategies import (
    PCIQuestion,
    pci_amounts,
    pci_questions,
    pci_usages,
    question_of,
)


def fitted(question: PCIQuestion, inventory: PCIInventory) -> PCIAmount:
    """Return the assigned amount; a question that is refused proves nothing here."""
    try:
        return inventory.fit(question.amount, **how(question))
    except CapacityException:
        assume(False)
        raise


def allocated_devices(inventory: PCIInventory) -> dict[str, str]:
    """Return the consumers by address."""
    return {use.address: use.state for use in inventory.usage}


@pytest.mark.law(1)
@rarely_fits
@given(pci_questions())
def test_taken_is_what_was_taken_and_what_is_named(question: PCIQuestion) -> None:
    inventory = question.inventory()
    before = allocated_devices(inventory)
    assigned = fitted(question, inventory)
    assert inventory.consume(question.amount, **how(question)) == assigned
    assert allocated_devices(inventory) == before | dict.fromkeys(assigned.addresses, "claimed")
    assert not before.keys() & set(assigned.addresses)
    assert inventory.states() == pci_reference_states(inventory.devices, inventory.usage)


@pytest.mark.law(1)
@rarely_fits
@given(pci_questions())
def test_every_device_is_free_taken_or_excluded_and_counted_once(question: PCIQuestion) -> None:
    inventory = question.inventory()
    inventory.consume(fitted(question, inventory))
    states = inventory.states()
    assert inventory.free == sum(pool.count for pool in device_pools(inventory))
    assert inventory.free == list(states.values()).count("available")
    assert states.keys() == {device.address for device in inventory.devices}
    nodes = [d.numa_node for d in inventory.devices if states[d.address] == "available"]
    expected = {node: nodes.count(node) for node in nodes if node is not None}
    assert dict(inventory.device_counts()) == expected


@pytest.mark.law(2)
@given(pci_questions())
def test_a_refusal_changes_nothing(question: PCIQuestion) -> None:
    inventory = question.inventory()
    before, pools = copy.deepcopy(inventory), device_pools(inventory)
    try:
        inventory.consume(question.amount, **how(question))
    except CapacityException:
        assert inventory == before and device_pools(inventory) == pools
    else:
        assert inventory != before


@pytest.mark.law(2)
@rarely_fits
@given(pci_questions(), st.data())
def test_of_what_is_assigned_one_device_that_is_taken_refuses_all(
    question: PCIQuestion, data: st.DataObject
) -> None:
    inventory = question.inventory()
    assigned = fitted(question, inventory)
    mine = [unit for placed in assigned.placed for unit in placed.units]
    lost = data.draw(st.sampled_from(mine))
    inventory.update(usage=[*inventory.usage, DeviceUse(lost, "claimed")])
    reasons = refused(inventory, assigned, **how(question))
    assert {reason.rule for reason in reasons} == {Rule.UNIT_TAKEN}
    (owner,) = (placed.address for placed in assigned.placed if lost in placed.units)
    assert owner in [reason.unit for reason in reasons]


def is_for_one_use(inventory: PCIInventory, assigned: PCIAmount) -> bool:
    """Return True if the release spends some of the assigned devices."""
    return any(inventory.device(address).one_time_use for address in assigned.addresses)


@pytest.mark.law(3)
@rarely_fits
@given(pci_questions(), st.booleans())
def test_releasing_what_was_taken_restores_the_inventory(
    question: PCIQuestion, is_allocated: bool
) -> None:
    inventory = question.inventory()
    before = copy.deepcopy(inventory)
    assigned = fitted(question, inventory)
    assume(not is_for_one_use(inventory, assigned))
    inventory.consume(assigned)
    if is_allocated:
        put_in_state(inventory, assigned, "allocated")
    back = inventory.consume(-assigned)
    assert back == -assigned and -back == assigned
    assert inventory == before and inventory.states() == before.states()
    assert inventory.fit(question.amount, **how(question)) == assigned


@pytest.mark.law(3)
@rarely_fits
@given(pci_questions())
def test_what_is_for_one_use_is_spent_until_it_is_reset(question: PCIQuestion) -> None:
    """The named exception: nothing else changes."""
    existing = [device.replace(one_time_use=not device.is_part) for device in question.devices]
    inventory = PCIInventory(existing, usage=question.usage)
    before = copy.deepcopy(inventory)
    assigned = fitted(question, inventory)
    once = [a for a in assigned.addresses if inventory.device(a).one_time_use]
    inventory.consume(assigned)
    inventory.consume(-assigned)
    assert allocated_devices(inventory) == allocated_devices(before) | dict.fromkeys(once, "spent")
    assert inventory.can_provide(assigned) is not bool(once)
    for address in once:
        put_in_state(inventory, address, None)
    assert inventory == before and inventory.states() == before.states()


@pytest.mark.law(3)
@rarely_fits
@given(pci_questions())
def test_what_was_released_cannot_be_released_again(question: PCIQuestion) -> None:
    inventory = question.inventory()
    assigned = inventory.consume(fitted(question, inventory))
    inventory.consume(-assigned)
    reasons = refused(inventory, -assigned)
    assert {reason.rule for reason in reasons} == {Rule.USED_BELOW_ZERO}
    assert {reason.unit for reason in reasons} == set(assigned.addresses)


@pytest.mark.law(4)
@given(pci_usages(), st.lists(pci_amounts(max_requests=2), max_size=6))
def test_no_device_is_given_twice(
    given_both: tuple[tuple[Device, ...], tuple[DeviceUse, ...]], amounts: list[PCIAmount]
) -> None:
    inventory = PCIInventory(given_both[0], usage=given_both[1])
    taken = [unit for use in given_both[1] for unit in _all_of(inventory, use)]
    for amount in amounts:
        with contextlib.suppress(CapacityException):
            assigned = inventory.consume(amount)
            taken += [unit for placed in assigned.placed for unit in placed.units]
    assert len(set(taken)) == len(taken), "a device is given twice, or with what excludes it"


def _all_of(inventory: PCIInventory, use: DeviceUse) -> Iterator[str]:
    """Yield the devices that are not available while a device is allocated."""
    yield use.address
    if use.state != "unavailable":
        yield from (d.address for d in inventory.devices if d.parent == use.address)


@pytest.mark.law(5)
@given(pci_questions())
def test_asking_fitting_and_taking_are_one_decision(question: PCIQuestion) -> None:
    inventory, amount, place = question.inventory(), question.amount, how(question)
    before, request = copy.deepcopy(inventory), copy.deepcopy(amount)
    try:
        assigned = inventory.fit(amount, **place)
    except CapacityException:
        refused(inventory, amount, **place)
        assert place or not inventory.can_provide(amount)
    else:
        assert place or inventory.can_provide(amount)
        assert (inventory, amount) == (before, request), "asking changes nothing"
        assert inventory.fit(assigned, **place) == assigned
        assert inventory.consume(amount, **place) == assigned


@pytest.mark.law(5)
@rarely_fits
@given(pci_questions(), st.lists(pci_amounts(max_requests=1), max_size=3))
def test_what_is_assigned_is_judged_by_the_same_rules_later(
    question: PCIQuestion, other_items: list[PCIAmount]
) -> None:
    """Another consumer came first: the decision still fits, or is refused."""
    inventory, place = question.inventory(), how(question)
    assigned = fitted(question, inventory)
    for other in other_items:
        with contextlib.suppress(CapacityException):
            inventory.consume(other)
    wrong = faults(inventory.devices, inventory.usage, assigned, question.chosen, question.sockets)
    try:
        result = inventory.fit(assigned, **place)
    except CapacityException as refusal:
        assert wrong and {reason.rule for reason in refusal.reasons} == {Rule.UNIT_TAKEN}
    else:
        assert not wrong and result == assigned


@pytest.mark.law(6)
@rarely_fits
@given(pci_questions())
def test_whatever_fits_can_be_taken_as_it_is(question: PCIQuestion) -> None:
    inventory = question.inventory()
    assigned = fitted(question, inventory)
    existing, usage, _, chosen, sockets = question
    assert faults(existing, usage, assigned, chosen, sockets) == []
    assert inventory.consume(assigned, **how(question)) == assigned
    assert assigned.addresses == tuple(
        address for number in range(len(assigned.requests)) for address in assigned.of(number)
    )


@pytest.mark.law(6)
@rarely_fits
@given(pci_questions())
def test_every_refusal_says_which_rule_failed_with_its_figures(question: PCIQuestion) -> None:
    try:
        question.inventory().fit(question.amount, **how(question))
    except CapacityException as refusal:
        assert refusal.reasons and str(refusal)
        for reason in refusal.reasons:
            assert "None" not in str(reason)
            assert reason.requested > reason.free >= 0 and reason.resource
            assert reason.to_dict()["text"] == str(reason)
        rules = {reason.rule for reason in refusal.reasons}
        assert rules <= {Rule.NO_INVENTORY, Rule.CAPACITY, Rule.AFFINITY, Rule.AT_ONCE}
        assert rules == {Rule.AT_ONCE} or Rule.AT_ONCE not in rules
    else:
        assume(False)


@pytest.mark.law(6)
@rarely_fits
@given(pci_questions(max_requests=3))
def test_a_request_that_cannot_be_met_alone_is_refused_for_itself(question: PCIQuestion) -> None:
    """Each request that fails individually has a reason, equal ones share it, others have none."""
    amount = question.amount
    assume(not any(request.providers for request in amount.requests))
    inventory = question.inventory()

    def reasons(requested: PCIAmount) -> tuple[Reason, ...]:
        try:
            inventory.fit(requested, **how(question))
        except CapacityException as refusal:
            return refusal.reasons
        return ()

    amounts = [PCIAmount([request]) for request in amount.requests]
    single = dict.fromkeys(reason for individual in amounts for reason in reasons(individual))
    assume(single)
    expected = [(r.rule, r.requested) for r in single if r.rule is not Rule.AT_ONCE]
    expected = expected or [(Rule.AT_ONCE, amount.count)]
    assert [(reason.rule, reason.requested) for reason in reasons(amount)] == expected


@pytest.mark.law(7)
@rarely_fits
@given(pci_questions())
def test_no_figure_is_anything_but_an_integer(question: PCIQuestion) -> None:
    inventory = question.inventory()
    assigned = fitted(question, inventory)
    inventory.consume(assigned)

    def check(value: object) -> None:
        assert not isinstance(value, float)
        if isinstance(value, dict):
            value = [*value, *value.values()]
        if isinstance(value, list | tuple):
            for item in value:
                check(item)

    for entry in (inventory, assigned, *device_pools(inventory)):
        check(entry.obj_to_primitive())


@pytest.mark.law(8)
@given(
    st.sampled_from(["type-PCI", "type-PF", "type-VF", "vdpa", "type-XF", None, 3]),
    st.sampled_from([None, "0000:3b:00.0", "0000:01:00.0", "3b:00.0", 7]),
    st.booleans(),
    st.sampled_from([None, 0, -1, 65535, 65536, True, "0"]),
)
def test_a_device_that_exists_is_valid(
    kind: object, parent: object, one_time_use: bool, node: object
) -> None:
    try:
        device = Device(
            "0000:01:00.0",
            "10de",
            "2330",
            kind,  # type: ignore[arg-type]
            parent=parent,  # type: ignore[arg-type]
            one_time_use=one_time_use,
            numa_node=node,  # type: ignore[arg-type]
        )
    except InvalidInput as error:
        assert error.what and error.expected
        return
    assert device.type in ("type-PCI", "type-PF", "type-VF", "vdpa")
    assert device.is_part is (device.parent is not None) and device.parent != device.address
    assert not (device.is_part and device.one_time_use)
    assert device.numa_node is None or 0 <= device.numa_node <= 65535


@pytest.mark.law(9)
@given(pci_questions(), st.randoms(use_true_random=False))
def test_the_answer_is_the_same_however_devices_are_listed(
    question: PCIQuestion, chance: random.Random
) -> None:
    existing, usage = list(question.devices), list(question.usage)
    chance.shuffle(existing)
    chance.shuffle(usage)
    shuffled = PCIInventory(existing, usage=usage)
    cells = CellMap(dict(sorted(question.sockets.items(), reverse=True)), {})
    chosen = ChosenCells(cells, [*(question.chosen or ())][::-1])
    place = {"context": Context(chosen=chosen)} if question.chosen is not None else {}
    answers = []
    for inventory, given_how in [
        (question.inventory(), how(question)),
        (copy.deepcopy(question.inventory()), how(question)),
        (shuffled, place),
    ]:
        try:
            answers.append(inventory.fit(question.amount, **given_how))
        except CapacityException as refusal:
            answers.append(refusal.reasons)  # type: ignore[arg-type]
    assert answers[0] == answers[1] == answers[2]


@pytest.mark.law(9)
@given(pci_questions(), st.randoms(use_true_random=False))
def test_whether_it_fits_does_not_depend_on_the_order_of_requests(
    question: PCIQuestion, chance: random.Random
) -> None:
    inventory, requests = question.inventory(), list(question.amount.requests)
    chance.shuffle(requests)
    answers = []
    for amount in (question.amount, PCIAmount(requests)):
        try:
            answers.append(inventory.fit(amount, **how(question)).is_assigned)
        except CapacityException:
            answers.append(False)
    assert answers[0] is answers[1]


@pytest.mark.law(9)
@settings(max_examples=examples(50))
@given(st.integers(0, 10**6))
def test_what_was_decided_before_does_not_change_what_is_decided(seed: int) -> None:
    """An inventory caches the devices of requests, never the answer."""
    question = question_of(seed)
    used, fresh = question.inventory(), question.inventory()
    for other in range(seed, seed + 5):
        with contextlib.suppress(CapacityException):
            taken = used.consume(question_of(other).amount)
            used.consume(-taken)
    for address, state in used.states().items():
        if state == "spent" and fresh.state(address) != "spent":
            put_in_state(used, address, None)
    assert used == fresh
    answers = []
    for inventory in (used, fresh):
        try:
            answers.append(inventory.fit(question.amount, **how(question)))
        except CapacityException as refusal:
            answers.append(refusal.reasons)  # type: ignore[arg-type]
    assert answers[0] == answers[1]


@pytest.mark.law(9)
def test_a_search_that_would_take_too_long_is_cut_short_and_is_reported() -> None:
    """Which NICs are broken is a cover: thirty kinds of VFs, of at most ten of 64 NICs."""
    chance = random.Random(0)
    kinds = [f"CUSTOM_{number}" for number in range(30)]
    existing = [
        device.replace(traits=several)
        for bus in range(1, 65)
        for several in [chance.sample(kinds, 3)]
        for device in nic(3, bus=bus)
    ]
    parts = [DeviceRequest([DeviceSpec(types=["type-VF"], traits=[kind])]) for kind in kinds]
    request = devices(DeviceSpec(types=["type-PF"]), 54)
    with pytest.raises(SearchLimitReached, match="neither yes nor no"):
        host(existing).fit(PCIAmount(parts) + request)
    few = devices(DeviceSpec(types=["type-PF"]), 30)
    assert host(existing).fit(PCIAmount(parts) + few).is_assigned


@pytest.mark.law(9)
@pytest.mark.parametrize("count", [8, 64])
def test_functions_that_are_alike_stand_for_each_other(count: int) -> None:
    """PFs and VFs of equal NICs: as many ways as counts, not as subsets."""
    inventory = host(*(nic(2, bus=bus) for bus in range(1, count + 1)))
    request = devices("8086:1572", count // 2, types=["type-PF"])
    parts = devices("8086:154c", count, types=["type-VF"])
    assert inventory.can_provide(request + parts)
    one_more = devices("8086:154c", count + 1, types=["type-VF"])
    (reason,) = refused(inventory, request + one_more)
    assert (reason.rule, reason.requested) == (Rule.AT_ONCE, count + count // 2 + 1)


def test_a_refusal_is_a_refusal_of_capacity() -> None:
    with pytest.raises(exceptions.CapacityException):
        host().fit(devices("PGPU"))
