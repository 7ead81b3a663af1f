"""Whatever is read about devices: valid objects, or one clear error. Nothing else gets out."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from resource_objects.exceptions import InvalidInput
from resource_objects.interop.nova import (
    dump_pci_devices,
    dump_pci_pools,
    dump_pci_requests,
    load_pci_devices,
    load_pci_pools,
    load_pci_requests,
    parse_alias,
    parse_device_spec,
    tagged_device,
)
from resource_objects.interop.nova.rules import InvalidNovaInput
from resource_objects.resources.pci import Device
from tests.interop.nova.documents import nova
from tests.interop.nova.pci_documents import (
    NEW_COLUMNS,
    device,
    function,
    part,
    plain,
    pool,
    pools,
    port,
    request,
    row,
    sent,
)
from tests.support.lengths import some

PF, VF = "0000:04:00.0", "0000:04:10.0"
ROWS = [row("0000:3b:00.0", "allocated"), function(PF, "unavailable"), part(PF, VF, "allocated")]
SPEC = {"vendor_id": "8086", "dev_type": "type-VF", "remote_managed": "False", "traits": "a"}
POOLS = [pools(pool(), pool(colour=None)), [plain(pool()), {**plain(pool()), "dev_type": "vdpa"}]]
DEVICES = [ROWS, nova("PciDeviceList", "1.3", objects=[device(7, one) for one in ROWS])]
REQUESTS = [[request(SPEC, {}), port(SPEC)], sent("1.4", request(SPEC, count=2))]
ALIASES = [
    [
        {"name": "qat", "vendor_id": "8086", "product_id": "0443", "device_type": "type-PF"},
        {"name": "gpu", "vendor_id": "10de", "product_id": "2330", "live_migratable": "yes"},
    ]
]
SPECS = [
    [
        {"address": "*:04:00.*", "physical_network": "red", "managed": "yes"},
        {"address": {"bus": "04", "slot": "[0-9]."}, "remote_managed": "true"},
        {"vendor_id": "10de", "resource_class": "gpu", "traits": "a,b"},
    ]
]

NUMBERS = st.sampled_from([-1, 0, 1, 7, 65535, 65536, 2**31, 2**63, 10**30, 10**400])
WORDS = st.sampled_from(
    [
        *["", " ", "null", '"', "true", "maybe", "8086", "0x8086", "type-PF", "vdpa", "claimed"],
        *["10000:00:00.0", "*", ":", "(", "CUSTOM_", "CUSTOM_A-B", "a,,b", "\ud800", "\n", PF, VF],
    ]
)
KEYS = st.sampled_from(
    sorted({*row(PF), *plain(pool()), *request(), *SPEC, "nova_object.data", "", "x", "devname"})
)
ATOMS = st.none() | st.booleans() | NUMBERS | WORDS | st.floats() | st.text(max_size=4)
JSON = st.recursive(
    ATOMS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=8,
)


def paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of everything inside a document."""
    inside: Any = ()
    if isinstance(value, dict):
        inside = value.items()
    elif isinstance(value, list):
        inside = enumerate(value)
    return [at for key, one in inside for at in ((*path, key), *paths(one, (*path, key)))]


def mutated(documents: list[Any]) -> st.SearchStrategy[Any]:
    """Return valid documents after a few changes that nobody meant."""

    @st.composite
    def changed(draw: Callable[..., Any]) -> Any:
        document = copy.deepcopy(draw(st.sampled_from(documents)))
        for _ in range(draw(st.integers(1, 3))):
            places = paths(document)
            if not places:
                break
            *above, key = draw(st.sampled_from(places))
            parent = document
            for step in above:
                parent = parent[step]
            how = draw(st.sampled_from(["replace", "drop", "rename", "double"]))
            if how == "drop":
                del parent[key]
            elif how == "rename" and isinstance(parent, dict):
                parent[draw(KEYS)] = parent.pop(key)
            elif how == "double" and isinstance(parent, list):
                parent.append(copy.deepcopy(parent[key]))
            else:
                parent[key] = draw(JSON)
        return document

    return changed()


# --- what is checked ------------------------------------------------------------------------------


def check_pools(source: Any) -> bool:
    """Read pools, if they are some, and return whether; they can be written then."""
    try:
        found = load_pci_pools(source)
    except InvalidInput as error:
        if not error.is_about("primitive"):
            raise
        assert str(error).startswith("pci_stats")
        return False
    assert load_pci_pools(dump_pci_pools(found)) == found
    return True


def check_devices(source: Any) -> bool:
    """Read devices, if they are some, and return whether; they can be written then."""
    try:
        found = load_pci_devices(source)
    except InvalidInput as error:
        if not error.is_about("primitive"):
            raise
        assert str(error).startswith("pci_devices")
        return False
    again = load_pci_devices(dump_pci_devices(found))
    assert (again.devices, again.usage) == (found.devices, found.usage)
    assert load_pci_devices(dump_pci_devices(found, versioned=True)).devices == found.devices
    return True


def check_requests(source: Any, placement: bool) -> bool:
    """Read requests, if they are some, and return whether; they can be written then."""
    try:
        found = load_pci_requests(source, placement=placement)
    except InvalidInput as error:
        if not error.is_about("primitive"):
            raise
        assert str(error).startswith("pci_requests")
        return False
    again = load_pci_requests(dump_pci_requests(found), placement=placement)
    assert again == found
    return True


def check_alias(source: Any, placement: bool) -> bool:
    """Read aliases, if they are some, and return whether."""
    try:
        parse_alias(source, pci_in_placement=placement)
    except InvalidInput as error:
        assert isinstance(error, InvalidNovaInput)
        return False
    return True


def check_specs(source: Any, placement: bool) -> bool:
    """Read entries, if they are some, and return whether; they can be about devices then."""
    devices = [
        Device(PF, "8086", "1563", "type-PF"),
        Device(VF, "8086", "154c", "type-VF", parent=PF),
    ]
    try:
        entries = parse_device_spec(source, report_in_placement=placement)
        for one in devices:
            tagged_device(one, entries, serial_number="x")
    except InvalidInput as error:
        assert isinstance(error, InvalidNovaInput)
        return False
    return True


CHECKS: list[tuple[Any, list[Any]]] = [
    (check_pools, POOLS),
    (check_devices, DEVICES),
    (lambda source: check_requests(source, False), REQUESTS),
    (lambda source: check_requests(source, True), REQUESTS),
    (lambda source: check_alias(source, False), ALIASES),
    (lambda source: check_alias(source, True), ALIASES),
    (lambda source: check_specs(source, False), SPECS),
    (lambda source: check_specs(source, True), SPECS),
]
each = pytest.mark.parametrize(
    ("check", "documents"),
    CHECKS,
    ids=["pools", "devices", "requests", "placed", "alias", "alias-p", "specs", "specs-p"],
)


@each
def test_every_document_that_is_changed_was_in_order(check: Any, documents: list[Any]) -> None:
    assert all(check(document) for document in documents)
    assert len(NEW_COLUMNS) == 4


@each
def test_a_changed_document_is_read_or_refused(check: Any, documents: list[Any]) -> None:
    @given(mutated(documents), st.booleans())
    def run(document: Any, as_text: bool) -> None:
        check(json.dumps(document) if as_text else document)

    run()


@each
def test_any_json_is_read_or_refused(check: Any, documents: list[Any]) -> None:
    @given(JSON)
    @example([{"vendor_id": "10de", "product_id": "2330", "count": float("nan")}])
    def run(document: Any) -> None:
        check(document)
        check([document])

    run()


@each
def test_any_text_is_read_or_refused(check: Any, documents: list[Any]) -> None:
    @given(st.text() | st.binary())
    @example("")
    @example(b"\x00")
    @example('[{"id": 0, "id": 1}')
    @example("[" + "9" * 5000 + "]")
    def run(source: Any) -> None:
        check(source)

    run()


@each
@pytest.mark.parametrize("key", some([None, "x", "vendor_id", "spec"], 2))
def test_however_deep_it_is_nested_it_is_refused(
    check: Any, documents: list[Any], key: str | None
) -> None:
    deep: Any = 0
    for _ in range(20_000):
        deep = [deep] if key is None else {key: deep}
    assert not check(deep)
    text = '{"x": ' * 20_000 if key else "[" * 20_000
    assert not check(text + "0" + ("}" if key else "]") * 20_000)
    for name in ("vendor_id", "count", "spec", "extra_info", "address", "tag", "name"):
        document = copy.deepcopy(documents[0])
        if not isinstance(document, list):
            document = [plain(pool())]
        document[0][name] = deep
        assert not check(document)


@each
def test_a_number_of_too_many_digits_for_text_is_refused(check: Any, documents: list[Any]) -> None:
    for name in ("vendor_id", "count", "numa_node", "extra_info", "colour", "name", "address"):
        document = copy.deepcopy(documents[0] if isinstance(documents[0], list) else documents[1])
        document[0][name] = 10**5000
        assert not check(document)


def test_a_list_without_end_is_refused() -> None:
    def endless() -> Any:
        while True:
            yield {}

    for read in (load_pci_pools, load_pci_devices, load_pci_requests, parse_alias):
        with pytest.raises(InvalidInput):
            read(endless())
    with pytest.raises(InvalidInput):
        parse_device_spec(endless())
