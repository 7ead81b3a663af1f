"""Slow clients and closed connections, at the sockets of a real service: nobody else waits."""

from __future__ import annotations

import contextlib
import json
import selectors
import socket
import struct
import uuid
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resource_objects.rest import worker
from resource_objects.rest.serving import THREADS
from resource_objects.rest.worker import BufferedSocket, PendingBytes, is_complete
from tests.support.patience import until
from tests.support.served import Served

#: More than there are threads in both processes.
MANY = 2 * THREADS * 3

HEAD = "x-auth-token: admin\r\nhost: lab\r\nopenstack-api-version: placement 1.39\r\n"
ASK = f"GET /resource_classes HTTP/1.1\r\n{HEAD}".encode()


@contextlib.contextmanager
def connections(service: Served, said: bytes, count: int = MANY) -> Iterator[list[socket.socket]]:
    """Connections on which something was said."""
    with contextlib.ExitStack() as stack:
        made = []
        for _ in range(count):
            one = stack.enter_context(socket.create_connection(("127.0.0.1", service.port), 30))
            one.sendall(said)
            made.append(one)
        yield made


def others_are_answered(service: Served) -> None:
    """Ask more often than there are threads; a thread that waits would be found by one of these.

    Each may take as long as a busy machine does, but less than a request may take to come.
    """
    for _ in range(MANY):
        assert service.ask("GET", "/health", timeout=worker.RECEIVE * 0.9)[0] == 200


def answer(one: socket.socket) -> tuple[int, bytes]:
    """Return the status of one answer, and its body."""
    with one.makefile("rb") as file:
        return answered(file)


def answered(file: BinaryIO) -> tuple[int, bytes]:
    """Return the status of the next answer, and its body."""
    status = int(file.readline().split()[1])
    length = 0
    while (line := file.readline().strip()) != b"":
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    return status, file.read(length)


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"GET",
        ASK,
        f"POST /resource_providers HTTP/1.1\r\n{HEAD}".encode()
        + b"content-type: application/json\r\ncontent-length: 20\r\n\r\n{",
        f"POST /resource_providers HTTP/1.1\r\n{HEAD}".encode()
        + b"content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n5\r\n{",
    ],
    ids=["silent", "begun", "no end of the head", "no body", "no end of the chunks"],
)
def test_who_does_not_send_its_request_holds_nobody_up(service: Served, said: bytes) -> None:
    with connections(service, said):
        others_are_answered(service)


def test_who_sends_byte_by_byte_is_answered(service: Served) -> None:
    with connections(service, b"", 1) as [one]:
        for byte in ASK + b"\r\n":
            one.sendall(bytes([byte]))
        assert answer(one)[0] == 200


def test_who_closes_holds_nobody_up(service: Served) -> None:
    """Also in the middle of a body, before the answer, and with a reset."""
    body = f"POST /resource_providers HTTP/1.1\r\n{HEAD}".encode()
    for said in (b"", b"GET", ASK + b"\r\n", body + b"content-length: 20\r\n\r\n{"):
        for reset in (False, True):
            with connections(service, said, THREADS) as made:
                for one in made if reset else ():
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    others_are_answered(service)


def test_who_closes_while_it_waits_gives_its_place_back(service: Served) -> None:
    """The log tells that its request ended, and not that it got an answer when time was over."""
    cursor = service.ask("GET", "/ro/feed")[1]["cursor"]
    said = f"GET /ro/feed?after={cursor}&wait=25 HTTP/1.1\r\n{HEAD}\r\n".encode()
    for _ in range(3):
        before = service.log.count("status: 408")
        with connections(service, said, 1):
            pass
        until(lambda seen=before: service.log.count("status: 408") == seen + 1)


def test_who_is_answered_for_the_last_time_and_does_not_close_holds_nobody_up(
    service: Served,
) -> None:
    with connections(service, ASK + b"connection: close\r\n\r\n") as made:
        for one in made:
            assert answer(one)[0] == 200
        others_are_answered(service)


def test_who_reads_nothing_holds_nobody_up(service: Served) -> None:
    """Many ask for more than the kernel keeps for them; then they read, and all of it is there."""
    said = f"GET /ro/openapi.json HTTP/1.1\r\n{HEAD}\r\n".encode()
    expected = json.dumps(service.ask("GET", "/ro/openapi.json")[1])
    kept = int(Path("/proc/sys/net/ipv4/tcp_wmem").read_text().split()[2])
    count = 2 * kept // len(expected)
    with contextlib.ExitStack() as stack:
        made = []
        for _ in range(MANY):
            one = stack.enter_context(socket.socket())
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
            one.settimeout(30)
            one.connect(("127.0.0.1", service.port))
            one.sendall(said * count)
            made.append(one)
        others_are_answered(service)
        for one in made[::5]:
            with one.makefile("rb") as file:
                for _ in range(count):
                    status, found = answered(file)
                    assert status == 200
                    assert json.dumps(json.loads(found)) == expected


@contextlib.contextmanager
def patient(most: int) -> Iterator[tuple[BufferedSocket, PendingBytes, socket.socket]]:
    """A connection whose client has not read yet, and how much may wait for it."""
    ours, theirs = socket.socketpair()
    behind = PendingBytes(most)
    with theirs, contextlib.closing(BufferedSocket(ours, socket.socket.close, behind)) as one:
        yield one, behind, theirs


TEXT = bytes(range(256)) * 20_000


def test_what_is_not_taken_waits_and_is_sent_on_in_its_order() -> None:
    with patient(2 * len(TEXT)) as (one, behind, client):
        for part in (b"head", TEXT, b"tail"):
            one.sendall(part)
        assert one.has_pending
        assert not behind.reserve(2 * len(TEXT)), "some of it is counted"
        client.settimeout(30)
        found = b""
        while one.has_pending:
            found += client.recv(100_000)
            one.send_pending()
        while len(found) < len(TEXT) + 8:
            found += client.recv(100_000)
        assert found == b"head" + TEXT + b"tail"
        assert behind.reserve(2 * len(TEXT)), "nothing waits any more"


def test_where_there_is_no_room_for_more_the_thread_waits() -> None:
    with patient(0) as (one, _, client), ThreadPoolExecutor(1) as pool:
        sending = pool.submit(one.sendall, TEXT)
        found = b""
        while len(found) < len(TEXT):
            found += client.recv(100_000)
        sending.result(30)
        assert (found, one.has_pending) == (TEXT, False)


@pytest.mark.parametrize("goes", [False, True])
def test_who_never_takes_its_answer_is_closed(goes: bool) -> None:
    """And nothing is left of it: no connection, no place in the loop, no bytes."""
    made = worker.Worker.__new__(worker.Worker)
    with patient(len(TEXT)) as (one, behind, client), selectors.DefaultSelector() as poller:
        made._receiving, made._sending, made._closing = {}, {}, deque()
        made.keepalived_conns, made.poller, made.nr_conns, made.alive = deque(), poller, 1, True
        conn: Any = mock.Mock(sock=one)
        one.sendall(TEXT)
        made.finish_request(conn, Future())
        made.murder_keepalived()
        assert made.nr_conns == len(poller.get_map()) == 1, "it has its time"
        if goes:
            client.close()
            made._send(conn, one)
        else:
            made._sending[conn] = (0.0, made._sending[conn][1])
            made.murder_keepalived()
        assert made.nr_conns == len(poller.get_map()) == 0
        assert behind.reserve(len(TEXT))
        assert one.fileno() < 0


def test_who_has_just_connected_may_ask_though_the_process_ends() -> None:
    """What it asks is on its way; who was silent for longer is closed at once."""
    made = worker.Worker.__new__(worker.Worker)
    with patient(0) as (one, _, _), selectors.DefaultSelector() as poller:
        made._receiving, made._sending, made._closing = {}, {}, deque()
        made._pending_bytes = PendingBytes(0)
        made.keepalived_conns, made.poller, made.nr_conns, made.alive = deque(), poller, 1, False
        conn: Any = mock.Mock(sock=one, parser=None)
        made.enqueue_req(conn)
        made.murder_keepalived()
        assert made.nr_conns == len(poller.get_map()) == 1
        made._receiving[conn] -= worker._LINGER
        made.murder_keepalived()
        assert made.nr_conns == len(poller.get_map()) == 0


def test_requests_behind_each_other_are_all_answered(service: Served) -> None:
    """Many on one connection, at once: some are collected together, and none waits for more."""
    count = 200
    with connections(service, (ASK + b"\r\n") * count, 1) as [one], one.makefile("rb") as file:
        for _ in range(count):
            status, body = answered(file)
            assert status == 200
            assert b"VCPU" in body


def _chunked(body: bytes, size: int) -> bytes:
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(one), one) for one in parts) + b"0\r\n\r\n"


@pytest.mark.parametrize("length", [0, 2 * worker.MAX_COLLECTED])
def test_a_body_in_chunks_is_read(service: Served, length: int) -> None:
    name = f"host-{uuid.uuid4()}"
    body = json.dumps({"name": name}).encode() + b" " * length
    head = f"POST /resource_providers HTTP/1.1\r\n{HEAD}content-type: application/json\r\n".encode()
    said = head + b"transfer-encoding: chunked\r\n\r\n" + _chunked(body, 7 if not length else 5000)
    with connections(service, said, 1) as [one]:
        status, told = answer(one)
        assert (status, json.loads(told)["name"]) == (200, name)


def test_who_waits_to_be_told_to_go_on_is_told(service: Served) -> None:
    body = json.dumps({"name": f"host-{uuid.uuid4()}"}).encode()
    head = f"POST /resource_providers HTTP/1.1\r\n{HEAD}content-type: application/json\r\n".encode()
    said = head + b"expect: 100-continue\r\ncontent-length: %d\r\n\r\n" % len(body)
    with connections(service, said, 1) as [one]:
        assert one.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        one.sendall(body)
        assert answer(one)[0] == 200


def test_a_body_that_nobody_reads_is_no_part_of_the_next_request(service: Served) -> None:
    """It is refused before, and comes when that was said."""
    head = f"POST /nowhere HTTP/1.1\r\n{HEAD}content-type: application/json\r\n".encode()
    said = head + b"expect: 100-continue\r\ncontent-length: 3000\r\n\r\n"
    with connections(service, said, 1) as [one], one.makefile("rb") as file:
        assert answered(file)[0] == 100
        assert answered(file)[0] == 404
        one.sendall(b" " * 3000 + ASK + b"\r\n")
        assert answered(file)[0] == 200


def test_a_body_in_chunks_may_have_trailers(service: Served) -> None:
    name = f"host-{uuid.uuid4()}"
    head = f"POST /resource_providers HTTP/1.1\r\n{HEAD}content-type: application/json\r\n".encode()
    body = _chunked(json.dumps({"name": name}).encode(), 7).removesuffix(b"0\r\n\r\n")
    said = head + b"transfer-encoding: chunked\r\n\r\n" + body + b"0;last=1\r\nx-sum: 1\r\n\r\n"
    with connections(service, said, 1) as [one]:
        assert answer(one)[0] == 200


def test_a_body_in_chunks_has_a_bound(service: Served) -> None:
    head = f"POST /resource_providers HTTP/1.1\r\n{HEAD}content-type: application/json\r\n".encode()
    piece = b"100000\r\n" + b" " * 0x100000 + b"\r\n"
    with connections(service, head + b"transfer-encoding: chunked\r\n\r\n", 1) as [one]:
        with contextlib.suppress(ConnectionError):
            for _ in range(18):
                one.sendall(piece)
        assert answer(one)[0] == 413


@given(st.binary(max_size=200), st.binary(max_size=20), st.integers(0, 250))
def test_a_request_is_whole_when_it_is_and_stays_so(head: bytes, body: bytes, at: int) -> None:
    head = head.replace(b"\r\n\r\n", b"").replace(b":", b"")
    said = b"PUT / HTTP/1.1\r\nx: " + head + b"\r\ncontent-length: %d\r\n\r\n" % len(body) + body
    cut = said[:at]
    assert is_complete(said)
    assert not is_complete(cut) or len(cut) == len(said) or b"\r\n\r\n" in cut
