"""Reasons of refusals, as data and in words, and the rules that they are about.

A :class:`Reason` is one constraint that failed, with its figures. :class:`Rule` names the
constraint. This module imports nothing of the package.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

_NAMED = 3


class Rule(enum.StrEnum):
    """The constraints that a request can fail.

    The comment of each says what ``bound`` of a :class:`Reason` is; without one it is 0.
    """

    CAPACITY = "capacity"  #: used would exceed the capacity (bound: the capacity)
    NOT_WHOLE = "not_whole"  #: parts of the devices are allocated (bound: the devices)
    LIMIT = "limit"  #: used would exceed the limit of the claim (bound: the limit)
    MIN_UNIT = "min_unit"  #: less than one claim may request (bound: min_unit)
    MAX_UNIT = "max_unit"  #: more than one claim may request (bound: max_unit)
    STEP_SIZE = "step_size"  #: not a multiple (bound: step_size)
    USED_BELOW_ZERO = "used_below_zero"  #: more is released than is used
    IN_STEPS = "in_steps"  #: not all of the free amount is usable in steps (bound: the usable part)
    NO_INVENTORY = "no_inventory"  #: no provider has an inventory of the class
    NOT_OWN = "not_own"  #: pools may provide it, the host itself does not
    UNIT_TAKEN = "unit_taken"  #: a requested unit is allocated
    TRAIT_MISSING = "trait_missing"  #: no provider of the class has the trait
    TRAITS_AT_ONCE = "traits_at_once"  #: each trait is available, all of them together are not
    TRAIT_FORBIDDEN = "trait_forbidden"  #: every provider of the class has the trait
    PHYSICAL = "physical"  #: it is never allocated twice, and too little is left (bound: all)
    INDIVISIBLE = "indivisible"  #: memory that is not a whole number of pages (bound: page, KiB)
    PAGE_SIZE = "page_size"  #: there are no pages of the requested size
    THREADS = "threads"  #: the thread policy leaves fewer CPUs (bound: their number)
    EMULATOR = "emulator"  #: no core is free for the emulator
    HOST_CELLS = "host_cells"  #: more guest cells than usable host cells (bound: the host cells)
    NETWORK = "network"  #: no usable cell is next to the network
    ONE_SOCKET = "one_socket"  #: no socket has capacity for all guest cells (bound: its maximum)
    SOCKET_UNKNOWN = "socket_unknown"  #: the socket of the device or cell is not known
    FOREIGN = "foreign"  #: it is assigned to cells, CPUs or devices that the host does not have
    INVALID = "invalid"  #: its stored inventory contradicts itself
    AFFINITY = "affinity"  #: too few devices are near enough (bound: their maximum)
    AT_ONCE = "at_once"  #: not all device requests fit together (bound: their maximum)
    AGGREGATE_MISSING = "aggregate_missing"  #: no provider of the class is a member
    AGGREGATE_FORBIDDEN = "aggregate_forbidden"  #: every provider of the class is a member
    CONDITIONS = "conditions"  #: each condition is met by a provider, all together by none
    OTHER_TREE = "other_tree"  #: another tree was requested
    ROOT_TRAIT_MISSING = "root_trait_missing"  #: the host does not have the trait
    ROOT_TRAIT_FORBIDDEN = "root_trait_forbidden"  #: the host has the trait
    ONE_PROVIDER = "one_provider"  #: none has all classes of a group (bound: the most of one)
    ISOLATED = "isolated"  #: groups need one provider each (bound: the providers with capacity)
    SUBTREE = "subtree"  #: no provider of a group is above the providers of the others
    DISABLED = "disabled"  #: the provider is disabled
    GROUPS = "groups"  #: each group fits, all of them together do not
    NEAR = "near"  #: no place of a level has enough (bound: the capacity of the best)
    PLACE_UNKNOWN = "place_unknown"  #: no device of the class reports its place
    NO_PLACE = "no_place"  #: no place of the level has any of the requested classes
    NEAR_AT_ONCE = "near_at_once"  #: each class fits at a place of the level, all at none
    TOGETHER = "together"  #: each part fits, all of them together do not (bound: the maximum)
    FILTER = "filter"  #: a scheduler's filter refuses the host (bound: the figure it compares with)
    SERVER_GROUP = "server_group"  #: the policy of a server group (bound: the allowed members)


class DisabledFacts(Protocol):
    """The facts of a disabling; see :class:`~resource_objects.providers.Disabled`."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""


UNIT_RULES = frozenset({Rule.MIN_UNIT, Rule.MAX_UNIT, Rule.STEP_SIZE})


@dataclasses.dataclass(frozen=True, slots=True)
class Reason:
    """One constraint that failed, with its figures.

    ``requested`` is the requested amount (negative: released), ``bound`` the figure that the rule
    compares with, ``used`` the used amount. ``resource`` and ``where`` (a provider) are names, None
    if unknown. ``holders`` are ``(consumer, amount)`` pairs: the largest first, then in natural
    order (``job-2`` before ``job-10``); of a rule about groups or places as a whole, the amount is
    a number of providers. ``cell`` is a host cell and ``guest`` a guest cell of a topology.
    ``group`` is the suffix of a group of the request, or several with commas, or a server group.
    ``demands`` are the parts of the request whose amounts ``requested`` sums, if there are several:
    suffixes of groups, ``""`` for the part without a group; ``group`` is then None.

    Some rules have further data: ``trait`` the trait rules; ``disabled`` the facts of
    :attr:`Rule.DISABLED`; ``filter`` the name of the filter of :attr:`Rule.FILTER`; ``parts`` of
    :attr:`Rule.NOT_WHOLE` are ``(consumer, provider, parts, parts of the device)``. ``unit`` is the
    unit, network, policy, kind of device or level of a rule, or its explanation in words.

    >>> print(Reason(Rule.CAPACITY, 3, bound=4, used=3, resource="PGPU", where="host0",
    ...              holders=(("job-1", 3),)))
    host0: PGPU requested 3, free 1 of 4 (job-1 holds 3)
    """

    rule: Rule
    requested: int
    bound: int
    used: int
    resource: str | None = None
    where: str | None = None
    holders: tuple[tuple[str, int], ...] = ()
    trait: str | None = None
    unit: str | None = None
    cell: int | None = None
    guest: int | None = None
    group: str | None = None
    disabled: DisabledFacts | None = None
    parts: tuple[tuple[str, str, int, int], ...] = ()
    filter: str | None = None
    demands: tuple[str, ...] = ()

    @property
    def free(self) -> int:
        """Bound minus used; negative if more is used than the bound."""
        return self.bound - self.used

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        data = {name: getattr(self, name) for name in _FIELDS}
        if self.rule is not Rule.NOT_WHOLE:
            del data["parts"]
        if self.rule is not Rule.FILTER:
            del data["filter"]
        if not self.demands:
            del data["demands"]
        if self.disabled is not None:
            data["disabled"] = self.disabled.to_dict()
        return data | {"rule": self.rule.value, "text": str(self)}

    def __str__(self) -> str:
        return self.sentence(() if self.cell is None else (self.cell,))

    def sentence(self, cells: Sequence[int]) -> str:
        """Return the reason in words, for all host cells that it applies to."""
        where = f"{self.where}: " if self.where else ""
        group = f"group {self.group}: " if self.group else ""
        guest = "" if self.guest is None else f"guest cell {self.guest} on "
        cell = f"{guest}{'each of cells' if cells[1:] else 'cell'} {_ranges(cells)}: "
        return (
            f"{where}{group}{cell if cells else ''}{self._subject()}{self._text()}{self._users()}"
        )

    def _subject(self) -> str:
        """Return the class or the kind of device, if the sentence is about one."""
        if self.demands or (self.resource is None and self.rule in _OF_HOST | _OF_PROVIDERS):
            return ""
        name = self.resource or "amount"
        if self.unit is None or self.rule not in _OF_DEVICES:
            return f"{name} "
        return f"{self.unit} " if self.unit.startswith(name) else f"{name} {self.unit} "

    def _text(self) -> str:
        if self.disabled is not None:
            return f"{self.unit} {self.disabled}" if self.unit else str(self.disabled)
        if self.rule is Rule.NOT_WHOLE:
            return self._not_whole()
        if self.demands:
            return self._sum_of_demands()
        return _SENTENCES[self.rule].format(self, -self.requested)

    def _users(self) -> str:
        """Return the three largest holders, unless the text names the holders itself."""
        if not self.holders or self.rule in (Rule.NOT_WHOLE, Rule.SERVER_GROUP, Rule.FILTER):
            return ""
        verb, others = ("at", "others there: ") if self.rule in _OF_PROVIDERS else ("holds", "")
        names = ", ".join(f"{name} {verb} {amount}" for name, amount in self.holders[:_NAMED])
        more = len(self.holders) - _NAMED
        return f" ({others}{names}{f' and {more} more' if more > 0 else ''})"

    def _not_whole(self) -> str:
        """Return the number of whole devices, and each consumer of a device or of a part."""
        number = {0: "none", 1: "1"}.get(self.free, str(self.free))
        place = "" if self.unit is None else f" in one {self.unit}"
        verb = "is" if self.free < 2 else "are"
        text = f"requested {self.requested} whole{place}, {number} of {self.bound} {verb} whole"
        consumers_of: dict[tuple[tuple[int, int], ...], list[str]] = {}
        for consumer in dict.fromkeys(part[0] for part in self.parts):
            fractions = sorted(part[2:] for part in self.parts if part[0] == consumer)
            consumers_of.setdefault(tuple(fractions), []).append(consumer)
        users = [f"{consumer} {count}" for consumer, count in self.holders]
        for parts, consumers in consumers_of.items():
            words = " and ".join("a half" if p == (1, 2) else f"{p[0]}/{p[1]}" for p in parts)
            users.append(f"{', '.join(consumers)} {words}{' each' if consumers[1:] else ''}")
        return f"{text}: {'; '.join(users)}" if users else text

    def _sum_of_demands(self) -> str:
        """Return the amount that several parts of the request need together."""
        groups = [suffix for suffix in self.demands if suffix]
        subject = f"group{'s' if len(groups) > 1 else ''} {', '.join(groups)}"
        if "" in self.demands:
            subject = f"the request and {subject}"
        if self.rule is Rule.GROUPS:
            return f"{subject} each fit, but not all together"
        within, best = (f" in one {self.unit}", " in the best") if self.unit else ("", "")
        limit = f" under the limit of {self.bound}" if self.rule is Rule.LIMIT else ""
        verb = "is" if self.free == 1 else "are"
        needed = f"together need {self.requested} of {self.resource}{within}"
        return f"{subject} {needed}, {self.free} {verb} free{best}{limit}"


def _ranges(numbers: Sequence[int]) -> str:
    """Return ascending numbers in words.

    >>> _ranges([0, 2, 3, 4, 9])
    '0, 2 to 4, 9'
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(
        f"{run[0]} to {run[-1]}" if run[2:] else ", ".join(map(str, run)) for run in runs
    )


def sentences(reasons: Iterable[Reason]) -> list[str]:
    """Return reasons in words: each fact once, host cells with the same reasons together.

    >>> cells = [Reason(Rule.CAPACITY, 4, 0, 0, "PCPU", cell=number) for number in range(32)]
    >>> sentences(cells)
    ['32 cells without CPUs']
    """
    of_cell: dict[tuple[str | None, int], list[Reason]] = {}
    for reason in dict.fromkeys(reasons):
        if reason.cell is not None:
            fact = dataclasses.replace(reason, cell=None)
            of_cell.setdefault((reason.where, reason.cell), []).append(fact)
    cells_of: dict[tuple[Reason, ...], list[int]] = {}
    for (_, cell), facts in of_cell.items():
        cells_of.setdefault(tuple(facts), []).append(cell)
    texts: list[str] = []
    for reason in reasons:
        if reason.cell is None:
            texts.append(str(reason))
            continue
        facts = of_cell[reason.where, reason.cell]
        cells = sorted(cells_of[tuple(facts)])
        fact = dataclasses.replace(reason, cell=None)
        if len(cells) > 1 and all(other.bound == 0 and other.rule in _LACKS for other in facts):
            parts = dict.fromkeys(_PARTS.get(fact.resource or "", fact.resource) for fact in facts)
            where = f"{reason.where}: " if reason.where else ""
            texts.append(f"{where}{len(cells)} cells without {' and '.join(map(str, parts))}")
        elif (
            reason.rule is not Rule.PHYSICAL
            or dataclasses.replace(fact, rule=Rule.CAPACITY) not in facts
        ):
            texts.append(fact.sentence(cells))
    return list(dict.fromkeys(texts))


#: Rules by which a host cell has less than is requested, and the words for what it lacks.
_LACKS = frozenset({Rule.CAPACITY, Rule.PHYSICAL})
_PARTS = {"PCPU": "CPUs", "VCPU": "CPUs", "MEMORY_MB": "memory"}

#: The fields of the plain data, but for the facts of what is disabled.
_FIELDS = tuple(f.name for f in dataclasses.fields(Reason) if f.name != "disabled")

#: Rules whose sentence begins with the kind of device, where there is one, and not with the class.
_OF_DEVICES = frozenset({Rule.CAPACITY, Rule.NO_INVENTORY, Rule.AFFINITY})

#: Rules about providers: their sentence begins with no class, and holders are counted in providers.
_OF_PROVIDERS = frozenset(
    {Rule.ONE_PROVIDER, Rule.ISOLATED, Rule.SUBTREE, Rule.GROUPS, Rule.NEAR_AT_ONCE}
)

#: Rules about a host, whose sentence begins with a class only if the reason has one.
_OF_HOST = frozenset(
    {
        Rule.ROOT_TRAIT_MISSING,
        Rule.ROOT_TRAIT_FORBIDDEN,
        Rule.DISABLED,
        Rule.NO_PLACE,
        Rule.FILTER,
        Rule.SERVER_GROUP,
    }
)

#: The sentence of each rule; ``{0}`` is the reason, ``{1}`` the released amount.
_SENTENCES = {
    Rule.CAPACITY: "requested {0.requested}, free {0.free} of {0.bound}",
    Rule.LIMIT: "requested {0.requested}, free {0.free} under the limit of {0.bound}",
    Rule.MIN_UNIT: "requested {0.requested}, one claim allocates at least {0.bound}",
    Rule.MAX_UNIT: "requested {0.requested}, one claim allocates at most {0.bound}",
    Rule.STEP_SIZE: "requested {0.requested}, not a multiple of {0.bound}",
    Rule.IN_STEPS: "requested {0.requested}, only {0.bound} of the free amount fits the step size",
    Rule.USED_BELOW_ZERO: "releases {1}, only {0.used} used",
    Rule.NO_INVENTORY: "requested {0.requested}, there is none",
    Rule.NOT_OWN: "requested {0.requested}, pools may provide it, the host itself does not",
    Rule.UNIT_TAKEN: "requested {0.requested} with unit {0.unit}, which is allocated",
    Rule.TRAIT_MISSING: "requested {0.requested} with {0.trait}, no provider has it",
    Rule.TRAITS_AT_ONCE: (
        "requested {0.requested} {0.unit}, each is available, all together are not"
    ),
    Rule.TRAIT_FORBIDDEN: "requested {0.requested} without {0.trait}, every provider has it",
    Rule.PHYSICAL: "requested {0.requested}, free {0.free} of {0.bound}, never allocated twice",
    Rule.INDIVISIBLE: "requested {0.requested}, not a whole number of pages of {0.bound} KiB",
    Rule.PAGE_SIZE: "requested {0.requested}, there are no {0.unit} pages",
    Rule.THREADS: "requested {0.requested}, free {0.bound} under the policy {0.unit}",
    Rule.EMULATOR: "requested {0.requested}, no core is free for the emulator",
    Rule.HOST_CELLS: "requested {0.requested} host cells, there are {0.bound}",
    Rule.NETWORK: "requested {0.requested} host cells, none next to {0.unit} may be used",
    Rule.ONE_SOCKET: (
        "requested {0.requested} guest cells in one socket, at most {0.bound} fit in one"
    ),
    Rule.SOCKET_UNKNOWN: (
        "requested {0.requested} guest cells in one socket, its socket is not known"
    ),
    Rule.FOREIGN: (
        "requested {0.requested} as assigned already, to units that the host does not have"
    ),
    Rule.INVALID: "requested {0.requested}, its stored inventory contradicts itself",
    Rule.AGGREGATE_MISSING: "requested {0.requested} in {0.unit}, no provider there",
    Rule.AGGREGATE_FORBIDDEN: "requested {0.requested} outside {0.unit}, all are inside",
    Rule.CONDITIONS: "requested {0.requested} {0.unit}, no provider meets all of that",
    Rule.OTHER_TREE: "requested {0.requested} of the tree of {0.unit}, this is another",
    Rule.ROOT_TRAIT_MISSING: "does not have {0.trait}, which is required of the host itself",
    Rule.ROOT_TRAIT_FORBIDDEN: "has {0.trait}, which the host itself must not have",
    Rule.DISABLED: "requested {0.requested}, every provider of it is disabled",
    Rule.ONE_PROVIDER: "requested {0.requested} classes of one provider, at most {0.bound}",
    Rule.ISOLATED: "requested {0.requested} separate providers, capacity at {0.bound}",
    Rule.SUBTREE: "requested {0.requested} groups below one of their providers, there is none",
    Rule.GROUPS: "requested {0.requested} groups, each fits, all together do not",
    Rule.AFFINITY: "requested {0.requested}, at most {0.free} near its host cells",
    Rule.AT_ONCE: "requested {0.requested} devices, at most {0.bound} fit at once",
    Rule.NEAR: "requested {0.requested} in one {0.unit}, free {0.free} of {0.bound} in the best",
    Rule.PLACE_UNKNOWN: "requested {0.requested} in one {0.unit}, no device reports its place",
    Rule.NO_PLACE: "requested {0.requested} {0.unit}, none has any of it",
    Rule.NEAR_AT_ONCE: "requested {0.requested} {0.unit} for all of it, none has capacity for all",
    Rule.TOGETHER: "requested {0.requested} guest cells, at most {0.bound} fit at once",
    Rule.FILTER: "{0.unit} ({0.filter})",
    Rule.SERVER_GROUP: "{0.unit}",
}
