"""``http_basic``: who has a password, and which roles; both files are read again when changed."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import bcrypt
import pytest
import webob

from resource_objects.rest import application
from resource_objects.rest.auth import HTTPBasic
from resource_objects.rest.wsgi import Application
from resource_objects.testing.refusals import raises_code

WORDS = {"root": "geheim", "ann": "p:w äöü", "bob": "b"}


def crypted(password: str) -> str:
    return bcrypt.hashpw(password.encode(), bcrypt.gensalt(4)).decode()


@pytest.fixture(scope="module")
def digests() -> dict[str, str]:
    return {user: crypted(password) for user, password in WORDS.items()}


@pytest.fixture
def files(tmp_path: Path, digests: dict[str, str]) -> tuple[Path, Path]:
    """The file of passwords, and that of roles."""
    passwords, roles = tmp_path / "passwords", tmp_path / "roles"
    lines = [f"{user}:{digest}" for user, digest in digests.items()]
    passwords.write_text("# the lab\n" + "\n".join(lines) + "\n\n")
    roles.write_text("root:admin,service\nann:reader:lab\n")
    return passwords, roles


@pytest.fixture
def app(files: tuple[Path, Path]) -> Iterator[Application]:
    passwords, roles = files
    made = application("memory://", auth="http_basic", password_file=passwords, roles_file=roles)
    yield made
    made.close()


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def ask(app: Application, path: str, authorization: str | None, **headers: str) -> webob.Response:
    said = {"openstack-api-version": "placement 1.39", **headers}
    if authorization is not None:
        said["authorization"] = authorization
    return webob.Request.blank(path, headers=said).get_response(app)


def test_a_password_makes_somebody_who_the_file_says(app: Application) -> None:
    for _ in range(2):  # by bcrypt, and as it is remembered
        assert ask(app, "/traits", basic("root", "geheim")).status_int == 200
    ann = basic("ann", WORDS["ann"])
    assert ask(app, "/traits", ann).status_int == 403
    assert ask(app, "/usages?project_id=lab", ann).status_int == 200
    assert ask(app, "/usages?project_id=other", ann).status_int == 403
    assert ask(app, "/traits", basic("bob", "b")).status_int == 403, "of him it says nothing"


@pytest.mark.parametrize(
    "said",
    [
        None,
        "",
        "Basic",
        "Basic geheim",
        "Basic " + base64.b64encode(b"\xff\xfe:x").decode(),
        "Basic " + base64.b64encode(b"root").decode(),
        "Bearer abc",
        basic("root", ""),
        basic("root", "geheim "),
        basic("nobody", "geheim"),
        basic("", "geheim"),
        basic("root", "x" * 200),
        basic("root", "\0"),
        basic("root", "geheim\0"),
        basic("ann\n2026 root was here", "b"),
    ],
)
def test_everybody_else_is_asked_for_one(
    app: Application, said: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    forged = {"x-roles": "admin", "x-auth-token": "admin", "x-user-id": "root"}
    response = ask(app, "/traits", said, **forged)
    assert response.status_int == 401
    assert response.headers["www-authenticate"] == 'Basic realm="placement", charset="UTF-8"'
    [error] = response.json["errors"]
    assert "A valid user and password are required." in error["detail"]
    assert "geheim" not in caplog.text
    assert "\n2026" not in caplog.text


def test_the_versions_and_the_health_need_none(app: Application) -> None:
    for path in ("/", "/health"):
        assert ask(app, path, None).status_int == 200


def test_a_refusal_behind_it_is_no_wrong_password(app: Application) -> None:
    response = ask(app, "/resource_providers?member_of=x", basic("root", "geheim"))
    assert response.status_int == 400


def test_files_count_from_when_they_were_changed(
    app: Application, files: tuple[Path, Path], digests: dict[str, str]
) -> None:
    passwords, roles = files
    root, bob = basic("root", "geheim"), basic("bob", "b")
    assert [ask(app, "/traits", one).status_int for one in (root, bob)] == [200, 403]
    roles.write_text("bob: admin\n")
    assert [ask(app, "/traits", one).status_int for one in (root, bob)] == [403, 200]
    passwords.write_text(f"root:{digests['root']}\nbob:{crypted('new')}\n")
    new = basic("bob", "new")
    assert [ask(app, "/traits", one).status_int for one in (bob, new)] == [401, 200]
    passwords.write_text("root:geheim\n")
    response = ask(app, "/traits", new)
    assert response.status_int == 503
    assert "The password file cannot be read; the log tells why." in response.text
    passwords.write_text(f"bob:{crypted('new')}\n")
    assert ask(app, "/traits", new).status_int == 200


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("root:geheim", "line 1: expected 'user:"),
        ("root:$apr1$x$y", "line 1: expected 'user:"),
        ("root:$2y$05$short", "line 1: expected 'user:"),
        ("root", "line 1: expected 'user:"),
        ("\n\n:{digest}", "line 3: expected 'user:"),
        ("root:{digest}\nroot:{digest}", "line 2: expected 'user:.*' once for each"),
        ("# nobody yet\n", "there is none"),
    ],
)
def test_a_bad_file_of_passwords_is_refused_at_the_start(
    files: tuple[Path, Path], digests: dict[str, str], said: str, why: str
) -> None:
    passwords, roles = files
    passwords.write_text(said.format(digest=digests["root"]))
    with raises_code("InvalidField", match=f"password_file.*{why}") as refused:
        HTTPBasic(passwords, roles)
    assert "geheim" not in str(refused.value)


@pytest.mark.parametrize("said", ["root", ":admin", "root:admin:lab:x", "root:admin\nroot:admin"])
def test_a_bad_file_of_roles_is_refused_at_the_start(files: tuple[Path, Path], said: str) -> None:
    passwords, roles = files
    roles.write_text(said)
    with raises_code("InvalidField", match=r"roles_file.*line \d: expected user:role"):
        HTTPBasic(passwords, roles)


def test_files_are_said_where_they_are_looked_at(files: tuple[Path, Path], tmp_path: Path) -> None:
    passwords, roles = files
    with raises_code("InvalidField", match="roles_file: got None"):
        application("memory://", auth="http_basic", password_file=passwords)
    with raises_code("InvalidField", match="password_file: got "):
        application("memory://", auth="noauth2", password_file=passwords, roles_file=roles)
    with raises_code("InvalidField", match="No such file"):
        HTTPBasic(tmp_path / "nowhere", roles)
