"""Everything a ledger keeps, by commands: providers, names, pools, allocations, plans, history."""

from __future__ import annotations

import datetime
import io
import json
import re

import pytest

import resource_objects as ro
from resource_objects.cli.base import age, expiry


def build(ledger: ro.Ledger) -> None:
    """Keep two hosts and a pool."""
    ledger.sync(
        ro.Provider("host0", "VCPU=8,MEMORY_MB=8192", traits=["CUSTOM_FAST"]),
        ro.Provider("host1", "VCPU=8,MEMORY_MB=8192", aggregates=["rack-1"]),
        ro.Provider("nfs", "DISK_GB=1000"),
    )


@pytest.fixture
def url(sqlite_url) -> str:
    """A ledger of them."""
    return sqlite_url("lab.db", build)


@pytest.fixture
def lab(run, url):
    """Run a command on that ledger; it must work."""

    def run_well(*argv: str):
        done = run(*argv, "--database", url)
        assert (done.status, done.err.partition(":")[0]) in ((0, ""), (0, "cursor")), done.err
        return done

    return run_well


@pytest.fixture
def rows(lab):
    """Run a command that lists; return its rows as dicts."""
    return lambda *argv: json.loads(lab(*argv, "-f", "json").out)


@pytest.fixture
def refused(run, url):
    """Run a command that is refused; return what it says."""

    def run_badly(*argv: str) -> str:
        done = run(*argv, "--database", url)
        assert done.status == 1 and done.err.count("\n") >= 1
        return done.err

    return run_badly


def names_of(result) -> list[str]:
    return [row["provider"] for row in result]


def test_providers_are_listed_by_what_they_are(rows):
    assert names_of(rows("provider", "list")) == ["host0", "host1", "nfs"]
    assert names_of(rows("provider", "list", "--name", "host0", "--name", "nfs")) == [
        "host0",
        "nfs",
    ]
    assert names_of(rows("provider", "list", "--member-of", "rack-1,rack-2")) == ["host1"]
    assert names_of(rows("provider", "list", "--member-of", "!rack-1")) == ["host0", "nfs"]
    assert names_of(rows("provider", "list", "--required", "CUSTOM_FAST")) == ["host0"]
    assert names_of(rows("provider", "list", "--forbidden", "CUSTOM_FAST")) == ["host1", "nfs"]
    assert names_of(rows("provider", "list", "--room", "VCPU=8,MEMORY_MB=1")) == ["host0", "host1"]
    assert names_of(rows("provider", "list", "--over-capacity")) == []


def test_a_provider_is_created_moved_renamed_and_removed(lab, rows, refused):
    lab("provider", "create", "gpu", "PGPU=1", "--parent-provider", "host0", "--trait", "CUSTOM_A")
    assert names_of(rows("provider", "list", "--in-tree", "host0")) == ["host0", "gpu"]
    lab("provider", "set", "gpu", "--parent-provider", "host1", "--name", "gpu0")
    assert names_of(rows("provider", "list", "--in-tree", "host1")) == ["host1", "gpu0"]
    assert "host1" in refused("provider", "set", "host1", "--parent-provider", "gpu0")
    lab("provider", "set", "gpu0", "--no-parent")
    assert names_of(rows("provider", "list", "--in-tree", "gpu0")) == ["gpu0"]
    assert "exists already" in refused("provider", "create", "gpu0")
    lab("provider", "delete", "gpu0")
    assert "gpu0" in refused("provider", "show", "gpu0")


def test_a_provider_is_moved_and_renamed_in_one_write(lab, rows, refused):
    lab("provider", "create", "gpu", "PGPU=1", "--parent-provider", "host0")
    generation = str(rows("provider", "list", "--name", "gpu")[0]["generation"])
    request = ("--no-parent", "--name", "gpu0", "--generation", generation)
    writes = len(rows("changes"))
    lab("provider", "set", "gpu", *request)
    (root,) = rows("provider", "list", "--name", "gpu0")
    assert (root["parent"], root["inventories"]) == ("", "PGPU=1")
    kinds = {row["kind"] for row in rows("changes")[writes:]}
    assert len(kinds) == 1


def test_a_provider_that_changed_is_neither_moved_nor_renamed(lab, rows, refused):
    lab("provider", "create", "gpu", "PGPU=1", "--parent-provider", "host0")
    for option in ("--no-parent", "--parent-provider=host1"):
        content = refused("provider", "set", "gpu", option, "--name", "gpu0", "--generation", "1")
        assert "was changed since it was read" in content
    assert "exists already" in refused("provider", "set", "gpu", "--no-parent", "--name", "host1")
    assert "host0" in refused("provider", "set", "host0", "--generation", "1")
    (child,) = rows("provider", "list", "--name", "gpu")
    assert child["parent"] == "host0"


def test_what_a_provider_has_is_set_at_its_generation(lab, rows, refused):
    lab("provider", "inventory", "set", "host0", "VCPU=16:reserved=1")
    [only] = rows("provider", "inventory", "list", "host0")
    assert (only["resource_class"], only["total"], only["capacity"]) == ("VCPU", 16, 15)
    lab("provider", "inventory", "set", "host0", "PGPU=2", "--amend")
    assert len(rows("provider", "inventory", "list", "host0")) == 2
    lab("provider", "inventory", "set", "host0", "PGPU=0,FPGA=0", "--amend")
    assert [item["resource_class"] for item in rows("provider", "inventory", "list", "host0")] == [
        "VCPU"
    ]
    lab("provider", "inventory", "set", "host0", "PGPU=2", "--amend")
    content = refused("provider", "inventory", "set", "host0", "VCPU=1", "--generation", "0")
    assert "was changed since it was read" in content
    lab("provider", "inventory", "delete", "host0", "--resource-class", "PGPU")
    assert "FPGA" in refused("provider", "inventory", "delete", "host0", "--resource-class", "FPGA")
    lab("provider", "trait", "set", "host0", "--trait", "CUSTOM_B")
    assert rows("provider", "trait", "list", "host0") == [{"name": "CUSTOM_B"}]
    lab("provider", "aggregate", "set", "host0", "--aggregate", "rack-1", "--aggregate", "room")
    assert rows("provider", "aggregate", "list", "host0") == [{"name": "rack-1"}, {"name": "room"}]


@pytest.mark.parametrize("kind", ["class", "trait"])
def test_names_are_created_renamed_and_removed(kind, lab, rows, refused):
    lab(kind, "create", "CUSTOM_ONE")
    lab(kind, "create", "CUSTOM_ONE")
    lab(kind, "set", "CUSTOM_ONE", "--name", "CUSTOM_TWO")
    assert {"name": "CUSTOM_TWO"} in rows(kind, "list", "--custom")
    assert len(rows(kind, "list")) > len(rows(kind, "list", "--custom"))
    lab(kind, "delete", "CUSTOM_TWO")
    assert "CUSTOM_TWO" in refused(kind, "delete", "CUSTOM_TWO")
    standard = {"class": "VCPU", "trait": "HW_CPU_X86_AVX2"}[kind]
    assert "standard" in refused(kind, "delete", standard)


def test_aggregates_are_created_renamed_and_removed(lab, rows, refused):
    lab("aggregate", "create", "room-1", "--level", "room")
    assert {"name": "room-1", "level": "room"} in rows("aggregate", "list")
    lab("aggregate", "set", "room-1", "--name", "room-2")
    lab("aggregate", "delete", "room-2")
    assert "has members" in refused("aggregate", "delete", "rack-1")


def test_a_pool_is_shared_reported_and_taken_away(lab, rows):
    lab("pool", "share", "nfs", "--with", "host0", "--with", "host1")
    [pool] = rows("pool", "list")
    assert (pool["pool"], pool["members"], pool["reported"]) == ("nfs", ["host0", "host1"], None)
    lab("pool", "report", "nfs", "DISK_GB=2000")
    [pool] = rows("pool", "list")
    assert pool["reported"] is not None and "2000" in pool["inventories"]
    assert rows("pool", "list", "--older-than", "3600") == []
    lab("pool", "unshare", "nfs", "--with", "host1")
    assert rows("pool", "list")[0]["members"] == ["host0"]


def test_allocations_are_set_listed_moved_and_swapped(lab, rows, refused):
    lab(
        *("allocation", "set", "job-1", "--allocation", "rp=host0,VCPU=2", "--allocation"),
        *("host0,MEMORY_MB=64", "--project", "lab", "--user", "ann", "--consumer-type", "JOB"),
    )
    lab("claim", "job-2", "VCPU=8", "--project", "lab")
    assert [row["amount"] for row in rows("allocation", "show", "job-1")] == [2, 64]
    allocated = rows("allocation", "list", "host0")
    assert {(row["consumer"], row["amount"]) for row in allocated} == {("job-1", 2), ("job-1", 64)}
    assert "generation" in refused(
        *("allocation", "set", "job-1", "--allocation", "host0,VCPU=1", "--generation", "0")
    )
    lab("allocation", "swap", "job-1", "job-2")
    assert {row["provider"] for row in rows("allocation", "show", "job-2")} == {"host0"}
    assert "host1" in refused("allocation", "move", "job-2", "--to", "host1")
    lab("allocation", "set", "job-1", "--allocation", "host1,VCPU=6")
    lab("allocation", "move", "job-2", "--to", "host1", "--leaving", "old")
    assert {row["provider"] for row in rows("allocation", "show", "job-2")} == {"host1"}
    lab("allocation", "delete", "old")
    assert len(rows("consumer", "list")) == 2


def test_expired_claims_are_released_for_allocations_on_request(lab, rows, refused, url):
    over = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    with ro.connect(url) as ledger:
        ledger.claim("one", {"host0": "VCPU=8"}, expires_at=over)
        ledger.claim("two", {"host1": "VCPU=8"}, expires_at=over)
    expected = ("allocation", "set", "job", "--allocation", "host0,VCPU=6")
    why = refused(*expected)
    assert "(one holds 8)" in why
    assert re.search(
        r"\n  one: its claim expired \d+ days ago; --release-expired releases it\n", why
    )
    lab(*expected, "--release-expired")
    assert [row["consumer"] for row in rows("consumer", "list")] == ["job", "two"]
    existing = ("allocation", "move", "job", "--to", "host1")
    why = refused(*existing)
    assert "(two holds 8)" in why
    assert re.search(
        r"\n  two: its claim expired \d+ days ago; --release-expired releases it\n", why
    )
    lab(*existing, "--release-expired")
    assert [row["consumer"] for row in rows("consumer", "list")] == ["job"]
    assert {row["provider"] for row in rows("allocation", "show", "job")} == {"host1"}
    lab("claim", "three", "VCPU=8", "--at", "host0")
    why = refused("allocation", "move", "job", "--to", "host0", "--release-expired")
    assert why == (
        "resource-objects: host0 cannot give job VCPU=6:\n"
        "  host0: VCPU requested 6, free 0 of 8 (three holds 8)\n"
    )


SPANS = {
    "3 s": datetime.timedelta(seconds=3.9),
    "3 min": datetime.timedelta(minutes=3.5),
    "3 h": datetime.timedelta(hours=3.5),
    "3 days": datetime.timedelta(days=3.5),
}


def test_an_expired_claim_is_listed_as_expired_and_since_when():
    now = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    for text, span in SPANS.items():
        remaining, over = expiry(now + span, now), expiry(now - span, now)
        assert (remaining.human_readable(), over.human_readable()) == (text, f"expired {text} ago")
        assert over.machine_readable() == (now - span).isoformat(timespec="seconds")
    assert expiry(now, now).human_readable() == "0 s"
    assert (expiry(None, now).human_readable(), expiry(None, now).machine_readable()) == (
        "",
        None,
    )
    ahead = age(now + SPANS["3 h"], now)  # by the clock of another machine
    assert ahead.human_readable() == "0 s"


def test_consumer_list_and_mine_show_that_a_claim_has_expired(lab, rows, url):
    with ro.connect(url) as ledger:
        now = ledger.now()
        over, later = (now - datetime.timedelta(hours=3.5), now + datetime.timedelta(hours=3.5))
        ledger.claim("old", {"host0": "VCPU=1"}, user="ann", expires_at=over)
        ledger.claim("new", {"host0": "VCPU=1"}, user="ann", expires_at=later)
    for command in (("consumer", "list"), ("mine", "--user", "ann")):
        columns = ("-c", "consumer", "-c", "expires")
        shown = lab(*command, *columns, "--max-width", "200").lines
        cells = dict(tuple(map(str.strip, line.strip("|").split("|"))) for line in shown[3:-1])
        assert cells == {"new": "3 h", "old": "expired 3 h ago"}
        output = {row["consumer"]: row["expires"] for row in rows(*command, *columns)}
        assert output["old"] == over.isoformat(timespec="seconds")


def test_refusals_name_expired_claims_and_the_option_that_releases_them(lab, run, refused, url):
    with ro.connect(url) as ledger:
        over = ledger.now() - datetime.timedelta(hours=3.5)
        ledger.claim("old", {"host0": "VCPU=8"}, expires_at=over)
        ledger.claim("other", {"host1": "VCPU=8"})
    line = "old: its claim expired 3 h ago; claim --release-expired releases it\n"
    assert f"\n  {line}" in refused("candidates", "VCPU=1")
    assert f"\n  {line}" in refused("schedule", "VCPU=1")
    assert f"\n\n{line}" in lab("explain", "VCPU=1").out
    existing = ("claim", "job", "VCPU=1", "--at", "host0", "--database", url)
    assert "\n  old: its claim expired 3 h ago; --release-expired" in run(*existing).err
    assert "expired" not in run("claim", "job", "VCPU=1", "--at", "host1", "--database", url).err
    assert "expired" not in run(*existing[:2], "VCPU=9", "--release-expired", *existing[5:]).err


def test_a_claim_that_waits_releases_expired_claims_as_a_job_does(lab, rows, url):
    with ro.connect(url) as ledger:
        over = ledger.now() - datetime.timedelta(hours=3.5)
        ledger.claim("old", {"host0": "VCPU=8"}, expires_at=over)
        ledger.claim("other", {"host1": "VCPU=8"})
    assert rows("when", "VCPU=1")["at"] == "now"
    lab("claim", "job", "VCPU=1", "--wait", "10s")
    assert {row["consumer"] for row in rows("consumer", "list")} == {"job", "other"}


def test_consumers_are_listed_by_whose_they_are(lab, rows):
    lab("claim", "job-1", "VCPU=1", "--project", "lab", "--user", "ann", "--consumer-type", "JOB")
    lab("claim", "job-2", "VCPU=2", "--project", "home")
    assert [row["consumer"] for row in rows("consumer", "list")] == ["job-1", "job-2"]
    assert [row["consumer"] for row in rows("consumer", "list", "--project", "lab")] == ["job-1"]
    assert rows("consumer", "list", "--older-than", "3600") == []
    assert rows("consumer", "list", "--expired") == []
    totals = rows("usage", "total", "--by", "project")
    assert [(row["group"], row["used"]) for row in totals] == [("home", 2), ("lab", 1)]
    assert [row["used"] for row in rows("usage", "total", "--user", "ann")] == [1]
    [cpu, memory] = rows("provider", "usage", "show", "host0")
    assert (cpu["used"], memory["used"]) == (3, 0)


def test_a_plan_file_reshapes(lab, rows, tmp_path):
    lab("provider", "inventory", "set", "host0", "PGPU=2", "--amend")
    lab("allocation", "set", "job-1", "--allocation", "host0,PGPU=1")
    plan = tmp_path / "plan.json"
    plan.write_text(
        json.dumps(
            {
                "version": 1,
                "create": [
                    {"name": "host0/gpu0", "parent": "host0"},
                    {"name": "host0/gpu1", "parent": "host0"},
                ],
                "moves": [
                    {
                        "from": "host0",
                        "resource_class": "PGPU",
                        "fill": True,
                        "to": [
                            {"provider": "host0/gpu0", "total": 1},
                            {"provider": "host0/gpu1", "total": 1},
                        ],
                    }
                ],
            }
        )
    )
    content = lab("reshape", str(plan), "--dry-run").out
    before, after = content.partition("\nbefore:\n")[2].split("\n\nafter:\n")
    assert [line.split("  ")[:2] for line in before.splitlines()] == [
        ["host0", "VCPU=8,MEMORY_MB=8192,PGPU=2"],
    ]
    assert [line.split("  ")[:2] for line in after.splitlines()] == [
        ["host0", "VCPU=8,MEMORY_MB=8192"],
        ["├─ host0/gpu0", "PGPU=1"],
        ["└─ host0/gpu1", "PGPU=1"],
    ]
    assert rows("allocation", "show", "job-1")[0]["provider"] == "host0"
    assert lab("reshape", str(plan)).out.splitlines()[0] == content.splitlines()[0]
    assert rows("allocation", "show", "job-1")[0]["provider"] == "host0/gpu0"


def test_a_plan_may_be_yaml(lab, rows, refused, tmp_path, monkeypatch):
    lab("provider", "inventory", "set", "host0", "PGPU=2", "--amend")
    lab("allocation", "set", "job-1", "--allocation", "host0,PGPU=1")
    plan = tmp_path / "plan.yaml"
    content = """# a card that gets a provider of its own
version: 1
create:
  - {name: host0/gpus, parent: host0, traits: [CUSTOM_H100]}
moves:
  - from: host0
    resource_class: PGPU
    to:
      - {provider: host0/gpus, total: 2, consumers: {job-1: 1}}
"""
    for fault, output in [
        ("total: two", "reshape.moves[0].to[0].total: got 'two', expected an integer"),
        ("total: 2, total: 2", "plan.yaml, line 9, key: got 'total', expected each once"),
        (f"total: {'9' * 5000}", "plan.yaml, line 9, number: got '999"),
        ("total: [2", "plan.yaml, line 9: "),
    ]:
        plan.write_text(content.replace("total: 2", fault))
        assert output in refused("reshape", str(plan))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content.encode())))
    lab("reshape", "-")
    assert rows("allocation", "show", "job-1")[0]["provider"] == "host0/gpus"


def test_a_plan_that_is_none_is_refused(refused, run, url, tmp_path):
    plan = tmp_path / "plan.json"
    plan.write_text("[]")
    assert "[]" in refused("reshape", str(plan))
    missing = run("reshape", str(tmp_path / "missing.json"), "--database", url)
    assert missing.status == 2
    assert "missing.json" in missing.err


@pytest.mark.parametrize("name", ["-", "plan.json"])
def test_a_plan_that_is_too_long_is_refused(refused, tmp_path, monkeypatch, name):
    text = b'{"version": 1, "create": []}'
    (tmp_path / "plan.json").write_bytes(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text)))
    monkeypatch.setattr("resource_objects.providers.serialization.MAX_LENGTH", len(text) - 1)
    assert f"at most {len(text) - 1} characters" in refused("reshape", name)


def test_changes_go_on_where_they_ended(lab, rows, run, url):
    lab("claim", "job-1", "VCPU=1")
    done = run("changes", "--database", url, "-f", "json")
    assert [row["kind"] for row in json.loads(done.out)][-1] == "claim"
    cursor = done.err.removeprefix("cursor: ").strip()
    lab("release", "job-1")
    [only] = rows("changes", "--after", cursor)
    assert (only["kind"], only["subject"]) == ("release", "job-1")


def test_the_audit_lists_what_is_over_full(lab, rows):
    lab("claim", "job-1", "VCPU=8")
    assert rows("audit") == []
    lab("provider", "inventory", "set", "host0", "VCPU=4,MEMORY_MB=8192")
    [finding] = rows("audit")
    assert "host0" in finding["finding"]
    assert names_of(rows("provider", "list", "--over-capacity")) == ["host0"]


def test_the_status_of_a_database_is_told(lab, run, tmp_path):
    assert "may use it" in lab("db", "status").out
    missing = tmp_path / "other.db"
    done = run("db", "status", "--database", f"sqlite:///{missing}")
    assert done.status == 0 and "no tables" in done.out and not missing.exists()
