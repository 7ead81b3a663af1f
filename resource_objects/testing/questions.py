"""Requests that ask for about as much as a small fleet has, so that half of them are possible.

Made from a :class:`random.Random` and the trees that are asked: an unnamed group and up to three
named ones, some of them alike, under many conditions, few or none.

>>> host = Provider("host0", "VCPU=4")
>>> print(request(random.Random(6), [host]))
VCPU=1; _0: VCPU=2; group_policy=isolate; same_subtree=_0
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from resource_objects.providers import Provider
from resource_objects.requests import Request, RequestGroup
from resource_objects.testing.kept import SHARING

TRAITS = ("CUSTOM_A", "CUSTOM_B", "CUSTOM_C")
AGGREGATES = ("r", "s", "t")
PLAIN, DEVICES = ("VCPU", "DISK_GB"), ("PGPU", "SRIOV_NET_VF")
#: The uuid of no provider.
NOBODY = "00000000-0000-4000-8000-000000000000"


def request(
    chance: random.Random,
    roots: Sequence[Provider],
    *,
    compatibility: str | None = None,
    groups_of: Sequence[int] = (0, 0, 0, 1, 1, 2, 2, 3),
) -> Request:
    """Return a request of an unnamed group and up to three named ones, or of the latter alone.

    It asks for what some tree and its pools have; in Placement's reading without ``traits_of``,
    which it has no words for.

    :param groups_of: how many named groups with amounts, one of these
    """
    asking = _Asking(chance, roots, by_placement=compatibility is not None)
    groups: list[RequestGroup] = []
    for number in range(chance.choice(groups_of)):
        if groups and chance.random() < 0.4:
            groups.append(groups[-1].replace(suffix=f"_{number}"))
        else:
            groups.append(asking.group(f"_{number}"))
    subtrees = _subtrees(chance, [group.suffix for group in groups])
    if subtrees and chance.random() < 0.5:
        suffix = f"_{len(groups)}"
        groups.append(RequestGroup("", suffix=suffix, **asking.conditions(selects=True)))
        subtrees[0].append(suffix)
    amounts, conditions = asking.unnamed(may_be_nothing=bool(groups))
    required = some(chance, TRAITS, asking.often / 3)
    return Request(
        amounts,
        **conditions,
        groups=groups,
        group_policy=chance.choice(["none", "none", "isolate"]),
        same_subtree=subtrees,
        root_required=required,
        root_forbidden=set(some(chance, TRAITS, asking.often / 3)) - set(required),
        compatibility=compatibility,
    )


class _Asking:
    """What a request asks for."""

    def __init__(
        self, chance: random.Random, roots: Sequence[Provider], *, by_placement: bool
    ) -> None:
        self.chance, self.by_placement = chance, by_placement
        #: how often there is a condition of each sort, on traits and on where
        self.often, self.often_in = chance.choice(
            [(0, 0), (0, 0), (0.02, 0.02), (0.06, 0.06), (0.15, 0.15), (0.3, 0), (0, 0.3), (0, 0.5)]
        )
        self.uuids = [one.uuid or one.name for root in roots for one in root.walk()]
        self.uuids += [NOBODY] if by_placement else []
        within = [chance.choice(roots)]
        linked = {name for one in within[0].walk() for name in one.aggregates or ()}
        within += [
            root
            for root in roots
            if SHARING in root.traits and linked & (root.aggregates or frozenset())
        ]
        classes = [str(name) for root in within for one in root.walk() for name in one.inventories]
        self.classes = sorted(set(classes)) or list(PLAIN)
        self.together = [
            sorted(map(str, one.inventories))
            for root in within
            for one in root.walk()
            if one.inventories
        ] or [list(PLAIN)]

    def _amount(self) -> int:
        return self.chance.choice([1, 1, 1, 1, 1, 1, 2, 2, 3])

    def unnamed(self, *, may_be_nothing: bool) -> tuple[dict[str, int], dict[str, Any]]:
        """Return the amounts and conditions of the unnamed group."""
        chance = self.chance
        if may_be_nothing and chance.random() < 0.2:
            return {}, {}
        few = min(len(self.classes), chance.choice([1, 1, 1, 2, 2, 3]))
        amounts = {name: self._amount() for name in chance.sample(self.classes, few)}
        found = self.conditions()
        left = sorted(set(TRAITS) - set(found["required"]) - set(found["forbidden"]))
        if left and not self.by_placement and chance.random() < self.often:
            word = chance.choice(["", "!"]) + chance.choice(left)
            found["traits_of"] = {chance.choice(sorted(amounts)): [word]}
        return amounts, found

    def group(self, suffix: str) -> RequestGroup:
        """Return a named group."""
        together = self.chance.choice(self.together)
        few = min(len(together), self.chance.choice([1, 1, 1, 2]))
        amounts = {name: self._amount() for name in self.chance.sample(together, few)}
        return RequestGroup(amounts, suffix=suffix, **self.conditions())

    def conditions(self, *, selects: bool = False) -> dict[str, Any]:
        """Return conditions on who gives.

        :param selects: whether it is they that choose the provider, more than amounts
        """
        return {**self._traits(0.4 if selects else 0), **self._places()}

    def _traits(self, more: float) -> dict[str, Any]:
        chance, often = self.chance, self.often + more
        required, forbidden = some(chance, TRAITS, often), some(chance, TRAITS, self.often)
        left = [trait for trait in TRAITS if trait not in forbidden or trait in required]
        any_of = [chance.sample(left, min(2, len(left)))] if chance.random() < self.often else []
        return {
            "required": required,
            "forbidden": set(forbidden) - set(required),
            "any_of": [some for some in any_of if some],
        }

    def _places(self) -> dict[str, Any]:
        chance, often = self.chance, self.often_in
        member_of: list[Any] = []
        while len(member_of) < 2 and chance.random() < often:
            known = chance.sample(AGGREGATES, chance.choice([1, 1, 2]))
            member_of.append([*known, "nowhere"] if chance.random() < 0.1 else known)
        within = {name for some in member_of for name in some}
        excluded = set(some(chance, [*AGGREGATES, "nowhere"], often)) - within
        in_tree = chance.choice(self.uuids) if chance.random() < often / 2 else None
        return {"member_of": member_of, "not_member_of": excluded, "in_tree": in_tree}


def _subtrees(chance: random.Random, suffixes: Sequence[str]) -> list[list[str]]:
    if not suffixes or chance.random() < 0.75:
        return []
    return [chance.sample(list(suffixes), chance.choice([1, min(2, len(suffixes))]))]


def some(chance: random.Random, of: Sequence[str], often: float) -> list[str]:
    """Return one of some names, seldom two; often none."""
    if chance.random() >= often:
        return []
    return chance.sample(list(of), chance.choice([1, 1, 1, 2]))
