"""Out of service, by the command: what the page about it does not show."""

from __future__ import annotations

import json

import pytest

import resource_objects as ro
from resource_objects.ledger import Ledger

CARD, PART = "0000:3b:00.0", "0000:3b:00.2"


@pytest.fixture
def lab(run, url: str):
    """A host with a network card and a function split off it, and another without devices."""
    host = ro.Provider("host0", "VCPU=8")
    devices = [
        ro.Device(CARD, "8086", "1563", type="type-PF", resource_class="PCI_DEVICE"),
        ro.Device(PART, "8086", "1565", type="type-VF", parent=CARD, resource_class="SRIOV_NET_VF"),
    ]
    host.add_parts("DEVICES", ro.PCIInventory(devices))
    with ro.connect(url) as ledger:
        ledger.sync(host, ro.Provider("host1", "VCPU=8"))
    return lambda *words: run("--database", url, *words)


@pytest.fixture
def url(sqlite_url) -> str:
    return sqlite_url("lab.db")


def _open(url: str) -> Ledger:
    return ro.connect(url)


def test_a_device_is_disabled_with_what_is_split_off_it(lab) -> None:
    done = lab("device", "disable", f"host0/{CARD}", "--reason", "link", "--actor", "me")
    assert done.out.startswith(f"host0/{CARD}: disabled since ") and "by me: link" in done.out
    rows = json.loads(lab("device", "list", "-f", "json").out)
    assert {row["device"] for row in rows if "by me: link" in (row["disabled"] or "")} == {
        f"host0/{CARD}",
        f"host0/{PART}",
    }
    assert "available, disabled" in lab("device", "list").out
    assert json.loads(lab("device", "list", "--free", "-f", "json").out) == []
    shown = json.loads(lab("device", "show", f"host0/{PART}", "-f", "json").out)
    assert "by me: link" in shown["disabled"]
    for expected in ("SRIOV_NET_VF=1", "PCI_DEVICE=1"):
        refused = lab("claim", "job-1", expected)
        assert refused.status == 1 and f"host0/{CARD}: disabled" in refused.err
    assert "by me: link" in lab("changes", "--limit", "9").out
    assert json.loads(lab("device", "drain", f"host0/{CARD}", "-f", "json").out) == []
    assert lab("device", "enable", f"host0/{CARD}").out == f"host0/{CARD}: enabled\n"
    assert lab("claim", "job-1", "SRIOV_NET_VF=1").status == 0


def test_a_virtual_function_is_not_disabled_without_its_card(lab) -> None:
    for words in (("disable", "--reason", "link"), ("drain", "--reason", "link"), ("enable",)):
        refused = lab("device", words[0], f"host0/{PART}", *words[1:])
        assert (refused.status, refused.out) == (1, "")
        assert refused.err == (
            f"resource-objects: device: got 'host0/{PART}', expected a whole device: "
            f"a virtual function is disabled with its card host0/{CARD}\n"
        )
    rows = json.loads(lab("device", "list", "-f", "json").out)
    assert not any(row["disabled"] for row in rows)
    assert PART not in lab("changes", "--limit", "9").out
    assert lab("claim", "job", "SRIOV_NET_VF=1").status == 0


def test_what_is_no_device_is_not_disabled(lab) -> None:
    for bad in ("host0", "host0/xyz", f"host7/{CARD}"):
        assert lab("device", "disable", bad, "--reason", "link").status == 1


def test_a_device_that_is_a_provider_by_its_own_name_is_one_too(lab, url: str) -> None:
    """As a site's file names its GPUs."""
    gpu = "host9/gpu0"
    with _open(url) as ledger:
        ledger.sync(ro.Provider("host9", "VCPU=1", children=[ro.Provider(gpu, "PGPU=1")]))
    text = lab("device", "disable", gpu, "--reason", "ecc", "--actor", "me").out
    assert text.startswith(f"{gpu}: disabled ") and text.endswith("by me: ecc\n")
    assert lab("device", "drain", gpu).status == 0
    assert lab("device", "enable", gpu).out == f"{gpu}: enabled\n"


def test_the_devices_of_a_disabled_host_are_told_with_it(lab) -> None:
    lab("host", "disable", "host0", "--reason", "fan", "--actor", "me")
    rows = json.loads(lab("device", "list", "-f", "json").out)
    assert all("by me: fan" in row["disabled"] for row in rows)


@pytest.mark.parametrize("until", ["yesterday", "0h", "2030-01-01", "2001-01-01T00:00Z"])
def test_an_end_that_cannot_be_is_refused(lab, until: str) -> None:
    refused = lab("host", "disable", "host1", "--reason", "fan", "--until", until)
    # a moment that is over is refused by the clock of the ledger
    assert refused.status == (1 if "T" in until else 2) and "until" in refused.err


@pytest.mark.parametrize("until", ["30m", "8h", "3d", "2100-01-01T08:00+01:00"])
def test_an_end_is_a_time_from_now_or_a_moment(lab, url: str, until: str) -> None:
    lab("host", "disable", "host1", "--reason", "fan", "--until", until)
    with _open(url) as ledger:
        [item] = ledger.providers(name="host1")
        assert item.disabled is not None and item.disabled.until is not None
        assert item.disabled.until > ledger.backend.now()


def test_drain_says_why_only_where_it_is_not_known(lab) -> None:
    refused = lab("provider", "drain", "host1")
    assert (refused.status, refused.out) == (2, "")
    assert refused.err == "resource-objects: host1 is in service: say why with --reason\n"
    assert lab("provider", "drain", "host1", "--reason", "fan").status == 0
    assert lab("provider", "drain", "host1").status == 0
    assert lab("provider", "disable", "host1").status == 2  # without a reason


def test_a_consumer_is_moved_to_what_is_disabled_by_who_says_so(lab) -> None:
    lab("claim", "job-1", "VCPU=1", "--at", "host0")
    lab("host", "disable", "host1", "--reason", "fan")
    assert "host1: disabled" in lab("allocation", "move", "job-1", "--to", "host1").err
    words = ("allocation", "move", "job-1", "--to", "host1", "--override-disabled", "--actor", "me")
    assert lab(*words).status == 0
    assert "overridden" in lab("changes").out
    assert lab("allocation", "move", "job-1", "--to", "host0").status == 0


def test_an_allocation_is_set_of_what_is_disabled_by_who_says_so(lab) -> None:
    lab("host", "disable", "host1", "--reason", "fan")
    words = ("allocation", "set", "job-1", "--allocation", "host1,VCPU=1")
    assert "host1: disabled" in lab(*words).err
    assert lab(*words, "--override-disabled", "--actor", "me").status == 0
    assert "overridden" in lab("changes").out


def test_usage_tells_what_is_disabled(lab, url: str) -> None:
    assert "disabled" not in lab("usage").out
    assert lab("usage", "-c", "disabled", "-f", "value").out.strip() == ""
    before = json.loads(lab("usage", "total", "-f", "json").out)
    lab("host", "disable", "host0", "--reason", "fan", "--actor", "me")
    assert "disabled: fan" in lab("usage").out
    assert "by me: fan" in lab("usage", "-c", "disabled").out
    for row in json.loads(lab("usage", "-f", "json").out):
        assert ("fan" in (row["disabled"] or "")) == row["provider"].startswith("host0")
    for by in ("resource_class", "provider"):
        rows = json.loads(lab("usage", "total", "--by", by, "-f", "json").out)
        for row in rows:
            if by == "provider" and row["group"].startswith("host0"):
                assert row["free"] == 0 < row["total"]
    with _open(url) as ledger:
        disabled = ledger.usage()["host0", "VCPU"].to_dict()["disabled"]
        assert (disabled["reason"], disabled["by"]) == ("fan", "me")
        remaining = ledger.snapshot()
        free = sum(use.free for use in ledger.usage("host1") if use.resource_class == "VCPU")
        assert remaining.free("VCPU") == free < remaining.capacity("VCPU")
        assert {row["resource_class"]: row["total"] for row in before}[
            "VCPU"
        ] == remaining.capacity("VCPU")


def test_the_drawing_of_cells_says_what_is_disabled(run, url: str) -> None:
    host = ro.Provider("host0", "PCPU=8")
    cells = [ro.HostCell(n, dedicated=range(4 * n, 4 * n + 4), memory_mb=1) for n in (0, 1)]
    host.add_parts("NUMA_TOPOLOGY", ro.NUMATopologyInventory(cells))
    with ro.connect(url, actor="me") as ledger:
        ledger.sync(host)
        ledger.disable("host0", reason="fan")
        ledger.disable("host0/numa1", reason="dimm")
    drawn = run("--database", url, "host", "show", "--numa", "host0").lines
    assert drawn[1].startswith("host0: disabled since ") and drawn[1].endswith("by me: fan")
    assert drawn[2].startswith("host0/numa1: disabled since ")
