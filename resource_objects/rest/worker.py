"""A worker process in which nobody waits for a client that is slow.

gunicorn's threaded worker reads a request in the thread that answers it, for as long as its client
takes: as many clients as there are threads, each with half a request, and nobody else is served.
Here a connection gets a thread when its request has come. Until then its bytes are collected in the
loop that waits for all of them, which costs a connection and its bytes. gunicorn parses them as it
always does: that a request is whole (:func:`is_whole`) only says when, and a slip in it would make
a thread wait, at most as long as a request may take.

An answer that is not taken as fast as it is made waits in the same loop, too: what the kernel does
not take at once stays with the connection (:class:`Behind` bounds it), and the thread is free. A
request that waits for something looks whether its client is still there
(:meth:`Patient.has_gone`). What remains to a slow client is a thread for the rest of a body beyond
:data:`AHEAD`. Everything ends by a deadline.

Of gunicorn's worker these methods are extended: ``enqueue_req`` (a connection has, or will have, a
request), ``finish_request`` (it was answered), ``murder_keepalived`` (each second at least),
``notify`` (each time around), and ``handle_error`` (what came is no request).
"""

from __future__ import annotations

import errno
import functools
import re
import select
import selectors
import socket
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from gunicorn.http.errors import InvalidHeader, UnsupportedTransferCoding
from gunicorn.workers.gthread import TConn, ThreadWorker

from resource_objects import clock

#: Seconds that a request may take to come, head and body, and an answer to be taken.
RECEIVE, SEND = 20, 60
#: So many bytes of a request are collected before a thread takes it over.
AHEAD = 128 * 1024
#: So many bytes of answers of a process wait for slow clients; beyond that a thread waits with one.
BEHIND = 64 * 1024 * 1024
#: A connection that was ended may be so many seconds late to end it too, and one that was just
#: taken so many late to ask something, where the process ends.
_LINGER = 2
#: Seconds after which a process says again that it is alive; it is given up after far more.
_ALIVE = 1.0
#: So many of those are waited for.
_MOST_LEAVING = 500

_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,18})[ \t]*\r\n")


def is_whole(data: bytes | bytearray) -> bool:
    r"""Return whether a request seems to have come, or as much of it as is collected.

    >>> head = b"PUT / HTTP/1.1\r\nContent-Length: 2\r\n\r\n"
    >>> [is_whole(one) for one in (b"", head[:-1], head, head + b"{", head + b"{}")]
    [False, False, False, False, True]
    >>> is_whole(b"GET / HTTP/1.1\r\n\r\n")
    True
    >>> head = b"PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    >>> [is_whole(head + one) for one in (b"", b"1\r\nx\r\n", b"0\r\n\r\n", b"0\r\nt: x\r\n\r\n")]
    [False, False, True, True]
    """
    if len(data) >= AHEAD:
        return True
    end = data.find(b"\r\n\r\n")
    if end < 0:
        return False
    head = bytes(data[: end + 2]).lower()
    if b"\r\nexpect:" in head:  # it waits to be told to go on
        return True
    if b"\r\ntransfer-encoding:" in head:
        # trailers and extensions may stand at the end; where a chunk ends so, it is a bit early
        return len(data) > end + 4 and data.endswith(b"\r\n\r\n")
    length = _LENGTH.search(head)
    return length is None or len(data) - end - 4 >= int(length[1])


class Behind:
    """How much of answers waits for slow clients, of all connections of a process."""

    def __init__(self, most: int) -> None:
        self._left, self._lock = most, threading.Lock()

    def take(self, size: int) -> bool:
        """Let so many bytes more wait; return False if there is no room for them."""
        with self._lock:
            if size > self._left:
                return False
            self._left -= size
            return True

    def give(self, size: int) -> None:
        """So many bytes wait no more."""
        with self._lock:
            self._left += size


class Patient(socket.socket):
    """A connection whose request was collected, and which waits for nobody longer than it may."""

    def __init__(
        self, taken: socket.socket, leave: Callable[[socket.socket], None], behind: Behind
    ) -> None:
        """Take over a socket.

        :param leave: is given it when all is said, to be closed when the client has closed it too
        :param behind: whether what the client does not take may wait
        """
        super().__init__(fileno=taken.detach())
        self._ahead, self._leave, self._until, self._half_closed = bytearray(), leave, 0.0, False
        self._behind, self._waiting = behind, deque[memoryview]()

    @property
    def ahead(self) -> int:
        """How many bytes were collected."""
        return len(self._ahead)

    def begin(self) -> float:
        """Wait for a request from now on; return until when."""
        self._until = clock.monotonic() + RECEIVE
        self.settimeout(0)
        return self._until

    def collect(self) -> bool:
        """Take what is there, without waiting; return whether to wait for more."""
        while not is_whole(self._ahead):
            try:
                came = super().recv(AHEAD)
            except BlockingIOError:
                return True
            except OSError:
                return False
            if not came:
                return False
            self._ahead += came
        return False

    def recv(self, size: int, flags: int = 0) -> bytes:
        if self._ahead:
            found = bytes(self._ahead[:size])
            del self._ahead[:size]
            return found
        if self._half_closed:
            return b""
        left = max(0.001, self._until - clock.monotonic())
        given = self.gettimeout()
        self.settimeout(left if given is None else min(left, given))
        try:
            return super().recv(size, flags)
        except (TimeoutError, BlockingIOError) as error:
            raise ConnectionResetError(errno.ECONNRESET, "it took too long to come") from error

    def has_gone(self) -> bool:
        """Return whether the client closed the connection; what it sent before stays to be read."""
        look = select.poll()
        look.register(self, select.POLLIN)
        if self._ahead or not look.poll(0):
            return False
        try:
            return not super().recv(1, socket.MSG_PEEK)
        except OSError:
            return True

    def sendall(self, data: Any, flags: int = 0) -> None:
        rest = memoryview(data).cast("B")
        if not self._waiting:
            rest = rest[self._sent(rest) :]
        if not rest:
            return
        if self._behind.take(len(rest)):
            self._waiting.append(rest)
            return
        self.settimeout(SEND)
        try:
            while self._waiting:
                super().sendall(self._waiting[0], flags)
                self._behind.give(len(self._waiting.popleft()))
            super().sendall(rest, flags)
        except TimeoutError as error:
            raise BrokenPipeError(errno.EPIPE, "it took too long to be taken") from error

    @property
    def is_behind(self) -> bool:
        """Whether something that was answered waits to be taken."""
        return bool(self._waiting)

    def send_on(self) -> None:
        """Send of what waits as much as the client takes, without waiting.

        :raises OSError: if it takes no more
        """
        while self._waiting:
            first = self._waiting[0]  # it stays until it is sent: what fails is counted when closed
            sent = self._sent(first)
            self._behind.give(sent)
            if sent < len(first):
                self._waiting[0] = first[sent:]
                return
            self._waiting.popleft()

    def _sent(self, data: memoryview) -> int:
        """Send what can be sent without waiting; return how much that was."""
        given, sent = self.gettimeout(), 0
        self.settimeout(0)
        try:
            while sent < len(data):
                sent += super().send(data[sent:])
        except BlockingIOError:
            pass
        finally:
            self.settimeout(given)
        return sent

    def shutdown(self, how: int) -> None:
        super().shutdown(how)
        self._half_closed = True

    def close(self) -> None:
        self._behind.give(sum(map(len, self._waiting)))
        self._waiting.clear()
        if self._half_closed and self.fileno() >= 0:
            self._leave(socket.socket(fileno=self.detach()))
        super().close()


class Worker(ThreadWorker):
    """A worker of gunicorn's whose threads answer requests that have come."""

    poller: Any
    method_queue: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[no-untyped-call]
        #: whose request is not whole, and until when: in the order in which they came
        self._coming: dict[TConn, float] = {}
        #: whose answer is not taken, until when, and what is to be done then; in the order likewise
        self._going: dict[TConn, tuple[float, Future[Any]]] = {}
        self._behind = Behind(BEHIND)
        self._leaving: deque[tuple[float, socket.socket]] = deque()
        self._notified = -_ALIVE

    def notify(self) -> None:
        """Tell that the process is alive, as often as that is looked at: it writes to a file."""
        now = clock.monotonic()
        if now - self._notified >= _ALIVE:
            self._notified = now
            super().notify()  # type: ignore[no-untyped-call]

    def enqueue_req(self, conn: Any) -> None:
        """Hand a connection to a thread as soon as there is a request on it."""
        if conn.parser is not None and conn.parser.unreader.buf.getvalue():
            super().enqueue_req(conn)  # type: ignore[no-untyped-call]  # it sent two at once
            return
        if not isinstance(conn.sock, Patient):
            leave = functools.partial(self._defer, self._linger)
            conn.sock = Patient(conn.sock, leave, self._behind)
        until = conn.sock.begin()
        if conn.sock.collect():
            self._coming[conn] = until
            self.poller.register(
                conn.sock, selectors.EVENT_READ, functools.partial(self._came, conn)
            )
        else:
            self._hand_on(conn)

    def _came(self, conn: TConn, sock: Patient) -> None:
        if not sock.collect():
            self._forget(conn)
            self._hand_on(conn)

    def _hand_on(self, conn: TConn) -> None:
        conn.data_ready = True  # gunicorn need not wait for the first byte
        super().enqueue_req(conn)  # type: ignore[no-untyped-call]

    def _forget(self, conn: TConn) -> None:
        del self._coming[conn]
        self.poller.unregister(conn.sock)

    def finish_request(self, conn: Any, fs: Future[Any]) -> None:
        """Go on with a connection, at once if the next request was collected with the last.

        If its answer is not taken yet, that is when it is.
        """
        if conn.sock.is_behind:
            self._going[conn] = clock.monotonic() + SEND, fs
            conn.sock.settimeout(0)
            self.poller.register(
                conn.sock, selectors.EVENT_WRITE, functools.partial(self._went, conn)
            )
            return
        super().finish_request(conn, fs)  # type: ignore[no-untyped-call]
        if conn.sock.fileno() < 0 or conn not in self.keepalived_conns:
            return
        if conn.sock.ahead or conn.parser.unreader.buf.getvalue():
            self.on_client_socket_readable(conn, conn.sock)  # type: ignore[no-untyped-call]

    def _went(self, conn: TConn, sock: Patient) -> None:
        try:
            sock.send_on()
        except OSError:  # it is closed
            self._give_up(conn)
            return
        if not sock.is_behind:
            self.poller.unregister(sock)
            self.finish_request(conn, self._going.pop(conn)[1])

    def _give_up(self, conn: TConn) -> None:
        del self._going[conn]
        self.poller.unregister(conn.sock)
        self.nr_conns -= 1
        conn.sock.close()

    def murder_keepalived(self, *args: Any, **kwargs: Any) -> None:
        """Close what waited for its client long enough."""
        super().murder_keepalived(*args, **kwargs)  # type: ignore[no-untyped-call]
        now = clock.monotonic()
        for conn, until in list(self._coming.items()):
            is_new = until - now > RECEIVE - _LINGER  # what it asks may be on its way
            if until > now and (self.alive or conn.sock.ahead or is_new):
                if self.alive:
                    break  # the later ones came later
                continue
            self._forget(conn)
            self.nr_conns -= 1
            conn.sock.close()
        for conn, (until, _) in list(self._going.items()):
            if until > now:
                break
            self._give_up(conn)
        while self._leaving and self._leaving[0][0] <= now:
            self._gone(self._leaving.popleft()[1])

    def handle_error(self, req: Any, client: Any, addr: Any, exc: BaseException) -> None:
        """Refuse what is no request: a coding of bodies that there is not is malformed like all."""
        if isinstance(exc, UnsupportedTransferCoding):
            exc = InvalidHeader(f"TRANSFER-ENCODING: {exc.hdr}", req)  # type: ignore[no-untyped-call]
        super().handle_error(req, client, addr, exc)  # type: ignore[no-untyped-call]

    # --- who was answered for the last time, and has not closed yet ---

    def _defer(self, call: Callable[..., None], *args: Any) -> None:
        self.method_queue.defer(call, *args)

    def _linger(self, sock: socket.socket) -> None:
        """Wait until a client closes too: it would lose the answer if bytes of it were thrown away.

        gunicorn does so in the loop itself, where all others would wait with it.
        """
        sock.settimeout(0)
        self._leaving.append((clock.monotonic() + _LINGER, sock))
        self.poller.register(sock, selectors.EVENT_READ, self._drain)
        if len(self._leaving) > _MOST_LEAVING:
            self._gone(self._leaving.popleft()[1])

    def _drain(self, sock: socket.socket) -> None:
        try:
            if sock.recv(AHEAD):
                return
        except BlockingIOError:
            return
        except OSError:
            pass
        self._gone(sock)

    def _gone(self, sock: socket.socket) -> None:
        if sock.fileno() >= 0:
            self.poller.unregister(sock)
            sock.close()
