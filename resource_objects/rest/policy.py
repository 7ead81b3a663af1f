"""Authorization by Placement's policy rules and oslo.policy.

==========  =====================================================================================
policy      permitted clients
==========  =====================================================================================
``secure``  role ``admin`` or ``service``; the reshaper: ``service``; usages: also readers of the
            project. These are the defaults of Placement since 2023.2
``legacy``  role ``admin``, the default before
``open``    every authenticated client
a file      the defaults of ``secure``, overridden by the rules of a file of oslo.policy (YAML),
            which is read again after a change
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
from resource_objects.rest.watched_file import WatchedFile

NAMES = ("secure", "legacy", "open")

#: The names of the rules in policy files.
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
#: The number of cached decisions of an application.
_CACHED = 1024
#: Credentials or a target as a hashable value.
_Facts: TypeAlias = tuple[tuple[str, Any], ...]
#: The prefixes of rules; other names are checks that rules refer to.
_PREFIXES = ("placement:", "resource_objects:")
#: YAML's tag of a string.
_TEXT = "tag:yaml.org,2002:str"
_SECURE = {
    "placement:usages": "rule:admin_or_project_reader_or_service_api",
    "placement:reshaper:reshape": "rule:service_api",
}


class Policy:
    """The permissions of clients."""

    def __init__(self, policy: str) -> None:
        """Read a policy.

        :param policy: one of :data:`NAMES`, or the path of a file, which is read again after a
            change
        :raises InvalidInput: for a file that does not exist, or an invalid rule, with its line
        """
        self._enforce: Callable[[str, _Facts, _Facts], bool]
        if policy in NAMES:
            enforcer = _enforcer(_BASE | {name: _check_of(policy, name) for name in RULES})
            # these rules only compare roles and projects, so decisions can be cached; a rule of a
            # file may call a server, so it is evaluated each time
            cache = functools.lru_cache(_CACHED)
            self._enforce = cache(functools.partial(_enforce, lambda: enforcer))
        elif not Path(policy).is_file():
            raise InvalidInput("field", "policy", policy, f"one of {', '.join(NAMES)}, or a file")
        else:
            file = WatchedFile("policy", policy, _parse)
            self._enforce = functools.partial(_enforce, file.content)

    def allows(self, rule: str, target: Mapping[str, Any], creds: Mapping[str, Any]) -> bool:
        """Return True if a client may carry out an action; an unknown rule permits nobody.

        All rules are about projects, so tokens for the whole system or a domain are rejected.
        """
        if creds.get("system_scope") or creds.get("domain_id"):
            return False
        return self._enforce(rule, _facts(target), _facts(creds))


def _facts(facts: Mapping[str, Any]) -> _Facts:
    return tuple(
        (name, tuple(value) if isinstance(value, list) else value) for name, value in facts.items()
    )


def _enforce(
    enforcer: Callable[[], oslo_policy.Enforcer], rule: str, target: _Facts, creds: _Facts
) -> bool:
    credentials = {n: list(value) if isinstance(value, tuple) else value for n, value in creds}
    return bool(enforcer().enforce(rule, dict(target), credentials))


def _enforcer(rules: Mapping[str, str]) -> oslo_policy.Enforcer:
    """Return an enforcer of rules that reads no file, such as one in /etc.

    :raises InvalidDefinitionError: for a rule with an undefined or circular reference
    """
    conf = cfg.ConfigOpts()
    conf([], default_config_files=[], default_config_dirs=[])
    enforcer = oslo_policy.Enforcer(conf, use_conf=False)
    enforcer.set_rules(oslo_policy.Rules.from_dict(dict(rules)), use_conf=False)
    enforcer.check_rules(raise_on_violation=True)
    return enforcer


def _parse(text: str) -> oslo_policy.Enforcer:
    """Return an enforcer of the rules of a file and the defaults of all other rules.

    :raises ValueError: for an invalid rule, with its line
    """
    checks: dict[str, str] = {}
    lines: dict[str, int] = {}
    for key, value in _pairs(text):
        line = int(key.start_mark.line) + 1
        name = str(key.value)
        if name in lines:
            raise ValueError(f"line {line}: {name!r} stands on line {lines[name]} too")
        if name.startswith(_PREFIXES) and name not in RULES:
            raise ValueError(f"line {line}: there is no rule {name!r}")
        # an empty check permits everybody, and oslo.policy replaces an invalid one by "!"
        parsed = str(oslo_policy.RuleDefault("", str(value.value)).check)
        if value.tag != _TEXT or parsed.count("!") > value.value.count("!"):
            expected = "expected a check, such as 'role:admin or role:service'"
            raise ValueError(f"line {line}: {name!r}: {expected}")
        checks[name], lines[name] = str(value.value), line
    defaults = _BASE | {name: _check_of("secure", name) for name in RULES}
    try:
        return _enforcer(defaults | checks)
    except oslo_policy.InvalidDefinitionError as error:
        invalid = [
            f"line {line}: {name!r}" for name, line in lines.items() if f"{name!r}" in str(error)
        ]
        problem = "refers to a rule that there is not, or to itself"
        raise ValueError(f"{', '.join(invalid)}: it {problem}") from error


def _pairs(text: str) -> list[tuple[yaml.Node, yaml.Node]]:
    """Return the keys and values of a YAML mapping as nodes, which have line numbers."""
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)  # type: ignore[no-untyped-call]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = "" if mark is None else f"line {mark.line + 1}: "
        raise ValueError(f"{line}{error.problem}") from error
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error
    if node is None:
        return []
    if not isinstance(node, yaml.MappingNode):
        raise ValueError(f"line {node.start_mark.line + 1}: expected rules, as 'name: check'")
    return list(node.value)


def _check_of(policy: str, name: str) -> str:
    if policy == "open":
        return "@"
    if policy == "legacy":
        return "rule:admin_api"
    return _SECURE.get(name, "rule:admin_or_service_api")
