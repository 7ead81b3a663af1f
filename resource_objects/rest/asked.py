"""One request, as handlers see it, and replies to it."""

from __future__ import annotations

import datetime
import itertools
import json
import reprlib
from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias

import jsonschema
import webob
from microversion_parse import Version

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


@_FORMATS.checks("uuid")
def _is_uuid(value: object) -> bool:
    return not isinstance(value, str) or names.is_uuid(value)


class Asked:
    """A request: its version, the parts of its path, its query and body, and who asks."""

    def __init__(
        self,
        request: webob.Request,
        ledger: Ledger,
        path: Mapping[str, str],
        creds: Mapping[str, Any],
        config: Config,
    ) -> None:
        self.http = request
        self.ledger = ledger
        self.path = path
        self.creds = creds
        self.config = config
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

    def body(self, schema: Schema) -> Any:
        """Return the body, which has to be JSON that a schema allows."""
        kind = self.http.content_type or None
        if kind != "application/json":
            raise errors.Refused(
                415, f"The media type {kind} is not supported, use application/json"
            )
        said = self.http.content_length or 0  # in chunks: nobody says
        text = b"" if said > MAX_BODY else self.http.body_file.read(MAX_BODY + 1)
        if max(said, len(text)) > MAX_BODY:
            raise errors.Refused(413, f"A body has at most {MAX_BODY} bytes.")
        try:
            found = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise errors.bad(f"Malformed JSON: {error}") from error
        _check_depth(found)
        validate(found, schema, "JSON does not validate")
        return found

    def query(self, schema: Schema) -> None:
        """Check the query by a schema."""
        try:
            given = self.http.GET
            said = given.dict_of_lists()
        except UnicodeDecodeError as error:
            raise errors.bad(f"Invalid query string parameters: {error}") from error
        for at in (-1, 0):  # of what is said twice some take the last and some the first
            told = {key: values[at] for key, values in said.items()}
            validate(told, schema, "Invalid query string parameters")

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


class Config(Protocol):
    """What an application was made with."""

    def allows(self, rule: str, target: Mapping[str, Any], creds: Mapping[str, Any]) -> bool:
        """Return whether somebody may do something."""


def validate(given: Any, schema: Schema, what: str) -> None:
    """Refuse what a schema does not allow, with the cause."""
    found = jsonschema.Draft202012Validator(schema, format_checker=_FORMATS).iter_errors(given)
    error = jsonschema.exceptions.best_match(itertools.islice(found, _MOST_ERRORS))
    if error is not None:
        error.message = errors.shortened(error.message, errors.MAX_DETAIL // 2)
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
