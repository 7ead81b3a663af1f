"""One request to a Placement and its answer: sessions, URLs, microversions, and what fails.

keystoneauth1 finds the endpoint, authenticates and speaks HTTP; its session may be shared by any
number of threads. What an answer means is for the caller to say, but for what is wrong with the
service itself.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from keystoneauth1 import adapter as adapters
from keystoneauth1 import exceptions as failures
from keystoneauth1 import http_basic, noauth, token_endpoint
from keystoneauth1 import session as sessions

from resource_objects import exceptions
from resource_objects.backends.retries import Retries, Transient

_T = TypeVar("_T")
_R = TypeVar("_R")

SERVICE_TYPE = "placement"
EXPECTED = (
    "placement+https://host/path, with user:password@ or ?token=, or placement:// and a session"
)

#: The newest microversion that is spoken, and the oldest: inventories and allocations are written
#: at once from 1.30 on (``/reshaper``), which was released in 2018 as the newest of Rocky.
NEWEST, OLDEST = 39, 30
#: From which on a consumer has a type, and a provider that has a parent may be moved.
CONSUMER_TYPES, REPARENTING = 38, 37
#: How often something is sent again: as a transaction, and longer where others write the same, for
#: each time is some requests to a service that may be far away.
RETRIES = Retries(first_sleep=0.02, longest_sleep=1.0)
#: Seconds that a request may take where neither the URL nor the session says any.
TIMEOUT, _LONGEST_TIMEOUT = 60.0, 3600

#: Nobody knows what these did of a write, and a read may be asked again.
_NO_ANSWER = frozenset({408, 429, 500, 502, 503, 504})


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """What a request was answered: ``body`` is JSON, ``detail`` and ``code`` tell an error."""

    status: int
    body: Any = None
    detail: str = ""
    code: str = ""
    modified: str | None = None

    @property
    def is_done(self) -> bool:
        """Whether what was asked for happened."""
        return self.status < 300

    @property
    def is_missing(self) -> bool:
        """Whether what it was about is not there."""
        return self.status == 404


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """What a URL says beside where the service is.

    ``workers`` is how many requests of a read are under way at once, ``timeout`` seconds for each
    (None: as the session says, or :data:`TIMEOUT`), ``minor`` of the newest microversion to speak.
    """

    workers: int = 8
    timeout: float | None = None
    minor: int = NEWEST


class Client:
    """Asks one Placement. Any number of threads may use it at once.

    :param adapter: of keystoneauth1, with the endpoint
    :param where: what errors call the service, without passwords
    :param retries: how often a read is asked again that got no answer
    """

    def __init__(
        self, adapter: adapters.Adapter, where: str, options: Options, retries: Retries
    ) -> None:
        self._adapter = adapter
        self.where = where
        self.minor = options.minor
        self.retries = retries
        self._workers = options.workers
        self._timeout = options.timeout or adapter.session.timeout or TIMEOUT

    def negotiate(self) -> None:
        """Find the newest microversion that both speak. One request.

        :raises DatabaseError: if there is no Placement, or an older one than 1.30
        """
        answer = self._ask("GET", "/", minor=None)
        try:
            most = str(answer.body["versions"][0]["max_version"])
            major, minor = map(int, most.split("."))
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise self._is_none("/", answer) from error
        self.minor = min(self.minor, minor)
        if major != 1 or self.minor < OLDEST:
            said = f"it speaks microversions up to {most}, one from 1.{OLDEST} on is needed"
            raise exceptions.DatabaseError("unavailable", self.where, said)

    # --- reading ---

    def read(self, path: str, query: Mapping[str, str] | None = None) -> Answer:
        """Return the answer to a GET; one that does not come is asked for again a few times.

        :raises LostConnection: if none came
        :raises DatabaseError: if it does not know who asks, or is no Placement
        """
        where = f"{path}?{urllib.parse.urlencode(query)}" if query else path
        return self._again("GET", where)

    def get(
        self, path: str, parse: Callable[[Any], _T], query: Mapping[str, str] | None = None
    ) -> _T:
        """Return what is read in the answer to a GET of what is always there.

        :raises LedgerError: if it is refused
        """
        return self.parsed(path, self.read(path, query), parse)

    def parsed(self, path: str, answer: Answer, parse: Callable[[Any], _T]) -> _T:
        """Return what is read in an answer by which something was done.

        :param parse: of the body; it may raise what a body of another form does
        :raises LedgerError: with what was answered, if it was refused
        :raises DatabaseError: if no Placement answers so
        """
        try:
            return parse(self.required(answer).body)
        except exceptions.ResourceObjectsError:
            raise
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise self._is_none(path, answer) from error

    def each(self, read: Callable[[_T], _R], items: Sequence[_T]) -> list[_R]:
        """Return what is read of each item, several at once. Errors are those of the first."""
        if len(items) < 2 or self._workers == 1:
            return [read(item) for item in items]
        with concurrent.futures.ThreadPoolExecutor(min(self._workers, len(items))) as pool:
            return list(pool.map(read, items))

    # --- writing ---

    def ensure(self, path: str) -> Answer:
        """Return the answer to a PUT that says nothing but that something is there, as of a read.

        :raises DatabaseError: if who asks may not do this
        """
        return self._allowed("PUT", path, self._again("PUT", path))

    def write(self, method: str, path: str, body: Any = None, minor: int | None = None) -> Answer:
        """Return the answer to a request that changes something, asked once.

        :param minor: of an older microversion
        :raises LostConnection: if no answer came: whether it was done is not known
        :raises DatabaseError: if who asks may not do this
        """
        answer = self._ask(method, path, body, minor=self.minor if minor is None else minor)
        return self._allowed(method, path, answer)

    def _allowed(self, method: str, path: str, answer: Answer) -> Answer:
        if answer.status == 403:
            raise exceptions.DatabaseError(
                "read-only", self.where, f"{method} {path}: 403: {answer.detail}"
            )
        return answer

    def required(self, answer: Answer) -> Answer:
        """Return an answer by which something was done.

        :raises LedgerError: with what was answered, if it was refused
        """
        if not answer.is_done:
            raise exceptions.LedgerError("request", self.where, f"{answer.status}: {answer.detail}")
        return answer

    # --- asking ---

    def _again(self, method: str, path: str) -> Answer:
        def attempt() -> Answer:
            try:
                return self._ask(method, path)
            except exceptions.LostConnection as lost:
                raise Transient(lost) from lost.__cause__

        return self.retries.run(attempt)

    def _ask(self, method: str, path: str, body: Any = None, minor: int | None = 0) -> Answer:
        """Return an answer.

        :param minor: 0: the newest that both speak; None: no microversion is said
        """
        said: dict[str, Any] = {"timeout": self._timeout}
        if body is not None:
            said["json"] = body
        if minor is not None:
            said["microversion"] = f"1.{minor or self.minor}"
        try:
            response = self._adapter.request(
                path, method, raise_exc=False, headers={"Accept": "application/json"}, **said
            )
        except failures.ConnectionError as error:
            raise exceptions.LostConnection(self.where, _told(error)) from error
        except failures.ClientException as error:  # no endpoint, no token, no such user
            raise exceptions.DatabaseError("unavailable", self.where, _told(error)) from error
        return self._answer(method, path, response)

    def _answer(self, method: str, path: str, response: Any) -> Answer:
        status = int(response.status_code)
        found = _json_of(response)
        detail, code = _error_of(found, response) if status >= 300 else ("", "")
        if status in _NO_ANSWER:
            raise exceptions.LostConnection(self.where, f"{method} {path}: {status}: {detail}")
        if status == 401 or (status == 403 and method == "GET"):
            said = f"{method} {path}: {status}: {detail}"
            raise exceptions.DatabaseError("unavailable", self.where, said)
        answer = Answer(status, found, detail, code, response.headers.get("last-modified"))
        if status == 404 and not _is_error(found):  # what stands before it, and knows no such path
            raise self._is_none(path, answer)
        if status < 300 and response.content and found is None:
            said = f"{method} {path}: {status}, and what it says is cut off or no JSON"
            raise exceptions.LostConnection(self.where, said)
        return answer

    def _is_none(self, path: str, answer: Answer) -> exceptions.DatabaseError:
        said = f"{path} is answered {answer.status}, and not as by a Placement"
        return exceptions.DatabaseError("unavailable", self.where, said)


def _told(error: Exception) -> str:
    return " ".join(str(error).split())


def _json_of(response: Any) -> Any:
    if not response.content:
        return None
    try:
        return response.json()
    except ValueError:
        return None


def _is_error(body: Any) -> bool:
    """Return whether a body tells an error as Placement does."""
    told = body.get("errors") if isinstance(body, dict) else None
    return isinstance(told, list) and bool(told) and isinstance(told[0], dict)


def _error_of(body: Any, response: Any) -> tuple[str, str]:
    """Return the text and the code of an error, whoever told it."""
    if not _is_error(body):
        return _told(response.text[:200]), ""
    told = body["errors"][0]
    detail = str(told.get("detail", ""))
    # the first paragraph is HTTP's own words for the status
    words = [part for part in detail.split("\n") if part.strip()] or [""]
    return " ".join(words[-1].split()), str(told.get("code", ""))


# --- who opens it ---------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """A URL in parts: ``endpoint`` None is asked of the catalog of a session.

    ``catalog`` says which of its endpoints.
    """

    endpoint: str | None
    user: str | None
    password: str | None
    token: str | None
    catalog: Mapping[str, str]
    options: Options

    @classmethod
    def of(cls, url: str) -> Target:
        """Return a URL in parts.

        :raises InvalidURL: if it is none
        """
        try:
            parts = urllib.parse.urlsplit(url)
            host, port = parts.hostname, parts.port
            pairs = urllib.parse.parse_qsl(parts.query, strict_parsing=bool(parts.query))
        except ValueError as error:
            raise exceptions.InvalidURL("ledger URL", url, EXPECTED) from error
        name, _, scheme = parts.scheme.partition("+")
        is_known = name == "placement" and scheme in ("", "http", "https")
        if not is_known or bool(scheme) != bool(host) or parts.fragment:
            raise exceptions.InvalidURL("ledger URL", url, EXPECTED)
        if not scheme and parts.path not in ("", "/"):
            raise exceptions.InvalidURL("ledger URL", url, EXPECTED)
        said = dict(pairs)
        if len(said) != len(pairs):
            raise exceptions.InvalidURL("ledger URL", url, "each of its options once")
        endpoint = None
        if host:
            place = f"[{host}]" if ":" in host else host
            place = place if port is None else f"{place}:{port}"
            endpoint = f"{scheme}://{place}{parts.path.rstrip('/')}"
        token = said.pop("token", None)
        places = ["region_name", "interface"]
        catalog = {key: said.pop(key) for key in places if key in said}
        options = _options_of(said, url)
        if said:
            known = "token, region_name, interface, workers, timeout, microversion"
            raise exceptions.InvalidURL("ledger URL", url, f"of its options only {known}")
        user, password = (
            None if one is None else urllib.parse.unquote(one)
            for one in (parts.username, parts.password)
        )
        if user is not None and token is not None:
            raise exceptions.InvalidURL("ledger URL", url, "a user or a token, not both")
        return cls(endpoint, user, password, token, catalog, options)


def _options_of(said: dict[str, str], url: str) -> Options:
    found: dict[str, Any] = {}
    try:
        if "workers" in said:
            found["workers"] = int(said.pop("workers"))
        if "timeout" in said:
            found["timeout"] = float(said.pop("timeout"))
        if "microversion" in said:
            major, _, minor = said.pop("microversion").partition(".")
            found["minor"] = int(minor)
            if major != "1":
                raise ValueError(major)
    except ValueError as error:
        raise exceptions.InvalidURL("ledger URL", url, "numbers in its options") from error
    options = Options(**found)
    is_bounded = options.timeout is None or 0 < options.timeout <= _LONGEST_TIMEOUT
    if not 1 <= options.workers <= 64 or not is_bounded or options.minor < OLDEST:
        expected = (
            f"workers from 1 to 64, a timeout above 0 of at most {_LONGEST_TIMEOUT}, "
            f"a microversion from 1.{OLDEST} on"
        )
        raise exceptions.InvalidURL("ledger URL", url, expected)
    return options


def client_of(url: str, session: Any = None, retries: Retries | None = None) -> Client:
    """Return what asks the service that a URL names.

    :param session: a session or an adapter of keystoneauth1; None: one is made, which authenticates
        as the URL says
    :raises InvalidURL: if it is none, names no endpoint and there is no session, or says what an
        adapter or a session says
    :raises InvalidInput: if the session is none
    """
    target = Target.of(url)
    if session is not None and (target.user, target.token) != (None, None):
        expected = "no user and no token: the session says who asks"
        raise exceptions.InvalidURL("ledger URL", url, expected)
    if target.catalog and (target.endpoint or isinstance(session, adapters.Adapter)):
        expected = "no region_name and no interface, which choose an endpoint: it is known"
        raise exceptions.InvalidURL("ledger URL", url, expected)
    if isinstance(session, adapters.Adapter):
        adapter = session
        if target.endpoint is not None:
            expected = "placement:// with an adapter, which knows its endpoint"
            raise exceptions.InvalidURL("ledger URL", url, expected)
    elif session is None:
        if target.endpoint is None:
            raise exceptions.InvalidURL("ledger URL", url, EXPECTED)
        adapter = _adapter(_session_of(target), target)
    elif isinstance(session, sessions.Session):
        adapter = _adapter(session, target)
    else:
        expected = "a Session or an Adapter of keystoneauth1"
        raise exceptions.InvalidInput("field", "session", session, expected)
    where = target.endpoint or "placement"
    return Client(adapter, where, target.options, retries or RETRIES)


def _adapter(session: sessions.Session, target: Target) -> adapters.Adapter:
    return adapters.Adapter(
        session,
        service_type=SERVICE_TYPE,
        endpoint_override=target.endpoint,
        interface=target.catalog.get("interface"),
        region_name=target.catalog.get("region_name"),
    )


def _session_of(target: Target) -> sessions.Session:
    made = sessions.Session(auth=_auth_of(target))
    kept = sessions.TCPKeepAliveAdapter(pool_maxsize=target.options.workers)
    for scheme in ("http://", "https://"):  # as many connections as are in use at once
        made.session.mount(scheme, kept)
    return made


def _auth_of(target: Target) -> Any:
    if target.user is not None:
        return http_basic.HTTPBasicAuth(
            endpoint=target.endpoint, username=target.user, password=target.password or ""
        )
    if target.token is not None:
        return token_endpoint.Token(target.endpoint, target.token)
    return noauth.NoAuth(endpoint=target.endpoint)
