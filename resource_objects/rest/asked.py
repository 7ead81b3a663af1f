"""One request, as handlers see it, and replies to it."""

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

#: A body may be so long, and lists and objects in it so deep.
MAX_BODY = 16 * 2**20
MAX_DEPTH = 20
#: Of so many things that are wrong with a body the worst is told.
_MOST_ERRORS = 100

_FORMATS = jsonschema.FormatChecker(formats=())
_QUERY_FORMATS = jsonschema.FormatChecker(formats=["uuid"])  #: of RFC 4122 alone


@_FORMATS.checks("uuid")
def _is_uuid(value: object) -> bool:
    return not isinstance(value, str) or is_uuid(value)


def is_uuid(text: str) -> bool:
    """Return whether a text is a uuid as clients write it.

    >>> is_uuid("{1FA4CD25-8a38-4bb3-8a37-7b5d4a6f6f33}"), is_uuid("host0")
    (True, False)
    """
    return names.is_uuid(text) or uuidutils.is_uuid_like(text)


def uuid_text(text: str) -> str:
    """Return a uuid that clients wrote as it is kept.

    >>> uuid_text("{1FA4CD25-8a38-4bb3-8a37-7b5d4a6f6f33}")
    '1fa4cd25-8a38-4bb3-8a37-7b5d4a6f6f33'
    """
    return names.uuid_text(text if names.is_uuid(text) else uuid.UUID(text))


class Asked:
    """A request: its version, the parts of its path, its query and body."""

    def __init__(self, request: webob.Request, ledger: Ledger, path: Mapping[str, str]) -> None:
        """:param ledger: in which who asks is the one who writes"""
        self.http = request
        self.ledger = ledger
        self.path = path
        self.version: Version = request.environ[errors.VERSION]

    def since(self, minor: int) -> bool:
        """Return whether the request is of microversion 1.minor or a later one."""
        return bool(self.version.matches((1, minor)))

    def needs(self, minor: int) -> None:
        """Refuse a request for what its microversion does not have."""
        if not self.since(minor):
            raise errors.not_found("")

    def url(self, path: str) -> str:
        """Return a path as clients see it, below where the application is mounted."""
        return f"{self.http.script_name}{path}"

    def tells_json(self) -> None:
        """Refuse a client that does not accept JSON."""
        if not accepts_json(self.http):
            raise errors.Refused(406, "Only application/json is provided")

    def takes_json(self) -> None:
        """Refuse a body that is not said to be JSON; whoever reads it does so himself."""
        kind = self.http.content_type or None
        if kind != "application/json":
            raise errors.Refused(
                415, f"The media type {kind} is not supported, use application/json"
            )

    def body(self, schema: Schema) -> Any:
        """Return the body, which has to be JSON that a schema allows."""
        self.takes_json()
        said = self.http.content_length or 0  # in chunks: nobody says
        most = said or MAX_BODY + 1  # room is made for as many, which takes its time
        try:
            text = b"" if said > MAX_BODY else self.http.body_file.read(most)
        except OSError as error:  # the server's, for chunks that are none, too
            raise errors.bad(f"The body did not come whole: {error}") from error
        if max(said, len(text)) > MAX_BODY:
            raise errors.Refused(413, f"A body has at most {MAX_BODY} bytes.")
        try:
            found = json.loads(text.decode())  # of bytes it would guess how they are encoded
        except (ValueError, RecursionError) as error:
            raise errors.bad(f"Malformed JSON: {error}") from error
        if text.count(b"{") + text.count(b"[") > MAX_DEPTH:  # else it is no deeper
            _check_depth(found)
        if not is_allowed(found, schema):
            validate(found, schema, "JSON does not validate")
        return found

    def query(self, schema: Schema, first: Collection[str] = ()) -> None:
        """Check the query by a schema: of a key that is said twice, the last value.

        :param first: keys of which the first value is used; both are checked
        """
        try:
            said = self.http.GET.dict_of_lists()
        except UnicodeDecodeError as error:
            raise errors.bad(f"Invalid query string parameters: {error}") from error
        told = {key: values[-1] for key, values in said.items()}
        used = {key: values[0] if key in first else values[-1] for key, values in said.items()}
        for values in [told] if told == used else [told, used]:
            if not is_allowed(values, schema, _QUERY_FORMATS):
                validate(values, schema, "Invalid query string parameters", _QUERY_FORMATS)

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

        :param modified: when it was last changed, where that is known; else this moment is told
        :param cached: whether to tell that at all, as replies do from 1.15 on
        """
        made = webob.Response(status=status)
        if json is None:
            made.headers.pop("Content-Type", None)
            if status == 204:
                made.headers.pop("Content-Length", None)
        else:
            made.body = errors.body_text(json)
            made.content_type = "application/json"
            made.charset = None
        if location is not None:
            made.location = location
        if cached and self.since(15):
            made.last_modified = modified or clock.now()
            made.cache_control = "no-cache"
        return made


def accepts_json(request: webob.Request) -> bool:
    """Return whether who asks accepts JSON."""
    if request.environ.get("HTTP_ACCEPT") == "application/json":
        return True
    return bool(request.accept.acceptable_offers(["application/json"]))


def is_allowed(given: Any, schema: Schema, formats: jsonschema.FormatChecker = _FORMATS) -> bool:
    """Return whether a schema certainly allows something.

    jsonschema walks a schema each time, which takes a seventh of what the service itself does for a
    PUT; this is code made of it once, some ten times as fast. What it does not allow jsonschema has
    to judge, which says why in the words that clients know. A test holds both to the same.

    :param schema: one of ``schemas``, which are made once; of no references
    """
    key = id(schema), id(formats)
    if key not in _CODE:
        checks = {"uuid": functools.partial(formats.conforms, format="uuid")}
        _CODE[key] = schema, fastjsonschema.compile(dict(schema), formats=checks, use_default=False)
    try:
        _CODE[key][1](given)
    except fastjsonschema.JsonSchemaValueException:
        return False
    return True


#: Code of schemas, which are kept, by where these are.
_CODE: dict[tuple[int, int], tuple[Schema, Callable[[Any], Any]]] = {}


def validate(
    given: Any, schema: Schema, what: str, formats: jsonschema.FormatChecker = _FORMATS
) -> None:
    """Refuse what a schema does not allow, with the cause."""
    found = jsonschema.Draft202012Validator(schema, format_checker=formats).iter_errors(given)
    error = jsonschema.exceptions.best_match(itertools.islice(found, _MOST_ERRORS))
    if error is not None:
        # clients know the patterns with a $, which would also match before a newline at the end
        message = error.message.replace(r"\\Z'", "$'")
        error.message = errors.shortened(message, errors.MAX_DETAIL // 2)
        error.instance = reprlib.repr(error.instance)  # it may be all that was sent
        raise errors.bad(f"{what}: {error}") from error


def _check_depth(given: Any) -> None:
    level = [given]
    for _ in range(MAX_DEPTH):
        if not level:
            return
        level = [
            below
            for one in level
            if isinstance(one, dict | list)
            for below in (one.values() if isinstance(one, dict) else one)
        ]
    raise errors.bad(f"JSON does not validate: it is more than {MAX_DEPTH} levels deep")
