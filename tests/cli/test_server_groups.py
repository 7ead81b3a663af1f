"""server group create, list, show, delete; claims, lists and the scheduler that name one."""

from __future__ import annotations

import json

import pytest

import resource_objects as ro


@pytest.fixture
def lab(run, sqlite_url):
    """Run a command on a ledger of three hosts."""
    url = sqlite_url("lab.db")
    with ro.connect(url) as ledger:
        ledger.sync(*(ro.Provider(f"host{n}", "VCPU=8") for n in range(3)))
    return lambda *argv: run(*argv, "--database", url)


def rows(lab, *argv):
    done = lab(*argv, "-f", "json")
    assert (done.status, done.err) == (0, "")
    return json.loads(done.out)


def test_a_server_group_from_its_making_to_its_end(lab):
    assert rows(lab, "server", "group", "list") == []
    assert lab("server", "group", "create", "db", "anti-affinity").status == 0
    assert lab("server", "group", "create", "web", "soft-affinity").status == 0
    assert lab("server", "group", "create", "db", "anti-affinity").status == 0
    for name, host in (("db-1", "host0"), ("db-2", "host1"), ("db-10", "host2")):
        (row,) = rows(lab, "claim", name, "VCPU=1", "--server-group", "db")
        assert row["provider"] == host
    assert rows(lab, "server", "group", "list") == [
        {
            "name": "db",
            "policy": "anti-affinity",
            "max_per_host": 1,
            "members": ["db-1", "db-2", "db-10"],
        },
        {"name": "web", "policy": "soft-affinity", "max_per_host": None, "members": []},
    ]
    shown = rows(lab, "server", "group", "show", "db")
    assert shown["members"] == ["db-1", "db-2", "db-10"]
    assert shown["hosts"] == ["host0", "host1", "host2"]
    assert rows(lab, "server", "group", "show", "web")["hosts"] == []
    refused = lab("server", "group", "delete", "db")
    assert (refused.status, "db has members" in refused.err) == (1, True)
    for name in ("db-1", "db-2", "db-10"):
        assert lab("release", name).status == 0
    assert lab("server", "group", "delete", "db").status == 0
    assert [item["name"] for item in rows(lab, "server", "group", "list")] == ["web"]


def test_a_claim_says_who_of_the_group_is_where(lab):
    lab("server", "group", "create", "db", "anti-affinity")
    for number in range(3):
        lab("claim", f"db-{number}", "VCPU=1", "--server-group", "db")
    done = lab("claim", "db-3", "VCPU=1", "--server-group", "db")
    assert done.status == 75  # whoever gives back makes room
    assert "host1: db-1 of group db is there already (affinity)" in done.err
    (row,) = rows(lab, "claim", "db-1", "VCPU=2", "--server-group", "db", "--replace")
    assert (row["provider"], row["amount"]) == ("host1", 2)


def test_who_is_in_a_group_is_shown_and_listed(lab):
    lab("server", "group", "create", "web", "affinity")
    lab("allocation", "set", "web-1", "--allocation", "host1,VCPU=2", "--server-group", "web")
    lab("claim", "other", "VCPU=1")
    (row,) = rows(lab, "allocation", "show", "web-1")
    assert (row["provider"], row["group"]) == ("host1", "web")
    assert rows(lab, "consumer", "show", "web-1")["group"] == "web"
    listed = rows(lab, "consumer", "list", "--server-group", "web")
    assert [item["consumer"] for item in listed] == ["web-1"]
    totals = rows(lab, "usage", "total", "--by", "group")
    assert [(item["group"], item["used"]) for item in totals] == [("web", 2), (None, 1)] or [
        (item["group"], item["used"]) for item in totals
    ] == [(None, 1), ("web", 2)]
    (used,) = rows(lab, "usage", "total", "--server-group", "web")
    assert used["used"] == 2


def test_a_pool_is_no_host_of_a_group(lab):
    lab("provider", "create", "nfs", "DISK_GB=100")
    lab("pool", "share", "nfs", "--with", "host1")
    lab("server", "group", "create", "web", "affinity")
    taken = ("--allocation", "host1,VCPU=2", "--allocation", "nfs,DISK_GB=5")
    lab("allocation", "set", "web-1", *taken, "--server-group", "web")
    assert len(rows(lab, "allocation", "show", "web-1")) == 2
    assert rows(lab, "server", "group", "show", "web")["hosts"] == ["host1"]


def test_schedule_names_a_group(lab):
    lab("server", "group", "create", "web", "affinity")
    lab("allocation", "set", "web-1", "--allocation", "host1,VCPU=2", "--server-group", "web")
    result = rows(
        lab, "schedule", "VCPU=1", "--server-group", "web", "--claim", "w", "--count", "2"
    )
    assert [item["host"] for item in result] == ["host1", "host1"]
    assert rows(lab, "server", "group", "show", "web")["members"] == ["w-1", "w-2", "web-1"]


@pytest.mark.parametrize(
    ("words", "status", "output"),
    [
        (["server", "group", "create", "x", "apart"], 2, "one of affinity, anti-affinity"),
        (["server", "group", "create", "x", "affinity", "--max-per-host", "2"], 2, "expected 1"),
        (["server", "group", "show", "no"], 1, "no is not a server group"),
        (["server", "group", "delete", "no"], 1, "no is not a server group"),
        (["claim", "a", "VCPU=1", "--server-group", "no"], 1, "no is not a server group"),
        (["schedule", "VCPU=1", "--server-group", "no"], 1, "no is not a server group"),
        (
            ["schedule", "VCPU=1", "--server-group", "g", "--policy", "affinity"],
            2,
            "its --policy and --members are known",
        ),
    ],
)
def test_what_cannot_be_is_told(lab, words, status, output):
    done = lab(*words)
    assert (done.status, output in done.err) == (status, True), done.err
