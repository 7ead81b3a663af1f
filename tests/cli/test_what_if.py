"""what-if and the drain that is only rehearsed, by the command."""

from __future__ import annotations

import json
import pathlib

import pytest

import resource_objects as ro
from resource_objects.search import Snapshot


@pytest.fixture
def url(sqlite_url) -> str:
    return sqlite_url("lab.db")


@pytest.fixture
def lab(run, url: str):
    with ro.connect(url) as ledger:
        ledger.sync(ro.Provider("host0", "VCPU=8"), ro.Provider("host1", "VCPU=4"))
        ledger.claim("job-1", ledger.snapshot().candidates("VCPU=6"))
        ledger.claim("job-2", ledger.snapshot().candidates("VCPU=2"))
    return lambda *words: run("--database", url, *words)


def test_changes_are_tried_and_nothing_is_written(lab, tmp_path) -> None:
    refused = lab("what-if", "VCPU=8")
    assert refused.status == 1 and "host0: VCPU requested 8" in refused.err
    script = tmp_path / "changes"
    script.write_text("# tonight\nrelease job-1\nrelease job-2\n")
    plan = tmp_path / "plan.json"
    done = lab("what-if", "VCPU=8", "--script", str(script), "--plan", str(plan), "-f", "json")
    assert json.loads(done.out) == [{"#": 1, "allocation": "VCPU=8", "resource provider": "host0"}]
    assert "- job-1 releases everything" in done.err
    assert [item["consumer"] for item in json.loads(plan.read_text())["orders"]] == [
        "job-1",
        "job-2",
    ]
    assert lab("what-if", "VCPU=8").status == 1


def test_the_question_is_kept_as_a_file_that_gives_the_same_answer(lab, tmp_path) -> None:
    path = tmp_path / "question.json"
    done = lab("what-if", "VCPU=8", "--change", "release job-2", "--bundle", str(path))
    assert done.status == 1
    bundle = Snapshot.load(path.read_text())
    assert str(bundle.ask().explain()) == "host1: VCPU requested 8, free 4 of 4"
    assert "host1: VCPU requested 8, free 4 of 4" in done.err
    assert path.read_text().startswith(
        "# asked: VCPU=8 (order name)\n#   host1: VCPU requested 8, free 4 of 4\n#"
    )
    limited = ("--limits", "host0:VCPU=7", "--order", "pack", "--weight", "VCPU=2", "--seed", "1")
    done = lab("what-if", "VCPU=3", "--change", "release job-2", *limited, "--bundle", str(path))
    bundle = Snapshot.load(path.read_text())
    assert bundle.options["limits"] == {"host0": {"VCPU": 7}}
    assert bundle.options["order"] == {"by": "pack", "weights": {"VCPU": 2.0}}
    assert bundle.holds() and str(bundle.ask()[0]) == "VCPU=3 of host1"


def test_the_smallest_further_changes_are_listed(lab) -> None:
    done = lab("what-if", "VCPU=8", "--change", "release job-2", "--relax", "4", "-f", "json")
    assert [row["change"] for row in json.loads(done.out)] == [
        "VCPU=4 instead of 8",
        "VCPU of host0 at a ratio of 1.75 instead of 1",
        "VCPU of host1 at a ratio of 2 instead of 1",
        "job-1 released",
    ]


def test_a_host_is_drawn_with_what_it_would_give_or_where_it_fails(lab) -> None:
    argument = lab("what-if", "VCPU=4", "--change", "release job-2", "--tree")
    assert (argument.status, argument.err) == (0, "- job-2 releases everything\n")
    assert argument.out.splitlines() == [
        "1: VCPU=4 of host1",
        "host1",
        "└─ VCPU  ░░░░░░░░░░░░░░░░░░░░  0 of 4  <- gives 4",
    ]
    failing = lab("what-if", "VCPU=8", "--change", "release job-2", "--tree")
    assert failing.status == 1
    assert failing.out.splitlines()[2:] == [
        "host0  <- not now",
        "└─ VCPU  ███████████████░░░░░  6 of 8  job-1 6  <- requested 8, free 2 of 8",
        "",
        "host1  <- never",
        "└─ VCPU  ░░░░░░░░░░░░░░░░░░░░  0 of 4  <- requested 8, free 4 of 4",
    ]


def page_lab(ledger: ro.Ledger) -> None:
    """The lab of the page."""
    for n in range(2):
        host = ro.Provider(f"gpu-{n}", "VCPU=16", traits=["CUSTOM_A100"])
        for gpu in range(2):
            host.add(f"gpu-{n}/{gpu}", "PGPU=1")
        ledger.sync(host)
    ledger.sync(ro.Provider("cpu-0", "VCPU=8"))
    train = ro.Request("VCPU=12,PGPU=2", required=["CUSTOM_A100"])
    ledger.claim("train", ledger.snapshot().candidates(train))
    ledger.claim("notebook", ledger.snapshot().candidates("VCPU=4,PGPU=1"))


def test_the_page_shows_what_is_drawn(run, sqlite_url) -> None:
    words = ("what-if", "--change", "release notebook", "PGPU=3", "--tree")
    done = run("--database", sqlite_url("page.db", page_lab), *words)
    page = pathlib.Path(__file__).parents[2] / "doc" / "source" / "howto" / "what_if.rst"
    shown = f"{done.err}{done.out}".splitlines()
    assert "\n".join(f"    {line}".rstrip() for line in shown) in page.read_text(encoding="utf-8")


def test_a_plan_is_carried_out_once_and_then_names_what_changed(lab, tmp_path) -> None:
    plan = str(tmp_path / "plan.json")
    assert lab("what-if", "--change", "release job-2", "--plan", plan).status == 0
    dry = lab("plan", "apply", plan, "--dry-run")
    assert (dry.status, dry.out) == (0, "- job-2 releases everything\n")
    assert lab("plan", "apply", plan).out == dry.out
    again = lab("plan", "apply", plan)
    assert again.status == 1
    assert "VCPU=2 of host0 was allocated to it, now nothing" in again.err
    (tmp_path / "none").write_text("{}")
    assert lab("plan", "apply", str(tmp_path / "none")).status == 2
    assert lab("plan", "apply", str(tmp_path / "nothing")).status == 2


def test_a_script_says_what_shells_say_and_a_change_that_cannot_be_is_named(lab, tmp_path) -> None:
    script = tmp_path / "changes"
    script.write_text(
        "add 'big one' VCPU=64   # quoted\nadd part#1 PGPU=1 below 'big one'\n"
        "claim job-3 resources=VCPU:32,PGPU:1\ndrain host0\n"
    )
    done = lab("what-if", "VCPU=32", "--script", str(script))
    assert done.status == 1  # 24 are left
    assert done.err.splitlines()[:6] == [
        "+ big one: VCPU=64",
        "+ part#1 below big one: PGPU=1",
        "~ job-1 is allocated VCPU=6 of big one",
        "~ job-2 is allocated VCPU=2 of big one",
        "+ job-3 allocates VCPU=32 of big one, PGPU=1 of part#1",
        "~ host0: disabled: drained",
    ]
    script.write_text("release job-1\nmove job-2 host9\n")
    done = lab("what-if", "VCPU=1", "--script", str(script))
    assert done.status == 1
    assert done.err.startswith("change 2, move job-2 host9:\nresource-objects: host9 is not")


@pytest.mark.parametrize(
    ("words", "output"),
    [
        ([], "specify changes"),
        (["VCPU=1", "--change", "add host9"], "expected add NAME like HOST, NAME INVENTORIES"),
        (["VCPU=1", "--change", "release 'job"], "quotes that end"),
        (["VCPU=1", "--change", "claim x VCPU"], "change 1, claim x VCPU: "),
        (["--change", "release job-1", "--plan", "/nowhere/plan"], "/nowhere/plan cannot be"),
        (["VCPU=1", "--change", "explode host0"], "explode host0"),
        (["VCPU=1", "--change", "release"], "release"),
        (["VCPU=8", "--relax", "0"], "k: got 0"),
    ],
)
def test_what_cannot_be_said_is_told(lab, words, output) -> None:
    done = lab("what-if", *words)
    assert done.status == 2 and output in done.err


def test_a_change_that_cannot_be_is_told_by_what_it_is_about(lab) -> None:
    done = lab("what-if", "--change", "remove host0")
    assert done.status == 1 and "host0" in done.err


def test_a_dry_run_of_a_drain_says_who_goes_where(lab, url) -> None:
    done = lab("host", "drain", "host0", "--dry-run", "-f", "json")
    assert done.status == 1
    rows = json.loads(done.out)
    assert [(row["consumer"], row["goes to"]) for row in rows] == [
        ("job-2", "VCPU=2 of host1"),
        ("job-1", ""),
    ]
    assert rows[1]["why not"][1] == "host1: VCPU requested 6, free 4 of 4"
    assert (
        "| host1: VCPU requested 6, free 4 of 4 " in lab("host", "drain", "host0", "--dry-run").out
    )
    with ro.connect(url) as ledger:
        assert ledger.provider("host0").disabled is None
    both = lab("host", "drain", "host0", "--dry-run", "--also", "host1", "-f", "json")
    assert [row["goes to"] for row in json.loads(both.out)] == ["", ""]
    for wrong in (["--also", "host1", "--reason", "fan"], ["--dry-run", "--reason", "fan"]):
        assert lab("host", "drain", "host0", *wrong).status == 2
    for only in (["--tree"], ["--plan", "x"], ["--change", "release job-1"]):
        assert f"{only[0]}: only with --dry-run" in lab("host", "drain", "host0", *only).err


def test_a_dry_run_of_a_drain_is_drawn_where_it_fails(lab) -> None:
    done = lab("host", "drain", "host0", "--dry-run", "--tree")
    assert done.status == 1
    assert done.out.splitlines()[:2] == [
        "job-2: VCPU=2 of host0 -> VCPU=2 of host1",
        "job-1: VCPU=6 of host0 -> nowhere",
    ]
    assert "└─ VCPU  ░░░░░░░░░░░░░░░░░░░░  0 of 4  <- requested 6, free 4 of 4" in done.out


def test_a_drain_after_changes_is_a_plan(lab, url, tmp_path) -> None:
    plan = str(tmp_path / "plan.json")
    words = ("--change", "add host9 like host0", "--plan", plan)
    done = lab("host", "drain", "host0", "--dry-run", *words, "-f", "json")
    assert done.status == 0
    assert [row["goes to"] for row in json.loads(done.out)] == [
        "VCPU=6 of host9",
        "VCPU=2 of host1",
    ]
    assert lab("plan", "apply", plan).out.splitlines() == [
        "+ host9: VCPU=8",
        "~ job-1 is allocated VCPU=6 of host9",
        "~ job-2 is allocated VCPU=2 of host1",
        "~ host0: disabled: drained",
    ]
    with ro.connect(url) as ledger:
        assert {item.name: str(item.request) for item in ledger.consumers()}["job-1"] == "VCPU=6"


def test_a_drain_of_which_nothing_is_known_is_no_no(run, url: str, monkeypatch) -> None:
    monkeypatch.setitem(Snapshot.rehearse_drain.__kwdefaults__, "budget", 1)
    with ro.connect(url) as ledger:
        host = ro.Provider("host0", "VCPU=2")
        for number in range(2):
            host.add(f"host0/{number}", "PGPU=2")
        ledger.sync(host, ro.Provider("host1", "VCPU=2"))
        request = ro.Request("VCPU=1").with_group("_x", "PGPU=1").with_group("_y", "PGPU=1")
        ledger.claim("job", ledger.snapshot().candidates(request, budget=1000))
    done = run("--database", url, "host", "drain", "host0/0", "--dry-run", "-f", "json")
    assert (done.status, json.loads(done.out)[0]["why not"]) == (3, ["cut short after 1 steps"])
