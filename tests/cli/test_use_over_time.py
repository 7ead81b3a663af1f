"""The commands `usage between` and `usage record`."""

from __future__ import annotations

import datetime
import json

import pytest

import resource_objects as ro
from resource_objects import clock

START = datetime.datetime(2026, 11, 3, 8, tzinfo=datetime.UTC)


@pytest.fixture
def lab(run, sqlite_url, monkeypatch):
    """Run commands on a ledger where ann had two GPUs for three hours, and bob has one for one."""
    now = [START]
    monkeypatch.setattr(clock, "now", lambda: now[0])
    monkeypatch.setattr(clock, "milliseconds", lambda: int(now[0].timestamp() * 1000))
    url = sqlite_url("lab.db")
    with ro.connect(url) as ledger:
        ledger.sync(ro.Provider("lab-0", "PGPU=8,VCPU=64"))
        ledger.claim("train", {"lab-0": "PGPU=2,VCPU=8"}, user="ann", project="vision")
        now[0] += datetime.timedelta(hours=3)
        ledger.release("train")
        ledger.claim("sweep", {"lab-0": "PGPU=1"}, user="bob")
        now[0] += datetime.timedelta(hours=1)
    return lambda *argv: run("--database", url, *argv)


def test_hours_by_user_and_class(lab):
    done = lab("usage", "between", "2026-11-03T08:00Z", "--by", "user,class", "--hours")
    assert (done.status, done.err) == (0, "")
    assert [line.split() for line in done.lines if line.startswith("| ")] == [
        ["|", "user", "|", "resource_class", "|", "hours", "|"],
        ["|", "ann", "|", "VCPU", "|", "24.00", "|"],
        ["|", "ann", "|", "PGPU", "|", "6.00", "|"],
        ["|", "bob", "|", "PGPU", "|", "1.00", "|"],
    ]


def test_data_is_in_seconds(lab):
    done = lab("usage", "between", "2026-11-03T09:00Z", "2026-11-03T11:30Z", "-f", "json")
    assert json.loads(done.out) == [
        {"user": "ann", "resource_class": "VCPU", "seconds": 57600},
        {"user": "ann", "resource_class": "PGPU", "seconds": 14400},
        {"user": "bob", "resource_class": "PGPU", "seconds": 1800},
    ]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--class", "VCPU"], [["ann", "VCPU", "86400"]]),
        (["--user", "bob"], [["bob", "PGPU", "3600"]]),
        (["--project", "vision", "--class", "PGPU"], [["ann", "PGPU", "21600"]]),
        (["--consumer", "sweep", "--by", "consumer"], [["sweep", "PGPU", "3600"]]),
        (["--by", "class", "--class", "PGPU"], [["PGPU", "25200"]]),
        (["--by", "project", "--user", "bob"], [["PGPU", "3600"]]),
    ],
)
def test_of_one_and_by_another(lab, options, expected):
    done = lab("usage", "between", "2026-11-03T08:00Z", *options, "-f", "value")
    assert [line.split() for line in done.lines] == expected


@pytest.mark.parametrize("since", ["4h", "240m", "1d", "yesterday", "2026-11-01", "2026-11", "30d"])
def test_days_as_people_write_them(lab, since):
    done = lab("usage", "between", since, "--by", "class", "--class", "PGPU", "-f", "value")
    assert done.lines == ["PGPU 25200"]


def test_what_is_not_known_is_said(lab):
    done = lab("usage", "between", "2026-09-03T07:00Z", "-f", "json")
    assert (done.status, len(done.err.splitlines())) == (0, 1)
    assert done.err.startswith("resource-objects: only use since 2026-1")
    assert lab("usage", "between", "4h").err == ""


def test_nothing_is_a_sentence(lab):
    assert lab("usage", "between", "4h", "--user", "nobody").lines == ["nothing was used"]
    assert json.loads(lab("usage", "between", "4h", "--user", "nobody", "-f", "json").out) == []


@pytest.mark.parametrize(
    ("argv", "status", "text"),
    [
        (["2026-11-04", "2026-11-03"], 1, "since|until"),
        (["2026-11-03T09:00Z", "2026-11-03T08:00Z"], 1, "until: got '2026-11-03T08:00"),
        (["2030-01-01"], 1, "expected a moment before now"),
        (["soon"], 1, "since: got 'soon', expected a day such as"),
        (["2026-13"], 1, "since: got '2026-13'"),
        (["99999999d"], 1, "since: got '99999999d'"),
        (["4h", "--class", "CUSTOM_NONE"], 1, "CUSTOM_NONE is not a resource class"),
        (["4h", "--by", "host"], 2, "by: got 'host', expected some of consumer, user, project"),
    ],
)
def test_what_cannot_be_asked_is_one_line(lab, argv, status, text):
    done = lab("usage", "between", *argv)
    assert (done.status, done.out, len(done.err.splitlines())) == (status, "", 1)
    assert any(item in done.err for item in text.split("|"))


def test_how_far_back_it_is_known_is_set(lab):
    assert "only use since" in lab("usage", "between", "2026-09-03T07:00Z").err
    assert lab("usage", "record", "--keep", "400d", "-f", "value").lines == ["400 days"]
    # what was forgotten before is not known again
    assert "only use since" in lab("usage", "between", "2026-09-03T07:00Z").err
    assert lab("usage", "record").status == 2
