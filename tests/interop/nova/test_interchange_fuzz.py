"""Whatever is read: a valid object, or one clear error. Nothing else gets out."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from resource_objects.exceptions import CannotDowngrade, InvalidInput
from resource_objects.interop.nova import (
    dump_host_numa_topology,
    dump_instance_numa_topology,
    load_host_numa_topology,
    load_instance_numa_topology,
)
from resource_objects.resources.numa import HostCell, NUMATopologyInventory, PagePool
from tests.interop.nova.documents import GUESTS, HOSTS, PLAIN_GUEST, PLAIN_HOST, sayable

#: The host that the guests of :mod:`documents` are on.
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

DOCUMENTS = [*HOSTS.values(), PLAIN_HOST, *GUESTS.values(), PLAIN_GUEST]

NUMBERS = st.sampled_from(
    [-4, -3, -2, -1, 0, 1, 2, 3, 4, 64, 2048, 2**20 - 1, 2**20, 2**31, 2**63, 10**30]
)
WORDS = st.sampled_from(
    [
        "dedicated",
        "shared",
        "mixed",
        "isolate",
        "share",
        "prefer",
        "require",
        "0",
        "-1",
        "01",
        "1.4",
        "1.6",
        "nova",
        "0-3,^1",
        "1-0",
        "^",
    ]
)
KEYS = st.sampled_from(
    sorted(
        {"", "x", "nova_object.name", "nova_object.data", "nova_object.version"}
        | set(HOSTS["1.5"]["nova_object.data"]["cells"][0]["nova_object.data"])
        | set(GUESTS["1.6"]["nova_object.data"]["cells"][0]["nova_object.data"])
    )
)
ATOMS = st.none() | st.booleans() | NUMBERS | WORDS | st.floats() | st.text(max_size=5)
JSON = st.recursive(
    ATOMS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=8,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of everything inside a document."""
    inside: Any = ()
    if isinstance(value, dict):
        inside = value.items()
    elif isinstance(value, list):
        inside = enumerate(value)
    for key, item in inside:
        yield (*path, key)
        yield from places(item, (*path, key))


def at(document: Any, path: tuple[Any, ...]) -> Any:
    """Return what is at a path."""
    for key in path:
        document = document[key]
    return document


@st.composite
def mutated(draw: Callable[..., Any]) -> Any:
    """Return a valid document after a few changes that nobody meant."""
    document = copy.deepcopy(draw(st.sampled_from(DOCUMENTS)))
    for _ in range(draw(st.integers(1, 3))):
        paths = list(places(document))
        if not paths:
            break
        *above, key = draw(st.sampled_from(paths))
        parent = at(document, tuple(above))
        how = draw(st.sampled_from(["number", "replace", "swap", "drop", "double", "rename"]))
        if how == "drop":
            del parent[key]
        elif how == "double" and isinstance(parent, list):
            parent.append(copy.deepcopy(parent[key]))
        elif how == "rename" and isinstance(parent, dict):
            parent[draw(KEYS)] = parent.pop(key)
        elif how == "swap":
            parent[key] = copy.deepcopy(at(document, draw(st.sampled_from(paths))))
        else:
            parent[key] = draw(NUMBERS if how == "number" else JSON)
    return document


def check_host(source: Any, counts_pinned: bool | None) -> bool:
    """Read a host, if it is one, and return whether; it can be written then."""
    try:
        host = load_host_numa_topology(source, counts_pinned=counts_pinned)
    except InvalidInput as error:
        if not error.is_about("primitive"):
            raise
        assert str(error).startswith("numa_topology")
        return False
    expected = NUMATopologyInventory([sayable(cell) for cell in host.cells], usage=host.usage)
    assert load_host_numa_topology(dump_host_numa_topology(host)) == expected
    return True


def check_guest(source: Any, assigned: bool | None, page_size: str | None) -> bool:
    """Read a guest, if it is one, and return whether; it can be written then."""
    try:
        amount = load_instance_numa_topology(
            source, host=HOST, assigned=assigned, page_size=page_size
        )
    except InvalidInput as error:
        if not error.is_about("primitive"):
            raise
        assert str(error).startswith("numa_topology")
        return False
    text = dump_instance_numa_topology(amount, host=HOST)
    assert amount == load_instance_numa_topology(
        text, host=HOST, assigned=amount.is_assigned, page_size=amount.page_size
    )
    return True


ASSIGNED = st.sampled_from([None, None, True, False])
SIZES = st.sampled_from([None, None, "", "small", "large", "any", "2048"])


@given(mutated(), ASSIGNED, SIZES, st.booleans())
def test_a_changed_document_is_read_or_refused(
    document: Any, assigned: bool | None, size: str | None, as_text: bool
):
    source = json.dumps(document) if as_text else document
    check_host(source, assigned)
    check_guest(source, assigned, size)


@given(JSON | st.dictionaries(KEYS | st.just("cells"), JSON, max_size=3), st.booleans())
@example({"cells": [{"id": float("nan")}]}, True)
@example({"cells": [{"id": 0, "cpus": "\ud800"}]}, True)
@example({"cells": [{"id": 0, "mem": {"total": float("inf")}}]}, False)
def test_any_json_is_refused_or_read(document: Any, as_text: bool):
    source = json.dumps(document) if as_text else document
    check_host(source, None)
    check_guest(source, None, None)


@given(st.text() | st.binary())
@example("")
@example(b"\x00")
@example('{"cells": [{"id": 0, "id": 1}')
@example('{"cells": ' + "9" * 5000 + "}")
def test_any_text_is_refused_or_read(source: str | bytes):
    check_host(source, None)
    check_guest(source, None, None)


@given(mutated(), st.data())
def test_text_that_was_cut_or_garbled_is_refused_or_read(document: Any, data: st.DataObject):
    text = json.dumps(document)
    start = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(start, len(text)))
    source = text[:start] + data.draw(st.text('{}[],:"0-e.nul\\', max_size=4)) + text[end:]
    check_host(source, None)
    check_guest(source, None, None)


@pytest.mark.parametrize("number", range(len(DOCUMENTS)))
def test_every_document_that_is_changed_was_in_order(number: int):
    found = [
        check_host(DOCUMENTS[number], None),
        any(check_guest(DOCUMENTS[number], assigned, None) for assigned in (None, False)),
    ]
    assert found.count(True) == 1


DEEP = 20_000


def nested(value: Any, depth: int, key: str | None) -> Any:
    """Return something inside many lists, or many objects of one name."""
    for _ in range(depth):
        value = [value] if key is None else {key: value}
    return value


@pytest.mark.parametrize("key", [None, "cells", "nova_object.data"])
@pytest.mark.parametrize(
    "path",
    [
        (),
        ("nova_object.data",),
        ("nova_object.data", "cells"),
        ("nova_object.data", "cells", 0),
        ("nova_object.data", "cells", 0, "nova_object.data", "cpuset"),
        ("nova_object.data", "cells", 0, "nova_object.data", "siblings"),
        ("nova_object.data", "cells", 0, "nova_object.data", "cpu_pinning_raw"),
    ],
    ids=str,
)
def test_however_deep_it_is_nested_it_is_refused(path: tuple[Any, ...], key: str | None):
    for document in (HOSTS["1.5"], GUESTS["1.6"]):
        changed: Any = copy.deepcopy(document)
        deep = nested(0, DEEP, key)
        if path:
            at(changed, path[:-1])[path[-1]] = deep
        else:
            changed = deep
        assert not check_host(changed, None)
        assert not check_guest(changed, None, None)


def test_what_no_version_says_is_the_only_thing_that_is_not_written():
    cell = HostCell(0, distances={0: 10})
    with pytest.raises(CannotDowngrade, match="distances"):
        dump_host_numa_topology(NUMATopologyInventory([cell]))
