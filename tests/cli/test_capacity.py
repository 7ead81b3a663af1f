"""The commands `how-many`, `report` and `when`."""

from __future__ import annotations

import datetime
import json

import pytest

import resource_objects as ro

END = datetime.datetime(2030, 1, 2, 3, tzinfo=datetime.UTC)
MIX = """
members:
  web: {request: VCPU=1, count: 2}
  train: {request: "VCPU=2,PGPU=1"}
"""


def build(ledger: ro.Ledger) -> None:
    """Keep two hosts in two racks, one of them with GPUs and nearly full."""
    ledger.names.aggregates.ensure("r0", level="rack")
    ledger.names.aggregates.ensure("r1", level="rack")
    host = ro.Provider("host0", "VCPU=8", aggregates=["r0"])
    host.add("host0/gpu0", "PGPU=1")
    host.add("host0/gpu1", "PGPU=1")
    ledger.sync(host, ro.Provider("host1", "VCPU=4", aggregates=["r1"]))
    ledger.claim("job", {"host0": "VCPU=7"}, expires_at=END)


@pytest.fixture
def lab(run, sqlite_url):
    """Run a command on that ledger."""
    url = sqlite_url("lab.db", build)
    return lambda *argv, **more: run(*argv, "--database", url, **more)


def test_how_many_fit_in_all_and_by_host(lab) -> None:
    done = lab("how-many", "VCPU=2", "--hosts", "-f", "json")
    assert json.loads(done.out) == [
        {"where": "(all)", "at least": 2, "at most": 2},
        {"where": "host0", "at least": 0, "at most": 0},
        {"where": "host1", "at least": 2, "at most": 2},
    ]
    assert lab("how-many", "VCPU=1", "-f", "value").out == "(all) 5 5\n"
    limited = lab("how-many", "VCPU=1", "--limits", "host1:VCPU=3", "-f", "value")
    assert limited.out == "(all) 4 4\n"


def test_a_mix_is_read_from_a_file(lab, tmp_path) -> None:
    path = tmp_path / "mix.yaml"
    path.write_text(MIX)
    assert lab("how-many", "--mix", str(path), "-f", "value").out == "(all) 0 0\n"
    done = lab("how-many", "VCPU=1", "--mix", str(path))
    assert done.status == 2
    assert "no other option of the request" in done.err


def test_a_budget_that_ends_before_anything_is_known_is_no_answer(lab) -> None:
    done = lab("how-many", "--group", "_a", "--resource", "VCPU=1", "--budget", "1")
    assert done.status == 3
    assert "the budget ran out before one was placed" in done.err


def test_the_report_is_by_class_host_or_level(lab, tmp_path) -> None:
    brief = ("-f", "value", "-c", "where", "-c", "class", "-c", "free", "-c", "largest")
    assert lab("report", *brief).out == "(all) VCPU 5 4\n(all) PGPU 2 2\n"
    assert lab("report", "--by", "rack", *brief).out == ("r0 VCPU 1 1\nr0 PGPU 2 2\nr1 VCPU 4 4\n")
    path = tmp_path / "mix.yaml"
    path.write_text(MIX)
    done = lab("report", "--mix", str(path), "--by", "host", "-f", "json")
    rows = {(row["where"], row["class"]): row for row in json.loads(done.out)}
    assert rows["host0", "PGPU"]["stranded"] == 2
    assert rows["host0", "PGPU"]["fragmented"] == 1.0
    shown = lab("report", "--mix", str(path), "-f", "value", "-c", "class", "-c", "fragmented")
    assert shown.out == f"VCPU {1 / 3}\nPGPU 1.0\n"
    assert rows["host1", "VCPU"]["stranded"] == 0
    assert "fits: 5 of web\nfits: 0 of train\n" in done.err
    unknown = lab("report", "--by", "row")
    assert unknown.status == 2
    assert "expected one of class, host, rack" in unknown.err


def test_when_it_would_fit_is_told_with_whose_end(lab) -> None:
    done = lab("when", "VCPU=2,PGPU=1", "-f", "json")
    output = json.loads(done.out)
    assert output["at"] == END.isoformat()
    assert output["host"] == "host0"
    assert output["because"] == [{"consumer": "job", "ends": END.isoformat()}]
    assert json.loads(lab("when", "VCPU=4", "-f", "json").out)["at"] == "now"
    never = lab("when", "VCPU=9")
    assert never.status == 1
    assert "VCPU=9 does not fit by the end of claims" in never.err
    assert "host0: VCPU requested 9, free 8 of 8" in never.err


def test_who_would_take_what_is_listed(lab, tmp_path) -> None:
    path = tmp_path / "mix.yaml"
    path.write_text(MIX.replace("VCPU=2,PGPU=1", "VCPU=1,PGPU=1"))
    done = lab("how-many", "--mix", str(path), "--placements", "-f", "json")
    assert [tuple(row.values()) for row in json.loads(done.out)] == [
        (1, "web", "VCPU=1", "host1"),
        (2, "web", "VCPU=1", "host1"),
        (3, "train", "VCPU=1", "host0"),
        (3, "train", "PGPU=1", "host0/gpu0"),
    ]
    assert lab("how-many", "VCPU=9", "--placements").out == "none fits\n"
    assert lab("how-many", "VCPU=9", "--placements", "--hosts").status == 2


def test_each_is_asked_of_what_changes_would_make_of_it(lab, tmp_path) -> None:
    script = tmp_path / "changes"
    script.write_text("release job\n")
    done = lab("how-many", "VCPU=4", "--script", str(script), "-f", "value")
    assert (done.out, done.err) == ("(all) 3 3\n", "- job releases everything\n")
    brief = ("-f", "value", "-c", "class", "-c", "free")
    assert lab("report", *brief, "--change", "disable host1").out == "VCPU 1\nPGPU 2\n"
    removed = lab("when", "VCPU=2,PGPU=1", "--change", "remove host1", "-f", "json")
    assert json.loads(removed.out)["at"] == END.isoformat()
    never = lab("when", "VCPU=4", "--change", "disable host0", "--change", "remove host1")
    assert never.status == 1
    for command in ("how-many", "report", "when"):
        assert lab(command, "VCPU=1", "--change", "explode").status == 2
        assert lab(command, "VCPU=1", "--change", "release nobody").status == 1
