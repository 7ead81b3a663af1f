"""Whatever is sent is answered with 2xx or 4xx: never with a failure, never with a trace of one.

Requests are drawn around those that there are: every route, method and version, headers and bodies
that are nearly right, or bytes. In process all of them; over a real socket bytes that are no HTTP.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import re
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, unquote_to_bytes, urlencode

import pytest
import webob
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import resource_objects as ro
from resource_objects.rest import application
from resource_objects.rest.wsgi import Application
from tests.rest.conftest import HOST
from tests.support.lengths import examples
from tests.support.served import Served

JOB = "f5a91a0a-e111-4a9c-8a33-7b320ae1e52a"
#: What a request refers to may be there.
KNOWN = [HOST, JOB, "VCPU", "CUSTOM_A", "HW_CPU_X86_AVX", "host0", "0", "null", ""]

numbers = st.one_of(
    st.integers(-3, 10),
    st.sampled_from([2**31 - 1, 2**31, 2**63, 2**64, 10**400, -(10**400), 1e308, 1e-320, 0.1]),
)
texts = st.one_of(
    st.sampled_from(KNOWN),
    st.text(max_size=20),
    st.sampled_from(["\0", "\ud800", "é" * 300, "a" * 70000, "%00", "../..", "1" * 5000, "\u202e"]),
)
fields = st.sampled_from(
    [
        *("uuid", "name", "parent_provider_uuid", "generation", "inventories", "total", "reserved"),
        *("min_unit", "max_unit", "step_size", "allocation_ratio", "resource_provider_generation"),
        *("allocations", "resources", "project_id", "user_id", "consumer_generation", "mappings"),
        *(
            "consumer_type",
            "aggregates",
            "traits",
            "resource_class",
            "resource_provider",
            HOST,
            JOB,
        ),
        *("VCPU", "CUSTOM_A", "", "x"),
    ]
)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, texts),
    lambda below: st.one_of(
        st.lists(below, max_size=3),
        st.dictionaries(st.one_of(fields, texts), below, max_size=4),
    ),
    max_leaves=12,
)
deep = st.sampled_from([19, 20, 21, 500, 100_000]).map(lambda n: b"[" * n + b"]" * n)
bodies = st.one_of(
    values.map(lambda one: json.dumps(one).encode()),
    values.map(lambda one: json.dumps(one, ensure_ascii=False).encode("utf-16", "surrogatepass")),
    st.sampled_from([b"NaN", b"-Infinity", b'{"a":1,"a":2}', b"1e999999", b"9" * 5000, b"\xff"]),
    st.binary(max_size=40),
    deep,
)
words = st.one_of(
    st.sampled_from(
        [
            *("name", "uuid", "member_of", "resources", "required", "in_tree", "project_id"),
            *("user_id", "consumer_type", "limit", "group_policy", "root_required", "associated"),
            *("resources1", "required_A", "same_subtree", "resources" + "1" * 64, "startswith"),
        ]
    ),
    texts,
)
asked = st.lists(
    st.tuples(
        words,
        st.one_of(
            texts,
            numbers.map(str),
            st.sampled_from(["VCPU:1", "VCPU:0", "in:a", "!x", "!in:", "VCPU:1,VCPU:2", ",", ":"]),
        ),
    ),
    max_size=4,
)
raw = st.binary(max_size=30).map(lambda some: some.decode("latin-1"))
#: As a server hands them on: bytes as latin-1, without what ends a line.
plain = raw.map(lambda text: text.replace("\r", "").replace("\n", "").replace("\0", ""))
headers = st.dictionaries(
    st.sampled_from(
        [
            *("HTTP_ACCEPT", "CONTENT_TYPE", "CONTENT_LENGTH", "HTTP_OPENSTACK_API_VERSION"),
            *("HTTP_X_ROLES", "HTTP_X_PROJECT_ID", "HTTP_X_AUTH_TOKEN", "HTTP_AUTHORIZATION"),
            *("HTTP_IF_MODIFIED_SINCE", "HTTP_RANGE", "HTTP_HOST", "HTTP_COOKIE", "HTTP_ORIGIN"),
        ]
    ),
    st.one_of(plain, st.sampled_from(["*/*", "a/b;q=z", "application/json; charset=utf-16", "-1"])),
    max_size=2,
)
versions = st.one_of(st.integers(0, 39).map(lambda n: f"placement 1.{n}"), plain)
methods = st.sampled_from(["GET", "PUT", "POST", "DELETE", "PATCH", "HEAD", "OPTIONS", "get", "X"])


@pytest.fixture(scope="module")
def app() -> Iterator[Application]:
    """A service with something in it."""
    made = application("memory://", auth="noauth2", policy="open")
    with contextlib.closing(made):
        head = {"x-auth-token": "admin", "openstack-api-version": "placement 1.39"}

        def put(method: str, path: str, body: dict[str, Any]) -> None:
            request = webob.Request.blank(path, method=method, headers=head)
            request.body, request.content_type = json.dumps(body).encode(), "application/json"
            assert request.get_response(made).status_int < 300

        put("POST", "/resource_providers", {"uuid": HOST, "name": "host0"})
        inventories = {"inventories": {"VCPU": {"total": 8}}, "resource_provider_generation": 0}
        put("PUT", f"/resource_providers/{HOST}/inventories", inventories)
        yield made


@settings(max_examples=examples(800), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_drawn_request_is_answered_or_refused(
    app: Application, caplog: pytest.LogCaptureFixture, data: st.DataObject
) -> None:
    route = data.draw(st.sampled_from(sorted(app.routes)))
    path = "".join(
        data.draw(st.one_of(st.sampled_from(KNOWN), texts, raw)) if part.startswith("{") else part
        for part in route.replace("{", "\1{").replace("}", "}\1").split("\1")
    )
    path = data.draw(st.one_of(st.just(path), texts.map(lambda text: f"/{text}")))
    query = data.draw(
        st.one_of(
            asked.map(lambda said: webob.multidict.MultiDict(said)).map(_encoded),
            plain,
            st.just(""),
        )
    )
    body = data.draw(bodies)
    environ: dict[str, Any] = {
        "REQUEST_METHOD": data.draw(methods),
        "SCRIPT_NAME": "",
        "PATH_INFO": path.encode("utf-8", "surrogatepass").decode("latin-1"),
        "QUERY_STRING": query,
        "SERVER_NAME": "lab",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(body),
        "wsgi.errors": io.StringIO(),
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
        "HTTP_HOST": "lab",
        "HTTP_X_AUTH_TOKEN": "admin",
        "CONTENT_TYPE": "application/json",
        "CONTENT_LENGTH": str(len(body)),
        "HTTP_OPENSTACK_API_VERSION": data.draw(versions),
        **data.draw(headers),
    }
    told: list[str] = []
    kinds: list[str] = []

    def start_response(status: str, said: list[tuple[str, str]], *rest: Any) -> Any:
        told.append(status)
        kinds.extend(value for name, value in said if name.lower() == "content-type")
        return told.append

    caplog.clear()
    with caplog.at_level(logging.ERROR):
        text = b"".join(app(environ, start_response)).decode()
    status = int(told[0].split()[0])
    assert 200 <= status < 500 or (status == 503 and "cut short" in text), (environ, text)
    assert "Traceback" not in text + caplog.text
    if status >= 400 and kinds == ["application/json"]:  # else it was asked for in HTML, or text
        [error] = json.loads(text)["errors"]
        assert error["status"] == status
        assert error["detail"].strip(), "the cause is told"
        assert error["request_id"].startswith("req-")


def _encoded(said: Any) -> str:
    return urlencode(list(said.items()), errors="surrogatepass")


# --- requests of which one thing is wrong ---

_CARD, _RACK = "1fa4cd25-8a38-4bb3-8a37-7b5d4a6f6f33", "2fa4cd25-8a38-4bb3-8a37-7b5d4a6f6f33"
_FIGURES = {
    "total": 8,
    "reserved": 1,
    "min_unit": 1,
    "max_unit": 4,
    "step_size": 1,
    "allocation_ratio": 2.5,
}
#: In place of these stand the generation that the host is at, and that of the consumer.
_NOW, _WRITTEN = "the generation now", "as often as it was written"
_AT = {"resource_provider_generation": _NOW}
_WHOSE = {"project_id": "lab", "user_id": "ann", "consumer_type": "JOB"}
_HOLDS = {
    "allocations": {HOST: {"resources": {"VCPU": 1}, "generation": 3}},
    "consumer_generation": _WRITTEN,
    "mappings": {"": [HOST]},
    **_WHOSE,
}
_ASKED = {
    "resources": {"VCPU": 1},
    "groups": [{"suffix": "_A", "resources": "PGPU=1", "required": ["HW_CPU_X86_AVX"]}],
    "group_policy": "isolate",
    "same_subtree": [["_A"]],
    "root_forbidden": ["CUSTOM_A"],
    "near": "numa",
    "near_policy": "preferred",
    "member_of": [[_RACK]],
}
_OF_HOST = f"/resource_providers/{HOST}"
#: Requests that are right, or nearly so: what is wrong with one is drawn.
RIGHT: list[tuple[str, str, Any]] = [
    ("POST", "/resource_providers", {"name": "x", "uuid": _CARD, "parent_provider_uuid": HOST}),
    ("PUT", _OF_HOST, {"name": "host0", "parent_provider_uuid": None}),
    ("PUT", f"{_OF_HOST}/inventories", {"inventories": {"VCPU": _FIGURES}, **_AT}),
    ("PUT", f"{_OF_HOST}/inventories/VCPU", {**_FIGURES, **_AT}),
    ("POST", f"{_OF_HOST}/inventories", {"resource_class": "DISK_GB", **_FIGURES}),
    ("DELETE", f"{_OF_HOST}/inventories/DISK_GB", None),
    ("PUT", f"{_OF_HOST}/aggregates", {"aggregates": [_RACK], **_AT}),
    ("PUT", f"{_OF_HOST}/traits", {"traits": ["HW_CPU_X86_AVX"], **_AT}),
    ("PUT", f"/allocations/{JOB}", _HOLDS),
    (
        "POST",
        "/allocations",
        {JOB: _HOLDS, _CARD: {**_HOLDS, "allocations": {}, "consumer_generation": None}},
    ),
    (
        "POST",
        "/reshaper",
        {"inventories": {HOST: {"inventories": {"VCPU": _FIGURES}, **_AT}}, "allocations": {}},
    ),
    ("POST", "/resource_classes", {"name": "CUSTOM_A"}),
    ("PUT", "/resource_classes/CUSTOM_A", None),
    ("DELETE", "/resource_classes/CUSTOM_A", None),
    ("PUT", "/traits/CUSTOM_A", None),
    ("DELETE", f"/allocations/{JOB}", None),
    ("GET", "/resource_providers?name=host0&resources=VCPU:1&required=HW_CPU_X86_AVX", None),
    ("GET", f"/resource_providers?member_of=in:{_RACK}&in_tree={HOST}&uuid={HOST}", None),
    ("GET", "/usages?project_id=lab&user_id=ann&consumer_type=JOB", None),
    ("GET", "/traits?name=startswith:HW&associated=true", None),
    ("GET", "/allocation_candidates?resources=VCPU:1&resources_A=PGPU:1&limit=5", None),
    ("GET", "/allocation_candidates?resources_A=VCPU:1&required_A=!CUSTOM_A&same_subtree=_A", None),
    ("POST", "/ro/search", {"request": _ASKED, "limit": 3, "seed": 4, "order": "pack"}),
    ("POST", "/ro/search", {"request": "VCPU=1", "order": {"by": "pack", "weights": {"VCPU": 1}}}),
    ("POST", "/ro/search", {"request": "NUMA_TOPOLOGY=2:dedicated=4", "limits": {HOST: "VCPU=4"}}),
    ("POST", "/ro/claims", {"consumer": "a/b", "request": _ASKED, "expires_in": 50, "user": "u"}),
    (
        "PUT",
        "/ro/consumers/c",
        {"allocations": [{"provider": HOST, "resource_class": "VCPU", "amount": 1, "units": []}]},
    ),
    ("PATCH", "/ro/consumers/c", {"expires_at": "2099-01-01T00:00:00Z", "operation": JOB}),
    ("GET", "/ro/consumers?limit=4&after=a&state=held&tree=host0&user=ann", None),
    ("DELETE", f"/ro/consumers/c?operation={_RACK}", None),
    ("GET", "/ro/providers?limit=4&after=host0&room=VCPU%3D1&required=CUSTOM_A", None),
    (
        "PUT",
        "/ro/trees/lab-0",
        {
            "definition": {
                "inventories": {"VCPU": {"total": 8, "allocation_ratio": 2}},
                "children": {"/gpu[0-3]": {"inventories": "PGPU=1", "disabled": "fan"}},
            },
            "generations": {"lab-0": 1},
            "prune": False,
        },
    ),
    ("DELETE", "/ro/trees/lab-0", None),
    ("PUT", "/ro/disabled/host0", {"reason": "fan", "until": "2099-01-01T00:00:00Z"}),
    ("DELETE", "/ro/disabled/host0", None),
    ("GET", "/ro/feed?after=7:1=5@9&limit=4&wait=0", None),
]


def _places(body: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the place of each value in a body."""
    yield place
    if isinstance(body, dict | list):
        for key, value in body.items() if isinstance(body, dict) else enumerate(body):
            yield from _places(value, (*place, key))


def _with(body: Any, place: tuple[Any, ...], value: Any, key: str | None) -> Any:
    """Return a body with another value in a place, or one more, or the same by another key."""
    if not place:
        return value
    first, *rest = place
    if isinstance(body, list):
        changed = _with(body[first], tuple(rest), value, key)
        return [changed if number == first else one for number, one in enumerate(body)]
    made = {**body, first: _with(body[first], tuple(rest), value, key)}
    if key is not None and not rest:
        made[key] = body[first]
    return made


@st.composite
def nearly_right(draw: st.DrawFn) -> tuple[str, str, bytes | None]:
    """Return a method, a path with its query, and a body."""
    method, path, body = draw(st.sampled_from(RIGHT))
    if body is not None and draw(st.integers(0, 4)):
        place = draw(st.sampled_from(list(_places(body))))
        key = draw(st.one_of(st.none(), texts))
        return method, path, json.dumps(_with(body, place, draw(values), key)).encode()
    parts = re.split(r"([/?&=:])", path)
    number = 2 * draw(st.integers(1, len(parts) // 2))
    said = draw(st.one_of(texts, numbers.map(str), st.just(parts[number] * 2)))
    parts[number] = quote(said, safe=":,!", errors="surrogatepass")
    return method, "".join(parts), None if body is None else json.dumps(body).encode()


@settings(max_examples=examples(500), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(asked=nearly_right(), minor=st.integers(0, 39))
def test_a_request_of_which_one_thing_is_wrong_is_answered_or_refused(
    crowded: Application,
    caplog: pytest.LogCaptureFixture,
    asked: tuple[str, str, bytes | None],
    minor: int,
) -> None:
    method, url, body = asked
    version = f"placement 1.{minor if minor % 2 else 39}"
    headers = {"x-auth-token": "admin", "accept": "application/json"}
    if not url.startswith("/ro"):
        headers["openstack-api-version"] = version
    path, _, query = url.partition("?")
    request = webob.Request.blank("/", method=method, headers=headers)
    request.environ |= {"PATH_INFO": unquote_to_bytes(path).decode("latin-1")}
    request.environ["QUERY_STRING"] = query
    if body is not None:
        for mark, value in _marks(crowded).items():
            body = body.replace(json.dumps(mark).encode(), json.dumps(value).encode())
        request.body, request.content_type = body, "application/json"
    caplog.clear()
    with caplog.at_level(logging.ERROR):
        response = request.get_response(crowded)
    text = response.text if response.body else ""
    assert response.status_int < 500 or "cut short" in text, (method, url, body, text)
    assert "Traceback" not in text + caplog.text
    if response.status_int >= 400:
        [error] = response.json["errors"]
        assert error["status"] == response.status_int
        assert error["detail"].strip(), "the cause is told"


def _marks(app: Application) -> dict[str, int | None]:
    """Return what stands in place of marks."""
    [host] = app.ledger.providers(uuid=HOST)
    held = app.ledger.backend.consumer(JOB)
    now = host.definition_writes + host.allocation_writes
    return {_NOW: now, _WRITTEN: None if held is None else held.writes}


@pytest.fixture
def crowded(everywhere_url: str) -> Iterator[Application]:
    """A service of each kind of ledger, with some of what is asked for."""
    with contextlib.closing(application(everywhere_url, auth="noauth2", policy="open")) as app:
        host = ro.Provider("host0", "VCPU=8,PGPU=2", uuid=HOST, aggregates=[_RACK])
        app.ledger.sync(host, ro.Provider("host1", "VCPU=8"))
        app.ledger.claim("c", {"host1": "VCPU=1"})
        yield app


# --- over a socket ---

_LINES = st.sampled_from(
    [
        *(
            b"GET / HTTP/1.1",
            b"GET /%00 HTTP/1.1",
            b"GET /%ff%fe/%2e%2e HTTP/1.1",
            b"GET",
            b"\x16\x03",
        ),
        *(b"POST /resource_providers HTTP/1.1", b"GET http://[ HTTP/1.1", b"PRI * HTTP/2.0"),
        *(b"GET / HTTP/9.9", b"BREW / HTTP/1.1", b"GET /\xff HTTP/1.1", b"get / HTTP/1.0", b" "),
        b"GET /" + b"a" * 9000 + b" HTTP/1.1",
        b"GET /resource_providers?name=%FF%00&" + b"a=b&" * 1000 + b" HTTP/1.1",
    ]
)
_HEADERS = st.lists(
    st.one_of(
        st.sampled_from(
            [
                *(
                    b"Content-Length: -1",
                    b"Content-Length: 1e3",
                    b"Content-Length: 99999999999999999",
                ),
                *(b"Content-Length: 5\r\nContent-Length: 6", b"Transfer-Encoding: chunked"),
                *(
                    b"Transfer-Encoding: gzip, chunked",
                    b"Transfer-Encoding: x",
                    b"Host:",
                    b"Host: a:b",
                ),
                *(b"X-Auth-Token: admin", b"X_Auth_Token: admin", b"x: " + b"y" * 9000, b": z"),
                *(b"Expect: 100-continue", b"Connection: upgrade", b"Upgrade: h2c", b" folded"),
                *(b"Content-Type: application/json", b"Accept: \xff", b"Content-Length: 2"),
                b"\r\n".join(b"h%d: x" % n for n in range(200)),
            ]
        ),
        st.binary(max_size=20),
    ),
    max_size=4,
)
_ENDS = st.sampled_from(
    [b"\r\n\r\n", b"\n\n", b"\r\n\r\n{}", b"\r\n\r\nffffffff\r\n", b"\r\n\r\n-1\r\n"]
)


@settings(max_examples=examples(400))
@given(line=st.one_of(_LINES, st.binary(max_size=60)), said=_HEADERS, end=_ENDS)
def test_bytes_that_are_no_request_are_refused(
    service: Served, line: bytes, said: list[bytes], end: bytes
) -> None:
    with socket.create_connection(("127.0.0.1", service.port), 30) as one:
        with contextlib.suppress(ConnectionError):
            one.sendall(b"\r\n".join([line, *said]) + end)
            one.shutdown(socket.SHUT_WR)
        found = b""
        with contextlib.suppress(ConnectionError):
            while len(found) < 100_000 and (came := one.recv(65536)):
                found += came
    found = found.removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")  # who said that he waits for it
    answered = found.startswith((b"HTTP/1.1 2", b"HTTP/1.1 4", b"HTTP/1.0 2", b"HTTP/1.0 4"))
    assert answered or not found, found
    assert b"Traceback" not in found
    assert "Traceback" not in service.log
