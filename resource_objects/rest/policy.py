"""Whether somebody may do something: Placement's rules by oslo.policy.

==========  =====================================================================================
policy      who may
==========  =====================================================================================
``secure``  role ``admin`` or ``service``; the reshaper: ``service``; usages: also who reads their
            own project. These are the defaults of Placement since 2023.2
``legacy``  role ``admin`` alone, as it was before
``open``    everybody who has a token
a file      the defaults of ``secure``, and in their place rules of a file of oslo.policy (YAML)
==========  =====================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from oslo_config import cfg
from oslo_policy import policy as oslo_policy

from resource_objects import exceptions

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
_SECURE = {
    "placement:usages": "rule:admin_or_project_reader_or_service_api",
    "placement:reshaper:reshape": "rule:service_api",
}


class Policy:
    """Who may do what."""

    def __init__(self, given: str) -> None:
        """Read a policy.

        :param given: one of :data:`NAMES`, or the path of a file
        :raises InvalidField: for a file that is not there
        """
        conf = cfg.ConfigOpts()
        conf([], default_config_files=[], default_config_dirs=[])
        path = None if given in NAMES else Path(given)
        if path is not None and not path.is_file():
            known = ", ".join(NAMES)
            raise exceptions.InvalidField("policy", given, f"one of {known}, or a file")
        self._enforcer = oslo_policy.Enforcer(
            conf, policy_file=None if path is None else str(path.resolve()), use_conf=bool(path)
        )
        checks = {name: _check_of(given, name) for name in RULES}
        if path is None:  # or a policy.yaml that happens to lie in /etc would count
            self._enforcer.set_rules(oslo_policy.Rules.from_dict(_BASE | checks), use_conf=False)
            return
        for name, check in (_BASE | checks).items():
            self._enforcer.register_default(oslo_policy.RuleDefault(name, check))

    def allows(self, rule: str, target: Mapping[str, Any], creds: Mapping[str, Any]) -> bool:
        """Return whether somebody may do something; what no rule is about nobody may.

        All rules are about projects, so a token for the whole system does not do.
        """
        if creds.get("system_scope"):
            return False
        return bool(self._enforcer.enforce(rule, dict(target), dict(creds)))


def _check_of(given: str, name: str) -> str:
    if given == "open":
        return "@"
    if given == "legacy":
        return "rule:admin_api"
    return _SECURE.get(name, "rule:admin_or_service_api")
