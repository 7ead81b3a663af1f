"""Whether somebody may do something: Placement's rules by oslo.policy.

==========  =====================================================================================
policy      who may
==========  =====================================================================================
``secure``  role ``admin`` or ``service``; the reshaper: ``service``; usages: also who reads their
            own project. These are the defaults of Placement since 2023.2
``legacy``  role ``admin`` alone, as it was before
``open``    everybody who has a token
a file      the defaults of ``secure``, and in their place rules of a file of oslo.policy (YAML),
            which is read again when it was changed
==========  =====================================================================================
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import yaml
from oslo_config import cfg
from oslo_policy import policy as oslo_policy

from resource_objects.exceptions import InvalidInput
from resource_objects.rest import native
from resource_objects.rest.reread import Reread

NAMES = ("secure", "legacy", "open")

#: The rules, as clients' policy files name them.
RULES = (
    *(f"placement:resource_providers:{verb}" for verb in ("list", "create", "show", "update")),
    "placement:resource_providers:delete",
    *(f"placement:resource_classes:{verb}" for verb in ("list", "create", "show", "update")),
    "placement:resource_classes:delete",
    *(
        f"placement:resource_providers:inventories:{verb}"
        for verb in ("list", "create", "show", "update", "delete")
    ),
    *(f"placement:resource_providers:aggregates:{verb}" for verb in ("list", "update")),
    "placement:resource_providers:usages",
    "placement:usages",
    *(f"placement:traits:{verb}" for verb in ("list", "show", "update", "delete")),
    *(f"placement:resource_providers:traits:{verb}" for verb in ("list", "update", "delete")),
    *(f"placement:allocations:{verb}" for verb in ("list", "manage", "update", "delete")),
    "placement:resource_providers:allocations:list",
    "placement:allocation_candidates:list",
    "placement:reshaper:reshape",
    *native.RULES,
)

_BASE = {
    "admin_api": "role:admin",
    "service_api": "role:service",
    "admin_or_service_api": "role:admin or role:service",
    "project_reader_api": "role:reader and project_id:%(project_id)s",
    "admin_or_project_reader_or_service_api": (
        "role:admin or rule:service_api or rule:project_reader_api"
    ),
}
#: Decisions that are kept, of each application.
_KEPT = 1024
#: What is known of who asks, or of what is asked for: a mapping that can be a key.
_Facts: TypeAlias = tuple[tuple[str, Any], ...]

#: How names of rules begin; others are checks that rules refer to.
_OF_RULES = ("placement:", "resource_objects:")
#: What YAML calls a text.
_TEXT = "tag:yaml.org,2002:str"
_SECURE = {
    "placement:usages": "rule:admin_or_project_reader_or_service_api",
    "placement:reshaper:reshape": "rule:service_api",
}


class Policy:
    """Who may do what."""

    def __init__(self, given: str) -> None:
        """Read a policy.

        :param given: one of :data:`NAMES`, or the path of a file, which is read again when changed
        :raises InvalidInput: for a file that is not there, or a rule that cannot be, with its line
        """
        self._may: Callable[[str, _Facts, _Facts], bool]
        if given in NAMES:
            made = _enforcer(_BASE | {name: _check_of(given, name) for name in RULES})
            # what is asked for the same by the same is answered the same: these rules compare
            # roles and projects and ask nobody, as one of a file may, which is asked each time
            self._may = functools.lru_cache(_KEPT)(functools.partial(_may, lambda: made))
        elif not Path(given).is_file():
            raise InvalidInput("field", "policy", given, f"one of {', '.join(NAMES)}, or a file")
        else:
            self._may = functools.partial(_may, Reread("policy", given, _parsed).said)

    def allows(self, rule: str, target: Mapping[str, Any], creds: Mapping[str, Any]) -> bool:
        """Return whether somebody may do something; what no rule is about nobody may.

        All rules are about projects, so a token for the whole system or for a domain does not do.
        """
        if creds.get("system_scope") or creds.get("domain_id"):
            return False
        return self._may(rule, _facts(target), _facts(creds))


def _facts(given: Mapping[str, Any]) -> _Facts:
    return tuple(
        (name, tuple(value) if isinstance(value, list) else value) for name, value in given.items()
    )


def _may(
    enforcer: Callable[[], oslo_policy.Enforcer], rule: str, target: _Facts, creds: _Facts
) -> bool:
    who = {name: list(value) if isinstance(value, tuple) else value for name, value in creds}
    return bool(enforcer().enforce(rule, dict(target), who))


def _enforcer(rules: Mapping[str, str]) -> oslo_policy.Enforcer:
    """Return what knows rules, and reads no file: one that happens to lie in /etc would count.

    :raises InvalidDefinitionError: for rules that refer to others that are not there, or in a ring
    """
    conf = cfg.ConfigOpts()
    conf([], default_config_files=[], default_config_dirs=[])
    made = oslo_policy.Enforcer(conf, use_conf=False)
    made.set_rules(oslo_policy.Rules.from_dict(dict(rules)), use_conf=False)
    made.check_rules(raise_on_violation=True)
    return made


def _parsed(text: str) -> oslo_policy.Enforcer:
    """Return what knows the rules of a file, and the defaults of those that it does not name.

    :raises ValueError: for what is no rule, with its line
    """
    given: dict[str, str] = {}
    lines: dict[str, int] = {}
    for key, value in _pairs(text):
        line = int(key.start_mark.line) + 1
        name = str(key.value)
        if name in lines:
            raise ValueError(f"line {line}: {name!r} stands on line {lines[name]} too")
        if name.startswith(_OF_RULES) and name not in RULES:
            raise ValueError(f"line {line}: there is no rule {name!r}")
        if value.tag != _TEXT or not _is_check(value.value):  # nothing at all would be everybody
            said = f"line {line}: {name!r}: expected a check, such as 'role:admin or role:service'"
            raise ValueError(said)
        given[name], lines[name] = str(value.value), line
    defaults = _BASE | {name: _check_of("secure", name) for name in RULES}
    try:
        return _enforcer(defaults | given)
    except oslo_policy.InvalidDefinitionError as error:
        wrong = [
            f"line {line}: {name!r}" for name, line in lines.items() if f"{name!r}" in str(error)
        ]
        said = "refers to a rule that there is not, or to itself"
        raise ValueError(f"{', '.join(wrong)}: it {said}") from error


def _pairs(text: str) -> list[tuple[yaml.Node, yaml.Node]]:
    """Return the keys and values of a mapping in YAML, with their marks."""
    try:
        found = yaml.compose(text, Loader=yaml.SafeLoader)  # type: ignore[no-untyped-call]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = "" if mark is None else f"line {mark.line + 1}: "
        raise ValueError(f"{where}{error.problem}") from error
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error
    if found is None:
        return []
    if not isinstance(found, yaml.MappingNode):
        raise ValueError(f"line {found.start_mark.line + 1}: expected rules, as 'name: check'")
    return list(found.value)


def _is_check(text: str) -> bool:
    """Return whether oslo.policy understands a check: it takes as ``!`` what it does not."""
    return str(oslo_policy.RuleDefault("", text).check).count("!") <= text.count("!")


def _check_of(given: str, name: str) -> str:
    if given == "open":
        return "@"
    if given == "legacy":
        return "rule:admin_api"
    return _SECURE.get(name, "rule:admin_or_service_api")
