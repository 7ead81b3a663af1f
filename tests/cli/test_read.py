"""Usage and providers: lists, trees, one provider."""

from __future__ import annotations

import json

import pytest

import resource_objects as ro


@pytest.fixture
def lab(run, sqlite_url):
    """Run a command on a ledger of two hosts with two consumers."""
    url = sqlite_url("lab.db")
    host = ro.Provider("host0", "VCPU=4:reserved=1:allocation_ratio=2", traits=["CUSTOM_FAST"])
    host.add("host0/gpu0", "PGPU=1", traits=["CUSTOM_H100", "CUSTOM_A"])
    with ro.connect(url) as ledger:
        ledger.sync(host, ro.Provider("host1", "VCPU=4"))
        ledger.claim("job-1", {"host0": "VCPU=2", "host0/gpu0": "PGPU=1"})
        ledger.claim("job-2", {"host0": "VCPU=1"})
    return lambda *argv: run(*argv, "--database", url)


# --- usage --------------------------------------------------------------------------------------


def test_usage_lists_every_inventory(lab):
    done = lab("usage")
    assert (done.status, done.err) == (0, "")
    assert done.out == (
        "+------------+----------------+------+----------+------+------------------+\n"
        "| provider   | resource_class | used | capacity | free | holders          |\n"
        "+------------+----------------+------+----------+------+------------------+\n"
        "| host0      | VCPU           |    3 |        6 |    3 | job-1 2, job-2 1 |\n"
        "| host0/gpu0 | PGPU           |    1 |        1 |    0 | job-1 1          |\n"
        "| host1      | VCPU           |    0 |        4 |    4 |                  |\n"
        "+------------+----------------+------+----------+------+------------------+\n"
    )


def test_usage_speaks_json_and_can_be_sorted_and_cut(lab):
    argv = ["-f", "json", "-c", "provider", "-c", "holders", "--sort-column", "free"]
    assert json.loads(lab("usage", *argv).out) == [
        {"provider": "host0/gpu0", "holders": {"job-1": 1}},
        {"provider": "host0", "holders": {"job-1": 2, "job-2": 1}},
        {"provider": "host1", "holders": {}},
    ]


@pytest.mark.parametrize("name", ["host0", "host0/gpu0"])
def test_usage_of_a_provider_is_that_of_its_tree(lab, name):
    rows = json.loads(lab("usage", name, "-f", "json").out)
    assert [row["provider"] for row in rows] == ["host0", "host0/gpu0"]


def test_usage_as_a_tree_with_bars(lab):
    assert lab("usage", "--tree").lines == [
        "host0",
        "├─ VCPU     ██████████░░░░░░░░░░  3 of 6  job-1 2, job-2 1",
        "└─ host0/gpu0",
        "   └─ PGPU  ████████████████████  1 of 1  job-1 1",
        "host1",
        "└─ VCPU     ░░░░░░░░░░░░░░░░░░░░  0 of 4",
    ]
    assert lab("usage", "--tree", "host1").lines == [
        "host1",
        "└─ VCPU  ░░░░░░░░░░░░░░░░░░░░  0 of 4",
    ]


def test_usage_of_nobody_is_one_line(lab):
    for argv in ([], ["--tree"]):
        done = lab("usage", "nowhere", *argv)
        assert (done.status, done.out) == (1, "")
        assert done.err == "resource-objects: nowhere is not a provider of this ledger\n"


def test_usage_of_an_empty_ledger(run):
    assert run("usage", "--tree", "--database", "memory://").out == "nothing is kept\n"
    assert json.loads(run("usage", "-f", "json", "--database", "memory://").out) == []


# --- providers ----------------------------------------------------------------------------------


def test_provider_list_lists_all_with_what_they_declare(lab):
    rows = json.loads(lab("provider", "list", "-f", "json").out)
    assert all(type(row.pop("generation")) is int for row in rows)
    assert [tuple(row.values()) for row in rows] == [
        ("host0", "", "VCPU=4:reserved=1:allocation_ratio=2", ["CUSTOM_FAST"], [], None, None),
        ("host0/gpu0", "host0", "PGPU=1", ["CUSTOM_A", "CUSTOM_H100"], [], None, None),
        ("host1", "", "VCPU=4", [], [], None, None),
    ]
    assert "| host0/gpu0 | host0  | PGPU=1 " in lab("provider", "list").out


def test_provider_show_tells_one_by_name_or_uuid(lab):
    shown = json.loads(lab("provider", "show", "host0", "-f", "json").out)
    uuid, generation = shown.pop("uuid"), shown.pop("generation")
    output = json.loads(lab("provider", "list", "--name", "host0", "-f", "json").out)
    assert generation == output[0]["generation"]
    assert shown == {
        "provider": "host0",
        "inventories": "VCPU=4:reserved=1:allocation_ratio=2",
        "traits": ["CUSTOM_FAST"],
        "aggregates": [],
        "shares": [],
        "children": ["host0/gpu0"],
        "disabled": None,
        "reported": None,
    }
    assert lab("provider", "show", uuid, "-f", "value", "-c", "provider").out == "host0\n"
    assert "| children    | host0/gpu0 " in lab("provider", "show", "host0").out


def test_provider_tree_draws_all_or_one(lab):
    assert lab("provider", "tree").lines == [
        "host0  VCPU=4:reserved=1:allocation_ratio=2  CUSTOM_FAST",
        "└─ host0/gpu0  PGPU=1  CUSTOM_A CUSTOM_H100",
        "host1  VCPU=4",
    ]
    assert lab("provider", "tree", "host0/gpu0").lines == [
        "host0/gpu0  PGPU=1  CUSTOM_A CUSTOM_H100"
    ]


@pytest.mark.parametrize("command", ["show", "tree"])
def test_a_provider_that_is_not_there_is_one_line(lab, command):
    done = lab("provider", command, "nowhere")
    assert (done.status, done.out) == (1, "")
    assert done.err == "resource-objects: nowhere is not a provider of this ledger\n"


@pytest.mark.parametrize("form", ["table", "json", "csv", "yaml", "value"])
@pytest.mark.parametrize("command", ["usage", "provider list"])
def test_lists_speak_every_format(lab, command, form):
    done = lab(*command.split(), "-f", form)
    assert (done.status, done.err) == (0, "")
    assert "host0/gpu0" in done.out
