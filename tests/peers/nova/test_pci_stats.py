"""Devices had by requests: nova's statistics and ours, over thousands of seeded random hosts.

What nova says is held to the rules with all deviations of :mod:`~tests.peers.nova.pci_rules`, what
we say to the rules without; so every difference has a name, and how often each is met is counted.
Each has its smallest case here.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterator

import pytest

from resource_objects.exceptions import CapacityException
from resource_objects.interop.nova import parse_device_spec
from resource_objects.reasons import Rule
from resource_objects.resources.pci import Device, DeviceRequest, DeviceSpec
from tests.peers.nova import pci_differences
from tests.peers.nova.pci_chances import case as case_of
from tests.peers.nova.pci_deviations import HOST, OURS, SCHEDULER, Deviation
from tests.peers.nova.pci_rules import answer, consumed, told_by
from tests.peers.nova.pci_sides import (
    CONF,
    ERROR,
    NO,
    YES,
    Case,
    devspec,
    exception,
    nova_mapping,
)

pytestmark = pytest.mark.filterwarnings("ignore")

CASES = range(pci_differences.CASES)


@pytest.fixture(scope="module", autouse=True)
def ready() -> Iterator[None]:
    """Let nova read no configuration file, and not say what it drops."""
    CONF([], project="nova", default_config_files=[])
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


# --- random hosts ---------------------------------------------------------------------------------


def test_what_we_say_is_told_by_the_rules_without_a_deviation() -> None:
    for number in CASES:
        case = case_of(number)
        assert case.ours() == answer(case, OURS), number


def test_what_novas_scheduler_says_is_told_by_deviations_that_have_names() -> None:
    """``support_requests``, from pools and from devices."""
    counts: Counter[str] = Counter()
    for number in CASES:
        case = case_of(number)
        ours, theirs = case.ours(), case.nova_supports(case.nova_scheduler())
        assert theirs == answer(case, SCHEDULER), number
        assert theirs == case.nova_supports(case.nova_host()), number
        if ours != theirs:
            counts.update(one.name for one in told_by(case, SCHEDULER))
    assert counts == pci_differences.SCHEDULER


def test_what_novas_host_says_is_told_by_deviations_that_have_names() -> None:
    """``consume_requests``: the answer, the devices, and what is left in the pools."""
    counts: Counter[str] = Counter()
    for number in CASES:
        case = case_of(number)
        ours, theirs = case.ours(), case.nova_consumes()
        assert theirs == consumed(case, HOST), number
        if ours != theirs.said:
            counts.update(one.name for one in told_by(case, HOST))
        if theirs.said != YES and theirs.free != {device.address for device in case.devices}:
            counts["LEAKED"] += 1
    assert counts == pci_differences.HOST


def test_what_nova_takes_we_can_take_and_the_same_is_left() -> None:
    """All but devices that a request does not ask for, by our rules, or too few of them."""
    compared = 0
    for number in CASES:
        case = case_of(number)
        theirs = case.nova_consumes()
        if theirs.said != YES:
            continue
        known = {device.address: device for device in case.devices}
        taken = Counter(place for place, _ in theirs.taken)
        is_asked = all(
            case.requests[place].matches(known[address]) for place, address in theirs.taken
        ) and taken == dict(enumerate(request.count for request in case.requests))
        if is_asked:
            compared += 1
            inventory = case.inventory()
            inventory.consume(case.assigned(theirs.taken), **case.where)
            states = inventory.states().items()
            assert {address for address, state in states if state == "available"} == theirs.free
    assert compared > len(CASES) // 4


def test_what_cannot_be_had_changes_nothing_of_ours() -> None:
    for number in CASES:
        case = case_of(number)
        inventory = case.inventory()
        try:
            inventory.consume(case.amount(), **case.where)
        except CapacityException:
            assert inventory == case.inventory(), number


def test_what_cannot_be_had_is_applied_by_half_to_novas_pools() -> None:
    """f.1 #11: ``apply_requests`` raises, and what came before stays."""
    halves = 0
    for number in CASES:
        case = case_of(number)
        theirs = case.nova_scheduler()
        before = {id(pool): pool["count"] for pool in theirs.pools}
        try:
            theirs.apply_requests(
                case.nova_requests(), nova_mapping(case.requests), case.nova_cells()
            )
        except exception.PciDeviceRequestFailed:
            halves += before != {id(pool): pool["count"] for pool in theirs.pools}
    assert halves == pci_differences.HALVES


# --- the smallest case of each difference ---------------------------------------------------------

GPU, OTHER = ("10de", "1db4"), ("10de", "0443")
PF, VF = DeviceSpec(types=["type-PF"]), DeviceSpec(types=["type-VF"])
ANY = DeviceSpec(vendor_id="10de")
HERE = {"rp_uuid": "here"}


def device(number: int, ids: tuple[str, str] = GPU, **words: object) -> Device:
    """Return a plain device."""
    return Device(f"0000:{number:02x}:00.0", *ids, **words)  # type: ignore[arg-type]


def nic(parts: int, bus: str = "3b", **words: object) -> tuple[Device, ...]:
    """Return a physical function and so many parts of it."""
    whole = Device(f"0000:{bus}:00.0", "8086", "1572", "type-PF", **words)  # type: ignore[arg-type]
    return (
        whole,
        *(
            Device(
                f"0000:{bus}:02.{number}",
                "8086",
                "154c",
                "type-VF",
                parent=whole.address,
                **words,  # type: ignore[arg-type]
            )
            for number in range(parts)
        ),
    )


def ask(*specs: DeviceSpec, count: int = 1, **words: object) -> DeviceRequest:
    return DeviceRequest(specs, count, **words)  # type: ignore[arg-type]


#: The case, which of nova's sides it is about, and what that says.
SMALLEST: dict[Deviation, tuple[Case, frozenset[Deviation], str]] = {
    Deviation.IN_ORDER: (
        Case(
            (device(1, OTHER), device(2)),
            (ask(ANY), ask(DeviceSpec(vendor_id="10de", product_id="0443"))),
        ),
        SCHEDULER,
        NO,
    ),
    Deviation.EXCLUSION_UNKNOWN: (Case(nic(1), (ask(PF), ask(VF))), SCHEDULER, YES),
    Deviation.EXCLUDED_COUNT: (Case(nic(1), (ask(PF, VF, count=2),)), HOST, ERROR),
    Deviation.NEAR_ALONE: (
        Case(
            (device(1, numa_node=0), device(2)),
            (ask(ANY), ask(ANY, affinity="required")),
            chosen=(0,),
            sockets={0: 0},
        ),
        SCHEDULER,
        NO,
    ),
    Deviation.NEAR_TOO_EARLY: (
        Case(
            (*nic(0, numa_node=0), device(2, ("8086", "0443"))),
            (ask(DeviceSpec(vendor_id="8086")),),
            chosen=(0,),
            sockets={0: 0},
        ),
        SCHEDULER,
        NO,
    ),
    Deviation.TYPES_FOR_ALL: (
        Case(
            nic(0),
            (ask(DeviceSpec(vendor_id="8086"), DeviceSpec(vendor_id="15b3", types=["type-PF"])),),
        ),
        SCHEDULER,
        YES,
    ),
    Deviation.CLASS_UNSEEN: (
        Case((device(1),), (ask(DeviceSpec(resource_class="CUSTOM_FPGA")),)),
        SCHEDULER,
        YES,
    ),
    Deviation.CLASS_OPENS_NOTHING: (
        Case(
            nic(0, resource_class="CUSTOM_NIC"),
            (ask(DeviceSpec(resource_class="CUSTOM_NIC")),),
        ),
        SCHEDULER,
        NO,
    ),
    Deviation.LISTS_ARE_TEXT: (
        Case(
            (device(1, tags={"physical_network": '["red", "blue"]'}),),
            (ask(DeviceSpec(tags={"physical_network": '["red"]'})),),
        ),
        SCHEDULER,
        NO,
    ),
    Deviation.PROVIDER_SHORT: (
        Case(nic(2, facts=HERE)[1:], (ask(VF, count=2, providers=["here", "there"]),)),
        HOST,
        YES,
    ),
    Deviation.ONE_POOL: (
        Case(
            tuple(
                part.replace(tags={"physical_network": color})
                for part, color in zip(nic(2, facts=HERE)[1:], ("red", "blue"), strict=True)
            ),
            (ask(VF, providers=["here"]),),
        ),
        HOST,
        NO,
    ),
}


def nova_says(case: Case, side: frozenset[Deviation]) -> str:
    """Return what nova's scheduler says, or its host."""
    if side == HOST:
        return case.nova_consumes().said
    return case.nova_supports(case.nova_scheduler())


@pytest.mark.parametrize("deviation", Deviation, ids=lambda deviation: deviation.name.lower())
def test_a_difference_in_its_smallest_case(deviation: Deviation) -> None:
    case, side, theirs = SMALLEST[deviation]
    assert told_by(case, side) == (deviation,)
    assert nova_says(case, side) == theirs
    assert case.ours() == (NO if theirs in (YES, ERROR) else YES)


def test_of_a_provider_that_is_short_nova_gives_nothing_and_says_nothing() -> None:
    """A request of two devices is met with one."""
    case, _, _ = SMALLEST[Deviation.PROVIDER_SHORT]
    assert len(case.nova_consumes().taken) == 1


def test_far_devices_are_taken_where_near_ones_do_not_suffice() -> None:
    """b.8: nova widens for a whole request at once; we take the near ones first all the same."""
    case = Case(
        (device(1), device(2), device(3, numa_node=0)),
        (ask(ANY, count=2),),
        chosen=(0,),
        sockets={0: 0},
    )
    assert [address for _, address in case.nova_consumes().taken] == [
        "0000:01:00.0",
        "0000:02:00.0",
    ]
    ours = case.inventory().fit(case.amount(), **case.where)
    assert ours.addresses == ("0000:01:00.0", "0000:03:00.0")


@pytest.mark.parametrize("said", [True, False], ids=["true", "false"])
@pytest.mark.parametrize("is_so", [True, False, None], ids=["true", "false", "unsaid"])
def test_live_migratable_is_asked_for_as_in_nova(said: bool, is_so: bool | None) -> None:
    """c.3 (7): both take only devices of which it is said, also that they are not."""
    asked = (ask(DeviceSpec(vendor_id="10de", live_migratable=said)),)
    case = Case((device(1, live_migratable=is_so),), asked)
    assert case.ours() == nova_says(case, SCHEDULER) == (YES if said is is_so else NO)


@pytest.mark.parametrize("affinity", ["legacy", "preferred", "required", "socket"])
@pytest.mark.parametrize("node", [0, 1, 2, None], ids=["here", "socket", "far", "none"])
@pytest.mark.parametrize("knows", [True, False], ids=["sockets", "no_sockets"])
def test_one_device_is_near_enough_as_in_nova(affinity: str, node: int | None, knows: bool) -> None:
    """b.8: with the socket of a host cell unknown, ``socket`` is as good as ``required``."""
    sockets = {0: 0, 1: 0, 2: 1, 3: 1 if knows else None}
    request = ask(ANY, affinity=affinity)
    case = Case((device(1, numa_node=node),), (request,), (0,), sockets)
    assert case.ours() == nova_says(case, SCHEDULER) == nova_says(case, HOST)


# --- taking, and failing to -----------------------------------------------------------------------


def test_parts_do_not_leak_when_their_function_is_put_back() -> None:
    """f.1 #8: after the refusal nova has the three parts in no pool, though they are available."""
    case = Case(nic(3), (ask(PF), ask(VF)))
    theirs = case.nova_consumes()
    assert theirs == (NO, (), frozenset({"0000:3b:00.0"}))
    inventory = case.inventory()
    with pytest.raises(CapacityException):
        inventory.consume(case.amount())
    assert inventory == case.inventory() and inventory.free == 4


def test_what_one_request_excludes_itself_is_no_crash() -> None:
    """Nova, after its ``IndexError``, puts nothing back; we refuse, and nothing changed."""
    case = Case(nic(1), (ask(PF, VF, count=2),))
    assert case.nova_consumes() == (ERROR, (), frozenset())
    inventory = case.inventory()
    with pytest.raises(CapacityException) as refused:
        inventory.consume(case.amount())
    assert [(one.rule, one.free) for one in refused.value.reasons] == [(Rule.AT_ONCE, 1)]
    assert inventory.free == 2


def test_what_can_be_had_otherwise_is_no_crash() -> None:
    """The same beside another function: nova crashes, we take one of either."""
    case = Case((*nic(1), *nic(0, "5e")), (ask(PF, VF, count=2),))
    assert case.nova_consumes().said == ERROR
    assert len(case.inventory().fit(case.amount()).addresses) == 2


def test_the_host_is_asked_what_the_scheduler_is() -> None:
    """f.1 #9: nova's scheduler accepts what its host refuses."""
    case = Case(nic(3), (ask(PF), ask(VF)))
    assert case.nova_supports(case.nova_scheduler()) == YES
    assert case.nova_consumes().said == NO
    assert case.ours() == NO


def test_what_can_be_met_is_met_in_any_order() -> None:
    """f.1 #10: nova's first request takes what its second needs."""
    only = DeviceSpec(vendor_id="10de", product_id="0443")
    devices = (*(device(number, OTHER) for number in (1, 2, 3)), device(4))
    case = Case(devices, (ask(ANY), ask(only, count=3)))
    turned = Case(devices, case.requests[::-1])
    assert [nova_says(one, SCHEDULER) for one in (case, turned)] == [NO, YES]
    assert [nova_says(one, HOST) for one in (case, turned)] == [NO, YES]
    assert case.ours() == turned.ours() == YES
    assert case.inventory().fit(case.amount()).of(0) == ("0000:04:00.0",)


def test_a_refusal_leaves_no_half_of_itself() -> None:
    """f.1 #11: nova's pools have one device less after the refusal."""
    case = Case((device(1),), (ask(ANY), ask(ANY)))
    theirs = case.nova_scheduler()
    with pytest.raises(exception.PciDeviceRequestFailed):
        theirs.apply_requests(case.nova_requests(), {}, None)
    assert list(theirs.pools) == []
    inventory = case.inventory()
    with pytest.raises(CapacityException):
        inventory.consume(case.amount())
    assert inventory.free == 1


def test_every_deviation_is_in_the_table_of_the_documentation() -> None:
    rows = pci_differences.DECISION
    assert {row.case.upper() for row in rows} - {""} == {one.name for one in Deviation}


# --- words ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("bus", ["1", "10", "1f"])
def test_a_regular_expression_matches_a_whole_field(bus: str) -> None:
    """f.1 #14: nova's bus ``1`` is 10 and 1f too. Its fields have two digits, as ours."""
    address = f"0000:{int(bus, 16):02x}:00.0"
    for wanted in ("1", "01", "1f", "1.", "10|1f"):
        said = {"domain": ".*", "bus": wanted, "slot": ".*", "function": ".*"}
        theirs = devspec.WhitelistPciAddress(dict(said), False).match(address, None)
        (ours,) = parse_device_spec([{"address": {"bus": wanted}}])
        has = f"{int(bus, 16):02x}"
        assert ours.matches(Device(address, *GPU)) is (re.fullmatch(wanted, has) is not None)
        assert theirs is (re.match(wanted, has) is not None)
