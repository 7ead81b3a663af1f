"""A worker process of gunicorn in which a slow client does not occupy a thread.

gunicorn's threaded worker reads a request in the thread that answers it: as many clients as there
are threads, each with half a request, block all other clients. This worker assigns a thread to a
request after it has arrived. Until then the main loop collects its bytes, so a slow client costs
only a connection and these bytes. gunicorn parses the bytes as usual. :func:`is_complete` only
decides the moment: an error in it makes a thread wait, at most for the time of a request.

The main loop also sends the part of a response that the kernel does not accept at once, so that
the thread is free (:class:`PendingBytes` limits that part). A request that waits can check whether
its client is still connected (:meth:`BufferedSocket.is_disconnected`). A slow client occupies a
thread only for the rest of a body beyond :data:`MAX_COLLECTED`. Everything has a deadline.

These methods of gunicorn's worker are extended: ``enqueue_req`` (a connection has, or will have, a
request), ``finish_request`` (a request was answered), ``murder_keepalived`` (called every second),
``notify`` (called in each iteration), and ``handle_error`` (the bytes are not a request).
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

#: The seconds to receive a request, head and body, and to send a response.
RECEIVE, SEND = 20, 60
#: The bytes of a request that are collected before it gets a thread.
MAX_COLLECTED = 128 * 1024
#: The bytes of responses that a process stores for slow clients. Beyond it a thread waits.
MAX_PENDING = 64 * 1024 * 1024
#: The seconds that a client has to close a connection after the last response, and a new client to
#: send a request while the process stops.
_LINGER = 2
#: The seconds between two notifications that the process is alive; gunicorn waits much longer.
_NOTIFY_INTERVAL = 1.0
#: The maximum number of connections whose clients have not closed them after the last response.
_MAX_CLOSING = 500

_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,18})[ \t]*\r\n")


def is_complete(data: bytes | bytearray) -> bool:
    r"""Return True if a request seems to be complete, or no more of it should be collected.

    >>> head = b"PUT / HTTP/1.1\r\nContent-Length: 2\r\n\r\n"
    >>> [is_complete(data) for data in (b"", head[:-1], head, head + b"{", head + b"{}")]
    [False, False, False, False, True]
    >>> is_complete(b"GET / HTTP/1.1\r\n\r\n")
    True
    >>> head = b"PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    >>> bodies = b"", b"1\r\nx\r\n", b"0\r\n\r\n", b"0\r\nt: x\r\n\r\n"
    >>> [is_complete(head + body) for body in bodies]
    [False, False, True, True]
    """
    if len(data) >= MAX_COLLECTED:
        return True
    end = data.find(b"\r\n\r\n")
    if end < 0:
        return False
    head = bytes(data[: end + 2]).lower()
    if b"\r\nexpect:" in head:  # the client waits for "100 Continue"
        return True
    if b"\r\ntransfer-encoding:" in head:
        # the end may have trailers and extensions; a chunk with this ending is a bit too early
        return len(data) > end + 4 and data.endswith(b"\r\n\r\n")
    length = _LENGTH.search(head)
    return length is None or len(data) - end - 4 >= int(length[1])


class PendingBytes:
    """The number of bytes of responses that a process may still store for slow clients."""

    def __init__(self, maximum: int) -> None:
        self._available, self._lock = maximum, threading.Lock()

    def reserve(self, size: int) -> bool:
        """Reserve bytes; return False if there are not so many."""
        with self._lock:
            if size > self._available:
                return False
            self._available -= size
            return True

    def release(self, size: int) -> None:
        """Release reserved bytes."""
        with self._lock:
            self._available += size


class BufferedSocket(socket.socket):
    """A connection with the collected bytes of its request and the pending bytes of responses."""

    def __init__(
        self,
        accepted: socket.socket,
        linger: Callable[[socket.socket], None],
        pending_bytes: PendingBytes,
    ) -> None:
        """Replace a socket.

        :param linger: called with the socket after the last response; closes it once the client has
        :param pending_bytes: limits the bytes that are stored until the client reads them
        """
        super().__init__(fileno=accepted.detach())
        self._collected, self._linger = bytearray(), linger
        self._deadline, self._is_shut_down = 0.0, False
        self._pending_bytes, self._pending = pending_bytes, deque[memoryview]()

    @property
    def collected(self) -> int:
        """The number of collected bytes."""
        return len(self._collected)

    def start_receiving(self) -> float:
        """Begin to wait for a request; return the deadline."""
        self._deadline = clock.monotonic() + RECEIVE
        self.settimeout(0)
        return self._deadline

    def collect(self) -> bool:
        """Read the available bytes without waiting; return True if more are expected."""
        while not is_complete(self._collected):
            try:
                data = super().recv(MAX_COLLECTED)
            except BlockingIOError:
                return True
            except OSError:
                return False
            if not data:
                return False
            self._collected += data
        return False

    def recv(self, size: int, flags: int = 0) -> bytes:
        if self._collected:
            data = bytes(self._collected[:size])
            del self._collected[:size]
            return data
        if self._is_shut_down:
            return b""
        remaining = max(0.001, self._deadline - clock.monotonic())
        timeout = self.gettimeout()
        self.settimeout(remaining if timeout is None else min(remaining, timeout))
        try:
            return super().recv(size, flags)
        except (TimeoutError, BlockingIOError) as error:
            message = "the request did not arrive in time"
            raise ConnectionResetError(errno.ECONNRESET, message) from error

    def is_disconnected(self) -> bool:
        """Return True if the client has closed the connection. Unread bytes are not removed."""
        poll = select.poll()
        poll.register(self, select.POLLIN)
        if self._collected or not poll.poll(0):
            return False
        try:
            return not super().recv(1, socket.MSG_PEEK)
        except OSError:
            return True

    def sendall(self, data: Any, flags: int = 0) -> None:
        remaining = memoryview(data).cast("B")
        if not self._pending:
            remaining = remaining[self._send_available(remaining) :]
        if not remaining:
            return
        if self._pending_bytes.reserve(len(remaining)):
            self._pending.append(remaining)
            return
        self.settimeout(SEND)
        try:
            while self._pending:
                super().sendall(self._pending[0], flags)
                self._pending_bytes.release(len(self._pending.popleft()))
            super().sendall(remaining, flags)
        except TimeoutError as error:
            message = "the response was not read in time"
            raise BrokenPipeError(errno.EPIPE, message) from error

    @property
    def has_pending(self) -> bool:
        """Whether a part of a response is not sent yet."""
        return bool(self._pending)

    def send_pending(self) -> None:
        """Send as much of the pending bytes as the client reads, without waiting.

        :raises OSError: if the connection is closed
        """
        while self._pending:
            first = self._pending[0]  # stays there until it is sent: close() releases its bytes
            sent = self._send_available(first)
            self._pending_bytes.release(sent)
            if sent < len(first):
                self._pending[0] = first[sent:]
                return
            self._pending.popleft()

    def _send_available(self, data: memoryview) -> int:
        """Send as much as possible without waiting; return the number of sent bytes."""
        timeout, sent = self.gettimeout(), 0
        self.settimeout(0)
        try:
            while sent < len(data):
                sent += super().send(data[sent:])
        except BlockingIOError:
            pass
        finally:
            self.settimeout(timeout)
        return sent

    def shutdown(self, how: int) -> None:
        super().shutdown(how)
        self._is_shut_down = True

    def close(self) -> None:
        self._pending_bytes.release(sum(map(len, self._pending)))
        self._pending.clear()
        if self._is_shut_down and self.fileno() >= 0:
            self._linger(socket.socket(fileno=self.detach()))
        super().close()


class Worker(ThreadWorker):
    """A worker of gunicorn whose threads answer requests that have arrived."""

    poller: Any
    method_queue: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[no-untyped-call]
        #: connections whose request is incomplete, with the deadline, in order of arrival
        self._receiving: dict[TConn, float] = {}
        #: connections with pending bytes, with the deadline and the answered request, in order
        self._sending: dict[TConn, tuple[float, Future[Any]]] = {}
        self._pending_bytes = PendingBytes(MAX_PENDING)
        self._closing: deque[tuple[float, socket.socket]] = deque()
        self._notified_at = -_NOTIFY_INTERVAL

    def notify(self) -> None:
        """Notify gunicorn that the process is alive, once a second: it changes a file."""
        now = clock.monotonic()
        if now - self._notified_at >= _NOTIFY_INTERVAL:
            self._notified_at = now
            super().notify()  # type: ignore[no-untyped-call]

    def enqueue_req(self, conn: Any) -> None:
        """Assign a thread to a connection as soon as it has a complete request."""
        if conn.parser is not None and conn.parser.unreader.buf.getvalue():
            super().enqueue_req(conn)  # type: ignore[no-untyped-call]  # the next of two requests
            return
        if not isinstance(conn.sock, BufferedSocket):
            linger = functools.partial(self._defer, self._linger)
            conn.sock = BufferedSocket(conn.sock, linger, self._pending_bytes)
        deadline = conn.sock.start_receiving()
        if conn.sock.collect():
            self._receiving[conn] = deadline
            self.poller.register(
                conn.sock, selectors.EVENT_READ, functools.partial(self._received, conn)
            )
        else:
            self._assign_thread(conn)

    def _received(self, conn: TConn, sock: BufferedSocket) -> None:
        if not sock.collect():
            self._stop_receiving(conn)
            self._assign_thread(conn)

    def _assign_thread(self, conn: TConn) -> None:
        conn.data_ready = True  # gunicorn does not wait for the first byte then
        super().enqueue_req(conn)  # type: ignore[no-untyped-call]

    def _stop_receiving(self, conn: TConn) -> None:
        del self._receiving[conn]
        self.poller.unregister(conn.sock)

    def finish_request(self, conn: Any, fs: Future[Any]) -> None:
        """Continue with a connection after its response is sent.

        A request that was collected with the previous one is handled at once.
        """
        if conn.sock.has_pending:
            self._sending[conn] = clock.monotonic() + SEND, fs
            conn.sock.settimeout(0)
            self.poller.register(
                conn.sock, selectors.EVENT_WRITE, functools.partial(self._send, conn)
            )
            return
        super().finish_request(conn, fs)  # type: ignore[no-untyped-call]
        if conn.sock.fileno() < 0 or conn not in self.keepalived_conns:
            return
        if conn.sock.collected or conn.parser.unreader.buf.getvalue():
            self.on_client_socket_readable(conn, conn.sock)  # type: ignore[no-untyped-call]

    def _send(self, conn: TConn, sock: BufferedSocket) -> None:
        try:
            sock.send_pending()
        except OSError:  # the client has closed it
            self._abort_sending(conn)
            return
        if not sock.has_pending:
            self.poller.unregister(sock)
            self.finish_request(conn, self._sending.pop(conn)[1])

    def _abort_sending(self, conn: TConn) -> None:
        del self._sending[conn]
        self.poller.unregister(conn.sock)
        self.nr_conns -= 1
        conn.sock.close()

    def murder_keepalived(self, *args: Any, **kwargs: Any) -> None:
        """Close the connections whose deadline is over."""
        super().murder_keepalived(*args, **kwargs)  # type: ignore[no-untyped-call]
        now = clock.monotonic()
        for conn, deadline in list(self._receiving.items()):
            is_new = deadline - now > RECEIVE - _LINGER  # its request may be on the way
            if deadline > now and (self.alive or conn.sock.collected or is_new):
                if self.alive:
                    break  # the following connections have later deadlines
                continue
            self._stop_receiving(conn)
            self.nr_conns -= 1
            conn.sock.close()
        for conn, (deadline, _) in list(self._sending.items()):
            if deadline > now:
                break
            self._abort_sending(conn)
        while self._closing and self._closing[0][0] <= now:
            self._close(self._closing.popleft()[1])

    def handle_error(self, req: Any, client: Any, addr: Any, exc: BaseException) -> None:
        """Answer a malformed request; an unknown transfer coding is a malformed header too."""
        if isinstance(exc, UnsupportedTransferCoding):
            exc = InvalidHeader(f"TRANSFER-ENCODING: {exc.hdr}", req)  # type: ignore[no-untyped-call]
        super().handle_error(req, client, addr, exc)  # type: ignore[no-untyped-call]

    # --- connections after the last response ---

    def _defer(self, call: Callable[..., None], *args: Any) -> None:
        self.method_queue.defer(call, *args)

    def _linger(self, sock: socket.socket) -> None:
        """Wait until a client closes the connection too.

        If the server closed a connection with unread bytes, the client would lose the response.
        gunicorn waits in the main loop itself, which would delay all other clients.
        """
        sock.settimeout(0)
        self._closing.append((clock.monotonic() + _LINGER, sock))
        self.poller.register(sock, selectors.EVENT_READ, self._drain)
        if len(self._closing) > _MAX_CLOSING:
            self._close(self._closing.popleft()[1])

    def _drain(self, sock: socket.socket) -> None:
        try:
            if sock.recv(MAX_COLLECTED):
                return
        except BlockingIOError:
            return
        except OSError:
            pass
        self._close(sock)

    def _close(self, sock: socket.socket) -> None:
        if sock.fileno() >= 0:
            self.poller.unregister(sock)
            sock.close()
