"""``/ro/feed``: a long poll that misses nothing, and leaves a thread for others."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import resource_objects as ro
from resource_objects.ledger import RetryPolicy
from resource_objects.rest import application
from resource_objects.testing.refusals import raises_code
from tests.rest.native.conftest import Native, serving
from tests.support.patience import until

_WRITER = """
import sys
import resource_objects as ro
with ro.connect(sys.argv[1], actor="other") as ledger:
    ledger.claim("job", {"host0": "VCPU=1"})
"""


def test_changes_are_told_from_a_cursor_on(native: Native) -> None:
    begin = native.do("GET", "/feed")
    assert begin["changes"] == []
    native.ledger.sync(ro.Provider("host0", "VCPU=8"))
    native.do("POST", "/claims", {"consumer": "job", "request": "VCPU=1"})
    native.do("PUT", "/disabled/host0", {"reason": "fan"})
    found = native.do("GET", f"/feed?after={begin['cursor']}")
    assert [one["kind"] for one in found["changes"]] == ["define", "claim", "disable"]
    expected = native.ledger.feed.changes(begin["cursor"])
    told = json.loads(json.dumps([one.to_dict() for one in expected]))
    assert (found["changes"], found["cursor"]) == (told, str(expected.cursor))
    first = native.do("GET", f"/feed?after={begin['cursor']}&limit=1")
    rest = native.do("GET", f"/feed?after={first['cursor']}")
    assert first["changes"] + rest["changes"] == found["changes"]
    assert native.do("GET", f"/feed?after={rest['cursor']}")["changes"] == []


def test_a_search_says_where_to_read_on(native: Native) -> None:
    native.ledger.sync(ro.Provider("host0", "VCPU=8"))
    cursor = native.do("POST", "/search", {"request": "VCPU=1"})["cursor"]
    assert native.do("GET", f"/feed?after={cursor}")["changes"] == []
    native.ledger.claim("job", {"host0": "VCPU=1"})
    assert len(native.do("GET", f"/feed?after={cursor}")["changes"]) == 1


def test_a_cursor_that_is_no_more_says_where_to_begin_anew(native: Native) -> None:
    native.ledger.sync(ro.Provider("host0", "VCPU=8"))
    response = native.ask("GET", "/feed?after=7:1=5@5")
    [told] = response.json["errors"]
    assert (response.status_int, told["code"]) == (410, "CursorExpired")
    assert native.do("GET", f"/feed?after={told['cursor']}")["changes"] == []
    for query in ("after=x", "after=7:&wait=26", "wait=-1", "after=7:&limit=1001", "after=%ff"):
        assert native.ask("GET", f"/feed?{query}").status_int == 400, query


def test_who_finds_no_place_to_wait_is_answered_at_once(native: Native) -> None:
    cursor = native.do("GET", "/feed")["cursor"]
    response = native.ask("GET", f"/feed?after={cursor}&wait=25")
    assert (response.json["changes"], response.headers["retry-after"]) == ([], "1")


def test_waiting_is_over_with_the_time() -> None:
    passed = [0.0]

    def sleep(seconds: float) -> None:
        passed[0] += seconds

    policy = RetryPolicy(clock=lambda: passed[0], sleep=sleep)
    with ro.connect("memory://", retries=policy) as ledger:
        native = Native(serving(ledger, threads=2))
        cursor = native.do("GET", "/feed")["cursor"]
        response = native.ask("GET", f"/feed?after={cursor}&wait=20")
        assert response.json == {"changes": [], "cursor": cursor}
        assert "retry-after" not in response.headers
        assert 20 <= passed[0] < 21


class Gone:
    """The connection of a client that closes it after so many looks."""

    def __init__(self, looks: int) -> None:
        self.looks = looks

    def is_disconnected(self) -> bool:
        self.looks -= 1
        return self.looks <= 0


def test_the_place_of_who_has_gone_is_for_others() -> None:
    passed = [0.0]

    def sleep(seconds: float) -> None:
        passed[0] += seconds

    policy = RetryPolicy(clock=lambda: passed[0], sleep=sleep)
    with ro.connect("memory://", retries=policy) as ledger:
        ledger.sync(ro.Provider("host0", "VCPU=8"))
        ledger.claim("before", {"host0": "VCPU=8"})
        native = Native(serving(ledger, threads=2))
        cursor = native.do("GET", "/feed")["cursor"]
        body = {"consumer": "job", "request": "VCPU=1", "wait": 20}
        for asked in (("GET", f"/feed?after={cursor}&wait=20"), ("POST", "/claims", body)):
            passed[0] = 0
            gone = native.ask(*asked, environ={"gunicorn.socket": Gone(3)})
            assert (gone.status_int, gone.json["errors"][0]["code"]) == (408, "ClientGone")
            assert 0 < passed[0] < 10
        assert not list(ledger.queue()), "nor does it stand in the queue"
        there = native.ask(*asked, environ={"gunicorn.socket": Gone(1000)})
        assert there.json["errors"][0]["code"] == "WaitTimedOut"
        with raises_code("ConsumerNotFound"):
            ledger.get_claim("job")


def test_waiting_requests_are_bounded_and_end_by_a_write(tmp_path: Path) -> None:
    """Three may wait where there are four threads; the fourth is answered, so is a search."""
    url = f"sqlite:///{tmp_path}/lab.db"
    app = application(url, auth="noauth2", policy="legacy", threads=4)
    native = Native(app)
    native.ledger.sync(ro.Provider("host0", "VCPU=8"))
    cursor = native.do("GET", "/feed")["cursor"]
    answers: list[list[str]] = []
    sleeping: set[int] = set()
    sleep = native.ledger.retries.sleep

    def told(seconds: float) -> None:
        sleeping.add(threading.get_ident())
        sleep(seconds)

    object.__setattr__(native.ledger.retries, "sleep", told)

    def wait() -> None:
        found = native.do("GET", f"/feed?after={cursor}&wait=25")
        answers.append([one["actor"] for one in found["changes"]])

    waiting = [threading.Thread(target=wait) for _ in range(3)]
    for one in waiting:
        one.start()
    until(lambda: len(sleeping) == 3)
    assert "retry-after" in native.ask("GET", f"/feed?after={cursor}&wait=25").headers
    assert native.do("POST", "/search", {"request": "VCPU=1"})["candidates"]
    subprocess.run([sys.executable, "-c", _WRITER, url], check=True, timeout=60)
    for one in waiting:
        one.join(60)
    assert answers == [["other"]] * 3
    cursor = native.do("GET", "/feed")["cursor"]  # their places are free again
    assert "retry-after" not in native.ask("GET", f"/feed?after={cursor}&wait=1").headers
    app.close()


@pytest.mark.parametrize("threads", [0, 1])
def test_one_thread_is_never_held(threads: int) -> None:
    with ro.connect("memory://") as ledger:
        native = Native(serving(ledger, threads=threads))
        cursor = native.do("GET", "/feed")["cursor"]
        assert "retry-after" in native.ask("GET", f"/feed?after={cursor}&wait=25").headers
