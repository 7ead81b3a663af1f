"""One request of a client, and the response to it."""

from __future__ import annotations

import datetime
import functools
import itertools
import json
import reprlib
import uuid
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeAlias

import fastjsonschema
import jsonschema
import webob
from microversion_parse import Version
from oslo_utils import uuidutils

from resource_objects import clock, names
from resource_objects.ledger import Ledger
from resource_objects.rest import errors

Schema: TypeAlias = Mapping[str, Any]

#: The limits of a body: its bytes, and the levels of lists and objects in it.
MAX_BODY = 16 * 2**20
MAX_DEPTH = 20
#: The best error is chosen among the first errors of a body.
_MAX_ERRORS = 100

_FORMATS = jsonschema.FormatChecker(formats=())
_QUERY_FORMATS = jsonschema.FormatChecker(formats=["uuid"])  #: as in RFC 4122


@_FORMATS.checks("uuid")
def _is_uuid(value: object) -> bool:
    return not isinstance(value, str) or is_uuid(value)


def is_uuid(text: str) -> bool:
    """Return True if a text is a uuid in one of the forms that clients use.

    >>> is_uuid("{1FA4CD25-8a38-4bb3-8a37-7b5d4a6f6f33}"), is_uuid("host0")
    (True, False)
    """
    return names.is_uuid(text) or uuidutils.is_uuid_like(text)


def uuid_text(text: str) -> str:
    """Return a uuid of a client in the form in which the ledger stores it.

    >>> uuid_text("{1FA4CD25-8a38-4bb3-8a37-7b5d4a6f6f33}")
    '1fa4cd25-8a38-4bb3-8a37-7b5d4a6f6f33'
    """
    return names.uuid_text(text if names.is_uuid(text) else uuid.UUID(text))


class ClientRequest:
    """A request: its microversion, the parts of its path, its query and its body."""

    def __init__(self, http: webob.Request, ledger: Ledger, path: Mapping[str, str]) -> None:
        """:param ledger: the ledger with the client's user as the actor of its writes"""
        self.http = http
        self.ledger = ledger
        self.path = path
        self.version: Version = http.environ[errors.VERSION]

    def since(self, minor: int) -> bool:
        """Return True if the request is of microversion 1.minor or later."""
        return bool(self.version.matches((1, minor)))

    def require_version(self, minor: int) -> None:
        """Raise a 404 if the request is of an earlier microversion than 1.minor."""
        if not self.since(minor):
            raise errors.not_found("")

    def url(self, path: str) -> str:
        """Return a path with the prefix at which the application is mounted."""
        return f"{self.http.script_name}{path}"

    def require_json_accepted(self) -> None:
        """Raise a 406 if the client does not accept JSON."""
        if not accepts_json(self.http):
            raise errors.Refused(406, "Only application/json is provided")

    def require_json_body(self) -> None:
        """Raise a 415 if the content type is not JSON. The body is read by :meth:`body`."""
        kind = self.http.content_type or None
        if kind != "application/json":
            raise errors.Refused(
                415, f"The media type {kind} is not supported, use application/json"
            )

    def body(self, schema: Schema) -> Any:
        """Return the body: JSON that is valid by a schema."""
        self.require_json_body()
        length = self.http.content_length or 0  # a body in chunks has no length
        size = length or MAX_BODY + 1  # the buffer is allocated in this size
        try:
            text = b"" if length > MAX_BODY else self.http.body_file.read(size)
        except OSError as error:  # the server raises it for malformed chunks, too
            raise errors.bad(f"The body did not come whole: {error}") from error
        if max(length, len(text)) > MAX_BODY:
            raise errors.Refused(413, f"A body has at most {MAX_BODY} bytes.")
        try:
            body = json.loads(text.decode())  # json.loads would guess the encoding of bytes
        except (ValueError, RecursionError) as error:
            raise errors.bad(f"Malformed JSON: {error}") from error
        if text.count(b"{") + text.count(b"[") > MAX_DEPTH:  # otherwise it cannot be deeper
            _check_depth(body)
        if not is_certainly_valid(body, schema):
            validate(body, schema, "JSON does not validate")
        return body

    def check_query(self, schema: Schema, first: Collection[str] = ()) -> None:
        """Validate the query by a schema: the last value of a repeated key.

        :param first: keys of which the service uses the first value; both values are validated
        """
        try:
            values_by_key = self.http.GET.dict_of_lists()
        except UnicodeDecodeError as error:
            raise errors.bad(f"Invalid query string parameters: {error}") from error
        last = {key: values[-1] for key, values in values_by_key.items()}
        used = {
            key: values[0] if key in first else values[-1] for key, values in values_by_key.items()
        }
        for query in [last] if last == used else [last, used]:
            if not is_certainly_valid(query, schema, _QUERY_FORMATS):
                validate(query, schema, "Invalid query string parameters", _QUERY_FORMATS)

    def reply(
        self,
        status: int = 200,
        json: Any = None,
        *,
        location: str | None = None,
        modified: datetime.datetime | None = None,
        cached: bool = True,
    ) -> webob.Response:
        """Return a response.

        :param modified: the time of the last change, if it is known; otherwise the present time
        :param cached: whether the response has caching headers, from microversion 1.15 on
        """
        response = webob.Response(status=status)
        if json is None:
            response.headers.pop("Content-Type", None)
            if status == 204:
                response.headers.pop("Content-Length", None)
        else:
            response.body = errors.body_text(json)
            response.content_type = "application/json"
            response.charset = None
        if location is not None:
            response.location = location
        if cached and self.since(15):
            response.last_modified = modified or clock.now()
            response.cache_control = "no-cache"
        return response


def accepts_json(http: webob.Request) -> bool:
    """Return True if the client accepts JSON."""
    if http.environ.get("HTTP_ACCEPT") == "application/json":
        return True
    return bool(http.accept.acceptable_offers(["application/json"]))


def is_certainly_valid(
    value: Any, schema: Schema, formats: jsonschema.FormatChecker = _FORMATS
) -> bool:
    """Return True if a value is valid by a schema; False if :func:`validate` has to decide.

    fastjsonschema compiles a schema to code once, which is ten times as fast as jsonschema. The
    walk of jsonschema would be a seventh of the service's work for a PUT. jsonschema decides about
    a value that the code rejects, with the messages that clients know. A test compares both.

    :param schema: one of ``schemas``, which are made once, without references
    """
    key = id(schema), id(formats)
    if key not in _COMPILED:
        checks = {"uuid": functools.partial(formats.conforms, format="uuid")}
        code = fastjsonschema.compile(dict(schema), formats=checks, use_default=False)
        _COMPILED[key] = schema, code
    try:
        _COMPILED[key][1](value)
    except fastjsonschema.JsonSchemaValueException:
        return False
    return True


#: The code of schemas by their identity; each schema is stored so that its identity stays unique.
_COMPILED: dict[tuple[int, int], tuple[Schema, Callable[[Any], Any]]] = {}


def validate(
    value: Any, schema: Schema, context: str, formats: jsonschema.FormatChecker = _FORMATS
) -> None:
    """Raise a 400 with the cause if a value is not valid by a schema.

    :param context: the beginning of the message
    """
    validator = jsonschema.Draft202012Validator(schema, format_checker=formats)
    error = jsonschema.exceptions.best_match(
        itertools.islice(validator.iter_errors(value), _MAX_ERRORS)
    )
    if error is not None:
        # clients know the patterns with a $, which would also match before a newline at the end
        message = error.message.replace(r"\\Z'", "$'")
        error.message = errors.shortened(message, errors.MAX_DETAIL // 2)
        error.instance = reprlib.repr(error.instance)  # it may be the whole body
        raise errors.bad(f"{context}: {error}") from error


def _check_depth(body: Any) -> None:
    level = [body]
    for _ in range(MAX_DEPTH):
        if not level:
            return
        level = [
            child
            for value in level
            if isinstance(value, dict | list)
            for child in (value.values() if isinstance(value, dict) else value)
        ]
    raise errors.bad(f"JSON does not validate: it is more than {MAX_DEPTH} levels deep")
