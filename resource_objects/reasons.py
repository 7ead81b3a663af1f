"""Reasons of refusals, as data and in words, and the rules that they are about.

A :class:`Reason` is one constraint that failed, with its figures. :class:`Rule` names the
constraint. This module imports nothing of the package.
"""

from __future__ import annotations

import dataclasses
import enum
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Self

_NAMED = 3


class Rule(enum.StrEnum):
    """The constraints that a request can fail: the value, the sentence and its subject.

    ``text`` shows the figures: ``n`` is the requested amount, ``bound`` the figure that the rule
    compares with, ``free`` the bound minus the used amount. The bound is 0 if neither is shown.
    ``subject`` begins the sentence: the ``"class"``; the kind of ``"device"``, if it is known; or,
    for ``"host"`` and ``"group"``, the class only if the reason has one. Holders of a reason about
    a group are counted in providers.
    """

    text: str
    subject: str

    def __new__(cls, value: str, text: str, subject: str = "class") -> Self:
        rule = str.__new__(cls, value)
        rule._value_ = value
        rule.text = text
        rule.subject = subject
        return rule

    CAPACITY = "capacity", "requested {n}, free {free} of {bound}", "device"
    NOT_WHOLE = "not_whole", ""  # parts of devices are allocated; see Reason._not_whole
    LIMIT = "limit", "requested {n}, free {free} under the limit of {bound}"
    MIN_UNIT = "min_unit", "requested {n}, one claim allocates at least {bound}"
    MAX_UNIT = "max_unit", "requested {n}, one claim allocates at most {bound}"
    STEP_SIZE = "step_size", "requested {n}, not a multiple of {bound}"
    USED_BELOW_ZERO = "used_below_zero", "releases {released}, only {used} used"
    IN_STEPS = "in_steps", "requested {n}, only {bound} of the free amount fits the step size"
    NO_INVENTORY = "no_inventory", "requested {n}, there is none", "device"
    NOT_OWN = "not_own", "requested {n}, pools may provide it, the host itself does not"
    UNIT_TAKEN = "unit_taken", "requested {n} with unit {unit}, which is allocated"
    TRAIT_MISSING = "trait_missing", "requested {n} with {trait}, no provider has it"
    TRAITS_AT_ONCE = (
        "traits_at_once",
        "requested {n} {unit}, each is available, all together are not",
    )
    TRAIT_FORBIDDEN = "trait_forbidden", "requested {n} without {trait}, every provider has it"
    PHYSICAL = "physical", "requested {n}, free {free} of {bound}, never allocated twice"
    INDIVISIBLE = "indivisible", "requested {n}, not a whole number of pages of {bound} KiB"
    PAGE_SIZE = "page_size", "requested {n}, there are no {unit} pages"
    THREADS = "threads", "requested {n}, free {bound} under the policy {unit}"
    EMULATOR = "emulator", "requested {n}, no core is free for the emulator"
    HOST_CELLS = "host_cells", "requested {n} host cells, there are {bound}"
    NETWORK = "network", "requested {n} host cells, none next to {unit} may be used"
    ONE_SOCKET = (
        "one_socket",
        "requested {n} guest cells in one socket, at most {bound} fit in one",
    )
    SOCKET_UNKNOWN = (
        "socket_unknown",
        "requested {n} guest cells in one socket, its socket is not known",
    )
    FOREIGN = "foreign", "requested {n} as assigned already, to units that the host does not have"
    INVALID = "invalid", "requested {n}, its stored inventory contradicts itself"
    AFFINITY = "affinity", "requested {n}, at most {free} near its host cells", "device"
    AT_ONCE = "at_once", "requested {n} devices, at most {bound} fit at once"
    AGGREGATE_MISSING = "aggregate_missing", "requested {n} in {unit}, no provider there"
    AGGREGATE_FORBIDDEN = "aggregate_forbidden", "requested {n} outside {unit}, all are inside"
    CONDITIONS = "conditions", "requested {n} {unit}, no provider meets all of that"
    OTHER_TREE = "other_tree", "requested {n} of the tree of {unit}, this is another"
    ROOT_TRAIT_MISSING = (
        "root_trait_missing",
        "does not have {trait}, which is required of the host itself",
        "host",
    )
    ROOT_TRAIT_FORBIDDEN = (
        "root_trait_forbidden",
        "has {trait}, which the host itself must not have",
        "host",
    )
    ONE_PROVIDER = "one_provider", "requested {n} classes of one provider, at most {bound}", "group"
    ISOLATED = "isolated", "requested {n} separate providers, capacity at {bound}", "group"
    SUBTREE = "subtree", "requested {n} groups below one of their providers, there is none", "group"
    DISABLED = "disabled", "requested {n}, every provider of it is disabled", "host"
    GROUPS = "groups", "requested {n} groups, each fits, all together do not", "group"
    NEAR = "near", "requested {n} in one {unit}, free {free} of {bound} in the best"
    PLACE_UNKNOWN = "place_unknown", "requested {n} in one {unit}, no device reports its place"
    NO_PLACE = "no_place", "requested {n} {unit}, none has any of it", "host"
    NEAR_AT_ONCE = (
        "near_at_once",
        "requested {n} {unit} for all of it, none has capacity for all",
        "group",
    )
    TOGETHER = "together", "requested {n} guest cells, at most {bound} fit at once"
    FILTER = "filter", "{unit} ({filter})", "host"  # of a scheduler
    SERVER_GROUP = "server_group", "{unit}", "host"  # its policy


_FIGURES = ("free", "bound", "used", "unit", "trait", "filter")
UNIT_RULES = frozenset({Rule.MIN_UNIT, Rule.MAX_UNIT, Rule.STEP_SIZE})
#: The rules that may fail because of allocations: their reasons name the consumers.
USAGE_RULES = frozenset(
    {Rule.CAPACITY, Rule.LIMIT, Rule.PHYSICAL, Rule.THREADS, Rule.EMULATOR, Rule.UNIT_TAKEN}
)


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

    Some rules have further data: ``trait`` the trait rules; ``disabled`` of :attr:`Rule.DISABLED`
    is a :class:`~resource_objects.providers.Disabled`; ``filter`` the name of the filter of
    :attr:`Rule.FILTER`; ``parts`` of :attr:`Rule.NOT_WHOLE` are ``(consumer, provider, parts, parts
    of the device)``. ``unit`` is the unit, network, policy, kind of device or level of a rule, or
    its explanation in words.

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
    disabled: Any = None
    parts: tuple[tuple[str, str, int, int], ...] = ()
    filter: str | None = None
    demands: tuple[str, ...] = ()

    @property
    def free(self) -> int:
        """Bound minus used; negative if more is used than the bound."""
        return self.bound - self.used

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        data = {name: getattr(self, name) for name in self.__slots__}
        if self.rule is not Rule.NOT_WHOLE:
            del data["parts"]
        if self.rule is not Rule.FILTER:
            del data["filter"]
        if not self.demands:
            del data["demands"]
        del data["disabled"]
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
        if self.demands or (self.resource is None and self.rule.subject in ("host", "group")):
            return ""
        name = self.resource or "amount"
        if self.unit is None or self.rule.subject != "device":
            return f"{name} "
        return f"{self.unit} " if self.unit.startswith(name) else f"{name} {self.unit} "

    def _text(self) -> str:
        if self.disabled is not None:
            return f"{self.unit} {self.disabled}" if self.unit else str(self.disabled)
        if self.rule is Rule.NOT_WHOLE:
            return self._not_whole()
        if self.demands:
            return self._sum_of_demands()
        figures = {name: getattr(self, name) for name in _FIGURES}
        return self.rule.text.format(n=self.requested, released=-self.requested, **figures)

    def _users(self) -> str:
        """Return the three largest holders, unless the text names the holders itself."""
        if not self.holders or self.rule in (Rule.NOT_WHOLE, Rule.SERVER_GROUP, Rule.FILTER):
            return ""
        verb, others = ("at", "others there: ") if self.rule.subject == "group" else ("holds", "")
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
    facts_of: dict[tuple[str | None, int], list[Reason]] = defaultdict(list)
    for reason in dict.fromkeys(reasons):
        if reason.cell is not None:
            facts_of[reason.where, reason.cell].append(dataclasses.replace(reason, cell=None))
    cells_of: dict[tuple[Reason, ...], list[int]] = defaultdict(list)
    for (_, cell), facts in facts_of.items():
        cells_of[tuple(facts)].append(cell)
    texts: list[str] = []
    for reason in reasons:
        if reason.cell is None:
            texts.append(str(reason))
            continue
        facts = facts_of[reason.where, reason.cell]
        cells = sorted(cells_of[tuple(facts)])
        if len(cells) > 1 and all(fact.bound == 0 and fact.rule in _LACKS for fact in facts):
            parts = dict.fromkeys(_PARTS.get(str(part.resource), part.resource) for part in facts)
            where = f"{reason.where}: " if reason.where else ""
            texts.append(f"{where}{len(cells)} cells without {' and '.join(map(str, parts))}")
            continue
        fact = dataclasses.replace(reason, cell=None)
        is_of_capacity = dataclasses.replace(fact, rule=Rule.CAPACITY) in facts
        if reason.rule is not Rule.PHYSICAL or not is_of_capacity:  # one sentence says both
            texts.append(fact.sentence(cells))
    return list(dict.fromkeys(texts))


#: Rules by which a host cell has less than is requested, and the words for what it lacks.
_LACKS = frozenset({Rule.CAPACITY, Rule.PHYSICAL})
_PARTS = {"PCPU": "CPUs", "VCPU": "CPUs", "MEMORY_MB": "memory"}
