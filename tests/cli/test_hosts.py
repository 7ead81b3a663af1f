"""The commands `usage hosts` and `mine`: lines, ages and natural order."""

from __future__ import annotations

import datetime
import json
import pathlib

import pytest

import resource_objects as ro
from resource_objects.cli.base import age as age_cell
from resource_objects.cli.base import age_text
from resource_objects.cli.host_lines import host_lines
from resource_objects.host import partitions


def build(ledger):
    """Keep three machines with four GPUs each, of which jobs hold some."""
    for number in (10, 2, 0):
        host = ro.Provider(f"lab-{number}", "VCPU=64,MEMORY_MB=515000")
        for gpu in range(4):
            partitions.thousandths(host.add(f"lab-{number}/gpu{gpu}", "PGPU=1"))
        ledger.sync(host)

    def start(job, place, amounts, user=None):
        arguments = ro.Request(amounts, in_tree=place)
        ledger.claim(job, ledger.snapshot().candidates(arguments), user=user)

    start("job-7", "lab-0", "VCPU=32,PGPU=2", "ann")
    start("job-9", "lab-0", "VCPU=8,CUSTOM_PGPU_THOUSANDTHS=500", "bob")
    start("cpus", "lab-0", "VCPU=3", "bob")
    for number in range(9):
        start(f"many-{number}", "lab-10", "CUSTOM_PGPU_THOUSANDTHS=250")


@pytest.fixture
def lab(run, sqlite_url, monkeypatch):
    """Run a command on a ledger of them."""
    monkeypatch.setenv("LOGNAME", "ann")
    url = sqlite_url("lab.db", build)
    return lambda *argv: run(*argv, "--database", url)


MANY = ", ".join(f"many-{number} 1/4" for number in range(9))


def test_a_line_for_each_machine_in_natural_order(lab):
    done = lab("usage", "hosts")
    assert (done.status, done.err) == (0, "")
    assert done.lines == [
        "lab-0   GPU 3/4 (1 whole, 1 half free)    CPU 43/64  MEM 0/502.9G  "
        "job-7 2, job-9 1/2, cpus 3 CPU",
        "lab-2   GPU 0/4                           CPU 0/64   MEM 0/502.9G",
        f"lab-10  GPU 3/4 (1 whole, 1 of 3/4 free)  CPU 0/64   MEM 0/502.9G  {MANY}",
    ]


@pytest.mark.parametrize("width", [80, 120])
def test_a_line_is_as_wide_as_may_be(lab, width):
    lines = lab("usage", "hosts", "--max-width", str(width)).lines
    assert [line.split()[0] for line in lines] == ["lab-0", "lab-2", "lab-10"]
    assert all(len(line) <= width and line.isascii() for line in lines)
    assert lines[2].endswith("more")


def test_on_a_narrow_terminal_figures_stand_right_behind_the_name(lab, sqlite_url):
    lab("host", "disable", "lab-10", "--reason", "fan")
    lines = lab("usage", "hosts", "--max-width", "24").lines
    assert lines[1] == "lab-2  GPU 0/4  CPU 0..."
    assert all(len(line) <= 24 for line in lines)


def test_figures_stand_below_each_other_also_where_some_may_be_missing(lab):
    lines = lab("usage", "total").lines
    ends = {
        line.rstrip("| ").rindex(line.split()[-2]) + len(line.split()[-2]) for line in lines[3:-1]
    }
    assert len(lines) > 6 and len(ends) == 1


def test_one_user_s_and_one_s_own(lab):
    assert [line.split()[0] for line in lab("usage", "hosts", "--mine").lines] == ["lab-0"]
    (line,) = lab("usage", "hosts", "--user", "bob").lines
    assert line.endswith("  job-9 1/2, cpus 3 CPU")
    assert lab("usage", "hosts", "--user", "nobody").lines == ["user nobody holds nothing"]
    rows = json.loads(lab("mine", "-f", "json").out)
    assert [(row["consumer"], row["host"], row["holds"]) for row in rows] == [
        ("job-7", "lab-0", {"VCPU": 32, "PGPU": 2})
    ]
    assert datetime.datetime.fromisoformat(rows[0]["since"]).tzinfo is not None
    assert [row["holders"] for row in json.loads(lab("usage", "--mine", "-f", "json").out)] == [
        {"job-7": 32},
        {"job-7": 1},
        {"job-7": 1},
    ]


@pytest.mark.parametrize("arguments", [("mine",), ("usage", "hosts", "--mine")])
def test_who_has_no_name_is_asked_for_one(lab, monkeypatch, arguments):
    monkeypatch.setattr("resource_objects.cli.base.login", lambda: None)
    done = lab(*arguments)
    assert (done.status, done.out) == (2, "")
    assert done.err == "resource-objects: your user has no name; say --user NAME\n"
    assert lab("mine", "--user", "ann").lines


def test_data_has_the_exact_names(lab):
    (row,) = json.loads(lab("usage", "hosts", "lab-0", "-f", "json").out)
    assert [item["resource_class"] for item in row["classes"]] == ["PGPU", "VCPU", "MEMORY_MB"]
    assert row["classes"][0] | {"resource_class": ""} == {
        "resource_class": "",
        "capacity": 4,
        "used": 3,
        "free": 1,
        "parts": ["1/2"],
    }
    assert row["holders"][1]["amounts"] == {"VCPU": 8, "CUSTOM_PGPU_THOUSANDTHS": 500}
    assert row["holders"][1]["shown"] == {"PGPU": "1/2", "VCPU": "8"}


def test_a_machine_that_is_not_there_is_one_line(lab):
    done = lab("usage", "hosts", "lab-7")
    assert (done.status, done.out, len(done.err.splitlines())) == (1, "", 1)
    assert "lab-7" in done.err


def test_no_machines(run):
    assert run("usage", "hosts", "--database", "memory://").lines == ["the ledger has no hosts"]


def test_totals_tell_what_is_free_and_what_there_is(lab):
    rows = json.loads(lab("usage", "total", "-f", "json").out)
    assert {row["resource_class"]: (row["used"], row["free"], row["total"]) for row in rows} == {
        "VCPU": (43, 149, 192),
        "MEMORY_MB": (0, 1545000, 1545000),
        "PGPU": (2, 6, 12),
        "CUSTOM_PGPU_THOUSANDTHS": (2750, 7250, 12000),
    }
    rows = json.loads(lab("usage", "total", "--tree", "lab-2", "-f", "json").out)
    assert [(row["used"], row["free"] == row["total"]) for row in rows] == [(0, True)] * 4
    rows = json.loads(lab("usage", "total", "--provider", "lab-0", "-f", "json").out)
    assert [(row["used"], row["free"], row["total"]) for row in rows] == [
        (43, 21, 64),
        (0, 515000, 515000),
    ]


def test_a_disabled_device_leaves_the_table_of_usage_as_narrow(run, sqlite_url):
    url = sqlite_url("narrow.db")
    with ro.connect(url) as ledger:
        host = ro.Provider("lab-10", "VCPU=64,MEMORY_MB=1024000")
        host.add("lab-10/cell0/gpu0", "PGPU=1,CUSTOM_PGPU_HALF=2")
        ledger.sync(host)
        ledger.claim("ann-train", {"lab-10/cell0/gpu0": "CUSTOM_PGPU_HALF=1"})
        ledger.disable("lab-10/cell0/gpu0", reason="xid 79")
    lines = run("usage", "--database", url, "--max-width", "80").lines
    assert lines[0].startswith("+--") and max(map(len, lines)) <= 80
    output = " ".join(" ".join(line.split("|")[-2].split()) for line in lines if "|" in line)
    assert " ".join(output.split()) == "holders disabled: xid 79 ann-train 1, disabled: xid 79"
    (row, *_) = json.loads(run("usage", "--database", url, "-f", "json", "-c", "disabled").out)[2:]
    assert row["disabled"].endswith(": xid 79")


@pytest.mark.parametrize("command", ["usage", "provider list"])
def test_lists_are_in_natural_order(lab, command):
    rows = json.loads(lab(*command.split(), "-f", "json").out)
    roots = dict.fromkeys(row["provider"].partition("/")[0] for row in rows)
    assert list(roots) == ["lab-0", "lab-2", "lab-10"]


def test_ages_as_people_say_them_and_times_for_programs(lab):
    now = datetime.datetime(2030, 1, 5, 12, tzinfo=datetime.UTC)
    age = age_cell(now - datetime.timedelta(hours=3, minutes=59), now)
    assert (age.human_readable(), age.machine_readable()) == ("3 h", "2030-01-05T08:01:00+00:00")
    assert age_cell(None, now).human_readable() == ""
    assert age_text(datetime.timedelta(days=2)) == "2 days"
    since = lab("consumer", "list", "-f", "csv", "-c", "since").lines[1].strip('"')
    assert datetime.datetime.fromisoformat(since).tzinfo is not None


def test_what_is_out_of_service_is_said_and_not_free(tmp_path: pathlib.Path):
    with ro.connect("memory://") as ledger:
        host = ro.Provider("box", "VCPU=4")
        for number in range(2):
            host.add(f"box/gpu{number}", "PGPU=1")
        ledger.sync(host)
        ledger.disable("box/gpu1", reason="fan")
        (line,) = host_lines(ledger.snapshot().host_usage())
        assert line == "box  GPU 0/2 (1 whole free)  CPU 0/4"
        ledger.disable("box", reason="move")
        (line,) = host_lines(ledger.snapshot().host_usage())
        assert line.startswith("box (disabled)  GPU 0/2 (0 whole free)")
