"""Use over time through the front door: who used how much of what between two moments."""

from __future__ import annotations

import datetime
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest

import resource_objects as ro
from resource_objects import clock, exceptions
from resource_objects.ledger import new_operation
from resource_objects.testing.refusals import raises_code
from tests.support.lengths import examples

HOUR = datetime.timedelta(hours=1)
START = datetime.datetime(2026, 11, 1, tzinfo=datetime.UTC)
LONG = datetime.timedelta(days=400)
GPU = "PGPU"


class Time:
    """The clock, which a test sets."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.at = START
        patch.setattr(clock, "now", lambda: self.at)
        patch.setattr(clock, "milliseconds", lambda: int(self.at.timestamp() * 1000))

    def passes(self, hours: float = 1) -> None:
        self.at += hours * HOUR


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    return Time(monkeypatch)


@pytest.fixture(params=["memory", "sqlite"])
def lab(request: pytest.FixtureRequest, time: Time, sqlite_url: Any) -> Any:
    """A ledger on this machine, by whose clock it goes."""
    url = "memory://" if request.param == "memory" else sqlite_url("lab.db")
    with ro.connect(url) as ledger:
        ledger.sync(*(ro.Provider(f"lab-{n}", "PGPU=8,VCPU=64") for n in range(2)))
        yield ledger


def hours(report: Any) -> list[tuple[Any, ...]]:
    """Return the rows of a report, in hours."""
    return [(row.consumer, row.user, row.project, row.resource_class, row.hours) for row in report]


def test_figures_are_amounts_times_the_time_they_were_had(lab: ro.Ledger, time: Time) -> None:
    lab.claim("job", {"lab-0": "PGPU=2"}, user="ann", project="p")
    time.passes()
    lab.adjust("job", {"lab-0": {"PGPU": 1}})
    time.passes()
    lab.move("job", {"lab-1": "PGPU=3"})
    time.passes()
    lab.confirm("job")
    lab.release("job")
    time.passes()
    [row] = lab.use_over_time.between(START, by=("user", "project"))
    assert (row.user, row.project, row.resource_class) == ("ann", "p", GPU)
    assert row.microseconds == 8 * 3600 * 10**6 and row.hours == 8.0
    assert hours(lab.use_over_time.between(START + 0.5 * HOUR, START + 1.5 * HOUR, by=())) == [
        (None, None, None, GPU, 2.5)
    ]
    assert not lab.use_over_time.between(START + 3 * HOUR)


def test_a_move_with_the_old_place_left_counts_for_both(lab: ro.Ledger, time: Time) -> None:
    lab.claim("job", {"lab-0": "PGPU=2"})
    time.passes()
    lab.move("job", {"lab-1": "PGPU=2"}, source_consumer="job-leaving")
    time.passes()
    lab.release("job-leaving")
    time.passes()
    assert hours(lab.use_over_time.between(START, by="consumer")) == [
        ("job", None, None, GPU, 6.0),
        ("job-leaving", None, None, GPU, 2.0),
    ]


def test_a_swap_and_a_gang_and_a_release_of_all(lab: ro.Ledger, time: Time) -> None:
    lab.claim_all({"a": {"lab-0": "PGPU=1"}, "b": {"lab-1": "PGPU=4"}})
    time.passes()
    lab.swap("a", "b")
    time.passes()
    lab.release_all(["a", "b"])
    time.passes()
    assert [
        (one.consumer, one.hours) for one in lab.use_over_time.between(START, by="consumer")
    ] == [
        ("a", 5.0),
        ("b", 5.0),
    ]


def test_parts_of_a_device_count_as_their_amounts_say(lab: ro.Ledger, time: Time) -> None:
    from resource_objects.host import partitions

    host = ro.Provider("lab-2")
    partitions.thousandths(host.add("lab-2/gpu0", "PGPU=1"))
    lab.sync(host)
    lab.claim("half", lab.snapshot().candidates("CUSTOM_PGPU_THOUSANDTHS=500"))
    time.passes()
    assert hours(lab.use_over_time.between(START, by=())) == [
        (None, None, None, "CUSTOM_PGPU_THOUSANDTHS", 500.0)
    ]


def test_the_unattributed_use_of_a_host_becomes_somebody_s(lab: ro.Ledger, time: Time) -> None:
    row = {"hypervisor_hostname": "lab-9", "vcpus": 8, "vcpus_used": 6}
    ro.ComputeNode.from_row(row).bind(lab).save()
    time.passes()
    lab.attribute("lab-9", "vm", {"lab-9": "VCPU=2"})
    time.passes()
    used = {one.consumer: one.hours for one in lab.use_over_time.between(START, by="consumer")}
    assert used["vm"] == 2.0 and sum(used.values()) == 12.0


def test_an_operation_that_is_repeated_counts_once(lab: ro.Ledger, time: Time) -> None:
    operation = new_operation()
    for _ in range(2):
        lab.claim("job", {"lab-0": "PGPU=1"}, operation=operation)
        time.passes()
    [row] = lab.use_over_time.between(START)
    assert row.hours == 2.0


def test_the_time_that_the_feed_has_forgotten_is_reported(lab: ro.Ledger, time: Time) -> None:
    lab.feed.set_retention(LONG)
    lab.claim("job", {"lab-0": "PGPU=1"})
    time.passes()
    assert lab.use_over_time.between(START).is_complete
    time.passes(24 * 500)
    report = lab.use_over_time.between(START)
    assert not report.is_complete and report.complete_since == time.at - LONG
    assert [row.hours for row in report] == [400 * 24.0]
    assert lab.use_over_time.between(time.at - LONG).is_complete


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"since": START, "until": START}, "until: got .*, expected a moment after"),
        ({"since": START, "until": START - HOUR}, "until"),
        ({"since": START + 99 * HOUR}, "since: got .*, expected a moment before now"),
        ({"since": datetime.datetime(2026, 11, 1)}, "time zone"),
        ({"since": START, "by": "host"}, "by: got 'host', expected some of consumer, user"),
        ({"since": START, "by": 7}, "by"),
        ({"since": START, "resource_class": "gpu"}, "gpu"),
        ({"since": START, "user": ""}, "user"),
    ],
)
def test_what_cannot_be_asked(lab: ro.Ledger, time: Time, asked: dict[str, Any], said: str) -> None:
    time.passes()
    with pytest.raises(exceptions.InvalidInput, match=said):
        lab.use_over_time.between(**asked)


def test_a_class_that_nobody_knows(lab: ro.Ledger, time: Time) -> None:
    time.passes()
    with raises_code("ClassNotFound", match="CUSTOM_NONE"):
        lab.use_over_time.between(START, resource_class="CUSTOM_NONE")


# --- the integral ---

#: what is done, with what, and how many seconds pass then
_step = st.tuples(
    st.sampled_from(["set", "set", "move", "release"]),
    st.sampled_from(["a", "b"]),
    st.integers(1, 4),
    st.sampled_from([None, "ann", "bob"]),
    st.integers(0, 5000),
)


@pytest.mark.drawn
@pytest.mark.law(1, 7)
@hypothesis.settings(max_examples=examples(40), deadline=None)
@hypothesis.given(
    steps=st.lists(_step, max_size=12), span=st.tuples(st.floats(0, 1), st.floats(0, 1))
)
def test_it_is_the_integral_of_what_was_held(
    steps: list[tuple[str, str, int, str | None, int]], span: tuple[float, float]
) -> None:
    """Second by second, of a table of who held how many."""
    with pytest.MonkeyPatch.context() as patch, ro.connect() as ledger:
        time = Time(patch)
        ledger.sync(ro.Provider("lab-0", "PGPU=99"), ro.Provider("lab-1", "PGPU=99"))
        held: dict[str, tuple[str | None, int]] = {}
        lengths: list[tuple[dict[str, tuple[str | None, int]], int]] = []
        for what, job, amount, user, seconds in steps:
            if what == "release" and job in held:
                ledger.release(job)
                del held[job]
            elif what == "move" and job in held:
                ledger.move(job, {"lab-1": {GPU: held[job][1]}})
            elif what == "set":
                user = held[job][0] if job in held else user
                ledger.replace(job, {"lab-0": {GPU: amount}}, user=user)
                held[job] = user, amount
            lengths.append((dict(held), seconds))
            time.at += datetime.timedelta(seconds=seconds)
        first, last = sorted(int(one * (time.at - START).total_seconds()) for one in span)
        if first == last:
            return
        wanted: dict[tuple[str, str | None], int] = {}
        second = 0
        for holding, length in lengths:
            inside = max(0, min(last, second + length) - max(first, second))
            for job, (user, amount) in holding.items() if inside else ():
                wanted[job, user] = wanted.get((job, user), 0) + inside * amount
            second += length
        moments = (START + datetime.timedelta(seconds=one) for one in (first, last))
        time.at += HOUR
        report = ledger.use_over_time.between(*moments, by=("consumer", "user"))
        assert {(row.consumer, row.user): row.microseconds for row in report} == {
            whose: total * 10**6 for whose, total in wanted.items()
        }
