"""``keystone``: whom Keystone knows is believed; a small one answers for it, by its API v3."""

from __future__ import annotations

import contextlib
import json
import threading
import urllib.parse
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import webob

from resource_objects.rest import application
from resource_objects.rest.wsgi import Application
from resource_objects.testing.refusals import raises_code
from tests.support.served import served

pytestmark = pytest.mark.filterwarnings("ignore")  # of what keystonemiddleware is made with

LAB, PAST, FUTURE = (
    "1fa4cd258a384bb38a377b5d4a6f6f33",
    "2020-01-01T00:00:00Z",
    "2990-01-01T00:00:00Z",
)
WORD = "geheim-of-the-service"


#: Where Keystone is, told when it is known.
ENDPOINTS: list[dict[str, str]] = []


def token(*roles: str, expires: str = FUTURE, **scope: Any) -> dict[str, Any]:
    """Return what Keystone says of a token."""
    domain = {"id": "default", "name": "Default"}
    return {
        "methods": ["password"],
        "user": {"id": "ann", "name": "ann", "domain": domain},
        "issued_at": "2019-01-01T00:00:00Z",
        "expires_at": expires,
        "audit_ids": ["x"],
        "catalog": [{"type": "identity", "name": "keystone", "id": "k", "endpoints": ENDPOINTS}],
        "roles": [{"id": role, "name": role} for role in roles],
        **(scope or {"project": {"id": LAB, "name": "lab", "domain": domain}}),
    }


TOKENS = {
    "of-admin": token("admin", "manager", "member", "reader"),
    "of-service": token("service"),
    "of-reader": token("reader"),
    "of-system": token("admin", "reader", system={"all": True}),
    "of-domain": token("admin", domain={"id": "default", "name": "Default"}),
    "unscoped": {k: v for k, v in token("x").items() if k not in ("roles", "project", "catalog")},
    "expired": token("admin", expires=PAST),
}


class Keystone(BaseHTTPRequestHandler):
    """Versions, a token for who validates, and what tokens are."""

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        if path.rstrip("/") == "/v3/auth/tokens":
            said = TOKENS.get(self.headers["X-Subject-Token"])
            late = said is not None and said["expires_at"] == PAST
            if said is None or (late and "allow_expired" not in urllib.parse.parse_qs(query)):
                self._tell(404, {"error": {"code": 404, "message": "no such token"}})
            else:
                self._tell(200, {"token": said})
            return
        host, port = self.server.server_address[:2]
        links = [{"rel": "self", "href": f"http://{host!s}:{port}/v3/"}]
        version = {"id": "v3.14", "status": "stable", "links": links}
        if path.rstrip("/") == "/v3":
            self._tell(200, {"version": version})
        else:
            self._tell(300, {"versions": {"values": [version]}})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self._tell(201, {"token": token("service")}, {"X-Subject-Token": "of-service"})

    def _tell(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"content-length": str(len(text)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def keystone() -> Iterator[str]:
    """Return where Keystone is."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Keystone)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}"
    faces = ("admin", "internal", "public")
    ENDPOINTS[:] = [
        {"interface": one, "url": f"{url}/v3", "region": "lab", "region_id": "lab", "id": one}
        for one in faces
    ]
    try:
        yield url
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(scope="module")
def file(keystone: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The section of a Placement's configuration."""
    path = tmp_path_factory.mktemp("keystone") / "placement.conf"
    options = {
        "www_authenticate_uri": keystone,
        "auth_url": keystone,
        "auth_type": "password",
        "username": "placement",
        "password": WORD,
        "project_name": "service",
        "user_domain_id": "default",
        "project_domain_id": "default",
        "service_token_roles_required": "true",
    }
    lines = [f"{key} = {value}" for key, value in options.items()]
    path.write_text("[keystone_authtoken]\n" + "\n".join(lines) + "\n[placement_database]\nx = y\n")
    return path


@pytest.fixture(scope="module")
def app(file: Path) -> Iterator[Application]:
    made = application("memory://", auth="keystone", keystone_file=file)
    with contextlib.closing(made):
        yield made


def ask(app: Application, path: str, said: str | None, **headers: str) -> webob.Response:
    sent = {"openstack-api-version": "placement 1.39"}
    sent |= {name.replace("_", "-"): value for name, value in headers.items()}
    if said is not None:
        sent["x-auth-token"] = said
    return webob.Request.blank(path, headers=sent).get_response(app)


@pytest.mark.parametrize(
    ("said", "traits", "own", "others"),
    [
        ("of-admin", 200, 200, 200),
        ("of-service", 200, 200, 200),
        ("of-reader", 403, 200, 403),
        ("of-system", 403, 403, 403),
        ("of-domain", 403, 403, 403),
        ("unscoped", 403, 403, 403),
        ("expired", 401, 401, 401),
        ("unknown", 401, 401, 401),
        ("admin", 401, 401, 401),
        ("", 401, 401, 401),
        (None, 401, 401, 401),
    ],
)
def test_whom_keystone_knows_may_what_the_policy_says(
    app: Application, said: str | None, traits: int, own: int, others: int
) -> None:
    paths = ("/traits", f"/usages?project_id={LAB}", "/usages?project_id=other")
    assert [ask(app, path, said).status_int for path in paths] == [traits, own, others]


def test_a_refused_token_is_told_where_to_get_another(app: Application, keystone: str) -> None:
    for said in ("expired", "unknown", None):
        response = ask(app, "/traits", said)
        assert response.status_int == 401
        assert response.headers["www-authenticate"] == f'Keystone uri="{keystone}"'
        assert "A valid token of Keystone is needed" in response.json["errors"][0]["detail"]
        assert response.headers["x-openstack-request-id"].startswith("req-")


def test_what_a_client_says_of_itself_is_not_believed(app: Application) -> None:
    forged = {
        "x_identity_status": "Confirmed",
        "x_user_id": "ann",
        "x_roles": "admin,service",
        "x_project_id": LAB,
        "x_service_roles": "service",
    }
    for said, status in (("unknown", 401), (None, 401), ("of-reader", 403)):
        assert ask(app, "/traits", said, **forged).status_int == status


def test_a_service_keeps_on_with_a_token_that_expired_meanwhile(app: Application) -> None:
    """A long operation of a service: the user's token ran out, the service's own is good."""
    assert ask(app, "/traits", "expired", x_service_token="of-service").status_int == 200
    assert ask(app, "/traits", "expired", x_service_token="of-admin").status_int == 401
    assert ask(app, "/traits", "expired", x_service_token="unknown").status_int == 401


def test_the_versions_and_the_health_need_no_token(app: Application) -> None:
    for path in ("/", "/health"):
        for said in (None, "unknown"):
            assert ask(app, path, said).status_int == 200


def test_nothing_secret_is_logged(app: Application, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        assert ask(app, "/traits", "of-admin").status_int == 200
        assert ask(app, "/traits", "expired").status_int == 401
    assert "/traits" in caplog.text
    for secret in ("of-admin", "expired", WORD):
        assert secret not in caplog.text


def test_options_go_before_the_file(file: Path, keystone: str) -> None:
    options = {"www_authenticate_uri": "http://other.example"}
    made = application("memory://", auth="keystone", keystone_file=file, keystone=options)
    with contextlib.closing(made):
        told = ask(made, "/traits", "unknown").headers["www-authenticate"]
        assert told == 'Keystone uri="http://other.example"'


@pytest.mark.parametrize(("options", "status"), [({}, 200), ({"token_cache_time": "-1"}, 401)])
def test_a_token_is_asked_for_again_after_some_time(
    file: Path, options: dict[str, str], status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the page says: one that is revoked may be used for five minutes, or as long as is said."""
    monkeypatch.setitem(TOKENS, "of-short-life", token("admin"))
    made = application("memory://", auth="keystone", keystone_file=file, keystone=options)
    with contextlib.closing(made):
        assert ask(made, "/traits", "of-short-life").status_int == 200
        monkeypatch.delitem(TOKENS, "of-short-life")
        assert ask(made, "/traits", "of-short-life").status_int == status


def test_a_keystone_that_does_not_answer_is_no_wrong_token(file: Path) -> None:
    options = {"auth_url": "http://127.0.0.1:1", "http_request_max_retries": "0"}
    made = application("memory://", auth="keystone", keystone_file=file, keystone=options)
    with contextlib.closing(made):
        response = ask(made, "/traits", "of-admin")
        assert response.status_int == 503
        assert "Keystone does not answer." in response.json["errors"][0]["detail"]
        assert ask(made, "/health", None).status_int == 200


@pytest.mark.long
def test_the_command_asks_keystone(file: Path, tmp_path: Path) -> None:
    """As the unit of systemd starts it: several workers, and the file of a Placement."""
    options = ["--auth", "keystone", "--keystone-file", str(file)]
    with served(tmp_path, f"sqlite:///{tmp_path}/lab.db", *options, policy="secure") as service:
        for said, status in (("of-service", 200), ("of-reader", 403), ("expired", 401), ("x", 401)):
            for _ in range(8):  # so that each worker is asked
                assert service.ask("GET", "/traits", headers={"x-auth-token": said})[0] == status
    for secret in ("of-service", "of-reader", WORD):
        assert secret not in service.log


def test_what_keystone_cannot_be_asked_with_is_refused(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.conf"
    wrong.write_text("auth_url\n")
    for path in (wrong, tmp_path / "nowhere.conf"):
        with raises_code("InvalidField", match="keystone_file: got "):
            application("memory://", auth="keystone", keystone_file=path)
    with raises_code("InvalidField", match="keystone"):
        application("memory://", auth="keystone", keystone={"http_connect_timeout": WORD})
    with raises_code("InvalidField", match="auth keystone"):
        application("memory://", auth="noauth2", keystone={"auth_url": "x"})
