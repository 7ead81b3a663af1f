"""This machine: showing it, keeping it."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import shutil
import socket
import sys

import pytest

from resource_objects.findings import Finding
from resource_objects.host.discovery import discover


@pytest.fixture(autouse=True)
def _on_machine(begun, on_machine):
    """Every test here sees the machine of the fixture, unless it asks another process."""


# --- show ---------------------------------------------------------------------------------------


def test_show_lists_resources_and_facts(run):
    done = run("host", "show")
    assert (done.status, done.err) == (0, "")
    assert done.lines == [
        "+----------+-------------+-------+----------+---------+------------------------------+",
        "| kind     | what        | total | reserved | units   | details                      |",
        "+----------+-------------+-------+----------+---------+------------------------------+",
        "| resource | VCPU        |     4 |        0 | CPUs    | 2 cores, 1 socket            |",
        "| resource | MEMORY_MB   |  8192 |     1024 | MiB     | reserved: 512 pages of 2 MiB |",
        "| resource | DISK_GB     |   100 |        0 | GiB     | file system of /             |",
        "| fact     | NUMA cell 0 |  8000 |          | MiB     | CPUs 0-3                     |",
        "| fact     | NUMA cell 5 |     1 |          | MiB     | no CPUs                      |",
        "| fact     | PCI devices |     3 |          | devices | see --pci                    |",
        "+----------+-------------+-------+----------+---------+------------------------------+",
    ]


def test_show_counts_the_devices_of_a_rule_as_a_resource(run):
    done = run("host", "show", "--rule", "10de:*=PGPU", "--rule", "8086:*=PCI_DEVICE", "-f", "json")
    rows = {row["what"]: row for row in json.loads(done.out)}
    assert rows["PGPU"] == {
        "kind": "resource",
        "what": "PGPU",
        "total": 2,
        "reserved": 0,
        "units": "GPUs",
        "details": "0000:3b:00.0, 0000:86:00.0",
    }
    assert rows["PCI_DEVICE"]["total"] == 1
    assert rows["PCI devices"]["total"] == 3
    assert rows["NUMA cell 0"]["reserved"] is None


def test_show_names_three_devices_and_counts_the_others(run, machine, on_machine):
    devices = tuple(
        dataclasses.replace(machine.devices[1], address=f"0000:{bus:02x}:00.0") for bus in range(5)
    )
    on_machine(dataclasses.replace(machine, devices=devices))
    rows = json.loads(run("host", "show", "--rule", "10de:*=PGPU", "-f", "json").out)
    (gpus,) = [row for row in rows if row["what"] == "PGPU"]
    assert gpus["details"] == "0000:00:00.0, 0000:01:00.0, 0000:02:00.0, 2 more"


def test_show_counts_dedicated_cpus_apart(run):
    rows = json.loads(run("host", "show", "--shared", "0", "--dedicated", "1-2", "-f", "json").out)
    counts = {row["what"]: (row["total"], row["details"]) for row in rows}
    assert counts["VCPU"] == (1, "CPUs 0")
    assert counts["PCPU"] == (2, "CPUs 1-2")


def test_show_pci_lists_the_devices_and_what_they_are_taken_as(run):
    done = run("host", "show", "--pci", "--rule", "10de:*=PGPU", "-f", "csv", "--quote", "none")
    rows = list(csv.DictReader(io.StringIO(done.out)))
    assert [(row["address"], row["id"], row["taken_as"]) for row in rows] == [
        ("0000:01:00.0", "8086:1572", ""),
        ("0000:3b:00.0", "10de:2330", "PGPU"),
        ("0000:86:00.0", "10de:2330", "PGPU"),
    ]
    assert json.loads(run("host", "show", "--pci", "-f", "json").out)[1] == {
        "address": "0000:3b:00.0",
        "id": "10de:2330",
        "name": None,
        "class": "030200",
        "type": "type-PCI",
        "parent": None,
        "vfs": None,
        "most_vfs": None,
        "numa_cell": 0,
        "driver": "nvidia",
        "interfaces": [],
        "vdpa": [],
        "mediated_types": [],
        "uuid": None,
        "taken_as": None,
        "rule": None,
        "skipped": None,
    }


@pytest.mark.parametrize("form", ["table", "json", "csv", "yaml", "value"])
@pytest.mark.parametrize("subject", [[], ["--numa"], ["--pci"]])
def test_show_speaks_every_format(run, form, subject):
    done = run("host", "show", *subject, "-f", form)
    assert (done.status, done.err) == (0, "")
    assert done.out


def test_show_of_this_machine_tells_what_discovery_finds(shell):
    rows = {row["what"]: row for row in json.loads(shell("host", "show", "-f", "json").out)}
    assert rows["VCPU"]["total"] == len(discover("linux").cpus)


def test_show_of_a_directory_without_a_machine_is_one_line(shell):
    done = shell("host", "show", "--root", "/no/such/directory")
    assert (done.status, done.out) == (1, "")
    assert done.err == (
        "resource-objects: /no/such/directory cannot be read: "
        "expected a directory that holds proc and sys\n"
    )


def test_what_could_not_be_read_of_a_machine_is_told(shell, tmp_path):
    (tmp_path / "sys/devices/system/cpu/cpu0").mkdir(parents=True)
    done = shell("host", "show", "--root", str(tmp_path), "-f", "json")
    assert done.status == 0 and json.loads(done.out)[0]["what"] == "VCPU"
    assert done.err.startswith(f"resource-objects: not read: {tmp_path}/proc/meminfo: ")
    done = shell("host", "show", "--root", str(tmp_path), "--strict")
    assert done.status == 1 and f"{tmp_path}/proc/meminfo cannot be read" in done.err


def test_show_of_a_rule_that_is_none_is_one_line(run):
    done = run("host", "show", "--rule", "10de=PGPU")
    assert (done.status, done.out) == (1, "")
    assert done.err.startswith("resource-objects: device rule: got '10de=PGPU', expected VENDOR:")
    assert len(done.err.splitlines()) == 1


def test_show_touches_no_ledger(run, home):
    shutil.rmtree(home / ".local")
    assert run("host", "show").status == 0
    assert list(home.iterdir()) == []


# --- sync ---------------------------------------------------------------------------------------


def test_sync_keeps_the_machine_and_says_what_changed(run):
    assert run("host", "sync").out == "+ box\n"
    assert run("host", "sync").out == "nothing changed\n"
    done = run("host", "sync", "--rule", "10de:*=PGPU+CUSTOM_H100", "--ratio", "VCPU=1.5")
    assert (
        done.out
        == "+ box/0000:3b:00.0\n+ box/0000:86:00.0\n~ box: VCPU=4:max_unit=4:allocation_ratio=1.5\n"
    )
    assert run("provider", "tree").lines == [
        "box  VCPU=4:max_unit=4:allocation_ratio=1.5,MEMORY_MB=8192:reserved=1024,DISK_GB=100  "
        "HW_ARCH_X86_64 HW_CPU_HYPERTHREADING",
        "├─ box/0000:3b:00.0  PGPU=1  CUSTOM_H100",
        "└─ box/0000:86:00.0  PGPU=1  CUSTOM_H100",
    ]
    assert run("host", "sync", "--reserved", "MEMORY_MB=512,DISK_GB=9").lines == [
        "~ box: VCPU=4 MEMORY_MB=8192:reserved=1536 DISK_GB=100:reserved=9",
        "- box/0000:86:00.0",
        "- box/0000:3b:00.0",
    ]


def test_sync_under_a_name(run):
    assert run("host", "sync", "--name", "rack1/box").out == "+ rack1/box\n"
    assert json.loads(run("provider", "list", "-f", "json").out)[0]["provider"] == "rack1/box"


def test_sync_leaves_what_is_held_and_refuses_to_take_it_away(run, machine, on_machine):
    run("host", "sync")
    run("claim", "job-1", "DISK_GB=2")
    on_machine(dataclasses.replace(machine, disk=None))
    done = run("host", "sync", "--reserved", "VCPU=1")
    assert (done.status, done.out) == (1, "")
    assert "box has allocations and its inventory cannot be removed: DISK_GB" in done.err
    assert done.err.splitlines()[1:] == ["  job-1 holds DISK_GB=2 of box"]
    shown = json.loads(run("provider", "show", "box", "-f", "json").out)
    assert shown["inventories"].startswith("VCPU=4,")
    assert run("release", "job-1").status == 0
    assert run("host", "sync", "--ratio", "VCPU=2").status == 0


def test_sync_leaves_devices_that_are_held_and_gives_them_to_nobody_else(run):
    run("host", "sync", "--rule", "10de:*=PGPU")
    run("claim", "job-1", "PGPU=2")
    done = run("host", "sync", "--reserved", "VCPU=1")
    assert (done.status, done.err) == (0, "")
    stays = "retained: no longer offered, cannot be allocated again; allocated to job-1"
    assert done.lines[-2:] == [f"0000:3b:00.0: {stays}", f"0000:86:00.0: {stays}"]
    assert run("release", "job-1").status == 0
    assert run("claim", "job-2", "PGPU=1").status == 1
    assert run("host", "sync").lines[-2:] == ["- box/0000:86:00.0", "- box/0000:3b:00.0"]


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (["--reserved", "MEMORY_MB=9999"], "MEMORY_MB reserved: got 11023, expected at most"),
        (["--reserved", "PGPU=1"], "reserved: got 'PGPU', expected a class that the host offers"),
        (["--reserved", "nonsense"], "amounts: got 'nonsense', expected NAME=VALUE"),
        (["--ratio", "VCPU=0"], "ratios: VCPU: got '0'"),
        (["--ratio", "VCPU=1.1234567"], "ratios: VCPU: got '1.1234567'"),
        (["--rule", "x"], "device rule: got 'x'"),
        (["--name", " box"], "got ' box'"),
        (["--dedicated", "2-4"], "dedicated CPUs: got '4', expected CPUs that are online: 0-3"),
        (["--shared", "0-1", "--dedicated", "1"], "dedicated CPUs: got '1', expected CPUs that"),
        (["--dedicated", "x"], "dedicated CPUs: got 'x', expected a list of CPUs"),
        (["--reserved-pages", "0:2MB=1"], "reserved_pages: got {0: {2048: 1}}, expected nothing"),
        (["--numa", "--reserved-pages", "7:2MB=1"], "reserved pages: cell: got 7, expected a cell"),
    ],
)
def test_sync_with_bad_arguments_is_one_line_and_keeps_nothing(run, argv, line):
    done = run("host", "sync", *argv)
    assert (done.status, done.out) == (1, "")
    assert line in done.err
    assert len(done.err.splitlines()) == 1
    assert run("provider", "list", "-f", "json").out == "[]\n"


def test_sync_of_a_machine_without_a_name_needs_one(run, machine, on_machine):
    on_machine(dataclasses.replace(machine, hostname=None))
    done = run("host", "sync")
    assert (done.status, done.out) == (1, "")
    assert "host name: got None, expected a name" in done.err
    assert run("host", "sync", "--name", "given").out == "+ given\n"


# --- sync of a machine that was shown elsewhere ---


GPUS = ("--rule", "10de:*=PGPU;halves", "--shared", "0-1", "--dedicated", "2-3")


def stored(run):
    return run("export").out, run("host", "show", "--numa", "box", "-f", "json").out


def shown(run, tmp_path, *argv):
    path = tmp_path / "box.json"
    path.write_text(run("host", "show", *argv, "-f", "json").out)
    return path


def test_sync_of_what_was_shown_is_that_of_the_machine_itself(run, tmp_path, on_machine, machine):
    settings = "--numa", "--reserved", "DISK_GB=1", "--ratio", "MEMORY_MB=1.5"
    path = shown(run, tmp_path, *GPUS)
    assert run("host", "sync", *GPUS, *settings).status == 0
    first = stored(run)
    assert "split: halves" in first[0] and "NUMA_TOPOLOGY" in first[0]
    run("provider", "delete", "box")
    on_machine(dataclasses.replace(machine, hostname="another", devices=()))
    done = run("host", "sync", "--from", str(path), *settings)
    assert (done.status, done.err) == (0, "")
    assert stored(run) == first
    assert run("host", "sync", "--from", str(path), *settings).out == "nothing changed\n"


def test_what_was_shown_is_read_from_standard_input(run, tmp_path, monkeypatch):
    text = shown(run, tmp_path).read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    assert run("host", "sync", "--from", "-", "--name", "lab-0").out == "+ lab-0\n"


def test_what_is_given_takes_the_place_of_what_was_shown(run, tmp_path):
    path = shown(run, tmp_path, *GPUS)
    done = run("host", "sync", "--from", str(path), "--rule", "8086:*=PCI_DEVICE", "--shared", "0")
    assert done.lines == ["+ box", "+ box/0000:01:00.0"]
    assert "VCPU=1," in run("provider", "tree").out and "PCPU=2" in run("provider", "tree").out


def test_what_could_not_be_read_there_is_told_here(run, tmp_path, on_machine, machine):
    finding = Finding("/sys/x", detail="missing")
    on_machine(dataclasses.replace(machine, findings=(finding,)))
    path = shown(run, tmp_path)
    assert run("host", "sync", "--from", str(path), "--strict").status == 1
    done = run("host", "sync", "--from", str(path))
    assert (done.out, done.err) == ("+ box\n", "resource-objects: not read: /sys/x: missing\n")


def _without(key):
    return lambda rows: [{k: v for k, v in row.items() if k != key} for row in rows]


def _with(**content):
    def changed(rows):
        rows[-1]["details"].update(content)
        return rows

    return changed


@pytest.mark.parametrize(
    ("change", "status", "line"),
    [
        (lambda rows: json.dumps(rows)[:-40], 2, "expected JSON text"),
        (lambda rows: "box", 2, "shown machine: got b'box', expected JSON text"),
        (lambda rows: "", 2, "expected JSON text"),
        (lambda rows: rows[:-1], 2, "expected the complete output of `host show -f json`"),
        (_without("details"), 2, "expected the complete output of `host show -f json`"),
        (lambda rows: rows + rows[-1:], 2, "expected the complete output of `host show -f json`"),
        (_with(version=2), 1, "a shown machine is of version 2, this library reads version 1"),
        (_with(version=None), 2, '"version": 1'),
        (_with(owner="ann"), 2, "machine: got 'owner', expected one of machine, rules"),
        (_with(rules=["x"]), 1, "device rule: got 'x'"),
        (_with(machine={"cpus": [0]}), 2, "machine.machine.cores"),
        (_with(machine={"cpus": [1, 0], "cores": [], "memory_bytes": 0}), 2, "Machine.cpus"),
    ],
)
def test_what_shows_no_machine_is_one_line_and_keeps_nothing(run, tmp_path, change, status, line):
    path = shown(run, tmp_path)
    created = change(json.loads(path.read_text()))
    path.write_text(created if isinstance(created, str) else json.dumps(created))
    done = run("host", "sync", "--from", str(path))
    assert (done.status, done.out) == (status, "")
    assert line in done.err and len(done.err.splitlines()) == 1
    assert len(done.err) < 1000
    assert run("provider", "list", "-f", "json").out == "[]\n"


def test_sync_of_this_machine_is_kept_under_its_host_name(shell):
    assert shell("host", "sync").out == f"+ {socket.gethostname()}\n"
