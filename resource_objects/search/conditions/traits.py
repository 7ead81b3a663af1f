"""Required traits of the unnamed group: for each there is a class all of whose sources have it.

Which class answers for which trait is a choice, so all of them are one condition. A trait that only
one class can answer for is none: that class is given by who has it, and told so.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from resource_objects.reasons import Reason, Rule
from resource_objects.search.arrays import Booleans
from resource_objects.search.conditions.amounts import ClassCondition
from resource_objects.search.conditions.base import (
    Condition,
    Cut,
    Partial,
    Told,
    in_words,
    told_unmet,
)
from resource_objects.search.conditions.located import LocatedCondition
from resource_objects.search.fleet import Fleet

#: The rules that leave nobody of whom one could ask for a trait.
NOBODY = frozenset(
    {
        Rule.NO_INVENTORY,
        Rule.TRAIT_FORBIDDEN,
        Rule.UNIT_TAKEN,
        Rule.AGGREGATE_MISSING,
        Rule.AGGREGATE_FORBIDDEN,
        Rule.OTHER_TREE,
        Rule.CONDITIONS,
        Rule.DISABLED,
    }
)


@dataclasses.dataclass(eq=False)
class RequiredTraits:
    """Each required trait is had by all who give some class."""

    fleet: Fleet
    required: tuple[str, ...]
    classes: Sequence[ClassCondition | LocatedCondition]

    rule = Rule.TRAIT_MISSING

    def __post_init__(self) -> None:
        self._blamed: dict[int, int] = {}

    def mask(self) -> Booleans:
        """Return which hosts seem to have a class that answers for each trait."""
        found = np.ones(len(self.fleet.hosts), dtype=np.bool_)
        for number in range(len(self.required)):
            if found.any():
                found &= self._answered(number)
        return found

    def cuts(self) -> Iterator[Cut]:
        """Yield for each trait whether somebody who may give has it, and then whether enough."""
        for number, label in enumerate(self.required):
            had = [one.had(number) for one in self.classes]
            found = np.logical_or.reduce(had)
            name = self.classes[0].name if len(self.classes) == 1 else None
            words = f"{' or '.join(one.name for one in self.classes)} {self._said(label)}"
            yield Cut(found, self.rule, "", name, label, words)
            able = [one for one, some in zip(self.classes, had, strict=True) if some.any()]
            passing = self._answered(number)
            if len(able) == 1:
                yield able[0].cut_of_trait(number, label)._replace(passing=passing)
            else:
                yield Cut(passing, Rule.CAPACITY, "", label=label, words=words)

    def _said(self, label: str) -> str:
        """Return a required trait in words, with what is asked of everybody who gives."""
        barriers = {one.demand.barriers for one in self.classes}
        common = barriers.pop() if len(barriers) == 1 else ()
        told = in_words([*common, (self.rule, label)])
        return f"{told} among those that may give" if barriers else told

    def _answered(self, trait: int) -> Booleans:
        """Return, by tree, whether some class seems to be given by who has a required trait."""
        found = np.zeros(len(self.fleet.hosts), dtype=np.bool_)
        for one in self.classes:
            found |= one.enough(trait)
        return found

    def sources(self, tree: int) -> dict[Condition, int]:
        """Return, by class, who may give it: with the traits that only it can answer for."""
        return dict(zip(self.classes, self._narrowed(tree)[0], strict=True))

    def reasons(self, host: Partial) -> list[Reason]:
        """Return the traits that nobody has, and what stands against those who have the others.

        A class that is short whoever has the trait said so already.
        """
        if not self.required:
            return []
        told = [host.told[one] for one in self.classes]
        found: dict[Reason, None] = {}
        for trait, number in self._narrowed(host.tree)[1]:
            if not any(reason.rule in NOBODY for reason in told[number]):
                found[self._missing(host.tree, trait, number)] = None
        for trait in range(len(self.required)):
            tries = self._tries(host.tree, trait)
            if not any(self.classes[number].can(host.tree, some) for number, some in tries):
                for number, some in tries:
                    if not told[number]:
                        short = self.classes[number].short(host.tree, some)
                        found.update(dict.fromkeys(short))
        return list(found)

    def tell(self, trees: Booleans) -> tuple[list[Booleans], list[tuple[int, Told]], Booleans]:
        """Return, by class, who may give it; the traits that nobody has; and where that is open.

        The inventories that may give are those with the traits that only they can answer for, as
        :meth:`sources` says of one tree. A trait that nobody has is told with the number of the
        class that wants it.

        :param trees: of which none has shares, or is linked to pools
        """
        classes = [one for one in self.classes if isinstance(one, ClassCondition)]
        sources = [one.demand.own.allowed for one in classes]
        missing: list[tuple[int, Told]] = []
        open_ = np.zeros_like(trees)
        for trait, name in enumerate(self.required):
            having = np.zeros((len(classes), len(trees)), dtype=np.bool_)
            for number, one in enumerate(classes):
                own, rows = one.demand.own, one.demand.rows
                having[number, rows.tree[own.allowed & own.has_required[trait]]] = True
            owners = having.sum(axis=0)
            open_ |= trees & (owners > 1)
            for number, one in enumerate(classes):
                own, rows = one.demand.own, one.demand.rows
                is_only = having[number] & (owners == 1)
                left = sources[number] & (own.has_required[trait] | ~is_only[rows.tree])
                has_left = np.zeros_like(trees)
                has_left[rows.tree[left]] = True
                open_ |= trees & is_only & ~has_left
                sources[number] = left
            nobody = trees & (owners == 0)
            if nobody.any():
                number = self._blame(trait)
                demand = classes[number].demand
                rows = demand.rows
                barred = np.zeros_like(trees)  # who has it may not give, which is told otherwise
                barred[rows.tree[demand.own.has_required[trait] & ~rows.is_part]] = True
                open_ |= nobody & barred
                amount, kind = demand.amount, demand.resource_class
                missing.append((number, told_unmet(self.rule, name, nobody, amount, kind)))
        return sources, missing, open_

    def not_beside(self, tree: int, trait: int) -> Reason:
        """Return the reason for a trait that nobody has beside those before it."""
        owners = [number for number, _ in self._tries(tree, trait)]
        return self._missing(tree, trait, owners[0] if owners else self._blame(trait))

    def _missing(self, tree: int, trait: int, number: int) -> Reason:
        return self.classes[number].lacks(tree, trait, self.required)

    def _tries(self, tree: int, trait: int) -> list[tuple[int, int]]:
        """Return the classes of which some source has a trait, and which sources these are."""
        here = [one.of_tree(tree) for one in self.classes]
        found = [(n, demand.allowed & demand.with_trait[trait]) for n, demand in enumerate(here)]
        return [(number, sources) for number, sources in found if sources]

    def _narrowed(self, tree: int) -> tuple[list[int], list[tuple[int, int]]]:
        """Return who may give each class, and the traits that nobody has, with their class."""
        here = [one.of_tree(tree) for one in self.classes]
        sources = [demand.allowed for demand in here]
        missing: list[tuple[int, int]] = []
        for trait in range(len(self.required)):
            owners = [number for number, _ in self._tries(tree, trait)]
            if not owners:
                missing.append((trait, self._blame(trait)))
            elif len(owners) == 1:
                (number,) = owners
                left = sources[number] & here[number].with_trait[trait]
                if left:
                    sources[number] = left
                else:
                    missing.append((trait, number))
        return sources, missing

    def _blame(self, trait: int) -> int:
        """Choose the class that is named where nobody in a tree has a trait.

        One whose sources have the trait elsewhere, else one of devices, else any.
        """
        if trait not in self._blamed:
            self._blamed[trait] = self._chosen(trait)
        return self._blamed[trait]

    def _chosen(self, trait: int) -> int:
        having = self.fleet.traits.get(self.required[trait])
        for number, one in enumerate(self.classes):
            if having is not None and bool(np.isin(one.providers, having).any()):
                return number
        for number, one in enumerate(self.classes):
            if one.is_of_devices:
                return number
        return 0
