"""A route of the native API: one description, of which its checks and its document are made.

Each file beside this one has the calls of its resource. A :class:`Call` says what may be asked and
what is answered, by the names of schemas; the Service finds it like a route of Placement's.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import webob
from microversion_parse import extract_version, get_version

from resource_objects import exceptions
from resource_objects.ledger import Ledger
from resource_objects.rest import errors
from resource_objects.rest.asked import Asked, validate
from resource_objects.rest.native import schemas

#: Where it is served, and what its version is called in ``OpenStack-API-Version``.
PREFIX, SERVICE = errors.NATIVE, "resource-objects"
#: Its versions, oldest first. A later one only adds.
VERSIONS = ["1.0"]
#: Where the places of those who wait are, for each request.
WAITING = "resource_objects.rest.waiting"
#: Seconds after which who found no place to wait shall ask again.
RETRY_AFTER = 1
#: Why so many hosts cannot is told, unless more are asked for.
HOSTS = 20
#: At most so many reasons stand in a refusal.
MOST_REASONS = 100


@dataclasses.dataclass(frozen=True, slots=True)
class Parameter:
    """What may be said in the query, or has to be in the path."""

    schema: Mapping[str, Any]
    told: str


@dataclasses.dataclass(slots=True)
class Given:
    """One request, as handlers of the native API see it: checked."""

    asked: Asked
    query: Mapping[str, Any]
    body: Any
    #: of the response, besides
    headers: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def ledger(self) -> Ledger:
        """The ledger, in which who asks is the one who writes."""
        return self.asked.ledger

    def waits(self, ledger: Ledger) -> Ledger:
        """Return a ledger in which a wait ends when who asks has gone: its place is for others.

        Where the server does not tell that, it ends with its time.
        """
        sock = self.asked.http.environ.get("gunicorn.socket")
        pause = ledger.retries.sleep

        def sleep(seconds: float) -> None:
            pause(seconds)
            if getattr(sock, "has_gone", bool)():
                raise errors.Refused(408, "Who asked has gone.", "ClientGone")

        return ledger.with_actor(retries=dataclasses.replace(ledger.retries, sleep=sleep))

    @property
    def path(self) -> Mapping[str, str]:
        """The parts of the path."""
        return self.asked.path

    @property
    def waiting(self) -> Waiting:
        """The places of those who wait."""
        found: Waiting = self.asked.http.environ[WAITING]
        return found


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """One method of one path; the handler's docstring says what it does.

    ``answer`` and ``body`` are names of schemas, ``refusals`` the statuses of refusals besides
    those that every call has.
    """

    method: str
    path: str
    rule: str | None
    handler: Callable[[Given], Any]
    answer: str
    status: int = 200
    body: str | None = None
    query: Mapping[str, Parameter] = dataclasses.field(default_factory=dict)
    refusals: tuple[int, ...] = ()

    def __call__(self, asked: Asked) -> webob.Response:
        """Check a request, and answer it."""
        if self.method == "GET":
            asked.tells_json()
        try:
            body = None if self.body is None else asked.body(schemas.schema(self.body))
            given = Given(asked, self._query(asked), body)
            told = self.handler(given)
        except exceptions.DatabaseError:
            raise  # the service says that it does not answer
        except exceptions.ResourceObjectsError as error:
            raise refusal(error) from error
        response = asked.reply(self.status, json=told)
        response.headers.update(given.headers.items())
        return response

    @property
    def name(self) -> str:
        """What the document calls it."""
        return f"{self.handler.__module__.rpartition('.')[2]}_{self.handler.__name__}".rstrip("_")

    def _query(self, asked: Asked) -> dict[str, Any]:
        """Return the query, whose numbers and flags are such."""
        try:
            said = asked.http.GET.dict_of_lists()
        except UnicodeDecodeError as error:
            raise errors.bad(f"Invalid query string parameters: {error}") from error
        found: dict[str, Any] = {}
        for name, values in said.items():
            known = self.query.get(name)
            if known is None:
                expected = ", ".join(self.query) or "none"
                raise exceptions.InvalidInput("field name", "query", name, f"one of {expected}")
            if known.schema.get("type") == "array":
                found[name] = values
            elif len(values) > 1:
                raise exceptions.InvalidInput("repetition", "query", name, "once")
            else:
                found[name] = _value(values[0], known.schema.get("type"))
        schema = {"properties": {name: one.schema for name, one in self.query.items()}}
        validate(found, schema, "Invalid query string parameters")
        return found


_INTEGER = re.compile(r"-?[0-9]{1,19}", re.ASCII)
_FLAGS = {"true": True, "false": False}


def _value(text: str, kind: object) -> Any:
    if kind == "integer" and _INTEGER.fullmatch(text):
        return int(text)
    return _FLAGS.get(text, text) if kind == "boolean" else text


class Waiting:
    """Places for requests that wait, so few that a thread is left for those that do not.

    >>> places = Waiting(1)
    >>> with places.place() as first, places.place() as second:
    ...     first, second
    (True, False)
    """

    def __init__(self, most: int) -> None:
        self._left = threading.BoundedSemaphore(most) if most > 0 else None

    @contextlib.contextmanager
    def place(self) -> Iterator[bool]:
        """Take a place, until the end of the block; False if there is none."""
        has_one = self._left is not None and self._left.acquire(blocking=False)
        try:
            yield has_one
        finally:
            if has_one and self._left is not None:
                self._left.release()


def is_asked(asked: Asked) -> bool:
    """Return whether a client of Placement's API says a version of this one, too.

    Where it does, answers of that API may say more. Refused is a version that there is not.
    """
    headers = asked.http.headers
    try:
        if get_version(headers, service_type=SERVICE) is None:
            return False
        extract_version(headers, SERVICE, VERSIONS)
    except (ValueError, TypeError) as error:
        raise errors.Refused(406, f"Invalid microversion: {error}") from error
    return True


def tell_version(response: webob.Response) -> webob.Response:
    """Say in a response of Placement's API that it says what this one does."""
    response.headers.add("OpenStack-API-Version", f"{SERVICE} {VERSIONS[-1]}")
    return response


def with_reasons(
    asked: Asked, refused: errors.Refused, error: exceptions.CapacityException
) -> errors.Refused:
    """Let a refusal of Placement's API tell its reasons as data, to a client that asks for them."""
    if is_asked(asked):
        refused.facts |= reasons_of(error)
        asked.http.environ[errors.TELLS_FACTS] = True
    return refused


# --- refusals -------------------------------------------------------------------------------------

#: The status of an error by its type or code: the first that matches.
_STATUS: tuple[tuple[type[Exception] | str, int], ...] = (
    (exceptions.InvalidInput, 400),
    ("MoveNotFound", 409),
    ("BackendNotFound", 409),
    (exceptions.NotFound, 404),
    ("CursorExpired", 410),
    ("NotSupported", 501),
    (exceptions.SearchLimitReached, 503),  # neither yes nor no
    (exceptions.CapacityException, 409),
    (exceptions.LedgerError, 409),
)


def refusal(error: exceptions.ResourceObjectsError, **facts: Any) -> errors.Refused:
    """Return the answer to a request that raised an error of the library, with the error's code.

    :param facts: further data of the answer
    """
    status = next((number for kind, number in _STATUS if error.matches(kind)), None)
    if status is None:
        raise error  # a failure of the service: the log tells of it
    if isinstance(error, exceptions.CapacityException):
        facts |= reasons_of(error)
    return errors.Refused(status, str(error), error.code, facts=facts)


def reasons_of(error: exceptions.CapacityException) -> dict[str, Any]:
    """Return the reasons of a refusal as data, some of them if there are very many."""
    first, more = error.first_reasons(MOST_REASONS)
    if not first:
        return {}
    return {"reasons": [reason.to_dict() for reason in first], "more_reasons": more}
