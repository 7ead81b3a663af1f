"""Claiming, releasing, and what a consumer holds."""

from __future__ import annotations

import datetime
import json
import re

import pytest

import resource_objects as ro


@pytest.fixture
def url(sqlite_url) -> str:
    """A ledger of two hosts: one with two GPUs of different kinds, one with many CPUs."""
    url = sqlite_url("lab.db")
    small = ro.Provider("small", "VCPU=4,MEMORY_MB=8192", traits=["CUSTOM_FAST"])
    small.add("small/gpu0", "PGPU=1", traits=["CUSTOM_H100"])
    small.add("small/gpu1", "PGPU=1", traits=["CUSTOM_A100"])
    with ro.connect(url) as ledger:
        ledger.sync(small, ro.Provider("wide", "VCPU=64,MEMORY_MB=65536"))
    return url


@pytest.fixture
def lab(run, url):
    """Run a command on that ledger."""
    return lambda *argv: run(*argv, "--database", url)


@pytest.fixture
def allocated(lab):
    """Return the allocations by consumer."""

    def read() -> dict[str, list[str]]:
        result: dict[str, list[str]] = {}
        for row in json.loads(lab("usage", "-f", "json").out):
            for name, amount in row["holders"].items():
                text = f"{row['resource_class']}={amount} of {row['provider']}"
                result.setdefault(name, []).append(text)
        return result

    return read


def test_claim_places_and_lists_what_was_taken(lab, allocated):
    done = lab("claim", "job-1", "VCPU=2,PGPU=1", "--required", "CUSTOM_H100")
    assert (done.status, done.err) == (0, "")
    assert done.out == (
        "+----------+------------+----------------+--------+-------+\n"
        "| consumer | provider   | resource_class | amount | units |\n"
        "+----------+------------+----------------+--------+-------+\n"
        "| job-1    | small      | VCPU           |      2 |       |\n"
        "| job-1    | small/gpu0 | PGPU           |      1 |       |\n"
        "+----------+------------+----------------+--------+-------+\n"
    )
    assert allocated() == {"job-1": ["VCPU=2 of small", "PGPU=1 of small/gpu0"]}


def test_claim_speaks_json(lab):
    done = lab("claim", "job-1", "VCPU=8", "-f", "json")
    assert json.loads(done.out) == [
        {
            "consumer": "job-1",
            "provider": "wide",
            "resource_class": "VCPU",
            "amount": 8,
            "units": [],
        }
    ]


def test_a_trait_may_be_forbidden(lab, allocated):
    assert lab("claim", "job-1", "PGPU=1", "--forbidden", "CUSTOM_H100").status == 0
    assert allocated() == {"job-1": ["PGPU=1 of small/gpu1"]}


def test_several_traits_may_be_required(lab, allocated):
    argv = ["--required", "CUSTOM_FAST", "--required", "CUSTOM_A100"]
    assert lab("claim", "job-1", "VCPU=1,PGPU=1", *argv).status == 0
    assert allocated() == {"job-1": ["VCPU=1 of small", "PGPU=1 of small/gpu1"]}


def test_a_refusal_says_why_host_by_host_and_takes_nothing(lab, allocated):
    lab("claim", "job-1", "PGPU=1", "--required", "CUSTOM_H100")
    done = lab("claim", "job-2", "VCPU=1,PGPU=2", "-f", "json")
    assert (done.status, done.out) == (75, "")
    assert done.err == (
        "resource-objects: no capacity for job-2 VCPU=1,PGPU=2:\n"
        "  small: PGPU requested 2, free 1 of 2 (job-1 holds 1)\n"
        "  wide: PGPU requested 2, there is none\n"
    )
    assert allocated() == {"job-1": ["PGPU=1 of small/gpu0"]}


def test_expired_claims_in_the_way_are_released_on_request(lab, allocated, url):
    with ro.connect(url) as ledger:
        over = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
        ledger.claim("old", {"small/gpu0": "PGPU=1", "small": "VCPU=4"}, expires_at=over)
    refused = lab("claim", "job-1", "PGPU=2")
    assert refused.status == 75
    assert re.fullmatch(
        r"  old: its claim expired \d+ days ago; --release-expired releases it",
        refused.err.splitlines()[-1],
    )
    done = lab("claim", "job-1", "VCPU=1,PGPU=3", "--release-expired")
    assert (done.status, done.out) == (1, "")
    assert done.err == (
        "resource-objects: no capacity for job-1 VCPU=1,PGPU=3:\n"
        "  small: PGPU requested 3, free 2 of 2\n"
        "  wide: PGPU requested 3, there is none\n"
    )
    assert not allocated()
    assert lab("claim", "job-1", "PGPU=2", "--release-expired").status == 0
    assert allocated() == {"job-1": ["PGPU=1 of small/gpu0", "PGPU=1 of small/gpu1"]}


def test_a_refusal_by_a_ledger_without_hosts(run):
    done = run("claim", "job-1", "VCPU=1", "--database", "memory://")
    assert (done.status, done.out) == (1, "")
    assert done.err.splitlines()[1] == "  there are no hosts"


def test_a_refusal_is_no_traceback_with_debug_either(lab):
    assert "Traceback" not in lab("claim", "job-1", "VCPU=999", "--debug").err


def test_claim_at_a_host_looks_nowhere_else(lab, allocated):
    assert lab("claim", "job-1", "VCPU=1", "--at", "wide").status == 0
    assert allocated() == {"job-1": ["VCPU=1 of wide"]}
    done = lab("claim", "job-2", "VCPU=5", "--at", "small")
    assert (done.status, done.out) == (1, "")
    assert done.err.splitlines()[1:] == ["  small: VCPU requested 5, free 4 of 4"]


def test_claim_at_a_provider_below_a_host_takes_that_one(lab, allocated):
    argv = ["--at", "small/gpu1", "--required", "CUSTOM_FAST"]  # a trait of the host above it
    assert lab("claim", "job-1", "PGPU=1", *argv).status == 0
    assert allocated() == {"job-1": ["PGPU=1 of small/gpu1"]}
    done = lab("claim", "job-2", "PGPU=1", "--at", "small/gpu1")
    assert done.err.splitlines()[1:] == [
        "  small/gpu1: PGPU requested 1, free 0 of 1 (job-1 holds 1)"
    ]


def test_claim_at_a_provider_that_is_not_there_is_one_line(lab):
    done = lab("claim", "job-1", "VCPU=1", "--at", "nowhere")
    assert (done.status, done.out) == (1, "")
    assert done.err == "resource-objects: nowhere is not a provider of this ledger\n"


def test_a_consumer_that_holds_something_is_not_given_more(lab, allocated):
    lab("claim", "job-1", "VCPU=1")
    for argv in ([], ["--at", "wide"]):
        done = lab("claim", "job-1", "VCPU=2", *argv)
        assert (done.status, done.out) == (1, "")
        assert done.err == "resource-objects: job-1 has allocations already; release them first\n"
    assert allocated() == {"job-1": ["VCPU=1 of small"]}


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (["job-1", "VCPU"], "--resource: got 'VCPU', expected NAME=VALUE such as VCPU=2"),
        (["job-1", "VCPU=-1"], "VCPU: got IntegerAmount(-1), expected an amount above 0"),
        (["job-1", "VCPU=1.5"], "--resource: got '1.5', expected a whole number"),
        (["job-1", "VCPU=0"], "--resource: got 'VCPU=0', expected CLASS=AMOUNT, such as"),
        (["job-1"], "got 'job-1' alone, expected CONSUMER and what it requests"),
        (["job-1", ""], "--resource: got '', expected CLASS=AMOUNT, such as VCPU=2"),
        (["job-1", "VCPU=1,VCPU=2"], "--resource: got 'VCPU', expected each resource class once"),
        (["job-1", "CPU=1"], "--resource: got 'CPU', expected a standard or CUSTOM_ class"),
        (
            ["job-1", "VCPU=1", "--required", "FAST"],
            "--required: got 'FAST', expected a standard or",
        ),
        (["", "VCPU=1"], "consumer name: got '', expected 1 to 255 printable characters"),
        (["a\nb", "VCPU=1"], "consumer name: got 'a\\nb', expected 1 to 255 printable"),
    ],
)
def test_bad_arguments_are_one_line_and_take_nothing(lab, allocated, argv, line):
    done = lab("claim", *argv)
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith(f"resource-objects: {line}")
    assert len(done.err.splitlines()) == 1
    assert allocated() == {}


def test_release_gives_everything_back_and_lists_it(lab, allocated):
    lab("claim", "job-1", "VCPU=1,PGPU=2")
    lab("claim", "job-2", "VCPU=1")
    done = lab("release", "job-1", "-f", "value")
    assert (done.status, done.err) == (0, "")
    assert done.lines == [
        "job-1 small VCPU 1 []",
        "job-1 small/gpu0 PGPU 1 []",
        "job-1 small/gpu1 PGPU 1 []",
    ]
    assert allocated() == {"job-2": ["VCPU=1 of small"]}
    again = lab("release", "job-1")
    assert (again.status, again.out) == (1, "")
    assert again.err == "resource-objects: job-1 has no allocations in this ledger\n"


def test_consumer_show_tells_what_it_holds(lab):
    lab("claim", "job-1", "VCPU=1,PGPU=2")
    done = lab("consumer", "show", "job-1")
    assert (done.status, done.err) == (0, "")
    assert "| total       | VCPU=1,PGPU=2 " in done.out
    assert "| allocations | small VCPU 1 " in done.out
    assert "|             | small/gpu1 PGPU 1 " in done.out
    shown = json.loads(lab("consumer", "show", "job-1", "-f", "json").out)
    assert shown["allocations"] == [
        {"provider": "small", "resource_class": "VCPU", "amount": 1},
        {"provider": "small/gpu0", "resource_class": "PGPU", "amount": 1},
        {"provider": "small/gpu1", "resource_class": "PGPU", "amount": 1},
    ]
    assert (shown["consumer"], shown["state"]) == ("job-1", "held")


def test_consumer_show_of_nobody_is_one_line(lab):
    done = lab("consumer", "show", "job-1")
    assert (done.status, done.out) == (1, "")
    assert done.err == "resource-objects: job-1 has no allocations in this ledger\n"
