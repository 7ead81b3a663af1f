"""The JSON with which placed kinds are stored: its form, its version, and rows without a version.

``stored_kinds.json`` has the rows as commit 1953e92 wrote them, before they had a version.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.backends.sql.backend import SQLBackend
from resource_objects.resources.pci import DeviceUse
from tests import databases
from tests.backends.conftest import ask

GOLDEN = json.loads(Path(__file__).with_name("stored_kinds.json").read_text())
_VERSIONED = '{"version": 1, "description": %s}'


def machine() -> ro.Provider:
    """Return a host whose cells and devices use every key of their descriptions."""
    cells = [
        ro.HostCell(
            number,
            shared=range(8 * number, 8 * number + 4),
            dedicated=range(8 * number + 4, 8 * number + 8),
            memory_mb=4096,
            pages=[
                ro.PagePool(size_kib=4, total=2048 * 256, reserved=256),
                ro.PagePool(size_kib=2048, total=1024, reserved=2),
                ro.PagePool(size_kib=1048576, total=0),
            ],
            siblings=[[8 * number + 4, 8 * number + 5], [8 * number + 6, 8 * number + 7]],
            socket=number,
            distances={0: 10 if number == 0 else 21, 1: 10 if number else 21},
            physnets=["left", "right"] if number else [],
            tunneled=bool(number),
        )
        for number in (0, 1)
    ]
    card = "0000:03:00.0"
    devices = [
        ro.Device(
            "0000:01:00.0",
            "10de",
            "2330",
            resource_class="PGPU",
            class_code="030200",
            numa_node=0,
            traits=["CUSTOM_H100"],
            facts={"driver": "nvidia"},
            live_migratable=False,
            one_time_use=True,
            writes_before=3,
        ),
        ro.Device("0000:02:00.0", "10de", "2330", resource_class="PGPU", withdrawn=True),
        ro.Device(card, "8086", "1572", "type-PF", resource_class="CUSTOM_CARD", numa_node=1),
        *(
            ro.Device(
                f"0000:03:02.{number}",
                "8086",
                "154c",
                "type-VF",
                resource_class="SRIOV_NET_VF",
                parent=card,
                numa_node=1,
                tags={"physical_network": "left"},
                remote_managed=bool(number),
                live_migratable=True,
            )
            for number in (0, 1)
        ),
    ]
    spent = [DeviceUse("0000:01:00.0", "spent")]
    host = ro.Provider("host0", "DISK_GB=100")
    host.add_parts("NUMA_TOPOLOGY", ro.NUMATopologyInventory(cells))
    host.add_parts("DEVICES", ro.PCIInventory(devices, usage=spent))
    return host


def rows(url: str) -> list[list[Any]]:
    """Return the stored descriptions: provider, kind, classes, text."""
    found = ask(
        url,
        "SELECT resource_providers.name, structures.name, structures.classes, structures.body "
        "FROM structures JOIN resource_providers ON resource_providers.id = provider_id "
        "ORDER BY resource_providers.name, structures.name",
    )
    return [[name, kind, _data(classes), _text(body)] for name, kind, classes, body in found]


def _data(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


def _text(value: Any) -> str:
    """Return stored JSON as its text; a driver may have read it, in the order of its keys."""
    return value if isinstance(value, str) else json.dumps(value)


def write(url: str, descriptions: Iterable[tuple[str, str]]) -> None:
    """Replace stored descriptions of providers."""
    update = sqlalchemy.text(
        "UPDATE structures SET body = :body WHERE provider_id ="
        " (SELECT id FROM resource_providers WHERE name = :name)"
    )
    with databases.connect(sqlalchemy.make_url(url)) as connection:
        for name, body in descriptions:
            connection.execute(update, {"name": name, "body": body})
        connection.commit()


@pytest.fixture
def unversioned(ledger: SQLBackend, ledger_url: str) -> str:
    """The URL of a ledger whose descriptions are rows of the time without versions."""
    with ro.connect(ledger_url) as opened:
        opened.sync(machine())
        opened.claim("a", {"host0": {"NUMA_TOPOLOGY": ro.numa(dedicated=2, memory_mb=64)}})
    write(ledger_url, [(name, body) for name, _, _, body in GOLDEN])
    return ledger_url


def test_kinds_describe_inventories_in_the_stored_form(ledger_url: str) -> None:
    with ro.connect(ledger_url) as opened:
        opened.sync(machine())
    assert rows(ledger_url) == [
        [name, kind, classes, _VERSIONED % body] for name, kind, classes, body in GOLDEN
    ]


def test_every_key_of_a_description_is_in_the_golden_file() -> None:
    written = [json.loads(body) for _, _, _, body in GOLDEN]
    devices = [device for body in written if isinstance(body, list) for device in body]
    cells = [body for body in written if isinstance(body, dict)]
    assert set().union(*cells) == {
        *("id", "shared", "dedicated", "siblings", "socket", "distances"),
        *("physnets", "tunneled", "base", "empty"),
    }
    assert set().union(*devices) == {
        *("address", "vendor_id", "product_id", "type", "resource_class", "class_code", "parent"),
        *("numa_node", "tags", "traits", "remote_managed", "live_migratable", "one_time_use"),
        *("facts", "withdrawn", "writes_before", "withheld"),
    }


def test_rows_without_a_version_are_read(unversioned: str, everything: Any) -> None:
    with ro.connect(unversioned) as opened:
        was = everything(opened)
    write(unversioned, [(name, _VERSIONED % body) for name, _, _, body in GOLDEN])
    with ro.connect(unversioned) as opened:
        assert everything(opened) == was
        assert opened.assigned_amounts("a")["host0"]["NUMA_TOPOLOGY"].placed
        assert not opened.audit()


@pytest.fixture
def everything() -> Any:
    def read(ledger: ro.Ledger) -> Any:
        inventories = ledger.inventories("host0")
        return (
            [str(line) for line in ledger.usage()],
            {name: inventories[name].obj_to_primitive() for name in ("NUMA_TOPOLOGY", "DEVICES")},
            [one.kinds for one in ledger.providers()],
            [str(c) for c in ledger.snapshot().candidates("NUMA_TOPOLOGY=1:dedicated=1")],
        )

    return read


def test_the_same_host_is_no_difference_from_rows_without_a_version(unversioned: str) -> None:
    with ro.connect(unversioned) as opened:
        before = opened.feed.cursor()
        assert not opened.diff(machine())
        opened.sync(machine())
        assert list(opened.feed.changes(before)) == []
    assert rows(unversioned) == GOLDEN


def test_a_changed_host_is_written_with_a_version(unversioned: str) -> None:
    changed = machine()
    device = changed.find("host0/0000:02:00.0")
    other = ro.Device("0000:02:00.0", "10de", "2331", resource_class="PGPU")
    device.inventories = ro.Inventories({"DEVICES": ro.PCIInventory([other])})
    with ro.connect(unversioned) as opened:
        opened.sync(changed)
    found = {name: body for name, _, _, body in rows(unversioned)}
    before = {name: body for name, _, _, body in GOLDEN}
    assert {name for name in found if found[name] != before[name]} == {device.name}
    assert found[device.name].startswith('{"version": 1, "description": [{"address": ')


@pytest.mark.parametrize(
    "read",
    [
        pytest.param(lambda ledger: ledger.snapshot(), id="snapshot"),
        pytest.param(lambda ledger: ledger.provider("host0"), id="provider"),
        pytest.param(lambda ledger: list(ledger.providers()), id="list"),
        pytest.param(lambda ledger: ledger.sync(machine()), id="sync"),
        pytest.param(lambda ledger: ledger.assigned_amounts("a"), id="assigned"),
    ],
)
def test_a_newer_version_is_refused_by_name(unversioned: str, read: Any) -> None:
    newer = '{"version": 2, "description": %s}'
    write(unversioned, [(name, newer % body) for name, _, _, body in GOLDEN])
    with (
        ro.connect(unversioned) as opened,
        pytest.raises(exceptions.UnsupportedVersion, match=r"(NUMA_TOPOLOGY|DEVICES): version 2"),
    ):
        read(opened)
