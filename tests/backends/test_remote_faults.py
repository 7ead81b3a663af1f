"""A remote Placement that answers badly, late or not at all: one error, nothing half-known."""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.backends.placement.backend import PlacementBackend
from resource_objects.backends.retries import RetryPolicy
from resource_objects.rest import application
from resource_objects.testing.refusals import raises_code
from tests.support.wsgi_transport import WSGITransport, session_for

JOB = "7f0c9f5e-3c52-4a5c-9f0b-1d3e0b7a6c11"
#: Tries again at once, and seldom.
HASTY = RetryPolicy(tries=3, sleep=lambda seconds: None)


class Between:
    """A WSGI application before a service: it may answer in its place.

    ``answers`` are called with method and path, and return None or ``(status, body)``.
    """

    def __init__(self, service: Any) -> None:
        self._service = service
        self.answers: Callable[[str, str], tuple[str, bytes] | None] = lambda method, path: None
        self.asked: list[tuple[str, str]] = []

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        self.asked.append((method, path))
        found = self.answers(method, path)
        if found is None:
            return self._service(environ, start_response)
        status, body = found
        start_response(status, [("Content-Type", "application/json")])
        return [body]


@pytest.fixture
def between() -> Iterator[Between]:
    """A service with a host, and what may stand before it."""
    service = application("memory://", auth="noauth2", policy="open")
    service.ledger.sync(ro.Provider("host0", "VCPU=8"))
    yield Between(service)
    service.close()


@pytest.fixture
def ledger(between: Between) -> Iterator[ro.Ledger]:
    """A ledger kept there that gives up soon."""
    session = session_for(WSGITransport(between))
    backend = PlacementBackend.open_with("placement://?workers=1", session, retries=HASTY)
    with ro.Ledger(backend) as opened:
        yield opened


def error(status: str, code: str = "", detail: str = "words") -> tuple[str, bytes]:
    """Return an error as Placement tells it."""
    said = {"status": int(status[:3]), "title": status[4:], "detail": detail, "code": code}
    return status, json.dumps({"errors": [said]}).encode()


BAD = {
    "500": ("500 Internal Server Error", b"it broke"),
    "502": ("502 Bad Gateway", b"<html>nobody there</html>"),
    "503": error("503 Service Unavailable"),
    "429": ("429 Too Many Requests", b"slowly"),
    "401": error("401 Unauthorized"),
    "403": error("403 Forbidden"),
    "404 of a proxy": ("404 Not Found", b"<html>no such page</html>"),
    "nothing": ("200 OK", b""),
    "cut off": ("200 OK", b'{"resource_providers": [{"uuid": "7f0c'),
    "a list": ("200 OK", b"[]"),
    "of another": ("200 OK", b'{"things": []}'),
    "without a generation": ("200 OK", b'{"resource_providers": [{"uuid": "x", "name": "y"}]}'),
    "moved": ("302 Found", b""),
}
#: What is told of each, wherever it comes.
TOLD: tuple[type[Exception] | str, ...] = (
    "LostConnection",
    "DatabaseUnavailable",
    "RequestRefused",
)


@pytest.mark.parametrize("kind", BAD)
def test_a_read_that_is_answered_badly_is_one_error_and_shows_nothing(
    ledger: ro.Ledger, between: Between, kind: str
) -> None:
    before = ledger.snapshot()
    for part in ("", "/inventories", "/traits", "/aggregates", "/allocations"):
        ledger.backend.reread()  # type: ignore[attr-defined]
        between.answers = lambda method, path, part=part: (
            BAD[kind] if path.startswith("/resource_providers") and path.endswith(part) else None
        )
        with raises_code(*TOLD) as told:
            ledger.snapshot()
        assert told.value.name == "placement"
        assert kind[:3] in str(told.value) or not kind[:3].isdigit()
    between.answers = lambda method, path: None
    assert ledger.snapshot().used("VCPU") == before.used("VCPU") == 0


@pytest.mark.parametrize("kind", BAD)
def test_a_consumer_that_is_read_badly_is_one_error(
    ledger: ro.Ledger, between: Between, kind: str
) -> None:
    ledger.claim(JOB, {"host0": "VCPU=2"})
    between.answers = lambda method, path: BAD[kind] if path.startswith("/allocations") else None
    for ask in (
        lambda: ledger.get_claim(JOB),
        lambda: ledger.release(JOB),
        lambda: ledger.adjust(JOB, {"host0": "VCPU=1"}),
        lambda: list(ledger.consumers()),
    ):
        with raises_code(*TOLD):
            ask()
    between.answers = lambda method, path: None
    assert str(ledger.get_claim(JOB)) == f"{JOB} holds VCPU=2 of host0"


#: By the others' status it was done, and an answer to a claim has no body.
REFUSED = [kind for kind, (status, _) in BAD.items() if not status.startswith("200")]


@pytest.mark.parametrize("kind", REFUSED)
def test_a_claim_that_is_answered_badly_is_one_error_and_not_done(
    ledger: ro.Ledger, between: Between, kind: str
) -> None:
    ledger.snapshot()
    between.answers = lambda method, path: BAD[kind] if method == "PUT" else None
    with raises_code(*TOLD, "ReadOnlyDatabase") as told:
        ledger.claim(JOB, {"host0": "VCPU=2"})
    assert kind[:3] in str(told.value) or not kind[:3].isdigit()
    between.answers = lambda method, path: None
    assert ledger.usage()["host0", "VCPU"].used == 0


@pytest.mark.parametrize("kind", BAD)
def test_a_definition_that_is_answered_badly_is_one_error(
    ledger: ro.Ledger, between: Between, kind: str
) -> None:
    ledger.trees()
    between.answers = lambda method, path: (
        BAD[kind] if method == "PUT" and path.endswith("/inventories") else None
    )
    with raises_code(*TOLD, "ReadOnlyDatabase"):
        ledger.change("host0", inventories="VCPU=16")
    between.answers = lambda method, path: None
    assert ledger.inventories("host0")["VCPU"].total == 8
    ledger.change("host0", inventories="VCPU=16")
    assert ledger.inventories("host0")["VCPU"].total == 16


def test_a_storm_of_conflicts_ends(ledger: ro.Ledger, between: Between) -> None:
    conflict = error("409 Conflict", "placement.concurrent_update", "update conflict: it was busy")
    between.answers = lambda method, path: conflict if method == "PUT" else None
    ledger.snapshot()
    del between.asked[:]
    with raises_code("DatabaseBusy", match="others write the same providers"):
        ledger.claim(JOB, {"host0": "VCPU=2"})
    asked = [one for one in between.asked if one[0] != "GET"]
    assert asked == [("PUT", f"/allocations/{JOB}")] * HASTY.tries


def test_a_storm_of_changes_of_one_consumer_ends(ledger: ro.Ledger, between: Between) -> None:
    conflict = error("409 Conflict", "placement.concurrent_update", "consumer generation conflict")
    ledger.claim(JOB, {"host0": "VCPU=2"})
    between.answers = lambda method, path: conflict if method == "PUT" else None
    del between.asked[:]
    with raises_code("DatabaseBusy", match=f"others write the consumer {JOB} all the time"):
        ledger.adjust(JOB, {"host0": "VCPU=1"})
    assert len([one for one in between.asked if one[0] == "PUT"]) == HASTY.tries


def test_a_claim_that_is_told_of_a_conflict_after_it_was_done_is_done(
    ledger: ro.Ledger, between: Between
) -> None:
    """A proxy that sends a request again gets the conflict with the one before."""
    came: list[str] = []

    def twice(method: str, path: str) -> tuple[str, bytes] | None:
        if method != "PUT" or came:
            return None
        came.append(path)
        body = {
            "allocations": {ledger.backend.uuids(["host0"])["host0"]: {"resources": {"VCPU": 2}}},
            "consumer_generation": None,
            "project_id": "00000000-0000-0000-0000-000000000000",
            "user_id": "00000000-0000-0000-0000-000000000000",
        }
        session_for(WSGITransport(between)).put(path, json=body, microversion="1.37")
        return error("504 Gateway Timeout")

    between.answers = twice
    assert ledger.claim(JOB, {"host0": "VCPU=2"}).generation == 1
    assert ledger.usage()["host0", "VCPU"].used == 2


def test_one_who_may_only_read_is_told_so(ledger: ro.Ledger, between: Between) -> None:
    between.answers = lambda method, path: (
        None if method == "GET" else error("403 Forbidden", detail="Policy does not allow it")
    )
    for ask in (
        lambda: ledger.claim(JOB, {"host0": "VCPU=1"}),
        lambda: ledger.sync(ro.Provider("host1", "VCPU=1")),
        lambda: ledger.names.traits.ensure("CUSTOM_A"),
        lambda: ledger.remove("host0"),
    ):
        with raises_code("ReadOnlyDatabase", match="Policy does not allow it"):
            ask()
    assert ledger.snapshot().candidates("VCPU=8")


@pytest.mark.parametrize("most", ["1.0", "1.17", "1.28", "1.29", "2.5", "1", "", "new"])
def test_a_placement_that_is_too_old_or_none_is_not_opened(between: Between, most: str) -> None:
    root = {"versions": [{"id": "v1.0", "min_version": "1.0", "max_version": most}]}
    between.answers = lambda method, path: ("200 OK", json.dumps(root).encode())
    with raises_code("DatabaseUnavailable"):
        ro.connect("placement://", session=session_for(WSGITransport(between)))
    assert len(between.asked) == 1


# --- over a socket --------------------------------------------------------------------------------


@contextlib.contextmanager
def answering(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    """Listen, and let a function answer each connection; its root is that of a Placement."""
    listening = socket.create_server(("127.0.0.1", 0))
    is_over = threading.Event()

    def serve() -> None:
        while not is_over.is_set():
            with contextlib.suppress(OSError), listening.accept()[0] as one:
                one.settimeout(5)
                asked = one.recv(65536)
                if asked.startswith(b"GET / "):
                    body = b'{"versions": [{"id": "v1.0", "max_version": "1.39"}]}'
                    one.sendall(_head(len(body)) + body)
                else:
                    answer(one)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield listening.getsockname()[1]
    finally:
        is_over.set()
        with contextlib.suppress(OSError):
            socket.create_connection(listening.getsockname(), 1).close()
        thread.join()
        listening.close()


def _head(length: int) -> bytes:
    return (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n"
        b"Content-Length: %d\r\n\r\n" % length
    )


def _cut_off(one: socket.socket) -> None:
    one.sendall(_head(1000) + b'{"resource_providers": [')


def _closed(one: socket.socket) -> None:
    pass


def _no_http(one: socket.socket) -> None:
    one.sendall(b"220 mail.example ESMTP\r\n")


@pytest.mark.parametrize("answer", [_cut_off, _closed, _no_http])
def test_what_breaks_off_is_a_lost_connection(answer: Callable[[socket.socket], None]) -> None:
    with answering(answer) as port:
        url = f"placement+http://127.0.0.1:{port}?token=admin"
        backend = PlacementBackend.open_with(url, None, retries=HASTY)
        with ro.Ledger(backend) as ledger, raises_code("LostConnection"):
            ledger.snapshot()


@pytest.mark.parametrize("has_session", [False, True])
def test_nobody_waits_for_ever(has_session: bool) -> None:
    """Neither with a session of its own nor with one that says no time."""
    from keystoneauth1 import session, token_endpoint

    is_over = threading.Event()
    with answering(lambda one: is_over.wait(20) and None) as port:
        url = f"http://127.0.0.1:{port}"
        made = session.Session(auth=token_endpoint.Token(url, "admin")) if has_session else None
        backend = PlacementBackend.open_with(
            f"placement+{url}?timeout=0.2", made, retries=RetryPolicy(tries=1)
        )
        try:
            with (
                ro.Ledger(backend) as ledger,
                raises_code("LostConnection", match="tim"),
            ):
                ledger.snapshot()
        finally:
            is_over.set()


# --- what stays a secret --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "placement+http://me:geheim@127.0.0.1:{port}",
        "placement+http://127.0.0.1:{port}?token=geheim",
    ],
)
def test_no_error_and_no_log_tells_a_password_or_a_token(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    asked: list[bytes] = []

    def refuse(one: socket.socket) -> None:
        asked.append(b"")
        one.sendall(
            b"HTTP/1.1 401 Unauthorized\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n"
            b"Connection: close\r\n\r\nno"
        )

    told: list[str] = []
    for answer in (refuse, _cut_off, _closed, _no_http):
        with answering(answer) as port:
            backend = PlacementBackend.open_with(url.format(port=port), None, retries=HASTY)
            with ro.Ledger(backend) as ledger:
                told += [repr(ledger), repr(backend), str(ledger)]
                with pytest.raises(exceptions.LedgerError) as error:
                    ledger.snapshot()
                told += chain(error.value)
    assert asked
    secrets = ("geheim", base64.b64encode(b"me:geheim").decode())
    for secret in secrets:
        assert not [line for line in [*told, caplog.text] if secret in line]


@pytest.mark.parametrize(
    "url",
    [
        "placement+http://me:geheim@host:port",
        "placement+http://me:geheim@host?depth=3",
        "placement+ftp://me:geheim@host",
        "placement+http://host?token=geheim&workers=0",
        "placement+http://host?token=geheim&token=geheim",
        "placement+http://host?token=geheim#part",
    ],
)
def test_a_url_that_is_refused_is_not_told(url: str) -> None:
    with raises_code("InvalidURL") as refused:
        ro.connect(url)
    assert "geheim" not in "".join(chain(refused.value))


def chain(error: BaseException | None) -> list[str]:
    """Return all that an error says, with those that it came of."""
    told = []
    while error is not None:
        told += [str(error), repr(error)]
        error = error.__cause__ or error.__context__
    return told
