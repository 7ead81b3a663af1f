"""The command `candidates`: its options, its table, its document and its exit status."""

from __future__ import annotations

import argparse
import json

import pytest

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.cli import request_arguments
from resource_objects.cli.base import add_to
from resource_objects.requests import Request, RequestGroup, query
from resource_objects.resources.numa import HostCell, NUMATopologyInventory
from resource_objects.testing.conformance.suite import host_of

BRIEF = ("-c", "#", "-c", "allocation", "-c", "resource provider", "-f", "value")


def build(ledger: ro.Ledger) -> None:
    """Keep a host with two GPUs, a half used one without, and a pool that both may use."""
    host = ro.Provider("host0", "VCPU=8", traits=["CUSTOM_FAST"], aggregates=["rack1"])
    for number, trait in enumerate(("CUSTOM_A100", "CUSTOM_H100")):
        host.add(f"host0/gpu{number}", "PGPU=1", traits=[trait])
    ledger.sync(host, ro.Provider("host1", "VCPU=8"), ro.Provider("nfs", "DISK_GB=100"))
    ledger.pools.share("nfs", hosts=["host0", "host1"])
    ledger.claim("job", {"host1": "VCPU=4"})


@pytest.fixture
def url(sqlite_url) -> str:
    """A ledger of them."""
    return sqlite_url("lab.db", build)


@pytest.fixture
def lab(run, url):
    """Run a command on that ledger."""
    return lambda *argv: run(*argv, "--database", url)


@pytest.fixture
def hosts(lab):
    """Return the hosts that are found, in their order."""

    def result(*argv: str) -> list[str]:
        done = lab("candidates", *argv, "--json")
        assert done.status == 0, done.err
        return [item["host"] for item in json.loads(done.out)["candidates"]]

    return result


# --- the words ----------------------------------------------------------------------------------


def read(*argv: str) -> query.ParsedQuery:
    """Return the request of command-line arguments."""
    parser = argparse.ArgumentParser()
    add_to(parser, request_arguments.REQUEST)
    return request_arguments.parse_request(parser.parse_args(argv))


GPU = RequestGroup("PGPU=1", suffix="_GPU")


@pytest.mark.parametrize(
    ("argv", "request_"),
    [
        ("VCPU=2", Request("VCPU=2")),
        ("--resource VCPU=2 --resource MEMORY_MB=64", Request("VCPU=2,MEMORY_MB=64")),
        ("MEMORY_MB=64 --resource VCPU=2", Request("VCPU=2,MEMORY_MB=64")),
        ("NUMA_TOPOLOGY=2:shared=4", Request("NUMA_TOPOLOGY=2:shared=4")),
        ("VCPU=2 --required CUSTOM_A", Request("VCPU=2", required=["CUSTOM_A"])),
        ("VCPU=2 --required !CUSTOM_A", Request("VCPU=2", forbidden=["CUSTOM_A"])),
        ("VCPU=2 --forbidden CUSTOM_A", Request("VCPU=2", forbidden=["CUSTOM_A"])),
        (
            "VCPU=2 --required CUSTOM_A --required CUSTOM_B",
            Request("VCPU=2", required=["CUSTOM_A", "CUSTOM_B"]),
        ),
        (
            "VCPU=2 --required CUSTOM_A,CUSTOM_B --required in:CUSTOM_C,CUSTOM_D",
            Request("VCPU=2", any_of=[["CUSTOM_A", "CUSTOM_B"], ["CUSTOM_C", "CUSTOM_D"]]),
        ),
        ("VCPU=2 --member-of a", Request("VCPU=2", member_of=["a"])),
        (
            "VCPU=2 --member-of a,b --member-of in:c,d",
            Request("VCPU=2", member_of=[["a", "b"], ["c", "d"]]),
        ),
        (
            "VCPU=2 --member-of !a --member-of !b,c --member-of !in:d,e",
            Request("VCPU=2", not_member_of=list("abcde")),
        ),
        ("VCPU=2 --in-tree host0", Request("VCPU=2", in_tree="host0")),
        (
            "VCPU=2 --group _GPU --resource PGPU=1 --required CUSTOM_A --in-tree h",
            Request(
                "VCPU=2",
                groups=[RequestGroup("PGPU=1", suffix="_GPU", required=["CUSTOM_A"], in_tree="h")],
            ),
        ),
        (
            "--group 1 --resource VCPU=1 --group 2 --resource VCPU=2 --group 1 --forbidden CUSTOM_A"
            " --group-policy isolate",
            Request(
                groups=[
                    RequestGroup("VCPU=1", suffix="1", forbidden=["CUSTOM_A"]),
                    RequestGroup("VCPU=2", suffix="2"),
                ],
                group_policy="isolate",
            ),
        ),
        (
            "--group _GPU --resource PGPU=1 --group _CELL --same-subtree _CELL,_GPU",
            Request(groups=[GPU, RequestGroup(suffix="_CELL")], same_subtree=[["_CELL", "_GPU"]]),
        ),
        (
            "VCPU=2 --root-required CUSTOM_A --root-required !CUSTOM_B",
            Request("VCPU=2", root_required=["CUSTOM_A"], root_forbidden=["CUSTOM_B"]),
        ),
        ("VCPU=2 --near numa", Request("VCPU=2", near="numa")),
        (
            "VCPU=2 --near CUSTOM_SOCKET --near-policy required",
            Request("VCPU=2", near="CUSTOM_SOCKET", near_policy="required"),
        ),
        ("VCPU=2 --compatibility placement", Request("VCPU=2", compatibility="placement")),
        ("VCPU=2 --compatibility ours", Request("VCPU=2")),
        (
            "--query resources=VCPU:2&resources_GPU=PGPU:1",
            Request("VCPU=2", groups=[GPU], compatibility="placement"),
        ),
        ("--query resources=VCPU:2 --compatibility ours", Request("VCPU=2")),
    ],
)
def test_words_ask(argv, request_):
    assert read(*argv.split()).request == request_


def test_two_command_lines_do_not_share_their_groups():
    parser = argparse.ArgumentParser()
    add_to(parser, request_arguments.REQUEST)
    for _ in range(2):
        text = parser.parse_args(["--group", "_GPU", "--resource", "PGPU=1"])
        assert request_arguments.parse_request(text).request == Request(groups=[GPU])


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        ("", "no request: expected AMOUNTS such as VCPU=2, --resource or --query"),
        ("VCPU", "--resource: got 'VCPU', expected NAME=VALUE"),
        ("VCPU=x", "--resource: got 'x', expected a whole number"),
        ("VCPU=0", "--resource: got 'VCPU=0'"),
        ("VCPU=99999999999999999999", "--resource: got '99999999999999999999'"),
        ("NO_SUCH=1", "--resource: got 'NO_SUCH', expected a standard or CUSTOM_ class"),
        ("VCPU=1 --resource VCPU=2", "--resource: got 'VCPU', expected each class once"),
        ("--group _A --resource x", "--resource of group _A: got 'x'"),
        ("VCPU=1 --required NOPE", "--required: got 'NOPE', expected a standard or CUSTOM_ trait"),
        ("VCPU=1 --required in:", "--required: got 'in:'"),
        ("VCPU=1 --required !CUSTOM_A,CUSTOM_B", "--required: got '!CUSTOM_A,CUSTOM_B'"),
        ("VCPU=1 --forbidden CUSTOM_A,CUSTOM_B", "--forbidden: got 'CUSTOM_A,CUSTOM_B'"),
        ("VCPU=1 --required CUSTOM_A --forbidden CUSTOM_A", "forbidden: got ['CUSTOM_A']"),
        ("VCPU=1 --member-of in:", "--member-of: got 'in:'"),
        ("VCPU=1 --member-of a,!b", "--member-of: got 'a,!b'"),
        ("VCPU=1 --in-tree a --in-tree b", "--in-tree: got ['a', 'b'], expected one provider"),
        ("VCPU=1 --group _A", "group _A: got 'nothing', expected an amount"),
        ("VCPU=1 --group a! --resource VCPU=1", "suffix: got 'a!'"),
        ("VCPU=1 --same-subtree _A", "same_subtree: got ['_A']"),
        ("VCPU=1 --same-subtree ,", "--same-subtree: got ','"),
        ("VCPU=1 --root-required CUSTOM_A,CUSTOM_B", "--root-required: got 'CUSTOM_A,CUSTOM_B'"),
        (
            "VCPU=1 --near socket",
            "near: got 'socket', expected numa, or the trait of ",
        ),
        (
            "VCPU=1 --near-policy required",
            "near_policy: got 'required', expected a level beside it",
        ),
        ("VCPU=1 --near numa --compatibility placement", "near: got 'numa', expected none by the"),
        ("--near numa --query resources=VCPU:1", "beside --query: got '--near'"),
        ("VCPU=1 --limit 0", "limit: got 0"),
        ("VCPU=1 --per-host -1", "per_host: got -1"),
        ("VCPU=1 --budget 0", "budget: got 0"),
        ("VCPU=1 --seed -1", "seed: got -1"),
        ("VCPU=1 --seed 1 --among 0", "among: got 0"),
        ("VCPU=1 --weight VCPU", "--weight: got 'VCPU', expected CLASS=NUMBER"),
        ("VCPU=1 --weight VCPU=much", "--weight: got 'VCPU=much', expected CLASS=NUMBER"),
        ("VCPU=1 --weight VCPU=nan", "weights VCPU: got nan"),
        ("VCPU=1 --weight NO_SUCH=1", "got 'NO_SUCH', expected a standard or CUSTOM_ class"),
        ("VCPU=1 --limits host0", "--limits: got 'host0', expected PROVIDER:AMOUNTS"),
        ("VCPU=1 --limits VCPU=1", "--limits: got 'VCPU=1', expected PROVIDER:AMOUNTS"),
        ("VCPU=1 --limits host0:VCPU=-1", "limit of VCPU: got IntegerAmount(-1), expected 0"),
        ("VCPU=1 --limits host0:VCPU=x", "amount of VCPU: got 'x'"),
        ("VCPU=1 --limits host0:NO_SUCH=1", "got 'NO_SUCH', expected a standard or CUSTOM_ class"),
        (
            "VCPU=1 --limits host0:VCPU=1 --limits host0:VCPU=1",
            "--limits: got 'host0', expected each provider once",
        ),
        ("VCPU=1 --prefer =1", "--prefer: got '=1', expected TRAIT=NUMBER"),
        ("VCPU=1 --prefer CUSTOM_A --prefer CUSTOM_A=2", "--prefer: got 'CUSTOM_A'"),
        ("--query x", "x: got '', expected a value"),
        ("--query resources=VCPU:x", "resources: got 'x'"),
        ("--query resources=VCPU:1&limit=3 --limit 3", "--limit: got 3, expected one limit"),
        ("VCPU=1 --query resources=VCPU:1", "beside --query: got 'VCPU=1'"),
        ("--required CUSTOM_A --query resources=VCPU:1", "beside --query: got '--required'"),
        ("--group _A --query resources=VCPU:1", "beside --query: got '--group _A'"),
        ("--group-policy none --query resources=VCPU:1", "beside --query: got '--group-policy'"),
    ],
)
def test_what_cannot_be_is_one_line_and_status_2(lab, argv, text):
    for more in ((), ("--json",)):
        done = lab("candidates", *argv.split(), *more)
        assert (done.status, done.out) == (2, "")
        assert done.err.startswith("resource-objects: ") and done.err.count("\n") == 1
        assert text in done.err


@pytest.mark.parametrize("argv", ["--limit x", "--order best", "--group-policy x", "--group="])
def test_words_that_are_none_tell_the_usage(lab, argv):
    done = lab("candidates", "VCPU=1", *argv.split())
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith("usage: resource-objects candidates")
    assert "error: argument --" in done.err.splitlines()[-1]


def test_debug_shows_where_bad_input_was_found(run):
    done = run("--debug", "candidates", "VCPU=x")
    assert done.status == 2
    assert "resource_objects.exceptions.InvalidInput: " in done.err


# --- for people ---------------------------------------------------------------------------------


def test_candidates_are_listed_as_openstack_lists_them(lab):
    listed = lab("candidates", "VCPU=2")
    assert (listed.status, listed.err) == (0, "")
    assert listed.out == (
        "+---+------------+-------------------+-------------------------+-------------+\n"
        "| # | allocation | resource provider | inventory used/capacity | traits      |\n"
        "+---+------------+-------------------+-------------------------+-------------+\n"
        "| 1 | VCPU=2     | host0             | VCPU=0/8                | CUSTOM_FAST |\n"
        "| 2 | VCPU=2     | host1             | VCPU=4/8                |             |\n"
        "+---+------------+-------------------+-------------------------+-------------+\n"
    )
    assert lab("allocation", "candidate", "list", "--resource", "VCPU=2") == listed


def test_each_provider_has_a_row(lab):
    done = lab("candidates", "VCPU=2,PGPU=2,DISK_GB=5", *BRIEF)
    assert sorted(done.lines) == [
        "1 DISK_GB=5 nfs",
        "1 PGPU=1 host0/gpu0",
        "1 PGPU=1 host0/gpu1",
        "1 VCPU=2 host0",
    ]


def test_named_groups_have_a_column_and_those_who_give_nothing_a_row(lab):
    words = "VCPU=1 --group _A --resource PGPU=1 --group _B --required CUSTOM_FAST"
    done = lab("candidates", *words.split(), "--same-subtree", "_A,_B", "-f", "json")
    rows = json.loads(done.out)
    assert [(row["allocation"], row["resource provider"], row["groups"]) for row in rows] == [
        ("VCPU=1", "host0", ["_B"]),
        ("PGPU=1", "host0/gpu0", ["_A"]),
    ]
    words = words.replace("VCPU=1 ", "")
    done = lab("candidates", *words.split(), "--same-subtree", "_A,_B", *BRIEF, "-c", "groups")
    assert done.lines == ["1 PGPU=1 host0/gpu0 ['_A']", "1  host0 ['_B']"]


def test_units_have_a_column(lab, url):
    cells = [HostCell(0, dedicated=range(4), memory_mb=1024)]
    with ro.connect(url) as ledger:
        ledger.sync(host_of("big", NUMATopologyInventory(cells)))
    argv = ("candidates", "NUMA_TOPOLOGY=1:dedicated=2")
    [row] = json.loads(lab(*argv, "-f", "json").out)
    assert row["resource provider"] == "big/numa0"
    assert row["units"] == ["cpu0", "cpu1"]
    [result] = json.loads(lab(*argv, "--json").out)["candidates"]
    assert result["located"] == {"NUMA_TOPOLOGY": "1:dedicated=2:on=0:cpus=0-1"}


def test_nobody_is_status_1_with_the_reasons(lab):
    done = lab("candidates", "VCPU=9")
    assert (done.status, done.out) == (1, "")
    assert done.err == (
        "resource-objects: no capacity for VCPU=9:\n"
        "  host0: VCPU requested 9, free 8 of 8\n"
        "  host1: VCPU requested 9, free 4 of 8 (job holds 4)\n"
    )


def test_explain_tells_why_the_others_cannot(lab):
    done = lab("candidates", "VCPU=5", "--explain", *BRIEF)
    assert (done.status, done.out) == (0, "1 VCPU=5 host0\n")
    assert done.err == "host1: VCPU requested 5, free 4 of 8 (job holds 4)\n"


def test_an_empty_ledger_says_so(run):
    done = run("candidates", "VCPU=1")
    assert (done.status, done.err) == (
        1,
        "resource-objects: no capacity for VCPU=1:\n  there are no hosts\n",
    )


def test_cut_short_is_status_3_and_never_no(lab):
    done = lab("candidates", "PGPU=2", "--budget", "1")
    assert (done.status, done.out) == (3, "")
    assert done.err.startswith("resource-objects: the budget of 1 steps ran out on PGPU=2:\n")
    assert "host0: undecided" in done.err
    done = lab("candidates", "PGPU=2", "--budget", "1", "--json")
    answer = json.loads(done.out)
    assert (done.status, done.err, answer["candidates"], answer["cut_short"]) == (3, "", [], True)
    assert answer["explanation"]["undecided"] == ["host0"]


def test_cut_short_with_some_tells_that_there_may_be_more(lab, url):
    complete = ("candidates", "PGPU=1", "--per-host", "9")
    steps = json.loads(lab(*complete, "--json").out)["steps"] - 1
    done = lab(*complete, "--budget", str(steps), *BRIEF)
    assert done.status == 0
    assert len(done.lines) >= 1
    assert done.err == f"cut short after {steps} steps: there may be more\n"


@pytest.mark.parametrize("word", ["--at", "--in-tree"])
def test_a_provider_that_is_not_there_is_named(lab, word):
    done = lab("candidates", "VCPU=1", word, "nowhere")
    assert (done.status, done.err) == (
        1,
        "resource-objects: nowhere is not a provider of this ledger\n",
    )


@pytest.mark.parametrize("form", ["table", "json", "csv", "yaml", "value"])
def test_the_list_speaks_every_format(lab, form):
    done = lab("candidates", "VCPU=1", "--group", "_A", "--resource", "PGPU=1", "-f", form)
    assert (done.status, done.err) == (0, "")
    assert "host0/gpu0" in done.out


# --- the search ---------------------------------------------------------------------------------


def test_limit_order_and_preference_are_heeded(hosts):
    assert hosts("VCPU=1") == ["host0", "host1"]
    assert hosts("VCPU=1", "--limit", "1") == ["host0"]
    assert hosts("VCPU=1", "--order", "pack") == ["host1", "host0"]
    assert hosts("VCPU=1", "--order", "spread", "--prefer", "CUSTOM_FAST=-1") == ["host1", "host0"]
    assert hosts("VCPU=1", "--order", "pack", "--prefer", "CUSTOM_FAST") == ["host0", "host1"]
    assert hosts("VCPU=1", "--order", "pack", "--weight", "VCPU=0") == ["host0", "host1"]
    assert hosts("VCPU=1", "--at", "host1") == ["host1"]
    assert hosts("PGPU=1", "--per-host", "2") == ["host0", "host0"]
    assert hosts("VCPU=1", "--limits", "host0:VCPU=0,MEMORY_MB=9") == ["host1"]
    seen = {tuple(hosts("VCPU=1", "--order", "random", "--seed", str(n))) for n in range(8)}
    assert seen == {("host0", "host1"), ("host1", "host0")}
    assert hosts("VCPU=1", "--seed", "3", "--among", "1") == ["host0", "host1"]


def test_a_query_is_read_by_placement_s_rules(hosts, lab):
    assert hosts("--query", "resources=VCPU:1&limit=1") == ["host0"]
    assert hosts("--query", "resources=VCPU:1&required=CUSTOM_FAST") == ["host0"]
    assert lab("candidates", "--query", "resources=PGPU:2").status == 1
    assert hosts("--query", "resources=PGPU:2", "--compatibility", "ours") == ["host0"]
    assert lab("candidates", "PGPU=2", "--compatibility", "placement").status == 1


# --- for programs -------------------------------------------------------------------------------


def test_the_document_is_the_whole_answer(lab):
    done = lab("candidates", "VCPU=2", "--group", "_A", "--resource", "PGPU=1", "--json")
    assert (done.status, done.err) == (0, "")
    answer = json.loads(done.out)
    [result] = answer["candidates"]
    assert answer["request"] == "VCPU=2; _A: PGPU=1"
    assert (answer["cut_short"], answer["explanation"], answer["claim"]) == (False, None, None)
    assert answer["steps"] >= 1
    assert (result["host"], result["located"]) == ("host0", {})
    assert result["mappings"] == {"": ["host0"], "_A": ["host0/gpu0"]}
    taken = [
        (item["provider"], item["resource_class"], item["amount"]) for item in result["allocations"]
    ]
    assert taken == [("host0", "VCPU", 2), ("host0/gpu0", "PGPU", 1)]
    assert set(answer["providers"]) == {"host0", "host0/gpu0"}
    host, card = answer["providers"]["host0"], answer["providers"]["host0/gpu0"]
    assert result["allocations"][0]["uuid"] == host["uuid"]
    assert host["inventories"] == {"VCPU": {"used": 0, "capacity": 8}}
    assert (host["traits"], host["aggregates"], host["parent"]) == (
        ["CUSTOM_FAST"],
        ["nfs", "rack1"],
        None,
    )
    assert (card["root"], card["parent"]) == ("host0", "host0")


def test_the_document_of_nobody_has_the_reasons_as_data(lab):
    done = lab("candidates", "VCPU=9", "--json", "--noindent")
    assert (done.status, done.err, done.out.count("\n")) == (1, "", 1)
    answer = json.loads(done.out)
    assert (answer["candidates"], answer["cut_short"]) == ([], False)
    [reason] = answer["explanation"]["refused"]["host1"]
    assert (reason["rule"], reason["requested"], reason["used"]) == ("capacity", 9, 4)
    assert reason["holders"] == [["job", 4]]


def test_the_document_is_explained_when_asked(lab):
    done = lab("candidates", "VCPU=5", "--json", "--explain")
    assert (done.status, done.err) == (0, "")
    assert list(json.loads(done.out)["explanation"]["refused"]) == ["host1"]


# --- taking it ----------------------------------------------------------------------------------


def test_claim_takes_what_was_found(lab):
    done = lab("candidates", "VCPU=2,PGPU=2", "--claim", "job-2", "-f", "value")
    assert (done.status, done.err) == (0, "")
    assert sorted(done.lines) == [
        "job-2 host0 VCPU 2 []",
        "job-2 host0/gpu0 PGPU 1 []",
        "job-2 host0/gpu1 PGPU 1 []",
    ]
    shown = lab("consumer", "show", "job-2", "-f", "json")
    assert json.loads(shown.out)["total"] == "VCPU=2,PGPU=2"
    for request, status in (("PGPU=1", 75), ("PGPU=9", 1)):  # others hold it; there are not so many
        done = lab("candidates", request, "--claim", "job-3")
        output = f"resource-objects: no capacity for job-3 {request}:"
        assert (done.status, done.err.splitlines()[0]) == (status, output)
        assert lab("candidates", request).status == 1
        assert lab("candidates", request, "--claim", "job-3", "--json").status == status


def test_the_document_tells_the_claim(lab):
    answer = json.loads(lab("candidates", "VCPU=2", "--claim", "job-2", "--json").out)
    assert answer["claim"]["consumer"] == "job-2"
    assert answer["claim"]["allocations"] == answer["candidates"][0]["allocations"]
    done = lab("candidates", "VCPU=9", "--claim", "job-3", "--json")
    assert (done.status, json.loads(done.out)["claim"]) == (1, None)


def test_a_claim_that_is_cut_short_has_its_status(lab, monkeypatch):
    def search(*arguments, **options):
        raise exceptions.SearchLimitReached(5)

    monkeypatch.setattr("resource_objects.search.Snapshot.candidates", search)
    done = lab("claim", "job-2", "VCPU=1")
    assert (done.status, done.out) == (3, "")
    assert done.err == ("resource-objects: cut short after 5 steps, 0 found: neither yes nor no\n")
