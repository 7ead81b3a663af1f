"""Out of service in a database: inventories agree with their providers, whoever races."""

from __future__ import annotations

import random

from resource_objects import exceptions
from resource_objects.backends.sql.backend import SQLBackend
from resource_objects.providers import Provider, diff
from resource_objects.providers.columns import trees
from resource_objects.providers.definition import merge_changes
from resource_objects.providers.orders import Operation
from resource_objects.testing.conformance.disabled import disable, enable
from resource_objects.testing.conformance.races import together
from resource_objects.testing.conformance.suite import claim, define, host
from resource_objects.testing.refusals import is_one_of
from tests.support.checker import problems

#: What a definition or a claim is refused by that another one was faster than, or that is disabled.
REFUSED = (
    "StaleDefinition",
    "ProviderExists",
    "ProviderInUse",
    "ProviderNotFound",
    exceptions.CapacityException,
)


def _move(ledger: SQLBackend, chance: random.Random) -> None:
    """Make a device of a host, take one away, or give it to the other host."""
    one, two = trees(ledger.read("host0", "host1"))
    if chance.random() < 0.3:
        one, two = two, one
    before = trees(ledger.read("host0", "host1"))
    kept = {root.name: root for root in before}
    if one.children and chance.random() < 0.7:
        one.update(children=one.children[1:])
    else:
        name = f"{one.name}/gpu{chance.randint(0, 9)}"
        made = Provider(name, "PGPU=1,VCPU=2")
        one.update(children=(*(child for child in one.children if child.name != name), made))
    changes = [diff(kept[root.name], root) for root in (one, two)]
    ledger.define(Operation(), merge_changes("host0", changes))


def test_rows_agree_whoever_defines_disables_and_claims(
    ledger: SQLBackend, ledger_url: str
) -> None:
    names = define(ledger, host("host0"), host("host1"))

    def work(number: int) -> None:
        chance = random.Random(number)
        for turn in range(12):
            name = chance.choice(["host0", "host1"])
            below = [child.uuid or "" for root in trees(ledger.read(name)) for child in root.walk()]
            uuid = chance.choice(below)
            try:
                if number % 3 == 0:
                    _move(ledger, chance)
                elif number % 3 == 1:
                    chance.choice([disable, disable, enable])(ledger, uuid)
                else:
                    claim(ledger, f"job-{number}-{turn}", {names[name]: "VCPU=1"})
            except exceptions.ResourceObjectsError as error:
                if not is_one_of(error, *REFUSED):
                    raise

    assert set(together(work)) == {None}
    assert problems(ledger_url) == []


def test_a_provider_that_moves_takes_on_what_is_above_it(
    ledger: SQLBackend, ledger_url: str
) -> None:
    root = Provider("host0", "VCPU=8")
    first = root.add("host0/a", "VCPU=4")
    first.add("host0/a/b", "VCPU=2")
    names = define(ledger, root)
    disable(ledger, names["host0/a"])
    assert problems(ledger_url) == []
    [tree] = trees(ledger.read("host0"))
    [first] = tree.children
    [second] = first.children
    first.update(children=())
    tree.update(children=(first, second))
    define(ledger, tree)
    assert problems(ledger_url) == []
    claim(ledger, "job-1", {names["host0/a/b"]: "VCPU=1"})
    disable(ledger, names["host0"])
    enable(ledger, names["host0/a"])
    assert problems(ledger_url) == []
    enable(ledger, names["host0"])
    assert problems(ledger_url) == []
    claim(ledger, "job-2", {names["host0/a"]: "VCPU=1"})
