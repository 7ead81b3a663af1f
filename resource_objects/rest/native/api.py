"""A call of the native API: one declaration, which validates requests and documents the call.

Each of the other modules has the calls of a resource. A :class:`Call` names the schemas of its body
and its answer; the service finds it like a route of Placement's API.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import webob
from microversion_parse import extract_version, get_version
from microversion_parse.middleware import MicroversionMiddleware

from resource_objects import exceptions
from resource_objects.ledger import Ledger
from resource_objects.rest import errors
from resource_objects.rest.native import schemas
from resource_objects.rest.request import ClientRequest, validate

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication

#: The path of this API, its name in ``OpenStack-API-Version``, and the path of its document.
PREFIX, SERVICE = errors.NATIVE, "resource-objects"
DOCUMENT = f"{PREFIX}/openapi.json"
#: The versions, oldest first. A later version only adds keys.
VERSIONS = ["1.0"]
#: The key of the WSGI environment with the :class:`WaitSlots`.
WAIT_SLOTS = "resource_objects.rest.wait_slots"
#: The seconds after which a client should repeat a request for which there was no slot.
RETRY_AFTER = 1
#: The number of hosts with reasons in an explanation, by default.
HOSTS = 20
#: The maximum number of reasons in an error.
MAX_REASONS = 100


@dataclasses.dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a query."""

    schema: Mapping[str, Any]
    description: str


def limit(maximum: int, noun: str, default: int) -> Parameter:
    """Return the parameter for the length of a list."""
    schema = schemas.integer_from_1(maximum, "a number")
    return Parameter(schema, f"the maximum number of {noun} ({default})")


@dataclasses.dataclass(slots=True)
class CheckedRequest:
    """A request whose query and body are validated."""

    client: ClientRequest
    query: Mapping[str, Any]
    body: Any
    #: additional headers of the response
    headers: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def ledger(self) -> Ledger:
        """The ledger with the client's user as the actor."""
        return self.client.ledger

    @property
    def path(self) -> Mapping[str, str]:
        """The parts of the path."""
        return self.client.path

    @contextlib.contextmanager
    def waiting_ledger(self) -> Iterator[Ledger | None]:
        """Yield a ledger whose waits end when the client closes the connection.

        Yield None if all slots of requests that wait are occupied; otherwise the block occupies
        one. Under a server that does not report the end of a connection, a wait ends after its
        time.
        """
        slots: WaitSlots = self.client.http.environ[WAIT_SLOTS]
        sock = self.client.http.environ.get("gunicorn.socket")
        pause = self.ledger.retries.sleep

        def sleep(seconds: float) -> None:
            pause(seconds)
            if getattr(sock, "is_disconnected", bool)():
                raise errors.Refused(408, "The client closed the connection.", "ClientGone")

        retries = dataclasses.replace(self.ledger.retries, sleep=sleep)
        with slots.slot() as has_slot:
            yield self.ledger.with_actor(retries=retries) if has_slot else None


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """One method of one path. The docstring of the handler documents it.

    ``answer`` and ``body`` are names of schemas. ``refusals`` are the statuses of errors in
    addition to those of every call.
    """

    method: str
    path: str
    rule: str | None
    handler: Callable[[CheckedRequest], Any]
    answer: str
    status: int = 200
    body: str | None = None
    query: Mapping[str, Parameter] = dataclasses.field(default_factory=dict)
    refusals: tuple[int, ...] = ()

    def __call__(self, client: ClientRequest) -> webob.Response:
        """Validate a request and answer it."""
        if self.method == "GET":
            client.require_json_accepted()
        try:
            body = None if self.body is None else client.body(schemas.schema(self.body))
            request = CheckedRequest(client, self._query(client), body)
            answer = self.handler(request)
        except exceptions.DatabaseError:
            raise  # the service answers with a 503
        except exceptions.ResourceObjectsError as error:
            raise refusal(error) from error
        response = client.reply(self.status, json=answer)
        response.headers.update(request.headers.items())
        return response

    @property
    def name(self) -> str:
        """The ``operationId`` in the document."""
        module = self.handler.__module__.rpartition(".")[2]
        return f"{module}_{self.handler.__name__}".rstrip("_")

    def _query(self, client: ClientRequest) -> dict[str, Any]:
        """Return the query with integers and booleans converted."""
        try:
            values_by_name = client.http.GET.dict_of_lists()
        except UnicodeDecodeError as error:
            raise errors.bad(f"Invalid query string parameters: {error}") from error
        query: dict[str, Any] = {}
        for name, values in values_by_name.items():
            parameter = self.query.get(name)
            if parameter is None:
                expected = ", ".join(self.query) or "none"
                raise exceptions.InvalidInput("field name", "query", name, f"one of {expected}")
            if parameter.schema.get("type") == "array":
                query[name] = values
            elif len(values) > 1:
                raise exceptions.InvalidInput("repetition", "query", name, "once")
            else:
                text, json_type = values[0], parameter.schema.get("type")
                is_integer = json_type == "integer" and _INTEGER.fullmatch(text)
                is_flag = json_type == "boolean" and text in ("true", "false")
                query[name] = int(text) if is_integer else text == "true" if is_flag else text
        schema = {"properties": {name: p.schema for name, p in self.query.items()}}
        validate(query, schema, "Invalid query string parameters")
        return query


_INTEGER = re.compile(r"-?[0-9]{1,19}", re.ASCII)


class WaitSlots:
    """The slots of requests that wait; at least one thread remains for other requests.

    >>> slots = WaitSlots(1)
    >>> with slots.slot() as first, slots.slot() as second:
    ...     first, second
    (True, False)
    """

    def __init__(self, count: int) -> None:
        self._free = threading.BoundedSemaphore(count) if count > 0 else None

    @contextlib.contextmanager
    def slot(self) -> Iterator[bool]:
        """Occupy a slot until the end of the block; yield False if all are occupied."""
        is_free = self._free is not None and self._free.acquire(blocking=False)
        try:
            yield is_free
        finally:
            if is_free and self._free is not None:
                self._free.release()


# --- the selection of an API by the path ----------------------------------------------------------

#: Responses of the native API have the headers of Placement's newest version.
_NEWEST = extract_version({}, "placement", [errors.MAX_VERSION])


def version_of(environ: Mapping[str, Any]) -> str | None:
    """Return the version of a request; None before it is known."""
    key = f"{SERVICE}.microversion" if errors.is_native(environ) else errors.VERSION
    version = environ.get(key)
    return None if version is None else str(version)


class Dispatcher:
    """An application that passes requests of the native API to one application, others to another.

    :param threads: the number of threads of the server in this process; one fewer may wait
    """

    def __init__(self, placement: WSGIApplication, native: WSGIApplication, threads: int) -> None:
        self._placement = placement
        self._native = MicroversionMiddleware(
            native, SERVICE, VERSIONS, json_error_formatter=errors.as_json
        )
        self._wait_slots = WaitSlots(threads - 1)

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        if not errors.is_native(environ):
            return self._placement(environ, start_response)
        environ[errors.VERSION] = _NEWEST
        environ[WAIT_SLOTS] = self._wait_slots
        body: Iterable[bytes] = self._native(environ, start_response)
        return body


def is_requested(client: ClientRequest) -> bool:
    """Return True if a client of Placement's API also requests a version of this API.

    Answers of Placement's API then contain additional data.

    :raises Refused: a 406 for an unsupported version
    """
    headers = client.http.headers
    try:
        if get_version(headers, service_type=SERVICE) is None:
            return False
        extract_version(headers, SERVICE, VERSIONS)
    except (ValueError, TypeError) as error:
        raise errors.Refused(406, f"Invalid microversion: {error}") from error
    return True


def with_version(response: webob.Response) -> webob.Response:
    """Add the version of this API to a response of Placement's API with additional data."""
    response.headers.add("OpenStack-API-Version", f"{SERVICE} {VERSIONS[-1]}")
    return response


def with_reasons(
    client: ClientRequest, refused: errors.Refused, error: exceptions.CapacityException
) -> errors.Refused:
    """Add reasons as data to an error of Placement's API, if the client requests them."""
    if is_requested(client):
        refused.data |= reasons_of(error)
        client.http.environ[errors.WITH_DATA] = True
    return refused


# --- errors ---------------------------------------------------------------------------------------

#: The status of an error by its type or code: the first that matches.
_STATUS: tuple[tuple[type[Exception] | str, int], ...] = (
    (exceptions.InvalidInput, 400),
    ("MoveNotFound", 409),
    ("BackendNotFound", 409),
    (exceptions.NotFound, 404),
    ("CursorExpired", 410),
    ("NotSupported", 501),
    (exceptions.SearchLimitReached, 503),  # the answer is unknown
    (exceptions.CapacityException, 409),
    (exceptions.LedgerError, 409),
)


def refusal(error: exceptions.ResourceObjectsError, **data: Any) -> errors.Refused:
    """Return the response to an error of the library, with its code.

    :param data: further data of the error
    """
    status = next((number for kind, number in _STATUS if error.matches(kind)), None)
    if status is None:
        raise error  # an unexpected error, which the service logs
    if isinstance(error, exceptions.CapacityException):
        data |= reasons_of(error)
    return errors.Refused(status, str(error), error.code, data=data)


def reasons_of(error: exceptions.CapacityException) -> dict[str, Any]:
    """Return the reasons of a refusal as data, and the number of further reasons."""
    first, more = error.first_reasons(MAX_REASONS)
    if not first:
        return {}
    return {"reasons": [reason.to_dict() for reason in first], "more_reasons": more}
