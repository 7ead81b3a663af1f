"""schedule, filters, weighers: the scheduler from the command line."""

from __future__ import annotations

import json

import pytest

import resource_objects as ro
from resource_objects.scheduler.pipeline import Pipeline


def build(ledger):
    ledger.sync(
        ro.Provider("host0", "VCPU=8", aggregates=["north"]),
        ro.Provider("host1", "VCPU=4", traits=["CUSTOM_A"]),
    )


@pytest.fixture
def lab(default_ledger, sqlite_url):
    default_ledger.parent.mkdir(parents=True, exist_ok=True)
    with ro.connect(sqlite_url(default_ledger, build)) as ledger:
        yield ledger


def rows(run, *words):
    done = run("schedule", *words, "-f", "json")
    assert done.status == 0, done.err
    return [(item["consumer"], item["host"]) for item in json.loads(done.out)]


def test_a_dry_run_takes_nothing_and_a_claim_does(run, lab):
    assert rows(run, "VCPU=3", "--count", "2") == [("1", "host0"), ("2", "host0")]
    assert lab.snapshot().used("VCPU") == 0
    assert rows(run, "VCPU=3", "--claim", "job") == [("job", "host0")]
    assert rows(run, "VCPU=2", "--count", "2", "--claim", "web", "--order", "spread") == [
        ("web-1", "host1"),
        ("web-2", "host0"),
    ]
    assert [item.name for item in lab.consumers()] == ["job", "web-1", "web-2"]


@pytest.mark.parametrize(
    ("words", "host"),
    [
        (["--zone", "north"], "host0"),
        (["--ignore", "host0"], "host1"),
        (["--only", "host1"], "host1"),
        (["--image-trait", "CUSTOM_A"], "host1"),
        (["--extra-spec", "capabilities:vcpus_total=<= 4"], "host1"),
        (["--weigh", "free=-1"], "host0"),
        (["--prefer", "CUSTOM_A"], "host1"),
        (["--policy", "affinity", "--members", "there"], "host1"),
    ],
)
def test_the_words_of_a_request(run, lab, words, host):
    lab.claim("there", {"host1": "VCPU=1"})
    assert rows(run, "VCPU=1", *words) == [("1", host)]


def test_settings_from_a_file(run, lab, tmp_path):
    path = tmp_path / "scheduler.yaml"
    path.write_text(
        """
filters:
  tenants: {tenants: {north: [p]}}
weighers:
  free: {VCPU: 1}
"""
    )
    assert rows(run, "VCPU=1", "--settings", str(path)) == [("1", "host1")]
    assert rows(run, "VCPU=1", "--settings", str(path), "--project", "p") == [("1", "host0")]


def test_a_refusal_says_why_of_each_host(run, lab):
    done = run("schedule", "VCPU=6", "--ignore", "host0", "--claim", "job")
    assert (done.status, done.out) == (1, "")
    assert [item.strip() for item in done.err.splitlines()] == [
        "resource-objects: no candidate for job:",
        "host0: is to be ignored (hosts)",
        "host1: VCPU requested 6, free 4 of 4",
    ]


def test_fewer_may_be_placed(run, lab):
    done = run("schedule", "VCPU=3", "--count", "9", "--at-least", "1", "--claim", "job")
    assert done.status == 0
    assert done.err.split() == [w for n in range(4, 10) for w in ("no", "host", "for", f"job-{n}")]


@pytest.mark.parametrize(
    ("words", "output"),
    [
        (["--count", "0"], "count"),
        (["--count", "0", "--claim", "job"], "count"),
        (["--filter", "nobody"], "no such plug-in"),
        (["--weigh", "free=much"], "NAME=MULTIPLIER"),
        (["--extra-spec", "load"], "KEY=VALUE"),
        (["--extra-spec", "capabilities:load=>= x"], "a number after >="),
        (["--members", "a"], "--policy"),
        (["--policy", "near"], "policy"),
        (["--settings", "/nowhere.yaml"], "cannot be read"),
    ],
)
def test_words_that_cannot_be(run, lab, words, output):
    done = run("schedule", "VCPU=1", *words)
    assert done.status != 0
    assert output in done.err and len(done.err.splitlines()) == 1


GANG = """
members:
  worker: {request: "VCPU=3", count: 3}
  driver: {request: "VCPU=2", at_most: {host: 1}}
"""


def test_a_gang_from_a_file(run, lab, tmp_path):
    path = tmp_path / "gang.yaml"
    path.write_text(GANG)
    result = [
        ("worker-0", "host0"),
        ("worker-1", "host0"),
        ("worker-2", "host1"),
        ("driver", "host0"),
    ]
    assert rows(run, "--gang", str(path)) == result
    assert not list(lab.consumers())
    assert rows(run, "--gang", str(path), "--claim", "job", "--project", "p") == [
        (f"job/{name}", host) for name, host in result
    ]
    refused = run("schedule", "--gang", str(path), "--claim", "more")
    assert refused.status == 1
    assert "worker requested 3, fits 0 (VCPU requested 9, free 1)" in refused.err


def test_alternatives_of_a_gang(run, lab, tmp_path):
    path = tmp_path / "gang.yaml"
    path.write_text("""
alternatives:
  - members: {worker: {request: "VCPU=8", count: 2}}
  - members: {worker: {request: "VCPU=4", count: 3}}
""")
    assert [host for _, host in rows(run, "--gang", str(path))] == ["host0", "host0", "host1"]


def test_a_multiplier_beside_one_of_the_settings_is_the_one(run, lab, tmp_path, monkeypatch):
    request = []
    of = Pipeline.of
    monkeypatch.setattr(
        Pipeline,
        "of",
        lambda *argument, **more: request.append(of(*argument, **more)) or request[-1],
    )
    path = tmp_path / "scheduler.yaml"
    path.write_text("weighers: {free: 1, devices: {multiplier: 3}}")
    rows(run, "VCPU=1", "--settings", str(path), "--weigh", "free=2", "--weigh", "devices=0.5")
    assert {item.name: item.multiplier for item in request[-1].weighers} == {
        "free": 2,
        "devices": 0.5,
    }


@pytest.mark.parametrize(
    ("text", "output"),
    [
        (
            "filters:\n  tenants: 5",
            "scheduler.yaml, line 2, settings of tenants: got 5, expected a map",
        ),
        (
            "weighers:\n  free: {}\n  devices: x",
            "scheduler.yaml, line 3, settings of devices: got 'x'",
        ),
        ("weighers:\n  free: {much: {}}", "scheduler.yaml, line 2, resource class: got 'much'"),
        ("on_error: never", "scheduler.yaml, line 1, on_error: got 'never', expected one of"),
        ("filters: {}\nweigher: {}", "scheduler.yaml, line 2, key: got 'weigher', expected one of"),
        (
            "filters: [capabilities]",
            "scheduler.yaml, line 1, value: got 'a list', expected a mapping",
        ),
        (
            "filters: {}\nfilters: {}",
            "scheduler.yaml, line 2, key: got 'filters', expected each once",
        ),
        ("filters:\n  a: [", "expected YAML"),
    ],
)
def test_settings_with_a_fault_are_told_by_their_line(run, lab, tmp_path, text, output):
    path = tmp_path / "scheduler.yaml"
    path.write_text(text)
    done = run("schedule", "VCPU=1", "--settings", str(path), "--weigh", "free=2")
    assert done.status == 2
    assert output in done.err and len(done.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "words", "output"),
    [
        ("members: [1]", [], "{name: its request}"),
        ("members: {a: {request: VCPU=1, near: 1}}", [], "'near'"),
        ("a: [", [], "expected YAML"),
        ("[]", [], "at least one gang"),
        (GANG, ["--count", "2"], "--count has no effect with --gang"),
        (GANG, ["VCPU=1"], "beside --gang: got 'VCPU=1', expected no other option"),
        (GANG, ["--near", "numa"], "beside --gang: got '--near', expected no other option"),
        (GANG, ["--required", "CUSTOM_X"], "beside --gang: got '--required', expected no other"),
        (GANG, ["--query", "resources=VCPU:1"], "beside --gang: got '--query', expected no other"),
        (GANG, ["--compatibility", "ours"], "beside --gang: got '--compatibility', expected no"),
        ("\nmembers:\n  a: {request: VCPU=1}\n  b: {request: VCPU}", [], "gang.yaml, line 4, "),
        ("\n- members: {a: {request: VCPU=1}}\n- members: {}", [], "gang.yaml, line 3, gang"),
        ("members: {a: {request: VCPU=1}}\nmembers: {}", [], "line 2, key: got 'members'"),
    ],
)
def test_a_gang_with_a_fault_is_told(run, lab, tmp_path, text, words, output):
    path = tmp_path / "gang.yaml"
    path.write_text(text)
    done = run("schedule", "--gang", str(path), *words)
    assert done.status == 2
    assert output in done.err
