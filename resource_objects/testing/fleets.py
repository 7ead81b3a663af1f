"""Small fleets and requests that anything may be in, for searches compared with the enumerator.

Made with a :class:`random.Random`, so that a seed is enough and thousands are cheap; and as
Hypothesis strategies, which find the smallest case that fails. Fleets are of one to four trees
of depth up to three with up to six providers, some of them equal on purpose: hosts, pools, and
pools below hosts. Requests ask for little, so that about as many are possible as are not.

>>> [root.name for root in fleet(random.Random(3))]
['host0', 'pool0']
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Sequence
from typing import Any, NamedTuple

from hypothesis import strategies as st

from resource_objects.providers import Provider
from resource_objects.providers.provider import Share
from resource_objects.requests import Request
from resource_objects.resources import IntegerInventory
from resource_objects.testing.kept import SHARING
from resource_objects.testing.questions import AGGREGATES, DEVICES, PLAIN, TRAITS, request, some


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
    root.check_shares()
