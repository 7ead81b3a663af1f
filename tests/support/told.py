"""A checker of explanations: whether each sentence is true, by the rows alone.

It knows what columns say and the rules of the enumerator, and nothing of the search or of how
reasons are made. Of each reason it asks: is the amount the one that is asked; are the figures those
of the providers it is about; does nobody else who might give have enough; is everybody who holds
some of it named, with what they hold, and nobody else.

:func:`faults` lists what is wrong, nothing if all is true.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

from resource_objects.providers.columns import Columns
from resource_objects.providers.disabled import REMOVED
from resource_objects.reasons import Reason, Rule
from resource_objects.requests import Request, RequestGroup
from resource_objects.search.eligibility import semantics_of
from tests.support.columns import Kept, Place
from tests.support.enumerator import HostReading, tree_of
from tests.support.near_reference import place_of
from tests.support.told_located import LocatedRows, LocatedSentence

#: The kinds that lie over a tree.
LOCATED = {"NUMA_TOPOLOGY", "DEVICES"}
#: The trait of what is out of service.
DISABLED = "COMPUTE_STATUS_DISABLED"


def faults(
    columns: Columns,
    request: Request,
    told: Iterable[tuple[str, Sequence[Reason]]],
    group: tuple[Collection[str], bool] | None = None,
) -> list[str]:
    """Return what is wrong with what is told of hosts.

    :param group: who is in the server group of the request, and whether these are to be apart
    """
    rows = Rows(columns, request, group)
    every = [(host, tuple(reasons)) for host, reasons in told]
    return [f"{host}: nothing is told" for host, reasons in every if not reasons] + [
        f"{host}: {fault}: {reason!r}"
        for host, reasons in every
        for reason in reasons
        for fault in Sentence(rows, host, reason, reasons).faults()
    ]


def counts_of(group: RequestGroup) -> dict[str, int]:
    """Return what a group asks of classes that are counted."""
    return {
        name: int(amount)  # type: ignore[call-overload]
        for name, amount in group.resources.by_name()
        if name not in LOCATED
    }


class Rows:
    """What is kept, and what is asked, read row by row."""

    def __init__(
        self,
        columns: Columns,
        request: Request,
        group: tuple[Collection[str], bool] | None = None,
    ) -> None:
        self.group = group
        self.kept = Kept(columns)
        self.columns = columns
        self.request = request
        self.rules = semantics_of(request)
        self.trees = {g.suffix: tree_of(self.kept, g, self.rules) for g in request.groups}
        self.held: dict[Place, dict[str, int]] = {}
        for number, name, who, amount in zip(*columns.allocations, strict=True):
            held = self.held.setdefault((number, name), {})
            held[who] = held.get(who, 0) + amount
        self.into: dict[Place, list[tuple[Place, int]]] = {}
        for source, links in self.kept.shares.items():
            for target, factor in links:
                self.into.setdefault(target, []).append((source, factor))
        self.by_name = {row.name: row.number for row in self.kept.rows.values()}
        table = columns.kinds
        #: the providers of host cells
        self.of_cells = {
            number
            for number, kind in zip(table.provider_id, table.resource_class, strict=True)
            if kind == "NUMA_TOPOLOGY"
        }
        #: of providers that are parts of another's count, the classes that they only locate
        self.parts = _parts(columns)

    def holders(self, places: Collection[Place]) -> dict[str, int]:
        """Return who uses how much of some inventories, through shares too; each row once."""
        found: dict[str, int] = {}
        using = {(one, 1) for one in places}
        using |= {link for one in places for link in self.into.get(one, [])}
        for source, factor in using:
            for who, amount in self.held.get(source, {}).items():
                found[who] = found.get(who, 0) + factor * amount
        return found

    def drawn(self, place: Place) -> dict[str, int]:
        """Return who uses how much of an inventory through others, which draw on it."""
        found: dict[str, int] = {}
        for source, factor in self.into.get(place, []):
            for who, amount in self.held.get(source, {}).items():
                found[who] = found.get(who, 0) + factor * amount
        return found

    def is_disabled(self, number: int) -> bool:
        """Return whether a provider, or one above it, is out of service."""
        out = self.columns.disabled
        return any(above in out for above in self.kept.above(number))


def _parts(columns: Columns) -> set[Place]:
    """Return the inventories that are parts of what another of their tree has: they share in it.

    A class that draws on the same class of another provider one by one is a part of that.
    """
    return {
        (number, name)
        for number, name, of, of_name, factor in zip(*columns.shares, strict=True)
        if name == of_name and of != number and factor == 1 and _is_located(columns, number, name)
    }


def _is_located(columns: Columns, number: int, name: str) -> bool:
    table = zip(columns.kinds.provider_id, columns.kinds.classes, strict=True)
    return any(at == number and name in classes for at, classes in table)


def is_out_of_service(rows: Rows, number: int) -> bool:
    """Return whether a request may not have a provider since it is out of service."""
    named = {*rows.request.root_required}
    for one in rows.request.groups:
        named.update(one.required, *one.any_of, *(t for _, some, _ in one.traits_of for t in some))
    return DISABLED not in named and rows.is_disabled(number)


def condition_of(
    rows: Rows, reading: HostReading, group: RequestGroup, word: str, label: str
) -> Callable[[int], bool]:
    """Return who meets a condition that is told in words."""
    some = set(label.split(" or "))
    match word:
        case "with":
            return lambda n: bool(some & reading.traits_of(group, n))
        case "without":
            return lambda n: label not in reading.traits_of(group, n)
        case "in service":
            return lambda n: not is_out_of_service(rows, n)
        case "in":
            wanted = [part.split(" or ") for part in label.split(", ")]
            asked = group.replace(member_of=wanted, not_member_of=[])
            return lambda n: reading.is_member(asked, n)
        case "outside":
            asked = group.replace(member_of=[], not_member_of=[label])
            return lambda n: reading.is_member(asked, n)
    return lambda n: reading.is_in_tree(group, n)


class Sentence:
    """One reason of one host."""

    def __init__(self, rows: Rows, host: str, reason: Reason, told: Sequence[Reason]) -> None:
        self.rows, self.kept, self.reason, self.told = rows, rows.kept, reason, told
        self.root = rows.by_name[host]
        self.host = host
        self.reading = HostReading(rows.kept, self.root, rows.rules, rows.trees)
        if rows.rules.host_gives and rows.kept.rows[self.root].is_sharing:
            self.reading.everybody = self.reading.own  # nobody else gives to the tree of a pool
        suffixes = reason.demands or (reason.group.split(", ") if reason.group else [])
        self.groups = [g for g in rows.request.named if g.suffix in suffixes]
        self.group = self.groups[0] if self.groups else rows.request.unnamed
        self.asked = counts_of(self.group)

    def faults(self) -> Iterator[str]:
        """Yield what is wrong with it."""
        reason = self.reason
        if reason.where is not None and reason.where not in self.rows.by_name:
            yield "nobody is called so"
            return
        check = _CHECKS.get(reason.rule)
        if self._is_located:
            yield from self.located()
            return
        if check is None:
            yield "there is no check of this rule"
            return
        yield from check(self)
        if reason.rule not in _WITH_HOLDERS and reason.holders:
            yield "holders are named, and are not what it is about"

    # --- what lies over a tree ---

    @property
    def _is_located(self) -> bool:
        """Return whether it is about cells or devices, whose kind decides, not about a count."""
        reason = self.reason
        is_of_kind = reason.unit is not None and reason.rule in (Rule.CAPACITY, Rule.LIMIT)
        if reason.cell is not None or reason.resource in LOCATED or is_of_kind:
            return reason.rule not in _OF_CONDITIONS
        if reason.rule in _OF_CONDITIONS or not self._is_implied(reason.resource or ""):
            return False
        # what is drawn on at one provider is told of that
        return reason.where in (None, self.host) or reason.rule not in (
            Rule.CAPACITY,
            Rule.LIMIT,
        )

    def _is_implied(self, name: str) -> bool:
        """Return whether a class is asked for by an amount that says where it goes."""
        amounts = dict(self.group.resources.by_name())
        devices: Any = amounts.get("DEVICES")
        if devices is not None and name in {one.resource_class for one in devices.requests}:
            return True
        topology: Any = amounts.get("NUMA_TOPOLOGY")
        return topology is not None and name in topology.placed_counts

    def located(self) -> Iterator[str]:
        """What is told of cells and devices is true of those that may be used.

        Those with some of the required traits, which nobody else might have: cells of some of
        them, and devices of some.
        """
        found: list[str] = []
        for chosen in self._chosen_of_kinds():
            found = list(self._of_parts(chosen).faults())
            if not found:
                return
        if self.kept.shares and self.reason.cell is None and not list(self._elsewhere()):
            return  # what is counted beside it draws on what cells have
        yield from found

    def _of_parts(self, chosen: Mapping[str, Sequence[Collection[str]]]) -> LocatedSentence:
        group, reading = self.group, self.reading

        def may(number: int, kind: str) -> bool:
            has = reading.traits_of(group, number)
            return (
                reading.may_give(group, number, [])
                and not self._is_out(number)
                and all(set(wanted) & has for wanted in chosen[kind])
            )

        amounts: dict[str, Any] = dict(group.resources.by_name())
        rows = LocatedRows(self.rows.columns, self.kept, reading.own, self.root)
        return LocatedSentence(
            rows,
            self.reason,
            amounts.get("NUMA_TOPOLOGY"),
            amounts.get("DEVICES"),
            may,
            self.rows.holders,
        )

    def _chosen(self) -> Iterator[Sequence[Collection[str]]]:
        """Yield the sets of the required traits that a class may have to answer for, all first."""
        group = self.group
        wanted: list[Collection[str]] = [*({one} for one in sorted(group.required)), *group.any_of]
        for count in range(len(wanted), -1, -1):
            yield from itertools.combinations(wanted, count)

    def _chosen_of_kinds(self) -> Iterator[Mapping[str, Sequence[Collection[str]]]]:
        """Yield the same of each kind, the same for all kinds first."""
        pairs = itertools.product(list(self._chosen()), repeat=len(LOCATED))
        for some in sorted(pairs, key=lambda pair: pair[0] != pair[1]):
            yield dict(zip(sorted(LOCATED), some, strict=True))

    # --- who might give ---

    @property
    def places(self) -> list[int]:
        """Who has the class, of the tree and of pools, but not as a part of what another has."""
        name = self.reason.resource or ""
        if name in LOCATED:
            return self._parts_of(name)
        return [
            number
            for number in self.reading.everybody
            if name in self.kept.rows[number].stocks and (number, name) not in self.rows.parts
        ]

    def _parts_of(self, name: str) -> list[int]:
        """Return who keeps a part of a kind that lies over the tree."""
        table = self.rows.columns.kinds
        rows = zip(table.provider_id, table.resource_class, strict=True)
        return [number for number, kind in rows if kind == name and number in self.reading.own]

    def may(self, *, all_traits: bool = False) -> list[int]:
        """Return who of these meets the conditions on everybody who gives."""
        name, group = self.reason.resource or "", self.group
        found = [n for n in self.places if self.reading.may_give(group, n, [name])]
        found = [n for n in found if not self._is_out(n)]
        if all_traits or group.suffix:
            wanted = [*({one} for one in group.required), *group.any_of]
            has = self.reading.traits_of
            found = [n for n in found if all(some & has(group, n) for some in wanted)]
        return found

    def _is_out(self, number: int) -> bool:
        return is_out_of_service(self.rows, number)

    def left(self, number: int) -> int:
        return max(0, self.kept.left((number, self.reason.resource or "")))

    def total(self, name: str) -> int:
        """Return how much all groups ask of a class."""
        every = [counts_of(group) for group in self.rows.request.groups]
        return sum(one.get(name, 0) for one in every)

    # --- amounts ---

    def capacity(self) -> Iterator[str]:
        """What is asked is more than what is free: here, or where that is used too."""
        reason = self.reason
        if reason.requested <= reason.free:
            yield "so much is free"
        if self._is_located_too and self._is_of_one():
            return
        if self._are_placements() and (yield from self._is_asked(silently=True)):
            return
        some = self._counted_set(self._sets())
        if self.kept.shares and (some is None or not (yield from self._is_asked(silently=True))):
            yield from self._elsewhere()
            return
        yield from self._is_asked()
        if some is None:
            yield "the figures, or the holders, are of no providers that might give"
        elif not self.kept.shares and len(self.groups) < 2:
            yield from self._nobody_else(some)

    def _nobody_else(self, some: Collection[int]) -> Iterator[str]:
        """Nobody but those that are told of, who might give a class, has enough of it."""
        reason, name = self.reason, self.reason.resource or ""
        others = [n for n in self.may(all_traits=True) if n not in some]
        if not self.groups and self._is_of_own():
            others = [n for n in others if n in self.reading.own]
        if any(self.left(number) >= reason.requested for number in others):
            yield "somebody else has enough"
        if not self.group.suffix and self.rows.rules.splits_devices:
            devices = [n for n in self.may(all_traits=True) if self.kept.may_split(n, name)]
            own = [n for n in devices if n in self.reading.own]
            if sum(map(self.left, own)) >= reason.requested:
                yield "devices have enough together"

    @property
    def _is_located_too(self) -> bool:
        """Return whether something says where it goes, which may draw on what is counted."""
        return any(name in LOCATED for name, _ in self.group.resources.by_name())

    def _is_of_one(self) -> bool:
        """Return whether the figures and holders are those of one provider, which is named."""
        reason, name = self.reason, self.reason.resource or ""
        number = self.rows.by_name[reason.where or self.host]
        stock = self.kept.rows[number].stocks.get(name)
        return (
            stock is not None
            and (reason.bound, reason.used) == (stock.capacity, stock.used)
            and dict(reason.holders) == self.rows.holders([(number, name)])
        )

    def _is_of_own(self) -> bool:
        """Return whether it may be told that the host gives nothing itself, whatever pools have.

        Then that is told of every class that is asked.
        """
        return self.rows.rules.host_gives and set(self.asked) <= {one.resource for one in self.told}

    def _is_asked(self, *, silently: bool = False) -> Any:
        """Yield a fault, unless so much is asked of the class; return whether it is."""
        reason, name = self.reason, self.reason.resource or ""
        asked = {self.asked.get(name)}
        if name in LOCATED:
            asked = {_pieces(dict(self.group.resources.by_name())[name])}
        amounts: dict[str, Any] = dict(self.group.resources.by_name())
        if "DEVICES" in amounts:
            asked |= {o.count for o in amounts["DEVICES"].requests if o.resource_class == name}
        if self.groups:
            asked.add(self.total(name))
        if reason.requested in asked:
            return True
        if not silently:
            yield f"{self.asked.get(name)} is asked"
        return False

    def _sets(self) -> Iterator[Collection[int]]:
        """Yield the sets of providers of which the figures may be."""
        reason = self.reason
        where = self.rows.by_name[reason.where or self.host]
        if len(self.groups) > 1 or (
            self.groups and reason.requested != self.asked.get(reason.resource or "")
        ):
            yield self.places
            yield [number for number in self.places if not self._is_out(number)]
        if where != self.root or len(self.places) == 1 or where in self.places:
            yield [where]
        group, may, has = self.group, self.may(), self.reading.traits_of
        for chosen in self._chosen():
            some = [n for n in may if all(set(w) & has(group, n) for w in chosen)]
            own = [n for n in some if n in self.reading.own] or some
            for kind in (some, own):
                yield kind
                yield [n for n in kind if self.kept.may_split(n, reason.resource or "")]

    def _counted_set(self, sets: Iterable[Collection[int]]) -> Collection[int] | None:
        """Return the first set of providers with the figures and holders that are told."""
        reason, name = self.reason, self.reason.resource or ""
        for some in sets:
            stocks = [self.kept.rows[n].stocks.get(name) for n in some]
            if not stocks or any(stock is None for stock in stocks):
                continue
            bound = sum(stock.capacity for stock in stocks if stock)
            used = sum(stock.used for stock in stocks if stock)
            places = [(n, name) for n in some]
            held = self.rows.holders(places)
            is_used = reason.used == used
            if self.groups:  # of all groups: what is over-full is not short of anything else
                is_used = is_used or reason.used == bound - sum(
                    max(0, stock.capacity - stock.used) for stock in stocks if stock
                )
            if reason.bound == bound and is_used and dict(reason.holders) == held:
                return some
        return None

    def _are_placements(self) -> bool:
        """Return whether the figures are those of single units that share slices of a device."""
        reason, name = self.reason, self.reason.resource or ""
        single = [[number] for number in self.may()] if self.groups else []
        for some in itertools.chain(self._sets(), single):
            places = [(number, name) for number in some]
            if not places or not all(map(self._is_placement, places)):
                continue
            free = sum(max(0, self.kept.left(place)) for place in places)
            targets = {target for place in places for target, _ in self.kept.shares[place]}
            sources = {source for target in targets for source, _ in self.rows.into[target]}
            if (
                reason.rule is Rule.CAPACITY
                and (reason.bound, reason.free) == (len(places), free)
                and dict(reason.holders) == self.rows.holders({*places, *sources})
            ):
                return True
        return False

    def _is_placement(self, place: Place) -> bool:
        number, name = place
        stock = self.kept.rows[number].stocks.get(name)
        return (
            stock is not None
            and stock.capacity == 1
            and any(
                of != number and self.kept.rows[of].stocks[of_name].capacity == 1
                for (of, of_name), _ in self.kept.shares.get(place, ())
            )
        )

    def _elsewhere(self) -> Iterator[str]:
        """What is taken is used of another inventory too, of which so much is not left."""
        reason, name = self.reason, self.reason.resource or ""
        targets = sorted(
            {
                target
                for links in self.kept.shares.values()
                for target, _ in links
                if target[1] == name
            }
        )
        trees = {self.kept.root(number) for number in self.reading.everybody}
        within = [t for t in targets if self.kept.root(t[0]) in trees]
        for count in range(1, len(within) + 1):
            for some in itertools.combinations(within, count):
                stocks = [self.kept.rows[n].stocks[name] for n, _ in some]
                if (
                    reason.bound == sum(one.capacity for one in stocks)
                    and reason.used == sum(one.used for one in stocks)
                    and dict(reason.holders) == self.rows.holders(some)
                ):
                    return
        yield "the figures, or the holders, are of nothing that is used too"

    def not_whole(self) -> Iterator[str]:
        """Of some devices others have a part: all who have one, or a part of one, are named."""
        reason, name = self.reason, self.reason.resource or ""
        yield from self._is_asked()
        if reason.requested <= reason.free:
            yield "so many are whole"
        for some in self._sets():
            places = [(n, name) for n in some]
            if any(self.kept.rows[n].stocks.get(name) is None for n in some):
                continue
            free = sum(max(0, self.kept.left(place)) for place in places)
            is_right = (reason.bound, reason.free) == (len(places), free)
            if is_right and self._has_parts(places):
                return
        yield "the figures, or the holders, are of no providers that might give"

    def _has_parts(self, places: Sequence[Place]) -> bool:
        """Return whether just those are told who have these devices, or parts of them."""
        whole: dict[str, int] = {}
        parts: dict[tuple[str, str], Fraction] = {}
        for number, name in places:
            held = self.rows.held.get((number, name), {})
            stock = self.kept.rows[number].stocks[name]
            if stock.used - sum(self.rows.drawn((number, name)).values()) >= stock.capacity:
                for who, amount in held.items():
                    whole[who] = whole.get(who, 0) + amount
                continue
            for target, _ in self.kept.shares.get((number, name), ()):
                of = self.kept.rows[target[0]].stocks[target[1]]
                for who, amount in self.rows.holders([target]).items():
                    key = who, self.kept.rows[number].name
                    parts[key] = max(parts.get(key, Fraction()), Fraction(amount, of.capacity))
        told = {(who, where): Fraction(*part) for who, where, *part in self.reason.parts}
        return dict(self.reason.holders) == whole and told == parts

    def unit_rule(self) -> Iterator[str]:
        """A unit rule stands against who has room."""
        reason, name = self.reason, self.reason.resource or ""
        yield from self._is_asked()
        where = self.rows.by_name[reason.where or self.host]
        alone = [where] if name in self.kept.rows[where].stocks else []
        alone += [n for some in self._sets() if len(some) == 1 for n in some]
        if self.rows.request.near is not None:
            alone += self._places_near().get(where, [])
        alone = [n for n in alone if name in self.kept.rows[n].stocks]
        for number in alone:
            stock = self.kept.rows[number].stocks[name]
            rules = {
                Rule.MIN_UNIT: (stock.min_unit, reason.requested < stock.min_unit),
                Rule.MAX_UNIT: (
                    stock.max_unit,
                    stock.max_unit is not None and reason.requested > stock.max_unit,
                ),
                Rule.STEP_SIZE: (stock.step_size, reason.requested % stock.step_size != 0),
            }
            bound, fails = rules[reason.rule]
            if bound == reason.bound and fails:
                return
        stocks = [
            self.kept.rows[n].stocks[name] for n in self.may() if self.kept.may_split(n, name)
        ]
        if not stocks:
            yield "nobody has such a rule"
        elif reason.rule is Rule.MIN_UNIT and reason.bound not in [one.min_unit for one in stocks]:
            yield "no device has such a rule"
        elif reason.rule is Rule.MAX_UNIT and reason.bound >= reason.requested:
            yield "together they may give so much"
        elif reason.rule is Rule.STEP_SIZE and not reason.requested % reason.bound:
            yield "it is a multiple"

    def in_steps(self) -> Iterator[str]:
        yield from self._is_asked()
        if self.reason.bound >= self.reason.requested:
            yield "so much goes in steps"

    def no_inventory(self) -> Iterator[str]:
        yield from self._is_asked()
        if self.places:
            yield "somebody has it"

    def not_own(self) -> Iterator[str]:
        yield from self._is_asked()
        own = [n for n in self.may(all_traits=True) if n in self.reading.own]
        if any(self._gives_it(n) for n in own) and not self.groups:
            yield "the host gives it"

    def _gives_it(self, number: int) -> bool:
        name = self.reason.resource or ""
        stock = self.kept.rows[number].stocks[name]
        return stock.gives(self.reason.requested) and self.left(number) >= self.reason.requested

    # --- near ---

    def _places_near(self) -> dict[int | None, list[int]]:
        """Return who has the class, by the place of the level; None for those at no place."""
        level = self.rows.request.near or ""
        found: dict[int | None, list[int]] = {}
        for number in self.places:
            if number in self.reading.own:
                found.setdefault(place_of(self.kept, number, level), []).append(number)
        return found

    def near(self) -> Iterator[str]:
        """The best place has so much, less than is asked; the holders are of what is there."""
        reason, name = self.reason, self.reason.resource or ""
        if reason.requested <= reason.free:
            yield "so much is free"
        if reason.requested != sum(counts_of(one).get(name, 0) for one in self.groups):
            yield from self._is_asked()
        where = self.rows.by_name[reason.where or self.host]
        here = self._places_near().get(where, [])
        if reason.bound == reason.used == 0 and not reason.holders:
            able = self.may(all_traits=True)
            if self.groups:
                able = [n for n in able if self._would(self.group, n)]
            if any(n in here for n in able):
                yield "somebody there might give it"
            return
        for count in range(1, len(here) + 1):
            for some in itertools.combinations(here, count):
                stocks = [self.kept.rows[n].stocks[name] for n in some]
                bound = sum(one.capacity for one in stocks)
                used = {
                    sum(one.used for one in stocks),
                    bound - sum(self.left(number) for number in some),
                }
                held = self.rows.holders([(n, name) for n in some])
                if reason.bound == bound and reason.used in used and dict(reason.holders) == held:
                    return
        if self.kept.shares:
            yield from self._elsewhere()
        else:
            yield "the figures, or the holders, are of nobody there"

    def place_unknown(self) -> Iterator[str]:
        """Nobody who has it is at a place of the level."""
        if set(self._places_near()) - {None}:
            yield "somebody is at a place"

    def at_once(self) -> Iterator[str]:
        """There is a place of the level."""
        level = self.rows.request.near or ""
        bound = [n for n in self.reading.own if place_of(self.kept, n, level) is not None]
        if not bound:
            yield "there is no place"
        at: dict[str, set[int]] = {}
        for number in bound:
            for name in {name for g in self.rows.request.groups for name in counts_of(g)}:
                for who in self.rows.holders([(number, name)]):
                    at.setdefault(who, set()).add(number)
        told = {who: len(numbers) for who, numbers in at.items()}
        if dict(self.reason.holders) != told:
            yield f"{told} are there"

    def no_place(self) -> Iterator[str]:
        """No place of the level keeps anything that is asked."""
        level, asked = self.rows.request.near or "", self.rows.request.resources
        names = {resource.name for resource in asked}
        for number in self.reading.own:
            at = place_of(self.kept, number, level)
            if at is not None and names & set(self.kept.rows[number].stocks):
                yield f"{self.kept.rows[number].name} does"
                return

    # --- conditions ---

    def condition(self) -> Iterator[str]:
        """Nobody who has the class, or has room for the group, meets a condition."""
        yield from self._is_asked_of_group()
        if any(all(met(number) for met in self._met()) for number in self._whom()):
            yield "somebody meets it"

    def conditions(self) -> Iterator[str]:
        """Nobody meets all of some conditions, each of which somebody meets."""
        yield from self.condition()
        for met in self._met():
            if not any(met(number) for number in self._whom()):
                yield "nobody meets one of these, which is told otherwise"

    def _is_asked_of_group(self) -> Iterator[str]:
        if self.reason.resource in (None, "provider"):
            return
        yield from self._is_asked()

    def _whom(self) -> list[int]:
        """Return of whom a condition is asked."""
        return self.places if self.group.resources else self.reading.everybody

    def _met(self) -> list[Callable[[int], bool]]:
        """Return who meets what is told, condition by condition."""
        reason = self.reason
        if reason.rule is Rule.CONDITIONS:
            return [self._one(*pair) for pair in words_of(reason.unit or "")]
        words = {
            Rule.TRAIT_MISSING: "with",
            Rule.TRAIT_FORBIDDEN: "without",
            Rule.AGGREGATE_MISSING: "in",
            Rule.AGGREGATE_FORBIDDEN: "outside",
            Rule.OTHER_TREE: "of the tree of",
        }
        return [self._one(words[reason.rule], reason.trait or reason.unit or "")]

    def _one(self, word: str, label: str) -> Callable[[int], bool]:
        return condition_of(self.rows, self.reading, self.group, word, label)

    def root_trait(self) -> Iterator[str]:
        has = self.reason.trait in self.kept.rows[self.root].traits
        if has == (self.reason.rule is Rule.ROOT_TRAIT_MISSING):
            yield "the host itself says otherwise"

    def disabled(self) -> Iterator[str]:
        number = self.rows.by_name[self.reason.where or self.host]
        facts = self.rows.columns.disabled.get(number)
        if self.reason.unit is not None:  # a removed unit, or "": all that have the class
            facts = REMOVED if self.reason.unit else None
        if facts != self.reason.disabled:
            yield "it is not disabled so"
        above = {
            *self.kept.above(self.root),
            *itertools.chain.from_iterable(self.kept.above(n) for n in self.reading.everybody),
        }
        if number not in above:
            yield "it is nothing of the host"

    def traits_at_once(self) -> Iterator[str]:
        """Somebody who might give it has each of the traits, the last one included."""
        for _, label in words_of(self.reason.unit or ""):
            some = set(label.split(" or "))
            every = [n for n in self.reading.everybody if not self._is_out(n)]
            if not any(some & self.reading.traits_of(self.group, n) for n in every):
                yield f"nobody has {label}"
        name = self.reason.resource or ""
        places = [(n, name) for n in self.may()] if name not in LOCATED else []
        held = self.rows.holders(places)
        if dict(self.reason.holders) != held:
            yield f"{held} hold some of it"

    def filtered(self) -> Iterator[str]:
        """The members of a server group that are told are there, or are elsewhere."""
        assert self.rows.group is not None and self.reason.filter == "affinity"
        members, is_apart = self.rows.group
        at = {
            who: {self.kept.root(n) for (n, _), held in self.rows.held.items() if who in held}
            for who in members
        }
        here = sorted(who for who, roots in at.items() if self.root in roots)
        there = sorted(who for who, roots in at.items() if roots)
        told = f"{', '.join(here)} of group db {'is' if len(here) == 1 else 'are'} there already"
        if not is_apart:
            told, here = "the others of group db are elsewhere", ["?"] if here else there
        if self.reason.unit != told or not here:
            yield f"{here} are there, {there} anywhere"
        if self.reason.holders != tuple((who, 1) for who in here):
            yield f"{here} are in the way"

    # --- groups ---

    def _gives(self, number: int, name: str) -> bool:
        """Return whether a provider gives what the group asks of a class, now."""
        stock, amount = self.kept.rows[number].stocks.get(name), self.asked[name]
        return (
            stock is not None
            and (number, name) not in self.rows.parts
            and stock.gives(amount)
            and self.kept.left((number, name)) >= amount
        )

    def one_provider(self) -> Iterator[str]:
        """So many classes of a group are given by one provider at most, and no class by nobody."""
        may = [n for n in self.reading.everybody if self._may(self.group, n)]
        given = [{name for name in self.asked if self._gives(n, name)} for n in may]
        most = max(map(len, given), default=0)
        if (self.reason.requested, self.reason.bound) != (len(self.asked), most):
            yield f"it is {most} of {len(self.asked)}"
        if most == len(self.asked) or set(self.asked) != set().union(*given):
            yield "one gives all, or nobody gives one"
        yield from self._there(able=True)

    def isolated(self) -> Iterator[str]:
        """So many of the groups can have a provider of their own."""
        options = [self._options(group) for group in self.groups]
        most = _matched(options)
        if (self.reason.requested, self.reason.bound) != (len(self.groups), most):
            yield f"it is {most} of {len(self.groups)}"
        if len(self.groups) != len(self.rows.request.named):
            yield "there are more groups"
        yield from self._there(able=False)

    def _may(self, group: RequestGroup, number: int) -> bool:
        """Return whether a provider meets all conditions of a group."""
        has, names = self.reading.traits_of(group, number), counts_of(group)
        return (
            self.reading.may_give(group, number, names)
            and not self._is_out(number)
            and group.required <= has
            and all(some & has for some in group.any_of)
        )

    def _there(self, *, able: bool) -> Iterator[str]:
        """All are named who are at providers that would give a group if nobody held anything.

        :param able: whether those count that give it now
        """
        found: dict[str, set[int]] = {}
        for group in self.groups:
            now = [] if able else self._options(group)
            for number in self.reading.everybody:
                if number in now or not self._would(group, number):
                    continue
                for name in counts_of(group):
                    for who in self.rows.holders([(number, name)]):
                        found.setdefault(who, set()).add(number)
        told = {who: len(numbers) for who, numbers in found.items()}
        if dict(self.reason.holders) != told:
            yield f"{told} are there"

    def _would(self, group: RequestGroup, number: int) -> bool:
        if not self._may(group, number):
            return False
        for name, amount in counts_of(group).items():
            stock = self.kept.rows[number].stocks.get(name)
            if stock is None or (number, name) in self.rows.parts:
                return False
            rows, links = self.kept.rows, self.kept.shares.get((number, name), ())
            most = [stock.capacity]
            most += [rows[of].stocks[kind].capacity // factor for (of, kind), factor in links]
            empty = dataclasses.replace(stock, used=0, capacity=min(most))
            if not empty.gives(amount):
                return False
        return True

    def groups_at_once(self) -> Iterator[str]:
        """Each of the groups could be given, and all at once cannot."""
        if self.reason.requested != len(self.groups):
            yield f"these are {len(self.groups)} groups"
        for group in self.groups:
            if not self._options(group):
                yield f"nobody gives {group.suffix}"
        chosen = itertools.product(*(self._options(group) for group in self.groups))
        if any(self._fit(some) for some in chosen):
            whole = len(self.groups) == len(self.rows.request.named)
            if not (whole and self._beside()):
                yield "they can be given at once"
        yield from self._there(able=True)

    def _beside(self) -> bool:
        """Return whether what is asked without a name may be what is in the way."""
        return bool(self.rows.request.unnamed.resources) or bool(self.rows.request.same_subtree)

    def subtree(self) -> Iterator[str]:
        if self.reason.requested != len(self.groups):
            yield f"these are {len(self.groups)} groups"
        for some in itertools.product(*(self._options(group) for group in self.groups)):
            is_below = any(all(top in self.kept.above(n) for n in some) for top in some)
            if is_below and self._fit(some):
                yield "somebody is above the others"
                break
        yield from self._there(able=True)

    def _options(self, group: RequestGroup) -> list[int]:
        matched = self.reading.matched(group)
        return [
            n
            for n in matched
            if not self._is_out(n)
            and all(
                self.kept.left((n, name)) >= amount for name, amount in counts_of(group).items()
            )
        ]

    def _fit(self, some: Sequence[int]) -> bool:
        taken: dict[Place, int] = {}
        for number, group in zip(some, self.groups, strict=True):
            for name, amount in counts_of(group).items():
                taken[number, name] = taken.get((number, name), 0) + amount
        is_apart = not self.rows.request.isolates or len(set(some)) == len(some)
        return is_apart and self.kept.has_room(taken)


def _pieces(amount: Any) -> int:
    """Return of how many pieces an amount is: guest cells, or devices."""
    if hasattr(amount, "cells"):
        return len(amount.cells)
    return sum(one.count for one in amount.requests)


def words_of(text: str) -> Iterator[tuple[str, str]]:
    """Yield the conditions of words such as ``with A without B in r of the tree of t``."""
    words = text.split(" ") if text else []
    kinds = {"with", "without", "in", "outside", "of"}
    at = 0
    while at < len(words):
        kind = words[at]
        end = at + 1
        if kind == "of":
            yield "of the tree of", words[at + 4]
            at += 5
            continue
        while end < len(words) and words[end] not in kinds:
            end += 1
        if words[at + 1 : end] == ["service"]:
            yield "in service", ""
        else:
            yield kind, " ".join(words[at + 1 : end])
        at = end


def _matched(options: Sequence[Collection[int]]) -> int:
    """Return how many can have one of their own, by trying: each takes one, or none."""

    def most(at: int, taken: frozenset[int]) -> int:
        if at == len(options):
            return 0
        best = most(at + 1, taken)
        for one in options[at]:
            if one not in taken:
                best = max(best, 1 + most(at + 1, taken | {one}))
        return best

    return most(0, frozenset())


#: Rules about who may give, whatever is free.
_OF_CONDITIONS = frozenset(
    {
        Rule.TRAIT_MISSING,
        Rule.TRAIT_FORBIDDEN,
        *(Rule.TRAITS_AT_ONCE, Rule.FILTER),
        Rule.CONDITIONS,
        Rule.AGGREGATE_MISSING,
        Rule.AGGREGATE_FORBIDDEN,
        Rule.OTHER_TREE,
        Rule.DISABLED,
    }
)
#: Rules whose reasons name who holds what is missing.
_WITH_HOLDERS = frozenset(
    {
        *(Rule.CAPACITY, Rule.LIMIT, Rule.UNIT_TAKEN, Rule.NOT_WHOLE, Rule.NEAR),
        *(Rule.TRAITS_AT_ONCE, Rule.FILTER),
        *(Rule.ONE_PROVIDER, Rule.ISOLATED, Rule.GROUPS, Rule.SUBTREE, Rule.NEAR_AT_ONCE),
    }
)
_CHECKS: Mapping[Rule, Callable[[Sentence], Iterator[str]]] = {
    Rule.CAPACITY: Sentence.capacity,
    Rule.NOT_WHOLE: Sentence.not_whole,
    Rule.LIMIT: Sentence.capacity,
    Rule.MIN_UNIT: Sentence.unit_rule,
    Rule.MAX_UNIT: Sentence.unit_rule,
    Rule.STEP_SIZE: Sentence.unit_rule,
    Rule.IN_STEPS: Sentence.in_steps,
    Rule.NO_INVENTORY: Sentence.no_inventory,
    Rule.NOT_OWN: Sentence.not_own,
    Rule.TRAIT_MISSING: Sentence.condition,
    Rule.TRAIT_FORBIDDEN: Sentence.condition,
    Rule.AGGREGATE_MISSING: Sentence.condition,
    Rule.AGGREGATE_FORBIDDEN: Sentence.condition,
    Rule.OTHER_TREE: Sentence.condition,
    Rule.CONDITIONS: Sentence.conditions,
    Rule.TRAITS_AT_ONCE: Sentence.traits_at_once,
    Rule.ROOT_TRAIT_MISSING: Sentence.root_trait,
    Rule.ROOT_TRAIT_FORBIDDEN: Sentence.root_trait,
    Rule.DISABLED: Sentence.disabled,
    Rule.FILTER: Sentence.filtered,
    Rule.ONE_PROVIDER: Sentence.one_provider,
    Rule.ISOLATED: Sentence.isolated,
    Rule.GROUPS: Sentence.groups_at_once,
    Rule.SUBTREE: Sentence.subtree,
    Rule.NEAR: Sentence.near,
    Rule.PLACE_UNKNOWN: Sentence.place_unknown,
    Rule.NEAR_AT_ONCE: Sentence.at_once,
    Rule.NO_PLACE: Sentence.no_place,
}
