"""The decision against a naive matcher that tries everything: both accept the same amounts.

The matcher is checked by hand on a few cases first: an oracle with the same error would prove
nothing.
"""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings

from resource_objects.exceptions import CapacityException
from resource_objects.reasons import Reason, Rule
from resource_objects.resources.pci import (
    Device,
    DeviceRequest,
    DeviceSpec,
    DeviceUse,
    PCIAmount,
    PlacedDevice,
    devices,
)
from tests.resources.pci.hosts import PF, VFS, gpu, host, how, nic, used
from tests.support.lengths import examples, some
from tests.support.pci_reference import assignments, faults, has_assignment, is_near, matches
from tests.support.pci_reference import most as pci_reference_most
from tests.support.pci_reference import states as pci_reference_states
from tests.support.pci_strategies import PCIQuestion, pci_questions, question_of

#: Questions made from seeds, in lots that each are a test.
LOTS, LOT = 10, 500


def naive(question: PCIQuestion) -> bool:
    """Return the answer of the matcher."""
    existing, usage, amount, chosen, sockets = question
    return has_assignment(existing, usage, amount, chosen, sockets)


def judge(question: PCIQuestion) -> CapacityException | None:
    """Return the refusal; the decision and the matcher agree, and what is assigned is right."""
    existing, usage, amount, chosen, sockets = question
    try:
        assigned = question.inventory().fit(amount, **how(question))
    except CapacityException as refusal:
        assert not naive(question), question
        return refusal
    assert faults(existing, usage, assigned, chosen, sockets) == [], question
    assert naive(question), question
    assert assigned.unassigned() == amount
    return None


# --- the matcher itself ---------------------------------------------------------------------------

NIC = nic(2, numa_node=0)
GPUS = [gpu(0, numa_node=0), gpu(1, numa_node=1), gpu(2)]
ANY_PF = devices("8086:*", types=["type-PF"])
ANY_VF = devices("8086:154c")


@pytest.mark.parametrize(
    ("existing", "usage", "requested", "chosen", "expected"),
    [
        pytest.param(GPUS, [], devices("PGPU", 3), None, True, id="all there are"),
        pytest.param(GPUS, [], devices("PGPU", 4), None, False, id="one more"),
        pytest.param(GPUS, [], devices("10de:*"), None, True, id="by vendor"),
        pytest.param(GPUS, [], devices("VGPU"), None, False, id="another class"),
        pytest.param(
            GPUS, [], devices("PGPU", 2, affinity="required"), [1], False, id="too far away"
        ),
        pytest.param(GPUS, [], devices("PGPU", 2), [1], True, id="nobody knows where one is"),
        pytest.param(NIC, [], ANY_VF + ANY_VF, None, True, id="both VFs"),
        pytest.param(NIC, [], ANY_VF + ANY_PF, None, False, id="a PF and a VF of it"),
        pytest.param([*NIC, *nic(1, bus=0x5E)], [], ANY_VF + ANY_PF, None, True, id="two PFs"),
        pytest.param(NIC, used(vf1="claimed"), ANY_PF, None, False, id="a VF is taken"),
        pytest.param(NIC, used(vf1="claimed"), ANY_VF, None, True, id="the other VF"),
        pytest.param(NIC, used(pf="spent"), ANY_VF, None, False, id="the PF is spent"),
        pytest.param(
            NIC, used(pf="unavailable"), ANY_VF, None, True, id="the PF is used up by others"
        ),
        pytest.param(
            GPUS,
            [],
            devices("10de:*", 2) + devices("PGPU", address="0000:01:00.0"),
            None,
            True,
            id="who asks for anything gives way",
        ),
    ],
)
def test_the_matcher_says_what_a_person_says(
    existing: list[Device],
    usage: list[DeviceUse],
    requested: PCIAmount,
    chosen: list[int] | None,
    expected: bool,
) -> None:
    sockets: dict[int, int | None] = {0: 0, 1: 1}
    question = PCIQuestion(
        tuple(existing), tuple(usage), requested, None if chosen is None else tuple(chosen), sockets
    )
    assert naive(question) is expected
    assert (judge(question) is None) is expected
    most = pci_reference_most(existing, usage, requested, chosen, sockets)
    assert (most == requested.count) is expected


def test_the_matcher_lists_every_way() -> None:
    result = list(assignments(GPUS, [], devices("PGPU", 2) + devices("PGPU")))
    first, second, third = (device.address for device in GPUS)
    assert result == [
        (frozenset({first, second}), frozenset({third})),
        (frozenset({first, third}), frozenset({second})),
        (frozenset({second, third}), frozenset({first})),
    ]
    assert list(assignments(NIC, [], ANY_PF + ANY_PF)) == []


VF_CLASS, PF_CLASS = "CUSTOM_PCI_8086_154C", "CUSTOM_PCI_8086_1572"


def judged(
    *placed: PlacedDevice, request: PCIAmount | None = None, chosen: tuple[int, ...] | None = None
) -> list[str]:
    """Return the faults of devices of the NIC, whose last VF is taken."""
    amount = request or PCIAmount([DeviceRequest([DeviceSpec(vendor_id="8086")], len(placed))])
    usage = used(vf1="allocated")
    return faults(NIC, usage, amount.replace(placed=placed), chosen, {0: 0, 1: 1})


FREE_VF = PlacedDevice(0, VFS[0], VF_CLASS, numa_node=0)


@pytest.mark.parametrize(
    ("result", "fault"),
    [
        pytest.param(judged(FREE_VF), None, id="right"),
        pytest.param(judged(FREE_VF, chosen=(0,)), None, id="near"),
        pytest.param(judged(FREE_VF, chosen=(1,)), "node 0 is not near (1,) (legacy)", id="far"),
        pytest.param(
            judged(PlacedDevice(0, VFS[2], VF_CLASS, numa_node=0)), "no devices", id="not there"
        ),
        pytest.param(
            judged(PlacedDevice(0, VFS[1], VF_CLASS, numa_node=0)), "is not free", id="taken"
        ),
        pytest.param(
            judged(PlacedDevice(0, PF, PF_CLASS, numa_node=0, parts=VFS[:2]), request=ANY_PF),
            f"{PF}: is not free",
            id="a VF of it is taken",
        ),
        pytest.param(
            judged(PlacedDevice(0, PF, PF_CLASS, numa_node=0, parts=VFS[:1]), request=ANY_PF),
            "parts",
            id="a part is left out",
        ),
        pytest.param(judged(FREE_VF, request=ANY_PF), "no kind that was asked for", id="kind"),
        pytest.param(
            judged(PlacedDevice(0, VFS[0], "PGPU", numa_node=0)), "said to be", id="class"
        ),
        pytest.param(judged(PlacedDevice(0, VFS[0], VF_CLASS)), "said to be", id="node"),
        pytest.param(
            judged(
                PlacedDevice(0, PF, PF_CLASS, numa_node=0),
                FREE_VF.replace(request=1),
                request=ANY_PF + ANY_VF,
            ),
            "is taken, and what it excludes too",
            id="a PF and its VF",
        ),
        pytest.param(
            judged(
                FREE_VF,
                request=PCIAmount(
                    [DeviceRequest([DeviceSpec(vendor_id="8086")], providers=["elsewhere"])]
                ),
            ),
            "not of ('elsewhere',)",
            id="provider",
        ),
    ],
)
def test_the_matcher_finds_what_is_wrong_with_an_assignment(
    result: list[str], fault: str | None
) -> None:
    assert (fault is None and not result) or any(
        fault is not None and fault in item for item in result
    )


# --- the decision against it ----------------------------------------------------------------------


@pytest.mark.law(5, 6)
@pytest.mark.parametrize("lot", some(range(LOTS), LOTS // 4))
def test_the_decision_agrees_with_the_matcher(lot: int) -> None:
    refusals = [judge(question_of(seed)) for seed in range(lot * LOT, (lot + 1) * LOT)]
    assert 0.3 < refusals.count(None) / LOT < 0.7, "too easy or too hard to tell much"
    rules = Counter(
        reason.rule for refusal in refusals if refusal is not None for reason in refusal.reasons
    )
    assert rules.keys() == {Rule.NO_INVENTORY, Rule.CAPACITY, Rule.AFFINITY, Rule.AT_ONCE}


@pytest.mark.law(5, 6)
@settings(max_examples=examples(300))
@given(pci_questions())
def test_the_decision_agrees_with_the_matcher_on_small_examples(question: PCIQuestion) -> None:
    judge(question)


@pytest.mark.law(5)
@pytest.mark.parametrize("lot", some(range(2)))
def test_within_some_devices_it_agrees_with_the_matcher(lot: int) -> None:
    """Devices that may not be used still exclude: a PF excludes its VFs."""
    for seed in range(lot * LOT, (lot + 1) * LOT):
        question = question_of(seed)
        inventory = question.inventory()
        allowed = inventory.part_ids()[seed % 3 :]
        parts = [inventory.parts()[place].inventory for place in allowed]
        within = {device.address for part in parts for device in part.devices}
        options = assignments(*question)
        expected = any(frozenset().union(*option) <= within for option in options)
        try:
            assigned = inventory.fit(question.amount, **how(question, allowed=allowed))
        except CapacityException:
            assert not expected, seed
        else:
            assert expected, seed
            assert set(assigned.addresses) <= within


# --- refusals -------------------------------------------------------------------------------------


def about(question: PCIQuestion, reason: Reason) -> list[PCIAmount]:
    """Return the requests that a reason may be about, individually."""
    all_items = [PCIAmount([request]) for request in question.amount.requests]
    return [
        item for item in all_items if item.requests[0].resource_class in (reason.resource, None)
    ]


def bound_of(question: PCIQuestion, requested: PCIAmount, rule: Rule) -> tuple[int, int]:
    """Return the compared figures of a request: all devices of it, and the used ones.

    A spent device, or one that a spent device excludes, is available to no consumer.
    """
    (request,) = requested.requests
    spent = [use for use in question.usage if use.state == "spent"]
    existing = pci_reference_states(question.devices, spent)
    all_items = [
        device
        for device in question.devices
        if matches(request, device) and existing[device.address] == "available"
    ]
    states = pci_reference_states(question.devices, question.usage)
    free = [device for device in all_items if states[device.address] == "available"]
    if rule is Rule.CAPACITY:
        return len(all_items), len(all_items) - len(free)
    near = [
        device
        for device in free
        if is_near(request.affinity, device.numa_node, question.chosen, question.sockets)
    ]
    return (len(near), 0) if rule is Rule.AFFINITY else (0, 0)


@pytest.mark.law(6)
@pytest.mark.parametrize("lot", some(range(4)))
def test_every_refusal_says_how_many_there_are_of_what_was_requested(lot: int) -> None:
    """Which request, how many, and what there is: counted again, naively."""
    seen: Counter[Rule] = Counter()
    for seed in range(lot * LOT, (lot + 1) * LOT):
        question = question_of(seed)
        refusal = judge(question)
        for reason in () if refusal is None else refusal.reasons:
            seen[reason.rule] += 1
            assert "None" not in str(reason), reason
            assert reason.resource and reason.requested > reason.free >= 0, seed
            if reason.rule is Rule.AT_ONCE:
                assert reason.requested == question.amount.count, seed
                assert reason.bound >= pci_reference_most(*question), seed
                continue
            if any(request.providers for request in question.amount.requests):
                continue
            named = about(question, reason)
            figures = [(item.count, *bound_of(question, item, reason.rule)) for item in named]
            assert (reason.requested, reason.bound, reason.used) in figures, seed
    assert len(seen) == 4, "every rule was seen"


@pytest.mark.law(6)
def test_a_refusal_of_all_at_once_says_how_many_can_be_had() -> None:
    inventory = host(nic(2), nic(2, bus=0x5E))
    request = devices("8086:154c", 3) + devices("8086:1572", types=["type-PF"])
    with pytest.raises(CapacityException) as refusal:
        inventory.fit(request)
    (reason,) = refusal.value.reasons
    assert pci_reference_most(inventory.devices, (), request) == 3
    assert (reason.rule, reason.requested, reason.bound) == (Rule.AT_ONCE, 4, 3)
    assert str(reason) == "DEVICES requested 4 devices, at most 3 fit at once"
