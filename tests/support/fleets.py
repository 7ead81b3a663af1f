"""Small fleets and requests that anything may be in, for searches compared with the enumerator.

Made with a :class:`random.Random`, so that a seed is enough and thousands are cheap; and as
Hypothesis strategies, which find the smallest case that fails. Fleets are of one to four trees
of depth up to three with up to six providers, some of them equal on purpose: hosts, pools, and
pools below hosts. Requests ask for little, so that about as many are possible as are not.

>>> [root.name for root in fleet(random.Random(3))]
['host0', 'pool0']
>>> host = Provider("host0", "VCPU=4")
>>> print(request(random.Random(6), [host]))
VCPU=1; _0: VCPU=2; group_policy=isolate; same_subtree=_0
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Sequence
from typing import Any, NamedTuple

from hypothesis import strategies as st

from resource_objects.providers import Provider, diff
from resource_objects.providers.provider import Share
from resource_objects.requests import Request, RequestGroup
from resource_objects.resources import IntegerInventory
from tests.support.columns import SHARING

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


# --- fleets ---


class Case(NamedTuple):
    """A fleet and what is asked of it."""

    roots: list[Provider]
    request: Request


def cases(*, shares: bool = True, compatibility: str | None = None) -> st.SearchStrategy[Case]:
    """Return fleets with requests.

    :param shares: whether what is taken in one place may be used in another of its tree too
    """

    def made(chance: random.Random) -> Case:
        roots = fleet(chance, shares=shares)
        return Case(roots, request(chance, roots, compatibility=compatibility))

    return st.randoms(use_true_random=False).map(made)


def alike(chance: random.Random, *, shares: bool = False, compatibility: str | None = None) -> Case:
    """Return a host of few sorts of devices, several of each, and up to four groups for them."""
    root = _provider(chance, "host0", PLAIN, joins=0.2)
    above = [_provider(chance, f"host0/{one}", PLAIN[:1]) for one in range(chance.choice([0, 2]))]
    sorts = [chance.choice([DEVICES, DEVICES[:1]]) for _ in range(chance.choice([1, 2]))]
    for place in above or [root]:
        for number, classes in enumerate(sorts):
            like = _provider(chance, f"{place.name}.{number}", classes, joins=0.1)
            count = chance.choice([1, 2, 3] if above else [2, 3, 4])
            copies = [_copy(like, f"{like.name}.{copied}") for copied in range(count)]
            place.update(children=(*place.children, *copies))
    root.update(children=(*root.children, *above))
    if shares and chance.random() < 0.7:
        _tie(chance, root)
    asked = request(chance, [root], compatibility=compatibility, groups_of=(1, 2, 3, 3, 4))
    return Case([root], asked)


# --- fleets ---


def fleet(chance: random.Random, *, shares: bool = False) -> list[Provider]:
    """Return the roots of one to four trees: hosts, and in half of all cases pools."""
    hosts = chance.choice([1, 1, 2, 2, 3])
    pools = chance.choice([0, 0, 0, 1, 1, 2]) if hosts < 3 else chance.choice([0, 1])
    roots = [_tree(chance, f"host{number}", shares) for number in range(hosts)]
    if hosts > 1 and chance.random() < 0.3:
        roots[-1] = _copy(roots[0], roots[-1].name)
    return roots + [_pool(chance, f"pool{number}") for number in range(pools)]


def _provider(chance: random.Random, name: str, classes: Sequence[str], **more: Any) -> Provider:
    traits = [*some(chance, TRAITS, 0.35), *more.pop("traits", ())]
    aggregates = some(chance, AGGREGATES, more.pop("joins", 0.25))
    inventories = {each: _inventory(chance, each) for each in classes}
    return Provider(
        name, inventories, traits=traits, aggregates=aggregates, uuid=uuid_of(name), **more
    )


def uuid_of(name: str) -> str:
    """Return the uuid of a generated provider."""
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, name))


def _tree(chance: random.Random, name: str, shares: bool) -> Provider:
    own = [each for each in PLAIN if chance.random() < 0.75]
    root = _provider(chance, name, own, joins=0.6)
    depth = {root.name: 1}
    for number in range(chance.choice([0, 1, 2, 3, 3, 4, 5, 5])):
        _grow(chance, root, f"{name}/{number}", depth)
    if shares and chance.random() < 0.7:
        _tie(chance, root)
    return root


def _grow(chance: random.Random, root: Provider, name: str, depth: dict[str, int]) -> None:
    """Add a provider, in every other case one like the last."""
    *others, last = root.walk()
    parents = {child.name: parent for child, parent in root.parents()}
    parent = parents[last.name]
    if parent is not None and not last.children and chance.random() < 0.5:
        made = _copy(last, name)
    else:
        above = [one for one in (*others, last) if depth[one.name] < 3]
        parent = above[-1] if chance.random() < 0.3 else chance.choice(above)
        classes = chance.choice([DEVICES[:1], DEVICES[:1], DEVICES, DEVICES[1:], PLAIN[:1], ()])
        sharing = [SHARING] if chance.random() < 0.12 else []
        made = _provider(chance, name, classes, joins=0.3, traits=sharing)
    depth[name] = depth[parent.name] + 1
    parent.update(children=(*parent.children, made))


def _pool(chance: random.Random, name: str) -> Provider:
    classes = chance.choice([PLAIN[1:], PLAIN[1:], PLAIN, ("DISK_GB", "PGPU"), DEVICES[:1]])
    root = _provider(chance, name, classes, joins=0.9, traits=[SHARING])
    if chance.random() < 0.25:
        below = _provider(chance, f"{name}/0", chance.choice([DEVICES[:1], PLAIN[1:]]))
        root.update(children=(below,))
    return root


def _copy(like: Provider, name: str) -> Provider:
    """Return a provider that is like another, with all below it under names like its own."""

    def renamed(of: str) -> str:
        return of.replace(like.name, name, 1) if of in names else of

    def made(one: Provider) -> Provider:
        return Provider(
            renamed(one.name),
            dict(one.inventories),
            traits=one.traits,
            aggregates=one.aggregates,
            uuid=uuid_of(renamed(one.name)),
            children=[made(child) for child in one.children],
            shares=[share.replace(of=renamed(share.of)) for share in one.shares],
        )

    names = {one.name for one in like.walk()}
    return made(like)


def _inventory(chance: random.Random, name: str) -> IntegerInventory:
    total = chance.choice([1, 1, 2, 4, 8] if name in DEVICES else [1, 2, 4, 8, 8])
    least = chance.choice([1] * 9 + [2])
    least = min(least, total)
    return IntegerInventory(
        total,
        reserved=chance.choice([0] * 9 + [1]),
        min_unit=least,
        max_unit=chance.choice([*[None] * 5, chance.randint(least, total)]),
        step_size=chance.choice([1] * 9 + [2]),
        allocation_ratio=chance.choice(["1", "1", "1", "1.5", "2"]),
        used=chance.choice([*[0] * 12, 1, total - 1, total, total + 1]),
    )


def _tie(chance: random.Random, root: Provider) -> None:
    """Let providers use what is above them too, and state what that uses in turn."""
    above: dict[str, list[Provider]] = {root.name: []}
    for place, parent in root.parents():
        if parent is None:
            continue
        above[place.name] = [*above[parent.name], parent]
        found: dict[tuple[str, str, str], int] = {}
        for name in map(str, place.inventories):
            for of in above[place.name]:
                if of.inventories and chance.random() < 0.4:
                    of_class = chance.choice(sorted(map(str, of.inventories)))
                    found[name, of.name, of_class] = chance.choice([1, 1, 2])
                    for share in of.shares:
                        if share.resource_class == of_class:
                            found.setdefault((name, share.of, share.of_class), 1)
        place.update(
            shares=[
                Share(resource_class=name, of=of, of_class=of_class, factor=factor)
                for (name, of, of_class), factor in found.items()
            ]
        )
    diff(None, root)
