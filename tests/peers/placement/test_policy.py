"""The defaults of policy are Placement's: the same rules, and who may what by each."""

from __future__ import annotations

from typing import Any

import pytest

from resource_objects.rest import policy
from tests.rest.test_policy import CALLERS, LAB, PLACEMENTS

pytest.importorskip("placement", reason="the environment of tox -e placement has it")


def test_the_rules_and_their_defaults_are_placements() -> None:
    from oslo_config import cfg
    from oslo_policy import policy as oslo_policy
    from placement import policies

    conf = cfg.ConfigOpts()
    conf([], default_config_files=[], default_config_dirs=[])
    theirs = oslo_policy.Enforcer(conf, use_conf=False)
    defaults = {rule.name: rule.check_str for rule in policies.list_rules()}
    theirs.set_rules(oslo_policy.Rules.from_dict(defaults), use_conf=False)
    rules = [name for name in defaults if name.startswith("placement:")]
    assert sorted(rules) == sorted(PLACEMENTS)
    ours, target = policy.Policy("secure"), {"project_id": LAB}
    for name in rules:
        for who, creds in CALLERS.items():
            said: dict[str, Any] = {"project_id": None, **creds}
            may = theirs.enforce(name, target, dict(said))
            assert ours.allows(name, target, said) == may, (name, who)
