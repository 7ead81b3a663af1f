"""``resource-objects serve``: several processes on one database, stopped gracefully."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
from pathlib import Path

import pytest
import sqlalchemy as sa
import webob
from sqlalchemy.pool import NullPool

from resource_objects import clock
from resource_objects.backends.sql.backend import SQLBackend
from resource_objects.cli.main import main
from resource_objects.rest import application, serving
from resource_objects.rest.serving import RETRY_AFTER, RetryingStart, serve
from resource_objects.rest.wsgi import Application
from resource_objects.testing.refusals import raises_code
from tests import databases
from tests.conftest import require_server
from tests.support.patience import until
from tests.support.served import Served, served


def test_each_request_is_a_line_of_the_log_with_its_id(service: Served) -> None:
    assert service.ask("GET", "/health")[0] == 200
    line = r'req-[-0-9a-f]{36} 127\.0\.0\.1 "GET /health" status: 200 len: \d+ microversion: 1\.39'
    assert re.search(line, service.log)
    of = "req-1fa4cd25-8a38-4bb3-8a37-7b5d4a6f6f33"
    for said in (of, f"{of}\t10.9.8.7 GET", "req-1"):
        assert service.ask("GET", "/ro", headers={"x-openstack-request-id": said})[0] == 200
    line = rf'req-[-0-9a-f]{{36}} \(of {of}\) 127\.0\.0\.1 "GET /ro" .* microversion: 1\.0\n'
    assert len(re.findall(line, service.log)) == service.log.count("(of ") == 1
    assert ".ctl" not in service.log, "nobody steers it by a file in a home"


def test_workers_are_replaced_and_end_what_they_began(service: Served) -> None:
    """By SIGHUP, as systemd reloads it: half of a request stands in an old worker meanwhile."""
    said = b"GET /resource_providers HTTP/1.1\r\nhost: lab\r\nx-auth-token: admin\r\n\r\n"
    before = set(service.workers)
    with socket.create_connection(("127.0.0.1", service.port), 30) as one:
        one.sendall(said[:20])
        assert service.is_up()
        service.process.send_signal(signal.SIGHUP)
        until(lambda: len(set(service.workers) - before) == len(before))
        assert service.ask("GET", "/resource_providers")[0] == 200
        one.sendall(said[20:])
        assert one.recv(12) == b"HTTP/1.1 200"
    until(lambda: before.isdisjoint(service.workers))


def test_a_worker_that_cannot_begin_refuses_until_it_can(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A policy file has a slip while a worker begins: gunicorn would end all the others, too."""
    policy = tmp_path / "policy.yaml"
    policy.write_text("placement:usages: nobody\n")
    now = [100.0]
    monkeypatch.setattr(clock, "monotonic", lambda: now[0])
    made: list[Application] = []

    def make() -> Application:
        made.append(application("memory://", auth="noauth2", policy=str(policy)))
        return made[-1]

    opening = RetryingStart(make)

    def ask() -> webob.Response:
        headers = {"x-auth-token": "admin", "openstack-api-version": "placement 1.39"}
        return webob.Request.blank("/traits", headers=headers).get_response(opening)

    refused = ask()
    assert refused.status_int == 503
    [error] = refused.json["errors"]
    assert error["request_id"] == refused.headers["x-openstack-request-id"]
    assert "the log tells why" in error["detail"]
    assert caplog.text.count("a worker cannot serve yet: policy: got") == 1
    policy.write_text("placement:usages: role:admin\n")
    assert ask().status_int == 503, "it is not tried with each request"
    now[0] += RETRY_AFTER
    assert [ask().status_int for _ in range(2)] == [200, 200]
    assert len(made) == 1
    made[0].close()


@pytest.mark.long
def test_a_service_outlives_its_database(scratch: databases.Scratch, tmp_path: Path) -> None:
    """PostgreSQL lets nobody in for a while, in which a worker dies: then all are there again."""
    require_server("postgresql")
    url = scratch.create("postgresql")
    SQLBackend.upgrade_database(url)
    name = sa.make_url(url).database
    admin = sa.create_engine(
        sa.make_url(url).set(database="postgres"), isolation_level="AUTOCOMMIT", poolclass=NullPool
    )

    def let_in(everybody: bool) -> None:
        with admin.connect() as connection:
            connection.execute(sa.text(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS {everybody}'))
            if not everybody:
                ask = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = :name"
                connection.execute(sa.text(ask), {"name": name})

    with served(tmp_path, url) as service:
        assert service.ask("GET", "/health")[0] == 200
        before = set(service.workers)
        let_in(False)
        os.kill(min(before), signal.SIGKILL)
        until(lambda: len(set(service.workers) - {min(before)}) == len(before))
        until(lambda: "a worker cannot serve yet" in service.log)
        for _ in range(10):
            status, told = service.ask("GET", "/health", headers={"x-auth-token": ""})
            assert status == 503
            assert name not in str(told), "to everybody it is not told where it is"
        let_in(True)
        until(lambda: all(service.ask("GET", "/health")[0] == 200 for _ in range(10)))
        assert service.ask("POST", "/ro/search", {"request": "VCPU=1"})[0] == 200
    scratch.drop(url)


@pytest.mark.long
def test_counts_are_sent_to_statsd(tmp_path: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as statsd:
        statsd.bind(("127.0.0.1", 0))
        statsd.settimeout(30)
        options = ["--statsd", f"127.0.0.1:{statsd.getsockname()[1]}"]
        with served(tmp_path, f"sqlite:///{tmp_path}/lab.db", *options) as service:
            assert service.ask("GET", "/traits")[0] == 200
            missing = {b"request.status.200:1|c", b"request.duration:", b"workers:2|g"}
            while missing:
                told = statsd.recv(1000).removeprefix(b"resource_objects.gunicorn.")
                missing = {one for one in missing if not told.startswith(one)}


def test_no_header_says_for_whom_or_for_which_path_somebody_asks(service: Served) -> None:
    forged = {"x-forwarded-for": "10.9.8.7", "path_info": "/traits", "script_name": "/health"}
    status, found = service.ask("GET", "/health", headers=forged | {"x-auth-token": ""})
    assert (status, set(found)) == (200, {"now"})
    assert "10.9.8.7" not in service.log


def test_who_believes_any_token_listens_on_loopback_only(monkeypatch: pytest.MonkeyPatch) -> None:
    with raises_code("InvalidField", match=r"bind: got '0\.0\.0\.0:8778'"):
        serve("sqlite:///lab.db", "0.0.0.0:8778", auth="noauth2")
    with raises_code("InvalidField", match="database: got 'memory://'"):
        serve("memory://", auth="noauth2")
    with raises_code("InvalidField", match="workers: got 0"):
        serve("sqlite:///lab.db", auth="noauth2", workers=0)
    with raises_code("InvalidField", match="statsd: got 'here'"):
        serve("sqlite:///lab.db", auth="noauth2", statsd="here")
    monkeypatch.setenv("LISTEN_PID", str(os.getpid()))  # systemd hands over sockets, of any address
    with raises_code("InvalidField", match=r"bind: got '127\.0\.0\.1:8778'"):
        serve("sqlite:///lab.db", auth="noauth2")


@pytest.mark.parametrize(
    ("bind", "warned"), [("127.0.0.1:8778", False), ("unix:/run/a", False), ("0.0.0.0:8778", True)]
)
def test_passwords_in_the_clear_are_warned_of(
    bind: str,
    warned: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    passwords, roles = tmp_path / "passwords", tmp_path / "roles"
    passwords.write_text("ann:$2y$05$" + "a" * 53)
    roles.write_text("ann:admin")
    monkeypatch.setattr(serving._Server, "run", lambda self: None)
    monkeypatch.setattr(serving, "_log_to_stderr", lambda: None)
    files = {"password_file": passwords, "roles_file": roles}
    serve(f"sqlite:///{tmp_path}/lab.db", bind, auth="http_basic", **files)
    assert ("passwords are sent to" in caplog.text) == warned


def test_a_misuse_of_the_command_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--database", "memory://", "serve", "--auth", "noauth2"]) == 2
    assert "database: got 'memory://'" in capsys.readouterr().err


def test_nobody_is_believed_unless_it_is_said_by_whom(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--database", "sqlite:///lab.db", "serve"]) == 2
    assert "required: --auth" in capsys.readouterr().err
    for made in (application, serve):
        with pytest.raises(TypeError, match="'auth'"):
            made("memory://")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("address", "status"),
    [
        *(("127.0.0.1", 200), ("::1", 200), ("::ffff:127.0.0.1", 200), ("", 200), (None, 200)),
        *(("10.0.0.7", 403), ("::ffff:10.0.0.7", 403), ("2001:db8::7", 403)),
    ],
)
def test_a_token_is_believed_of_this_machine_alone(address: str | None, status: int) -> None:
    """Whatever server the application runs under, which may listen anywhere."""
    with contextlib.closing(application("memory://", auth="noauth2")) as app:
        request = webob.Request.blank("/traits", headers={"x-auth-token": "admin"})
        request.headers["openstack-api-version"] = "placement 1.39"
        if address is not None:
            request.environ["REMOTE_ADDR"] = address
        assert request.get_response(app).status_int == status


def test_options_of_keystone_without_it_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["--database", f"sqlite:///{tmp_path}/lab.db", "serve"]
    assert main([*command, "--auth", "noauth2", "--keystone", "auth_url=x"]) == 2
    assert "--keystone: it needs --auth keystone" in capsys.readouterr().err
    assert main([*command, "--auth", "keystone", "--keystone", "secret"]) == 2
    assert "--keystone: got 'secret', expected KEY=VALUE" in capsys.readouterr().err
    assert main([*command, "--auth", "keystone", "--keystone-file", "nowhere.conf"]) == 2
    assert "keystone_file: got 'nowhere.conf'" in capsys.readouterr().err
