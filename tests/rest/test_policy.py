"""Who may do what: every rule, for the default roles, as the page about security says it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import webob

from resource_objects.rest import application, errors
from resource_objects.rest.policy import NAMES, RULES, Policy
from resource_objects.rest.wsgi import Application
from resource_objects.testing.refusals import raises_code

PAGE = Path(__file__).parents[2] / "doc" / "source" / "howto" / "who_may.txt"

OURS = "resource_objects:"
PLACEMENTS = [rule for rule in RULES if rule.startswith("placement:")]

LAB, OTHER = "1fa4cd25-8a38-4bb3-8a37-7b5d4a6f6f33", "6b7c0a9e-0d0f-4f83-9c0b-0a4e8b7c1d2e"

#: Who asks about project LAB; Keystone says of an administrator, or a member, all that it implies.
CALLERS: dict[str, dict[str, Any]] = {
    "admin": {"roles": ["admin", "manager", "member", "reader"], "project_id": OTHER},
    "service": {"roles": ["service"], "project_id": OTHER},
    "member": {"roles": ["member", "reader"], "project_id": OTHER},
    "reader": {"roles": ["reader"], "project_id": OTHER},
    "reader of the project": {"roles": ["reader"], "project_id": LAB},
    "member of the project": {"roles": ["member"], "project_id": LAB},
    "nobody": {"roles": [], "project_id": OTHER},
    "reader of no project": {"roles": ["reader"]},
}


def table() -> list[tuple[str, list[str], dict[str, list[str]]]]:
    """Return the rows of the page: a rule, the requests it is about, and by policy who may."""
    rows = PAGE.read_text().split("   * - ")[1:]
    found = []
    for row in rows[1:]:
        rule, requests, secure, legacy = (cell.strip() for cell in row.split("\n     - "))
        said = {"secure": secure.split(", "), "legacy": legacy.split(", "), "open": [*CALLERS]}
        guarded = [one.strip("`") for one in requests.split(", ")]
        found.append((f"placement:{rule.strip('`')}", guarded, said))
    return found


def test_the_page_has_every_rule_and_every_request() -> None:
    rows = table()
    assert [rule for rule, _, _ in rows] == PLACEMENTS
    app = application("memory://", auth="noauth2")
    try:
        said = {request: rule for rule, requests, _ in rows for request in requests}
        assert said == {
            f"{method} {path}": rule
            for path, methods in app.routes.items()
            for method, rule in methods.items()
            if rule is not None and rule.startswith("placement:")
        }
        unguarded = [path for path, methods in app.routes.items() if None in methods.values()]
        assert unguarded == ["/", "/health", "/ro", "/ro/openapi.json"]
    finally:
        app.close()


@pytest.mark.parametrize("name", NAMES)
def test_who_may_do_what(name: str) -> None:
    policy = Policy(name)
    for rule, _, who in table():
        may = [one for one, creds in CALLERS.items() if policy.allows(rule, _target(), creds)]
        assert may == who[name], rule


def _target() -> dict[str, Any]:
    return {"project_id": LAB}


@pytest.mark.parametrize("name", NAMES)
def test_who_may_do_what_is_not_placements(name: str) -> None:
    """The native API has rules of its own, which let in whom the others do."""
    assert set(RULES) - set(PLACEMENTS) == {rule for rule in RULES if rule.startswith(OURS)}
    policy = Policy(name)
    who = {"secure": ["admin", "service"], "legacy": ["admin"], "open": [*CALLERS]}[name]
    for rule in RULES[len(PLACEMENTS) :]:
        assert [one for one, creds in CALLERS.items() if policy.allows(rule, {}, creds)] == who


@pytest.mark.parametrize("scope", [{"system_scope": "all"}, {"domain_id": LAB}])
def test_a_token_for_no_project_does_nothing(scope: Mapping[str, str]) -> None:
    """Placement's rules are all about projects; ``open`` is too."""
    for name in NAMES:
        policy = Policy(name)
        assert not any(
            policy.allows(rule, _target(), {"roles": ["admin", "service"]} | scope)
            for rule in RULES
        )


def _asked(app: Application, request: str, who: Mapping[str, Any]) -> int:
    method, _, path = request.partition(" ")
    for word in ("uuid", "consumer_uuid"):
        path = path.replace(f"{{{word}}}", LAB)
    path = path.replace("{name}", "CUSTOM_A")
    headers = {
        "x-auth-token": f"ann:{who.get('project_id', '')}",
        "x-roles": ",".join(who["roles"]),
        "openstack-api-version": "placement 1.39",
        "content-type": "application/json",
    }
    url = f"{path}?project_id={LAB}"
    asked = webob.Request.blank(url, method=method, headers=headers, body=b"{}")
    return int(asked.get_response(app).status_int)


@pytest.mark.parametrize("name", NAMES)
def test_who_may_not_is_refused_before_anything_else(name: str) -> None:
    app = application("memory://", auth="noauth2", policy=name)
    try:
        for _, requests, may in table():
            for request in requests:
                for who in ("admin", "service", "reader of the project", "nobody"):
                    refused = _asked(app, request, CALLERS[who]) == 403
                    assert refused == (who not in may[name]), (request, who)
    finally:
        app.close()


# --- a file ---


def _file(folder: Path, text: str) -> str:
    path = folder / "policy.yaml"
    path.write_text(text)
    return str(path)


def test_a_file_replaces_the_rules_that_it_names(tmp_path: Path) -> None:
    said = '"admin_api": "role:cloud"\n"placement:usages": "role:auditor or rule:admin_api"\n'
    policy = Policy(_file(tmp_path, said))
    reader = CALLERS["reader of the project"]
    assert not policy.allows("placement:usages", _target(), reader)
    for role in ("auditor", "cloud"):
        assert policy.allows("placement:usages", _target(), {"roles": [role]})
    assert policy.allows("placement:traits:list", {}, {"roles": ["service"]})
    assert not policy.allows("placement:reshaper:reshape", {}, {"roles": ["admin"]})
    assert Policy(_file(tmp_path, "")).allows("placement:traits:list", {}, {"roles": ["admin"]})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("placement:usages: role:admin\nplacement:traits: [\n", r"line 3: .*"),
        ("- placement:usages\n", "line 1: expected rules"),
        ("# who\nplacement:trait:list: role:admin\n", "line 2: there is no rule 'placement:trait:"),
        ("placement:usages: role:a\nplacement:usages: role:b\n", "line 2: .* stands on line 1 too"),
        ("placement:usages: admin\n", "line 1: 'placement:usages': expected a check"),
        ("placement:usages: role:admin or admin\n", "line 1: .*: expected a check"),
        ("placement:usages:\n", "line 1: .*: expected a check"),
        ("placement:usages: [role:admin]\n", "line 1: .*: expected a check"),
        ("placement:usages: !\n", "line 1: .*: expected a check"),
        ("\nplacement:usages: rule:nosuch\n", "line 2: .* refers to a rule that there is not"),
        ("a: rule:b\nb: rule:a\n", "line 1: 'a', line 2: 'b': it refers to"),
        ("a: \x00\n", "special characters are not allowed"),
    ],
)
def test_a_bad_file_is_refused_at_the_start(tmp_path: Path, text: str, why: str) -> None:
    with raises_code("InvalidField", match=why):
        application("memory://", auth="noauth2", policy=_file(tmp_path, text))


def test_the_policy_that_freezes_refuses_each_write_and_nothing_else(tmp_path: Path) -> None:
    """As the page about switching a cloud says it, of a Placement and of the service."""
    page = (PAGE.parent / "switch.rst").read_text(encoding="utf-8")
    frozen = re.findall(r'^ +("placement:[a-z_:]+": "!")$', page, re.MULTILINE)
    policy = Policy(_file(tmp_path, "\n".join(frozen)))
    app = application("memory://", auth="noauth2")
    try:
        rules = {
            rule: method
            for methods in app.routes.values()
            for method, rule in methods.items()
            if rule in PLACEMENTS
        }
    finally:
        app.close()
    for rule, method in rules.items():
        assert policy.allows(rule, _target(), {"roles": ["service"]}) == (method == "GET"), rule
        assert not policy.allows(rule, _target(), {"roles": ["reader"]}) or method == "GET"


def test_rules_are_about_the_project_that_is_asked_about_or_else_the_own_one(
    tmp_path: Path,
) -> None:
    own = "'project_id:%(project_id)s'"
    rules = ("placement:usages", "placement:traits:list")
    file = _file(tmp_path, "".join(f"{rule}: {own}\n" for rule in rules))
    app = application("memory://", auth="noauth2", policy=file)
    try:
        asked = {
            path: webob.Request.blank(
                path,
                headers={"x-auth-token": f"ann:{LAB}", "openstack-api-version": "placement 1.39"},
            )
            .get_response(app)
            .status_int
            for path in (f"/usages?project_id={LAB}", f"/usages?project_id={OTHER}", "/traits")
        }
        assert [*asked.values()] == [200, 403, 200]
    finally:
        app.close()


def test_a_file_counts_from_when_it_was_changed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = _file(tmp_path, '"placement:usages": "role:a"\n')
    policy = Policy(path)

    def may(role: str) -> bool:
        return policy.allows("placement:usages", _target(), {"roles": [role]})

    assert (may("a"), may("b")) == (True, False)
    _replace(path, '"placement:usages": "role:b"\n')
    assert (may("a"), may("b")) == (False, True)
    _replace(path, '"placement:usages": "b"\n')
    for _ in range(2):  # nobody gets in by a slip, and it is told once
        with pytest.raises(errors.Refused, match="The policy cannot be read") as refused:
            may("b")
        assert refused.value.status == 503
    assert caplog.text.count("line 1: 'placement:usages': expected a check") == 1
    os.remove(path)
    with pytest.raises(errors.Refused, match="The policy cannot be read"):
        may("b")
    _replace(path, '"placement:usages": "role:a"\n')
    assert (may("a"), may("b")) == (True, False)


def _replace(path: str, text: str) -> None:
    """Write a file as whoever does not want half of it to be seen."""
    new = Path(f"{path}.new")
    new.write_text(text)
    new.replace(path)
