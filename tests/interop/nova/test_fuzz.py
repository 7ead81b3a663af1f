"""Every reader of Nova's documents returns a valid object or raises one error, for any input."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from resource_objects.exceptions import InvalidInput
from resource_objects.interop import nova
from resource_objects.interop.nova.rules import InvalidNovaInput
from resource_objects.resources.numa import HostCell, NUMATopologyInventory, PagePool
from resource_objects.resources.pci import Device
from tests.interop.nova import documents
from tests.interop.nova.documents import GUESTS, HOSTS, PLAIN_GUEST, PLAIN_HOST
from tests.interop.nova.pci_documents import (
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

#: The host of the guests of :mod:`documents`.
HOST = NUMATopologyInventory(
    [
        HostCell(
            number,
            shared=[8 * number, 8 * number + 1],
            dedicated=range(8 * number + 2, 8 * number + 8),
            siblings=[(8 * number + 6, 8 * number + 7)],
            memory_mb=4096,
            pages=[PagePool(size_kib=size, total=512, reserved=0) for size in (4, 2048)],
        )
        for number in (1, 0)
    ]
)
PF, VF = "0000:04:00.0", "0000:04:10.0"
ROWS = [row("0000:3b:00.0", "allocated"), function(PF, "unavailable"), part(PF, VF, "allocated")]
SPEC = {"vendor_id": "8086", "dev_type": "type-VF", "remote_managed": "False", "traits": "a"}

#: ``{reader: valid documents}``
DOCUMENTS: dict[str, list[Any]] = {
    "host": [*HOSTS.values(), PLAIN_HOST],
    "guest": [*GUESTS.values(), PLAIN_GUEST],
    "pools": [pools(pool(), pool(colour=None)), [plain(pool()), {**plain(pool()), "count": 0}]],
    "devices": [
        ROWS,
        documents.nova("PciDeviceList", "1.3", objects=[device(7, one) for one in ROWS]),
    ],
    "requests": [[request(SPEC, {}), port(SPEC)], sent("1.4", request(SPEC, count=2))],
    "aliases": [
        [
            {"name": "qat", "vendor_id": "8086", "product_id": "0443", "device_type": "type-PF"},
            {"name": "gpu", "vendor_id": "10de", "product_id": "2330", "live_migratable": "yes"},
        ]
    ],
    "device spec": [
        [
            {"address": "*:04:00.*", "physical_network": "red", "managed": "yes"},
            {"address": {"bus": "04", "slot": "[0-9]."}, "remote_managed": "true"},
            {"vendor_id": "10de", "resource_class": "gpu", "traits": "a,b"},
        ]
    ],
}
READERS = pytest.mark.parametrize("reader", DOCUMENTS)
Choose = Callable[[Sequence[Any]], Any]


def first(options: Sequence[Any]) -> Any:
    return options[0]


def check(reader: str, source: Any, choose: Choose = first) -> bool:
    """Return whether a document is valid: then it is written and read again."""
    try:
        _CHECKS[reader](source, choose)
    except InvalidInput as error:
        if reader in ("aliases", "device spec"):
            assert isinstance(error, InvalidNovaInput)
        elif not error.is_about("primitive"):
            raise
        else:
            assert str(error).startswith(_SUBJECTS[reader])
        return False
    return True


_SUBJECTS = {
    "host": "numa_topology",
    "guest": "numa_topology",
    "pools": "pci_stats",
    "devices": "pci_devices",
    "requests": "pci_requests",
}


def check_host(source: Any, choose: Choose) -> None:
    host = nova.load_host_numa_topology(source, counts_pinned=choose([None, None, True, False]))
    cells = [documents.sayable(cell) for cell in host.cells]
    expected = NUMATopologyInventory(cells, usage=host.usage)
    assert nova.load_host_numa_topology(nova.dump_host_numa_topology(host)) == expected


def check_guest(source: Any, choose: Choose) -> None:
    amount = nova.load_instance_numa_topology(
        source,
        host=HOST,
        assigned=choose([None, None, True, False]),
        page_size=choose([None, None, "", "small", "large", "any", "2048"]),
    )
    assert amount == nova.load_instance_numa_topology(
        nova.dump_instance_numa_topology(amount, host=HOST),
        host=HOST,
        assigned=amount.is_assigned,
        page_size=amount.page_size,
    )


def check_pools(source: Any, _choose: Choose) -> None:
    result = nova.load_pci_pools(source)
    assert nova.load_pci_pools(nova.dump_pci_pools(result)) == result


def check_devices(source: Any, _choose: Choose) -> None:
    result = nova.load_pci_devices(source)
    again = nova.load_pci_devices(nova.dump_pci_devices(result))
    assert (again.devices, again.usage) == (result.devices, result.usage)
    versioned = nova.load_pci_devices(nova.dump_pci_devices(result, versioned=True))
    assert versioned.devices == result.devices


def check_requests(source: Any, choose: Choose) -> None:
    placement = choose([False, True])
    result = nova.load_pci_requests(source, placement=placement)
    text = nova.dump_pci_requests(result)
    assert nova.load_pci_requests(text, placement=placement) == result


def check_aliases(source: Any, choose: Choose) -> None:
    nova.parse_alias(source, pci_in_placement=choose([False, True]))


def check_device_spec(source: Any, choose: Choose) -> None:
    entries = nova.parse_device_spec(source, report_in_placement=choose([False, True]))
    full = Device(PF, "8086", "1563", "type-PF")
    for item in (full, Device(VF, "8086", "154c", "type-VF", parent=PF)):
        nova.tagged_device(item, entries, serial_number="x")


_CHECKS = {
    "host": check_host,
    "guest": check_guest,
    "pools": check_pools,
    "devices": check_devices,
    "requests": check_requests,
    "aliases": check_aliases,
    "device spec": check_device_spec,
}

# --- documents ----------------------------------------------------------------------------------

NUMBERS = st.sampled_from(
    [
        *[-4, -3, -2, -1, 0, 1, 2, 3, 4, 7, 64, 2048, 65535, 65536],
        *[2**20 - 1, 2**20, 2**31, 2**63, 10**30, 10**400],
    ]
)
WORDS = st.sampled_from(
    [
        *["dedicated", "shared", "mixed", "isolate", "share", "prefer", "require", "0", "-1", "01"],
        *["1.4", "1.6", "nova", "0-3,^1", "1-0", "^", "null", '"', "true", "maybe", "8086", ""],
        *["0x8086", "type-PF", "vdpa", "claimed", "10000:00:00.0", "*", ":", "(", "CUSTOM_", PF],
        *["CUSTOM_A-B", "a,,b", " ", "\ud800", "\n", VF],
    ]
)
KEYS = st.sampled_from(
    sorted(
        {"", "x", "devname", "nova_object.name", "nova_object.data", "nova_object.version"}
        | {*HOSTS["1.5"]["nova_object.data"]["cells"][0]["nova_object.data"]}
        | {*GUESTS["1.6"]["nova_object.data"]["cells"][0]["nova_object.data"]}
        | {*row(PF), *plain(pool()), *request(), *SPEC}
    )
)
ATOMS = st.none() | st.booleans() | NUMBERS | WORDS | st.floats() | st.text(max_size=5)
JSON = st.recursive(
    ATOMS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=8,
)


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of everything inside a document."""
    inside: Any = ()
    if isinstance(value, dict):
        inside = value.items()
    elif isinstance(value, list):
        inside = enumerate(value)
    for key, item in inside:
        yield (*path, key)
        yield from paths(item, (*path, key))


def at(document: Any, path: Sequence[Any]) -> Any:
    """Return the part of a document at a path."""
    for key in path:
        document = document[key]
    return document


def mutated(draw: Callable[..., Any], reader: str) -> Any:
    """Return a valid document after a few random changes."""
    document = copy.deepcopy(draw(st.sampled_from(DOCUMENTS[reader])))
    for _ in range(draw(st.integers(1, 3))):
        places = list(paths(document))
        if not places:
            break
        *above, key = draw(st.sampled_from(places))
        parent = at(document, above)
        how = draw(st.sampled_from(["number", "replace", "swap", "drop", "double", "rename"]))
        if how == "drop":
            del parent[key]
        elif how == "double" and isinstance(parent, list):
            parent.append(copy.deepcopy(parent[key]))
        elif how == "rename" and isinstance(parent, dict):
            parent[draw(KEYS)] = parent.pop(key)
        elif how == "swap":
            parent[key] = copy.deepcopy(at(document, draw(st.sampled_from(places))))
        else:
            parent[key] = draw(NUMBERS if how == "number" else JSON)
    return document


@READERS
def test_the_documents_are_valid(reader: str) -> None:
    for document in DOCUMENTS[reader]:
        assert check(reader, document) or reader == "guest"
        assert check(reader, document, lambda options: options[-1]) or reader in ("host", "guest")


@READERS
@given(data=st.data())
def test_a_changed_document_is_read_or_refused(reader: str, data: st.DataObject) -> None:
    document = mutated(data.draw, reader)
    source = json.dumps(document) if data.draw(st.booleans()) else document
    check(reader, source, lambda options: data.draw(st.sampled_from(options)))


@READERS
@given(JSON | st.dictionaries(KEYS | st.just("cells"), JSON, max_size=3), st.booleans())
@example({"cells": [{"id": float("nan")}]}, True)
@example({"cells": [{"id": 0, "cpus": "\ud800"}]}, True)
@example({"cells": [{"id": 0, "mem": {"total": float("inf")}}]}, False)
@example([{"vendor_id": "10de", "product_id": "2330", "count": float("nan")}], False)
def test_any_json_is_read_or_refused(reader: str, document: Any, as_text: bool) -> None:
    check(reader, json.dumps(document) if as_text else document)
    check(reader, [document])


@READERS
@given(st.text() | st.binary())
@example("")
@example(b"\x00")
@example('{"cells": [{"id": 0, "id": 1}')
@example('{"cells": ' + "9" * 5000 + "}")
def test_any_text_is_read_or_refused(reader: str, source: str | bytes) -> None:
    check(reader, source)


@READERS
@given(data=st.data())
def test_text_that_was_cut_or_garbled_is_read_or_refused(reader: str, data: st.DataObject) -> None:
    text = json.dumps(mutated(data.draw, reader))
    start = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(start, len(text)))
    check(reader, text[:start] + data.draw(st.text('{}[],:"0-e.nul\\', max_size=4)) + text[end:])


#: Keys whose values are not read.
IGNORED = {
    *("nova_object.changes", "cpu_topology", "is_new", "uuid", "instance_uuid", "dev_id", "label"),
    *("created_at", "updated_at", "deleted_at", "deleted"),
}


def nested(key: str | None) -> Any:
    """Return a number inside 20,000 lists, or objects of one key."""
    value: Any = 0
    for _ in range(20_000):
        value = [value] if key is None else {key: value}
    return value


@READERS
@pytest.mark.parametrize("key", [None, "cells", "nova_object.data", "vendor_id"])
def test_a_document_that_is_nested_too_deep_is_refused(reader: str, key: str | None) -> None:
    deep = nested(key)
    assert not check(reader, deep)
    text = '{"x": ' * 20_000 if key else "[" * 20_000
    assert not check(reader, text + "0" + ("}" if key else "]") * 20_000)
    document = DOCUMENTS[reader][-2 if reader in ("host", "guest") else 0]
    for path in list(paths(document)):
        changed = copy.deepcopy(document)
        at(changed, path[:-1])[path[-1]] = deep
        assert not check(reader, changed) or IGNORED.intersection(path), path


@READERS
def test_a_number_of_too_many_digits_is_refused(reader: str) -> None:
    document = DOCUMENTS[reader][-2 if reader in ("host", "guest") else 0]
    for path in list(paths(document)):
        if isinstance(at(document, path), str | int):
            changed = copy.deepcopy(document)
            at(changed, path[:-1])[path[-1]] = 10**5000
            assert not check(reader, changed) or IGNORED.intersection(path), path


def test_a_list_without_end_is_refused() -> None:
    def endless() -> Iterator[dict[str, Any]]:
        while True:
            yield {}

    for read in (
        nova.load_pci_pools,
        nova.load_pci_devices,
        nova.load_pci_requests,
        nova.parse_alias,
        nova.parse_device_spec,
    ):
        with pytest.raises(InvalidInput):
            read(endless())
