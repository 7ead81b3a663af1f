"""Why a request cannot be satisfied: rules, and reasons as data and in words.

A :class:`Reason` is one constraint that failed, with its figures. :class:`Rule` names the
constraint. This module imports nothing of the package.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

_NAMED = 3


class Rule(enum.StrEnum):
    """The rules a refusal can name. ``bound`` of a :class:`Reason` means, for each:"""

    CAPACITY = "capacity"  #: used would exceed the capacity (bound: the capacity)
    NOT_WHOLE = "not_whole"  #: others have parts of devices asked for whole (bound: the devices)
    LIMIT = "limit"  #: used would exceed the limit sent with the claim (bound: the limit)
    MIN_UNIT = "min_unit"  #: less than one claim may ask (bound: min_unit)
    MAX_UNIT = "max_unit"  #: more than one claim may ask (bound: max_unit)
    STEP_SIZE = "step_size"  #: not a multiple (bound: step_size)
    USED_BELOW_ZERO = "used_below_zero"  #: more given back than is used (bound: 0)
    IN_STEPS = "in_steps"  #: what is left does not all go in steps (bound: so much does)
    NO_INVENTORY = "no_inventory"  #: there is none of it here (bound: 0)
    NOT_OWN = "not_own"  #: pools could give it, the host itself gives nothing (bound: 0)
    UNIT_TAKEN = "unit_taken"  #: somebody has one of the units asked for (bound: 0)
    TRAIT_MISSING = "trait_missing"  #: nobody who could give it has the trait (bound: 0)
    TRAITS_AT_ONCE = "traits_at_once"  #: each trait could be had, all at once cannot (bound: 0)
    TRAIT_FORBIDDEN = "trait_forbidden"  #: everybody who could give it has the trait (bound: 0)
    PHYSICAL = "physical"  #: it is never given out twice, and so much is not left (bound: all)
    INDIVISIBLE = "indivisible"  #: memory that is not a whole number of pages (bound: page, KiB)
    PAGE_SIZE = "page_size"  #: there are no pages of the size asked for (bound: 0)
    THREADS = "threads"  #: the thread policy leaves fewer CPUs (bound: as many as it leaves)
    EMULATOR = "emulator"  #: no core is left for the emulator (bound: 0)
    HOST_CELLS = "host_cells"  #: more guest cells than host cells may be used (bound: those)
    NETWORK = "network"  #: no cell that may be used is next to the network (bound: 0)
    ONE_SOCKET = "one_socket"  #: no socket has room for all guest cells (bound: as many as one has)
    SOCKET_UNKNOWN = (
        "socket_unknown"  #: it may be of any socket, or of none that will do (bound: 0)
    )
    FOREIGN = "foreign"  #: it is assigned already, to what is not here (bound: 0)
    INVALID = "invalid"  #: what is kept of it contradicts itself (bound: 0)
    AFFINITY = "affinity"  #: no more devices are near enough (bound: as many as can be)
    AT_ONCE = "at_once"  #: each request could have its devices, not all (bound: no more than that)
    AGGREGATE_MISSING = "aggregate_missing"  #: nobody who could give it is a member (bound: 0)
    AGGREGATE_FORBIDDEN = "aggregate_forbidden"  #: all who could give it are members (bound: 0)
    CONDITIONS = "conditions"  #: somebody meets each of some conditions, nobody all (bound: 0)
    OTHER_TREE = "other_tree"  #: it is to come from another tree (bound: 0)
    ROOT_TRAIT_MISSING = "root_trait_missing"  #: the host has not the trait (bound: 0)
    ROOT_TRAIT_FORBIDDEN = "root_trait_forbidden"  #: the host has the trait (bound: 0)
    ONE_PROVIDER = "one_provider"  #: no provider gives all classes of a group (bound: most of one)
    ISOLATED = "isolated"  #: groups need a provider each (bound: so many could give now)
    SUBTREE = "subtree"  #: nobody who gives one of the groups is above the others (bound: 0)
    DISABLED = "disabled"  #: it is out of service (bound: 0)
    GROUPS = "groups"  #: each group could be given, all at once cannot (bound: 0)
    NEAR = "near"  #: no one place of a level gives it near the rest (bound: what the best one has)
    PLACE_UNKNOWN = "place_unknown"  #: no device of it says which place it is at (bound: 0)
    NO_PLACE = "no_place"  #: nothing of what is asked is kept at a place of the level (bound: 0)
    NEAR_AT_ONCE = "near_at_once"  #: each is given by some place, none gives all (bound: 0)
    TOGETHER = "together"  #: each part fits somewhere, all at once do not (bound: as many as do)
    FILTER = "filter"  #: a scheduler's filter refuses the host (bound: what it compares with)
    SERVER_GROUP = "server_group"  #: other members are there, or elsewhere (bound: so many may be)


class DisabledFacts(Protocol):
    """Why a provider is out of service; see :class:`~resource_objects.providers.Disabled`."""

    @property
    def reason(self) -> str:
        """Why."""

    @property
    def by(self) -> str | None:
        """Who said so."""

    @property
    def since(self) -> datetime.datetime:
        """Since when."""

    @property
    def until(self) -> datetime.datetime | None:
        """When it ends by itself."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""


UNIT_RULES = frozenset({Rule.MIN_UNIT, Rule.MAX_UNIT, Rule.STEP_SIZE})


@dataclasses.dataclass(frozen=True, slots=True)
class Reason:
    """One constraint that failed, with its figures: the data behind a refusal.

    ``requested`` is the amount asked (negative: given back), ``bound`` what the rule compares with
    (see :class:`Rule`), ``used`` what is taken already; ``resource`` and ``where`` (a provider)
    are names or None where unknown; ``holders`` are ``(consumer, amount)`` pairs, the largest
    first, then in natural order: ``job-2`` before ``job-10``. ``trait`` is set for the trait rules,
    ``unit`` for :attr:`Rule.UNIT_TAKEN` and the name of a network or policy, or the kind of device
    that was asked for, or the level of :attr:`Rule.NEAR`, or several conditions in words.
    ``cell`` is the host cell and ``guest`` the guest cell of a topology. ``group`` is the named
    group of the request that it is about, or several, with commas between. Where it is about groups
    as a whole, ``holders`` say at how many of the providers somebody is that would give if nobody
    held anything. ``disabled`` says why
    ``where``, or ``unit`` of it, is out of service, for :attr:`Rule.DISABLED`. ``parts`` say for
    :attr:`Rule.NOT_WHOLE` who has how much of which device, as ``(consumer, provider, parts, of how
    many)``, and ``holders`` who has whole ones. ``filter`` is the scheduler's filter that refuses,
    for :attr:`Rule.FILTER`; ``unit`` then says why in words, and ``holders`` are who stands in the
    way, where a filter names anybody. For :attr:`Rule.SERVER_GROUP`
    ``group`` is the server group, ``holders`` are its members in the way, and ``unit`` says so.
    ``demands`` are the parts of the request whose amounts ``requested`` sums, where it is more than
    one: suffixes of named groups, ``""`` for what is requested without a group. ``group`` is then
    None: a reason that names a group has the amount of each such group.

    >>> print(Reason(Rule.CAPACITY, 3, bound=4, used=3, resource="PGPU", where="host0",
    ...              holders=(("job-1", 3),)))
    host0: PGPU asked 3, free 1 of 4 (job-1 holds 3)
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
        """What the rule leaves: bound less used (negative when over-full)."""
        return self.bound - self.used

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        found = {name: getattr(self, name) for name in _FIELDS}
        if self.rule is not Rule.NOT_WHOLE:
            del found["parts"]
        if self.rule is not Rule.FILTER:
            del found["filter"]
        if not self.demands:
            del found["demands"]
        if self.disabled is not None:
            found["disabled"] = self.disabled.to_dict()
        return found | {"rule": self.rule.value, "text": str(self)}

    def __str__(self) -> str:
        return self.sentence(() if self.cell is None else (self.cell,))

    def sentence(self, cells: Sequence[int]) -> str:
        """Return the reason in words, of all host cells of which it is true."""
        where = f"{self.where}: " if self.where else ""
        where += f"group {self.group}: " if self.group else ""
        guest = "" if self.guest is None else f"guest cell {self.guest} on "
        cell = f"{guest}{'each of cells' if cells[1:] else 'cell'} {_ranges(cells)}: "
        cell = cell if cells else ""
        is_of_host = (self.resource is None and self.rule in _OF_NO_CLASS) or bool(self.demands)
        what = "" if is_of_host else f"{self._what()} "
        return f"{where}{cell}{what}{self._finding()}{self._held()}"

    def _what(self) -> str:
        """Return what is asked for: of a device, its kind, where the finding does not say it."""
        what, kind = self.resource or "amount", self.unit
        if kind is None or self.rule not in _OF_A_KIND:
            return what
        return kind if kind.startswith(what) else f"{what} {kind}"

    def _held(self) -> str:
        """Return who holds it, the largest three by name."""
        if not self.holders or self.rule in _NAMING:
            return ""
        is_there = self.rule in OF_PROVIDERS
        verb, others = ("at", "others there: ") if is_there else ("holds", "")
        named = ", ".join(f"{name} {verb} {amount}" for name, amount in self.holders[:_NAMED])
        more = len(self.holders) - _NAMED
        return f" ({others}{named} and {more} more)" if more > 0 else f" ({others}{named})"

    def _not_whole(self) -> str:
        """Return how many devices are whole, and everybody who has one or a part of one."""
        few = {0: "none", 1: "1"}.get(self.free, str(self.free))
        verb = "is" if self.free < 2 else "are"
        alike: dict[tuple[tuple[int, int], ...], list[str]] = {}
        for consumer in dict.fromkeys(one[0] for one in self.parts):
            had = sorted((one[2], one[3]) for one in self.parts if one[0] == consumer)
            alike.setdefault(tuple(had), []).append(consumer)
        held = [f"{consumer} {count}" for consumer, count in self.holders]
        for some, consumers in alike.items():
            parts = " and ".join(
                "a half" if one == (1, 2) else f"{one[0]}/{one[1]}" for one in some
            )
            each = " each" if len(consumers) > 1 else ""
            held.append(f"{', '.join(consumers)} {parts}{each}")
        place = "" if self.unit is None else f" in one {self.unit}"
        told = f"asked {self.requested} whole{place}, {few} of {self.bound} {verb} whole"
        return f"{told}: {'; '.join(held)}" if held else told

    def _sum_of_demands(self) -> str:
        """Return what several parts of the request need together."""
        groups = [suffix for suffix in self.demands if suffix]
        subject = f"group{'s' if len(groups) > 1 else ''} {', '.join(groups)}"
        if "" in self.demands:
            subject = f"the request and {subject}"
        if self.rule is Rule.GROUPS:
            return f"{subject} can each be given, but not all at once"
        within, best = (f" in one {self.unit}", " in the best") if self.unit else ("", "")
        limit = f" under the limit of {self.bound}" if self.rule is Rule.LIMIT else ""
        verb = "is" if self.free == 1 else "are"
        needed = f"together need {self.requested} of {self.resource}{within}"
        return f"{subject} {needed}, {self.free} {verb} free{best}{limit}"

    def _finding(self) -> str:
        if self.disabled is not None:
            return f"{self.unit} {self.disabled}" if self.unit else str(self.disabled)
        if self.rule is Rule.NOT_WHOLE:
            return self._not_whole()
        if self.demands:
            return self._sum_of_demands()
        return _FINDINGS[self.rule].format(reason=self, back=-self.requested)


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
    """Return reasons in words: each fact once, and host cells that are alike together.

    >>> few = [Reason(Rule.CAPACITY, 4, 0, 0, "PCPU", cell=number) for number in range(32)]
    >>> sentences(few)
    ['32 cells without CPUs']
    """
    of_cell: dict[tuple[str | None, int], list[Reason]] = {}
    for one in dict.fromkeys(reasons):
        if one.cell is not None:
            of_cell.setdefault((one.where, one.cell), []).append(
                dataclasses.replace(one, cell=None)
            )
    alike: dict[tuple[Reason, ...], list[int]] = {}
    for (_, cell), some in of_cell.items():
        alike.setdefault(tuple(some), []).append(cell)
    found: dict[str, None] = {}
    for one in reasons:
        if one.cell is None:
            found[str(one)] = None
            continue
        some = of_cell[one.where, one.cell]
        cells = sorted(alike[tuple(some)])
        fact = dataclasses.replace(one, cell=None)
        if len(cells) > 1 and all(each.bound == 0 and each.rule in _OF_PARTS for each in some):
            what = dict.fromkeys(_PARTS.get(each.resource or "", each.resource) for each in some)
            where = f"{one.where}: " if one.where else ""
            found[f"{where}{len(cells)} cells without {' and '.join(map(str, what))}"] = None
        elif (
            one.rule is not Rule.PHYSICAL
            or dataclasses.replace(fact, rule=Rule.CAPACITY) not in some
        ):
            found[fact.sentence(cells)] = None
    return list(found)


#: Rules by which a host cell has less than is requested, and what it then lacks in words.
_OF_PARTS = frozenset({Rule.CAPACITY, Rule.PHYSICAL})
_PARTS = {"PCPU": "CPUs", "VCPU": "CPUs", "MEMORY_MB": "memory"}

#: What plain data says of a reason; why something is disabled is data of its own.
_FIELDS = tuple(one.name for one in dataclasses.fields(Reason) if one.name != "disabled")

#: Rules that are about the host, or about groups as a whole.
_OF_NO_CLASS = frozenset(
    {
        Rule.ROOT_TRAIT_MISSING,
        Rule.ROOT_TRAIT_FORBIDDEN,
        Rule.DISABLED,
        Rule.ONE_PROVIDER,
        Rule.ISOLATED,
        Rule.SUBTREE,
        Rule.GROUPS,
        Rule.NO_PLACE,
        Rule.NEAR_AT_ONCE,
        Rule.FILTER,
        Rule.SERVER_GROUP,
    }
)

#: Rules whose findings say themselves who it is.
_NAMING = frozenset({Rule.NOT_WHOLE, Rule.SERVER_GROUP, Rule.FILTER})

#: Rules about groups, or places, as a whole: their holders are counted in providers.
OF_PROVIDERS = frozenset(
    {Rule.ONE_PROVIDER, Rule.ISOLATED, Rule.SUBTREE, Rule.GROUPS, Rule.NEAR_AT_ONCE}
)

#: Rules whose unit is a kind of device, where they have one.
_OF_A_KIND = frozenset({Rule.CAPACITY, Rule.NO_INVENTORY, Rule.AFFINITY})

#: What each rule found, in words.
_FINDINGS = {
    Rule.CAPACITY: "asked {reason.requested}, free {reason.free} of {reason.bound}",
    Rule.LIMIT: "asked {reason.requested}, free {reason.free} under the limit of {reason.bound}",
    Rule.MIN_UNIT: "asked {reason.requested}, one claim takes at least {reason.bound}",
    Rule.MAX_UNIT: "asked {reason.requested}, one claim takes at most {reason.bound}",
    Rule.STEP_SIZE: "asked {reason.requested}, not a multiple of {reason.bound}",
    Rule.IN_STEPS: "asked {reason.requested}, only {reason.bound} of what is free goes in steps",
    Rule.USED_BELOW_ZERO: "gives back {back}, only {reason.used} used",
    Rule.NO_INVENTORY: "asked {reason.requested}, there is none",
    Rule.NOT_OWN: "asked {reason.requested}, pools may have it but the host gives nothing itself",
    Rule.UNIT_TAKEN: "asked {reason.requested} with unit {reason.unit}, which is taken",
    Rule.TRAIT_MISSING: "asked {reason.requested} with {reason.trait}, nobody who has it",
    Rule.TRAITS_AT_ONCE: "asked {reason.requested} {reason.unit}, each could be had, "
    "all at once cannot",
    Rule.TRAIT_FORBIDDEN: "asked {reason.requested} without {reason.trait}, everybody has it",
    Rule.PHYSICAL: "asked {reason.requested}, free {reason.free} of {reason.bound}, given out once",
    Rule.INDIVISIBLE: "asked {reason.requested}, not a whole number of pages of {reason.bound} KiB",
    Rule.PAGE_SIZE: "asked {reason.requested}, there are no {reason.unit} pages",
    Rule.THREADS: "asked {reason.requested}, free {reason.bound} under the policy {reason.unit}",
    Rule.EMULATOR: "asked {reason.requested}, no core is left for the emulator",
    Rule.HOST_CELLS: "asked {reason.requested} host cells, there are {reason.bound}",
    Rule.NETWORK: "asked {reason.requested} host cells, none next to {reason.unit} may be used",
    Rule.ONE_SOCKET: "asked {reason.requested} guest cells in one socket, "
    "at most {reason.bound} fit in one",
    Rule.SOCKET_UNKNOWN: "asked {reason.requested} guest cells in one socket, "
    "its socket is not known",
    Rule.FOREIGN: "asked {reason.requested} as assigned already, to what is not here",
    Rule.INVALID: "asked {reason.requested}, what is kept of it contradicts itself",
    Rule.AGGREGATE_MISSING: "asked {reason.requested} in {reason.unit}, nobody there",
    Rule.AGGREGATE_FORBIDDEN: "asked {reason.requested} outside {reason.unit}, all are inside",
    Rule.CONDITIONS: "asked {reason.requested} {reason.unit}, nobody meets all of that",
    Rule.OTHER_TREE: "asked {reason.requested} of the tree of {reason.unit}, this is another",
    Rule.ROOT_TRAIT_MISSING: "has not {reason.trait}, which is asked of the host itself",
    Rule.ROOT_TRAIT_FORBIDDEN: "has {reason.trait}, which the host itself must not have",
    Rule.DISABLED: "asked {reason.requested}, whoever has it is disabled",
    Rule.ONE_PROVIDER: "asked {reason.requested} classes of one provider, at most {reason.bound}",
    Rule.ISOLATED: "asked {reason.requested} providers of their own, {reason.bound} could give",
    Rule.SUBTREE: "asked {reason.requested} groups below one of their providers, there is none",
    Rule.GROUPS: "asked {reason.requested} groups, each could be given, all at once cannot",
    Rule.AFFINITY: "asked {reason.requested}, at most {reason.free} near its host cells",
    Rule.AT_ONCE: "asked {reason.requested} devices, at most {reason.bound} fit at once",
    Rule.NEAR: "asked {reason.requested} in one {reason.unit}, "
    "free {reason.free} of {reason.bound} in the best",
    Rule.PLACE_UNKNOWN: "asked {reason.requested} in one {reason.unit}, "
    "nobody knows at which one any of it is",
    Rule.NO_PLACE: "asked {reason.requested} {reason.unit}, none keeps any of it",
    Rule.NEAR_AT_ONCE: "asked {reason.requested} {reason.unit} for all of it, "
    "none gives all at once",
    Rule.TOGETHER: "asked {reason.requested} guest cells, at most {reason.bound} fit at once",
    Rule.FILTER: "{reason.unit} ({reason.filter})",
    Rule.SERVER_GROUP: "{reason.unit}",
}
