"""``[pci] alias``, and what flavors and images ask by it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from resource_objects.exceptions import InvalidInput
from resource_objects.interop.nova import (
    Alias,
    alias_requests,
    dump_pci_requests,
    flavor_devices,
    parse_alias,
    pci_affinity,
)
from resource_objects.interop.nova.rules import NovaRule
from resource_objects.resources.pci import DeviceSpec, PCIAmount
from tests.interop.nova.refusals import breaks

QAT = {"name": "qat", "vendor_id": "8086", "product_id": "0443"}
TYPES = ["type-PCI", "type-VF"]
POLICY = "pci_numa_affinity_policy"


def parsed(*entries: dict[str, Any], in_placement: bool = False) -> dict[str, Alias]:
    """Return the aliases of an option, each entry as text."""
    return parse_alias(map(json.dumps, entries), pci_in_placement=in_placement)


def refused(rule: NovaRule, *entries: Any, in_placement: bool = False) -> str:
    """Return the message with which they are refused, as exactly this kind."""
    with pytest.raises(InvalidInput) as caught:
        parse_alias(entries, pci_in_placement=in_placement)
    assert caught.value.rule is rule, caught.value
    return str(caught.value)


# --- the option (c.4) -----------------------------------------------------------------------------


def test_an_alias_is_a_name_for_a_kind_of_device() -> None:
    assert parsed(QAT) == {
        "qat": Alias("qat", (DeviceSpec(vendor_id="8086", product_id="0443", types=TYPES),))
    }


@pytest.mark.parametrize("kind", ["type-PCI", "type-PF", "type-VF"])
def test_c4_device_type_is_the_type(kind: str) -> None:
    (spec,) = parsed({**QAT, "device_type": kind})["qat"].specs
    assert spec.types == (kind,)


def test_c4_device_type_is_never_vdpa() -> None:
    assert "device_type" in refused(NovaRule.INVALID_ALIAS, {**QAT, "device_type": "vdpa"})


@pytest.mark.parametrize("policy", ["legacy", "preferred", "required", "socket"])
def test_c4_numa_policy_is_the_affinity(policy: str) -> None:
    assert parsed({**QAT, "numa_policy": policy})["qat"].affinity == policy


@pytest.mark.parametrize(("values", "is_so"), [("yes", True), ("off", False), ("TRUE", True)])
def test_c4_live_migratable_is_yes_or_no(values: str, is_so: bool) -> None:
    (spec,) = parsed({**QAT, "live_migratable": values})["qat"].specs
    assert spec.live_migratable is is_so


def test_c4_resource_class_and_traits_match_in_placement_only() -> None:
    entry = {**QAT, "resource_class": "qat-vf", "traits": "blue"}
    (spec,) = parsed(entry)["qat"].specs
    assert (spec.resource_class, spec.traits) == (None, frozenset())
    assert spec.facts == {"resource_class": "qat-vf", "traits": "blue"}
    (spec,) = parsed(entry, in_placement=True)["qat"].specs
    assert (spec.resource_class, spec.traits) == ("CUSTOM_QAT_VF", frozenset({"CUSTOM_BLUE"}))


def test_c4_the_class_of_who_says_none_is_that_of_the_ids() -> None:
    (spec,) = parsed(QAT, in_placement=True)["qat"].specs
    assert spec.resource_class == "CUSTOM_PCI_8086_0443"


def test_c4_entries_of_one_name_are_alternatives() -> None:
    result = parsed(QAT, {**QAT, "name": " qat ", "product_id": "37c8"}, {**QAT, "name": "other"})
    assert [spec.product_id for spec in result["qat"].specs] == ["0443", "37c8"]
    assert result.keys() == {"qat", "other"}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"numa_policy": "required"}, {}),
        ({"numa_policy": "required"}, {"numa_policy": "socket"}),
        ({"device_type": "type-PF"}, {"device_type": "type-VF"}),
        ({"device_type": "type-PF"}, {}),
        ({}, {"device_type": "type-PF"}),
    ],
    ids=repr,
)
def test_c4_they_agree_on_policy_and_type(first: dict[str, str], second: dict[str, str]) -> None:
    message = refused(NovaRule.ALIASES_DISAGREE, {**QAT, **first}, {**QAT, **second})
    assert message.startswith("alias qat: ")
    assert len(parsed({**QAT, **first}, {**QAT, **first})["qat"].specs) == 2


def test_they_agree_if_one_says_what_the_other_means() -> None:
    assert parsed(QAT, {**QAT, "numa_policy": "legacy"})["qat"].affinity == "legacy"


def test_c4_in_placement_an_alias_is_of_one_entry() -> None:
    refused(NovaRule.ALIAS_OF_SEVERAL_SPECS, QAT, QAT, in_placement=True)


@pytest.mark.parametrize("missing", ["vendor_id", "product_id"])
def test_c4_ids_are_needed_or_in_placement_a_class(missing: str) -> None:
    entry = {key: value for key, value in QAT.items() if key != missing}
    refused(NovaRule.ALIAS_WITHOUT_IDS, entry)
    refused(NovaRule.ALIAS_WITHOUT_IDS, {**entry, "resource_class": "qat"})
    refused(NovaRule.ALIAS_WITHOUT_IDS, {**entry, "traits": "blue"}, in_placement=True)
    assert parsed({**entry, "resource_class": "qat"}, in_placement=True)


def test_capability_type_says_nothing() -> None:
    """Nova would look for a tag of that name, and find nothing ever."""
    (spec,) = parsed({**QAT, "capability_type": "pci"})["qat"].specs
    assert (dict(spec.tags), dict(spec.facts)) == ({}, {"capability_type": "pci"})
    refused(NovaRule.INVALID_ALIAS, {**QAT, "capability_type": "usb"})


@pytest.mark.parametrize(
    "source", [QAT, [QAT], json.dumps(QAT), [json.dumps(QAT)], json.dumps([QAT])], ids=repr
)
def test_an_option_is_text_or_what_it_stands_for(source: Any) -> None:
    assert parse_alias(source) == parsed(QAT)


@pytest.mark.parametrize("nothing", [[], "[]", ()])
def test_there_may_be_none(nothing: Any) -> None:
    assert parse_alias(nothing) == {}


@pytest.mark.parametrize(
    "entry",
    [
        "{",
        5,
        [QAT],
        None,
        {},
        {**QAT, "name": ""},
        {**QAT, "name": " "},
        {**QAT, "name": 5},
        {**QAT, "name": "x" * 300},
        {**QAT, "colour": "red"},
        {**QAT, "vendor_id": 8086},
        {**QAT, "vendor_id": "80860"},
        {**QAT, "vendor_id": "0x80"},
        {**QAT, "numa_policy": "near"},
        {**QAT, "numa_policy": ""},
        {**QAT, "live_migratable": "maybe"},
        {**QAT, "live_migratable": True},
        {**QAT, "traits": None},
    ],
    ids=repr,
)
def test_an_entry_that_cannot_be_read_is_refused(entry: Any) -> None:
    refused(NovaRule.INVALID_ALIAS, entry)


def test_names_of_placement_that_make_none_are_refused() -> None:
    for values in ({"resource_class": "CUSTOM_A-B"}, {"traits": "a,,b"}):
        refused(NovaRule.INVALID_ALIAS, {**QAT, **values}, in_placement=True)


@pytest.mark.parametrize("source", [5, None, b"\xff"], ids=repr)
def test_what_is_no_option_is_refused(source: Any) -> None:
    with breaks(NovaRule.INVALID_ALIAS):
        parse_alias(source)


# --- the flavor -----------------------------------------------------------------------------------

ALIASES = parsed(QAT, {**QAT, "name": "gpu", "vendor_id": "10de", "numa_policy": "required"})


def test_c4_a_flavor_asks_by_alias() -> None:
    """c.4: ``pci_passthrough:alias = a:2,b:1``."""
    result = alias_requests("qat:2, gpu:1", ALIASES)
    values = [(request.alias, request.count, request.affinity) for request in result.requests]
    assert values == [("qat", 2, "legacy"), ("gpu", 1, "required")]
    assert result.requests[0].specs == ALIASES["qat"].specs


def test_one_alias_may_be_named_twice() -> None:
    assert [request.count for request in alias_requests("qat:1,qat:2", ALIASES).requests] == [1, 2]


def test_each_request_has_an_id_of_its_own_if_another_consumer_makes_them() -> None:
    ids = iter(["a", "b"])
    result = alias_requests("qat:1,gpu:1", ALIASES, request_id=lambda: next(ids))
    assert [request.request_id for request in result.requests] == ["a", "b"]
    assert alias_requests("qat:1", ALIASES).requests[0].request_id is None


def test_it_is_written_as_nova_would() -> None:
    text = dump_pci_requests(alias_requests("qat:1", ALIASES, request_id=lambda: "r"))
    assert json.loads(text) == [
        {
            "count": 1,
            "spec": [{"vendor_id": "8086", "product_id": "0443"}],
            "alias_name": "qat",
            "is_new": False,
            "numa_policy": "legacy",
            "request_id": "r",
            "requester_id": None,
        }
    ]


def test_an_alias_that_there_is_not_is_refused() -> None:
    with breaks(NovaRule.UNKNOWN_ALIAS, match="one of qat, gpu"):
        alias_requests("fpga:1", ALIASES)
    with breaks(NovaRule.UNKNOWN_ALIAS, match="one of none"):
        alias_requests("fpga:1", {})


@pytest.mark.parametrize(
    "text",
    [
        *["", "qat", "qat:", ":1", "qat:0", "qat:-1", "qat:1.5", "qat:1:2", "qat:x", "qat:1,"],
        *["qat:²", "qat:65537", "qat:" + "9" * 5000, 5, None],
    ],
    ids=repr,
)
def test_what_is_no_list_of_names_and_counts_is_refused(text: Any) -> None:
    with breaks(NovaRule.INVALID_ALIAS_COUNT):
        alias_requests(text, ALIASES)


# --- the policy of flavor and image (b.8) ---------------------------------------------------------


def affinities(result: PCIAmount | None) -> list[str]:
    """Return the affinity of each request."""
    assert result is not None
    return [request.affinity for request in result.requests]


def test_b8_a_policy_of_flavor_or_image_wins_over_that_of_the_alias() -> None:
    specs = {"pci_passthrough:alias": "qat:1,gpu:1"}
    assert affinities(flavor_devices(ALIASES, specs)) == ["legacy", "required"]
    flavor = {**specs, f"hw:{POLICY}": "socket"}
    assert affinities(flavor_devices(ALIASES, flavor)) == ["socket"] * 2
    image = {f"hw_{POLICY}": "preferred"}
    assert affinities(flavor_devices(ALIASES, specs, image)) == ["preferred"] * 2


def test_b8_flavor_and_image_agree() -> None:
    values: tuple[Any, Any] = ({f"hw:{POLICY}": "socket"}, {f"hw_{POLICY}": "socket"})
    assert pci_affinity(*values) == "socket"
    with breaks(NovaRule.AFFINITY_POLICY_CONFLICT, match="none, or socket as the flavor"):
        pci_affinity(values[0], {f"hw_{POLICY}": "legacy"})


@pytest.mark.parametrize("place", ["hw:", "hw_"])
def test_a_policy_that_there_is_not_is_refused(place: str) -> None:
    with breaks(NovaRule.INVALID_AFFINITY_POLICY, match=place + POLICY):
        pci_affinity(*({f"{place}{POLICY}": "near"} for _ in range(2)))
    with breaks(NovaRule.INVALID_AFFINITY_POLICY):
        alias_requests("qat:1", ALIASES, affinity="near")


def test_nothing_specified_is_nothing_requested() -> None:
    assert pci_affinity() is None
    assert pci_affinity({f"hw:{POLICY}": ""}, {f"hw_{POLICY}": None}) is None
    assert flavor_devices(ALIASES, {"pci_passthrough:alias": ""}) is None
    assert flavor_devices(ALIASES) is None


def test_words_of_another_kind_are_refused() -> None:
    with breaks(NovaRule.NOT_WORDS):
        pci_affinity([])  # type: ignore[arg-type]
    with breaks(NovaRule.NOT_WORDS):
        flavor_devices(ALIASES, {"pci_passthrough:alias": ["qat:1"]})


@pytest.mark.parametrize("aliases", [None, "{}", [json.dumps(QAT)]], ids=["None", "text", "list"])
def test_aliases_that_were_not_parsed_are_refused(aliases: Any) -> None:
    with breaks(NovaRule.INVALID_ALIAS, match=r"expected aliases as parse_alias\(\)"):
        alias_requests("qat:1", aliases)
