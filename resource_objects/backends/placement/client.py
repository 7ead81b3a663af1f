"""One request to a Placement and its answer: sessions, URLs, microversions and errors.

keystoneauth1 finds the endpoint, authenticates and speaks HTTP; any number of threads may share its
session. The client raises errors of the service itself; every other answer is interpreted by the
caller.
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
from resource_objects.backends.retries import RetryPolicy, Transient

_T = TypeVar("_T")
_R = TypeVar("_R")

SERVICE_TYPE = "placement"
EXPECTED = (
    "placement+https://host/path, with user:password@ or ?token=, or placement:// and a session"
)

#: The newest microversion that the client speaks, and the oldest. From 1.30 on one request writes
#: inventories and allocations (``/reshaper``); it is the newest of the release Rocky (2018).
NEWEST, OLDEST = 39, 30
#: The first microversions in which a consumer has a type, and a provider with a parent can move.
CONSUMER_TYPES, REPARENTING = 38, 37
#: The policy for repeated requests. Pauses are longer than between transactions, because each try
#: is several requests to a service that may be far away.
RETRIES = RetryPolicy(first_sleep=0.02, longest_sleep=1.0)
#: Seconds that a request may take if neither the URL nor the session has a timeout.
TIMEOUT, _LONGEST_TIMEOUT = 60.0, 3600

#: Statuses after which the outcome of a write is not known and a read can be repeated.
_NO_ANSWER = frozenset({408, 429, 500, 502, 503, 504})


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """An answer: ``body`` is JSON, ``detail`` and ``code`` are those of an error."""

    status: int
    body: Any = None
    detail: str = ""
    code: str = ""
    modified: str | None = None

    @property
    def is_done(self) -> bool:
        """True if the request was carried out."""
        return self.status < 300

    @property
    def is_missing(self) -> bool:
        """True if the subject of the request does not exist."""
        return self.status == 404


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """The options of a URL.

    ``workers`` is the maximum number of concurrent requests of a read. ``timeout`` is in seconds,
    for each request (None: that of the session, or :data:`TIMEOUT`). ``minor`` is that of the
    newest microversion to speak. The others select an endpoint of the catalog.
    """

    workers: int = 8
    timeout: float | None = None
    minor: int = NEWEST
    region_name: str | None = None
    interface: str | None = None


class Client:
    """A client of one Placement. Safe for use by several threads.

    :param adapter: of keystoneauth1, with the endpoint
    :param service: the name of the service in errors, without passwords
    :param retries: the policy for reads without an answer
    """

    def __init__(
        self, adapter: adapters.Adapter, service: str, options: Options, retries: RetryPolicy
    ) -> None:
        self._adapter = adapter
        self.service = service
        self.minor = options.minor
        self.retries = retries
        self._workers = options.workers
        self._timeout = options.timeout or adapter.session.timeout or TIMEOUT

    def negotiate(self) -> None:
        """Find the newest microversion of both sides. One request.

        :raises DatabaseError: if the service is no Placement, or older than 1.30
        """
        answer = self._request("GET", "/", minor=None)
        try:
            newest = str(answer.body["versions"][0]["max_version"])
            major, minor = map(int, newest.split("."))
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise self._no_placement("/", answer) from error
        self.minor = min(self.minor, minor)
        if major != 1 or self.minor < OLDEST:
            raise self._unavailable(
                f"it speaks microversions up to {newest}, one from 1.{OLDEST} on is needed"
            )

    # --- reading ---

    def read(self, path: str, query: Mapping[str, str] | None = None) -> Answer:
        """Return the answer to a GET request, which is repeated if no answer comes.

        :raises DatabaseError: if no answer came; if access is refused, or the service is no
            Placement
        """
        return self._repeat("GET", f"{path}?{urllib.parse.urlencode(query)}" if query else path)

    def get(
        self, path: str, parse: Callable[[Any], _T], query: Mapping[str, str] | None = None
    ) -> _T:
        """Return the parsed answer to a GET request for something that always exists.

        :raises LedgerError: if it is refused
        """
        return self.parsed(path, self.read(path, query), parse)

    def parsed(self, path: str, answer: Answer, parse: Callable[[Any], _T]) -> _T:
        """Return the parsed body of an answer.

        :param parse: of the body; it may raise any error of a body in another form
        :raises LedgerError: with Placement's text, if the request was refused
        :raises DatabaseError: if no Placement answers in this form
        """
        try:
            return parse(self.required(answer).body)
        except exceptions.ResourceObjectsError:
            raise
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise self._no_placement(path, answer) from error

    def read_each(self, read: Callable[[_T], _R], items: Sequence[_T]) -> list[_R]:
        """Return the results for several items, read concurrently; raise the first error."""
        if len(items) < 2 or self._workers == 1:
            return [read(item) for item in items]
        with concurrent.futures.ThreadPoolExecutor(min(self._workers, len(items))) as pool:
            return list(pool.map(read, items))

    # --- writing ---

    def ensure(self, path: str) -> Answer:
        """Return the answer to a PUT request without a body, which is repeated like a read.

        :raises DatabaseError: if the user may not do this
        """
        return self._permitted("PUT", path, self._repeat("PUT", path))

    def write(self, method: str, path: str, body: Any = None, minor: int | None = None) -> Answer:
        """Return the answer to a request that changes something, sent once.

        :param minor: of an older microversion
        :raises DatabaseError: if no answer came: the outcome is not known; if the user may not do
            this
        """
        return self._permitted(method, path, self._request(method, path, body, minor or self.minor))

    def _permitted(self, method: str, path: str, answer: Answer) -> Answer:
        if answer.status == 403:
            detail = f"{method} {path}: 403: {answer.detail}"
            raise exceptions.DatabaseError("read-only", self.service, detail)
        return answer

    def required(self, answer: Answer) -> Answer:
        """Return an answer to a request that was carried out.

        :raises LedgerError: with Placement's text, if it was refused
        """
        if not answer.is_done:
            raise exceptions.LedgerError(
                "request", self.service, f"{answer.status}: {answer.detail}"
            )
        return answer

    # --- requests ---

    def _repeat(self, method: str, path: str) -> Answer:
        def attempt() -> Answer:
            try:
                return self._request(method, path, minor=self.minor)
            except exceptions.DatabaseError as lost:
                if not lost.is_about("lost"):
                    raise
                raise Transient(lost) from lost.__cause__

        return self.retries.run(attempt)

    def _request(
        self, method: str, path: str, body: Any = None, minor: int | None = None
    ) -> Answer:
        """Return an answer; without ``minor`` the request names no microversion."""
        options: dict[str, Any] = {"timeout": self._timeout}
        if body is not None:
            options["json"] = body
        if minor is not None:
            options["microversion"] = f"1.{minor}"
        try:
            response = self._adapter.request(
                path, method, raise_exc=False, headers={"Accept": "application/json"}, **options
            )
        except failures.ConnectionError as error:
            raise exceptions.DatabaseError("lost", self.service, _one_line(error)) from error
        except failures.ClientException as error:  # no endpoint, no token, an unknown user
            raise self._unavailable(_one_line(error)) from error
        return self._answer(method, path, response)

    def _answer(self, method: str, path: str, response: Any) -> Answer:
        status = int(response.status_code)
        try:
            body = response.json() if response.content else None
        except ValueError:
            body = None
        detail, code = _error_of(body, response) if status >= 300 else ("", "")
        text = f"{method} {path}: {status}: {detail}"
        if status in _NO_ANSWER:
            raise exceptions.DatabaseError("lost", self.service, text)
        if status == 401 or (status == 403 and method == "GET"):
            raise self._unavailable(text)
        answer = Answer(status, body, detail, code, response.headers.get("last-modified"))
        if status == 404 and not _is_error(body):  # of a proxy that does not know the path
            raise self._no_placement(path, answer)
        if status < 300 and response.content and body is None:
            text = f"{method} {path}: {status}, and the answer is cut off or no JSON"
            raise exceptions.DatabaseError("lost", self.service, text)
        return answer

    def _no_placement(self, path: str, answer: Answer) -> exceptions.DatabaseError:
        return self._unavailable(f"{path} is answered {answer.status}, and not as by a Placement")

    def _unavailable(self, detail: str) -> exceptions.DatabaseError:
        return exceptions.DatabaseError("unavailable", self.service, detail)


def _one_line(text: object) -> str:
    return " ".join(str(text).split())


def _is_error(body: Any) -> bool:
    """Return True if a body is an error in Placement's form."""
    errors = body.get("errors") if isinstance(body, dict) else None
    return isinstance(errors, list) and bool(errors) and isinstance(errors[0], dict)


def _error_of(body: Any, response: Any) -> tuple[str, str]:
    """Return the text and the code of an error of Placement, or of a proxy before it."""
    if not _is_error(body):
        return _one_line(response.text[:200]), ""
    error = body["errors"][0]
    # the first paragraph is HTTP's description of the status
    paragraphs = [text for text in str(error.get("detail", "")).split("\n") if text.strip()]
    return _one_line(paragraphs[-1] if paragraphs else ""), str(error.get("code", ""))


# --- URLs and sessions ----------------------------------------------------------------------------

_OPTIONS = "token", "region_name", "interface", "workers", "timeout", "microversion"


def client_of(url: str, session: Any = None, retries: RetryPolicy | None = None) -> Client:
    """Return a client of the service of a URL.

    :param session: a session or an adapter of keystoneauth1; None: a new session, which
        authenticates as the URL specifies
    :raises InvalidInput: if it is not the URL of a Placement, there is neither an endpoint nor a
        session, or the URL repeats what the adapter or the session specifies
    :raises InvalidInput: if the session is of another type
    """
    parts, values = _split(url)
    options, endpoint = _options_of(values, url), None
    if parts.hostname:  # else the catalog of a session has the endpoint
        address = parts.netloc.rpartition("@")[2].rstrip(":").lower()
        endpoint = f"{parts.scheme.partition('+')[2]}://{address}{parts.path.rstrip('/')}"
    auth = _auth_of(url, parts, endpoint, values.get("token"))
    is_adapter = isinstance(session, adapters.Adapter)
    if session is not None and auth is not None:
        raise _invalid(url, "no user and no token: the session authenticates")
    if (options.region_name or options.interface) and (endpoint or is_adapter):
        raise _invalid(
            url, "no region_name and no interface, which select an endpoint: it is known"
        )
    if is_adapter:
        if endpoint is not None:
            raise _invalid(url, "placement:// with an adapter, which has an endpoint")
        return Client(session, "placement", options, retries or RETRIES)
    if session is None:
        if endpoint is None:
            raise _invalid(url)
        session = sessions.Session(auth=auth or noauth.NoAuth(endpoint=endpoint))
        pool = sessions.TCPKeepAliveAdapter(pool_maxsize=options.workers)
        for scheme in ("http://", "https://"):  # one connection for each concurrent request
            session.session.mount(scheme, pool)
    elif not isinstance(session, sessions.Session):
        expected = "a Session or an Adapter of keystoneauth1"
        raise exceptions.InvalidInput("field", "session", session, expected)
    adapter = adapters.Adapter(
        session,
        service_type=SERVICE_TYPE,
        endpoint_override=endpoint,
        interface=options.interface,
        region_name=options.region_name,
    )
    return Client(adapter, endpoint or "placement", options, retries or RETRIES)


def _auth_of(
    url: str, parts: urllib.parse.SplitResult, endpoint: str | None, token: str | None
) -> Any:
    """Return a plugin of keystoneauth1 with the user or token of a URL; None: it has neither."""
    if parts.username is None:
        return None if token is None else token_endpoint.Token(endpoint, token)
    if token is not None:
        raise _invalid(url, "a user or a token, not both")
    user, password = map(urllib.parse.unquote, (parts.username, parts.password or ""))
    return http_basic.HTTPBasicAuth(endpoint=endpoint, username=user, password=password)


def _split(url: str) -> tuple[urllib.parse.SplitResult, dict[str, str]]:
    """Return the parts of a URL, and the values of its options."""
    try:
        parts = urllib.parse.urlsplit(url)
        parts.port  # noqa: B018  # raises for a port that is no number
        pairs = urllib.parse.parse_qsl(parts.query, strict_parsing=bool(parts.query))
    except ValueError as error:
        raise _invalid(url) from error
    name, _, scheme = parts.scheme.partition("+")
    has_path = parts.path not in ("", "/")
    if (
        name != "placement"
        or scheme not in ("", "http", "https")
        or bool(scheme) != bool(parts.hostname)
        or parts.fragment
        or (has_path and not scheme)
    ):
        raise _invalid(url)
    values = dict(pairs)
    if len(values) != len(pairs):
        raise _invalid(url, "each of its options once")
    return parts, values


def _invalid(url: str, expected: str = EXPECTED) -> exceptions.InvalidInput:
    return exceptions.InvalidInput("URL", "ledger URL", url, expected)


def _options_of(values: Mapping[str, str], url: str) -> Options:
    try:
        major, _, minor = values.get("microversion", f"1.{NEWEST}").partition(".")
        options = Options(
            int(values.get("workers", Options().workers)),
            float(values["timeout"]) if "timeout" in values else None,
            int(minor),
            values.get("region_name"),
            values.get("interface"),
        )
        if major != "1":
            raise ValueError(major)
    except ValueError as error:
        raise _invalid(url, "numbers in its options") from error
    is_bounded = options.timeout is None or 0 < options.timeout <= _LONGEST_TIMEOUT
    if not 1 <= options.workers <= 64 or not is_bounded or options.minor < OLDEST:
        raise _invalid(
            url,
            f"workers from 1 to 64, a timeout above 0 of at most {_LONGEST_TIMEOUT}, "
            f"a microversion from 1.{OLDEST} on",
        )
    if not values.keys() <= set(_OPTIONS):
        raise _invalid(url, f"of its options only {', '.join(_OPTIONS)}")
    return options
