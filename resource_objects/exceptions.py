"""Every error the library raises on purpose, one type per reason.

Three families stand under :class:`ResourceObjectsError`:

* :class:`InvalidInput` (a ``ValueError``): the caller handed over something that cannot be; it
  names the value and what was expected.
* :class:`CapacityException`: the input was fine and the answer is no; it carries its
  :class:`Reason` objects as data.
* :class:`LedgerError`: what is kept does not allow it, or cannot be reached.

All of them survive ``pickle`` and compare by nothing but identity. This module imports nothing of
the package: it is the lowest room.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import re
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

__all__ = [
    "AggregateInUse",
    "AggregateNotFound",
    "BackendNotFound",
    "CannotDowngrade",
    "CapacityException",
    "ClassInUse",
    "ClassNotFound",
    "ConsumerExists",
    "ConsumerNotFound",
    "CountedTwice",
    "CursorExpired",
    "DatabaseBusy",
    "DatabaseDamaged",
    "DatabaseFull",
    "DatabaseReplaced",
    "DatabaseUnavailable",
    "DeviceUnknown",
    "DiscoveryError",
    "DuplicateKey",
    "FieldNotSet",
    "FilterFailed",
    "ForeignAmount",
    "FrozenValue",
    "HostRefused",
    "InvalidAddress",
    "InvalidAmount",
    "InvalidConfiguration",
    "InvalidDevice",
    "InvalidField",
    "InvalidInput",
    "InvalidInventory",
    "InvalidMove",
    "InvalidName",
    "InvalidPlan",
    "InvalidPrimitive",
    "InvalidRatio",
    "InvalidRequest",
    "InvalidResourceClass",
    "InvalidRow",
    "InvalidRule",
    "InvalidSite",
    "InvalidText",
    "InvalidTrace",
    "InvalidTrait",
    "InvalidTree",
    "InvalidURL",
    "InventoryInUse",
    "InventoryNotFound",
    "LedgerClosed",
    "LedgerError",
    "LostConnection",
    "MoveConfirmed",
    "MoveInProgress",
    "MoveNotFound",
    "MoveReverted",
    "NameExists",
    "NegativeAmount",
    "NoCandidates",
    "NotAssigned",
    "NotBound",
    "NotSupported",
    "OperationConflict",
    "OperationExpired",
    "PartlyWritten",
    "PluginError",
    "PluginNotFound",
    "ProviderDisabled",
    "ProviderExists",
    "ProviderInUse",
    "ProviderNotFound",
    "ReadOnlyDatabase",
    "Reason",
    "RequestRefused",
    "ResourceObjectsError",
    "Rule",
    "SchemaTooNew",
    "SchemaTooOld",
    "SearchLimitReached",
    "ServerGroupExists",
    "ServerGroupInUse",
    "ServerGroupNotFound",
    "ServerGroupViolated",
    "StaleConsumer",
    "StaleDefinition",
    "StandardName",
    "TraitInUse",
    "TraitNotFound",
    "Undetermined",
    "UnitNotFound",
    "UnitNotHeld",
    "UnitRuleViolated",
    "UnitTaken",
    "UnknownField",
    "UnknownResourceClass",
    "UnknownTrait",
    "UnsupportedVersion",
    "UseNotRecorded",
    "WaitTimedOut",
    "WrongAmountKind",
]

_SHOWN = 80
_NAMED = 3


class ResourceObjectsError(Exception):
    """Base of every error the library raises on purpose."""


def show(value: object) -> str:
    """Return ``repr(value)`` cut to a length that fits an error message.

    >>> show("x" * 200)[-4:]
    "...'"
    """
    try:
        text = repr(value)
    except Exception as error:  # a foreign object's __repr__ must not hide the real error
        return f"<{type(value).__name__} whose repr fails: {type(error).__name__}>"
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 4]}...{text[-1]}"


# --- what the caller handed over cannot be ------------------------------------------------------


class InvalidInput(ResourceObjectsError, ValueError):
    """A value that cannot be: names what it was for, the value, and what was expected.

    >>> raise InvalidInput("total", -1, "an integer from 1 to 9")
    Traceback (most recent call last):
    resource_objects.exceptions.InvalidInput: total: got -1, expected an integer from 1 to 9
    """

    def __init__(self, what: str, value: object, expected: str) -> None:
        super().__init__(what, value, expected)
        self.what = what
        self.value = value
        self.expected = expected

    def __str__(self) -> str:
        return f"{self.what}: got {show(self.value)}, expected {self.expected}"


class InvalidField(InvalidInput):
    """A field of a versioned object was given a value of the wrong type or range."""


class UnknownField(InvalidInput):
    """A constructor was given a field the object does not have."""


class InvalidPrimitive(InvalidInput):
    """A primitive (wire form) that is not the form of any object."""


class InvalidAmount(InvalidInput):
    """An amount that is not a whole number in range (bool, float and text are refused)."""


class WrongAmountKind(InvalidInput):
    """An amount of another kind than the inventory counts."""


class NotAssigned(InvalidInput):
    """An amount that does not say where it is, where only one that does has a meaning."""


class ForeignAmount(InvalidInput):
    """An amount that is assigned to what this inventory does not have: it is of another host."""


class NegativeAmount(InvalidInput):
    """A negative amount where only asking, not giving back, has a meaning."""


class InvalidInventory(InvalidInput):
    """Figures of an inventory that contradict each other or are out of range."""


class InvalidRatio(InvalidInput):
    """An allocation ratio that is not a positive decimal of at most six places."""


class InvalidResourceClass(InvalidInput):
    """A name that no resource class can have."""


class UnknownResourceClass(InvalidInput):
    """A well-formed name that is neither standard, custom nor offered by a plug-in."""


class InvalidTrait(InvalidInput):
    """A name that no trait can have."""


class UnknownTrait(InvalidInput):
    """A well-formed name that is neither a standard trait nor a custom one."""


class InvalidName(InvalidInput):
    """A provider, consumer, project, user or uuid that cannot be one."""


class InvalidText(InvalidInput):
    """A text form that does not parse."""


class DuplicateKey(InvalidInput):
    """The same thing named twice where one is meant."""


class InvalidTree(InvalidInput):
    """Providers that do not form a tree."""


class InvalidRequest(InvalidInput):
    """A request that contradicts itself."""


class InvalidMove(InvalidInput):
    """A move that does not add up: of that kind it cannot go there, or not with that request."""


class InvalidURL(InvalidInput):
    """A ledger URL that cannot be read.

    ``value`` is its scheme and host, as far as they were understood: any of the rest may be a
    password, such as what stands behind a host that was forgotten.

    >>> InvalidURL("ledger URL", "mysql://me:secret@db/lab?charset=latin1", "utf8mb4").value
    'mysql://db/...'
    """

    def __init__(self, what: str, value: object, expected: str) -> None:
        super().__init__(what, _without_secrets(value), expected)


_URL = re.compile(r"([A-Za-z0-9+.-]+://)(?:[^/?#@]*@)?([^/?#@:]*).*", re.DOTALL)
_PLAIN = re.compile(r"[A-Za-z0-9_.+-]*(?::/{0,3})?")


def _without_secrets(value: object) -> object:
    if not isinstance(value, str):
        return type(value).__name__
    found = _URL.fullmatch(value)
    if found is not None:
        understood = f"{found[1]}{found[2]}"
        is_all = value.rstrip("/") == understood.rstrip("/")
        return value if is_all else f"{understood}/..."
    return value if _PLAIN.fullmatch(value) else "..."


class InvalidRow(InvalidInput):
    """A foreign record (such as a ``compute_nodes`` row) that cannot be read."""


class InvalidRule(InvalidInput):
    """A device rule that cannot be read."""


class InvalidSite(InvalidInput):
    """A file of a site with a fault; what it was for begins with the file and the line."""


class InvalidTrace(InvalidInput):
    """A trace that cannot be replayed; what it was for begins with the file and the line."""


class InvalidConfiguration(InvalidInput):
    """A provider configuration file with a fault; what it was for begins with file and line."""


class InvalidAddress(InvalidInput):
    """A PCI address that is none, or that nothing of the field can name (a domain over 16 bits)."""


class InvalidDevice(InvalidInput):
    """What is said of a device contradicts itself, or the devices it is beside."""


# --- the machinery of versioned objects ---------------------------------------------------------


class FieldNotSet(ResourceObjectsError, AttributeError, NotImplementedError):
    """A field was read that this object does not carry.

    It is an ``AttributeError``, so that ``hasattr`` answers, and a ``NotImplementedError``, which
    is what versioned objects raise by convention.
    """


class FrozenValue(ResourceObjectsError, AttributeError):
    """A value (amount, request, candidate) was asked to change."""


class CannotDowngrade(ResourceObjectsError):
    """An older version of an object cannot say what this one says."""

    def __init__(self, objname: str, version: str, reason: str) -> None:
        super().__init__(objname, version, reason)
        self.objname = objname
        self.version = version
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.objname} cannot be said in version {self.version}: {self.reason}"


class UnsupportedVersion(ResourceObjectsError):
    """A wire form in a version this library does not know."""


class PluginError(ResourceObjectsError):
    """A plug-in failed to load: names the namespace, the plug-in and its reason."""

    def __init__(self, namespace: str, name: str, reason: str) -> None:
        super().__init__(namespace, name, reason)
        self.namespace = namespace
        self.name = name
        self.reason = reason

    def __str__(self) -> str:
        return f"plug-in {self.name!r} of {self.namespace} cannot be used: {self.reason}"


class PluginNotFound(PluginError):
    """There is no plug-in of that name; it names those that are installed."""


# --- the answer is no ---------------------------------------------------------------------------


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


class CapacityException(ResourceObjectsError):
    """The answer is no: what was asked does not fit. ``reasons`` holds the data.

    The code that raises it computes the reasons and passes them. :class:`NoCandidates` computes
    them when they are read.

    >>> raise CapacityException([Reason(Rule.CAPACITY, 8, bound=16, used=13, resource="VCPU")])
    Traceback (most recent call last):
    resource_objects.exceptions.CapacityException: VCPU asked 8, free 3 of 16
    """

    def __init__(self, reasons: Iterable[Reason]) -> None:
        self._reasons: tuple[Reason, ...] = tuple(reasons)
        super().__init__(self._reasons)

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """The data of the refusal."""
        return self._reasons

    def first_reasons(self, count: int) -> tuple[tuple[Reason, ...], int]:
        """Return the first reasons, and how many more there are."""
        return self.reasons[:count], max(0, len(self.reasons) - count)

    def __str__(self) -> str:
        return "; ".join(sentences(self.reasons))

    @staticmethod
    def of(reasons: Iterable[Reason]) -> CapacityException:
        """Return the most telling exception type for these reasons (one type per reason).

        >>> type(CapacityException.of([Reason(Rule.STEP_SIZE, 3, bound=2, used=0)])).__name__
        'UnitRuleViolated'
        """
        found = tuple(reasons)
        rules = {reason.rule for reason in found}
        if Rule.DISABLED in rules:
            full = (one for one in found if one.rule is Rule.CAPACITY)
            if len(rules) == 1 or any(one.bound <= 0 for one in full):
                return ProviderDisabled(found)
        if rules and rules <= UNIT_RULES:
            return UnitRuleViolated(found)
        if rules == {Rule.NO_INVENTORY}:
            return InventoryNotFound(found)
        if rules == {Rule.UNIT_TAKEN}:
            return UnitTaken(found)
        if rules == {Rule.SERVER_GROUP}:
            return ServerGroupViolated(found)
        return CapacityException(found)


class UnitRuleViolated(CapacityException):
    """min_unit, max_unit or step_size, and nothing else, stands against it."""


class InventoryNotFound(CapacityException):
    """There is no inventory of the resource at all."""


class UnitTaken(CapacityException):
    """A unit (a CPU, a device) that was asked for by name is somebody else's."""


class ServerGroupViolated(CapacityException):
    """Members of a server group would be on one host, or on several, against its policy."""


class ProviderDisabled(CapacityException):
    """All that would do is out of service, whatever others hold.

    A provider, or one above it; or units that were asked for by name, or all that there are. Who
    lacks some of a count since units of it are out of service, while others hold the rest, is
    refused for the count, with these units beside it.
    """


class HostRefused(CapacityException):
    """A host refuses what it was chosen for, though the ledger had room: it has the last word.

    ``reasons`` are for whoever chose it, as those of a search are; ``told`` says it in words.

    >>> print(HostRefused("host0", "vm-1", "the image needs firmware that is not here"))
    host0 refuses vm-1: the image needs firmware that is not here
    """

    def __init__(
        self, host: str, consumer: str = "", told: object = "", reasons: Iterable[Reason] = ()
    ) -> None:
        super().__init__(reasons)
        self.args = host, consumer, str(told), self.reasons
        self.host, self.consumer, self.told = self.args[:3]

    def __str__(self) -> str:
        why = "; ".join(filter(None, [self.told, *sentences(self.reasons)]))
        return f"{self.host} refuses {self.consumer}{f': {why}' if why else ''}"


class FilterFailed(ResourceObjectsError):
    """A scheduler's filter or weigher failed itself: nobody knows what it would have said.

    >>> print(FilterFailed("quiet", "host0", ValueError("no such figure")))
    quiet failed on host0: ValueError: no such figure
    """

    def __init__(self, name: str, host: str | None, error: object) -> None:
        told = str(error)
        if isinstance(error, Exception) and not isinstance(error, ResourceObjectsError):
            told = f"{type(error).__name__}: {error}"
        super().__init__(name, host, told)
        self.name = name
        self.host = host  #: None for all at once
        self.told = told

    def __str__(self) -> str:
        return f"{self.name} failed on {self.host or 'all hosts'}: {self.told}"


class SearchLimitReached(ResourceObjectsError):
    """The budget of a search ran out before an answer: this is neither yes nor no."""

    def __init__(self, budget: int, found: int = 0) -> None:
        super().__init__(budget, found)
        self.budget = budget
        self.found = found

    def __str__(self) -> str:
        return f"cut short after {self.budget} steps, {self.found} found: neither yes nor no"


class Undetermined(ResourceObjectsError):
    """Counts of devices do not tell whether they can be had at once: neither yes nor no (D4)."""

    def __init__(self, amount: object) -> None:
        super().__init__(amount)
        self.amount = amount

    def __str__(self) -> str:
        unknown = "pools do not tell which functions are of one device"
        return f"{self.amount}: {unknown}: neither yes nor no"


class NoCandidates(CapacityException):
    """A claim of a search that found no candidate, or whose candidates are all taken by now.

    ``explanation`` says why: a text, or the :class:`~resource_objects.search.explain.Explanation`
    of the search, which shows the snapshot that was searched. ``reasons``, ``args`` and the message
    are computed from it when they are read, so a refusal that is not read costs only its search.
    A pickle and a copy carry the computed values.

    >>> str(NoCandidates("no candidate for job-1", "there are no hosts"))
    'no candidate for job-1: there are no hosts'
    """

    def __init__(
        self, what: object, explanation: object = "", reasons: Iterable[Reason] | Any = None
    ) -> None:
        """:param what: the refused action; ``str()`` of it begins the message

        :param explanation: a text, or an object whose ``str()`` ends the message
        :param reasons: a sequence of reasons, read at once; or an object with ``.reasons`` and
            ``.first_reasons(count)``, read on demand; None: those of ``explanation``, of which a
            text has none
        """
        source: Any = explanation if reasons is None else reasons
        is_read = isinstance(source, Iterable)
        super().__init__(source if is_read and not isinstance(source, str) else ())
        self._what = what
        self._unread: Any = None if is_read else source
        self.explanation = explanation

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """The reasons of every refused host, in the order of the hosts' names.

        :raises FilterFailed: if a filter of the search fails to say why it refused a host
        """
        unread = self._unread
        if unread is not None:
            self._reasons = tuple(unread.reasons)
            self._unread = None
        return self._reasons

    def first_reasons(self, count: int) -> tuple[tuple[Reason, ...], int]:
        unread = self._unread
        if unread is None:
            return super().first_reasons(count)
        found: tuple[tuple[Reason, ...], int] = unread.first_reasons(count)
        return found

    @property
    def args(self) -> tuple[Any, ...]:  # type: ignore[override]
        """The values of the constructor's arguments."""
        return str(self._what), str(self.explanation), self.reasons

    def __reduce__(self) -> tuple[Any, ...]:
        notes = {name: value for name, value in vars(self).items() if name == "__notes__"}
        return type(self), self.args, notes

    def __repr__(self) -> str:
        return f"{type(self).__name__}{self.args!r}"

    def __str__(self) -> str:
        try:
            explanation = str(self.explanation)
        except FilterFailed as failure:
            explanation = str(failure)
        return f"{self._what}: {explanation}" if explanation else str(self._what)


class WaitTimedOut(CapacityException):
    """A claim waited, and the time is over.

    ``ahead`` are those who stood before it in the queue, earliest first, some of them if there are
    many; ``refusal`` is the last answer, None where it was never its turn. ``reasons`` are those of
    the refusal.

    >>> print(WaitTimedOut("job-3", ["job-1", "job-2"]))
    job-3 waited in vain: job-1, job-2 stand before it
    """

    def __init__(
        self, consumer: str, ahead: Iterable[str] = (), refusal: CapacityException | None = None
    ) -> None:
        super().__init__(())
        self.consumer = consumer
        self.ahead: tuple[str, ...] = tuple(ahead)
        self.refusal = refusal
        self.args = consumer, self.ahead, refusal

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """The reasons of the refusal."""
        return () if self.refusal is None else self.refusal.reasons

    def first_reasons(self, count: int) -> tuple[tuple[Reason, ...], int]:
        return ((), 0) if self.refusal is None else self.refusal.first_reasons(count)

    def __str__(self) -> str:
        verb = "stands" if len(self.ahead) == 1 else "stand"
        before = f"{', '.join(self.ahead)} {verb} before it" if self.ahead else ""
        told = "; ".join(filter(None, [before, str(self.refusal or "")]))
        return f"{self.consumer} waited in vain{f': {told}' if told else ''}"


# --- what is kept does not allow it, or cannot be reached ---------------------------------------


class LedgerError(ResourceObjectsError):
    """The stored state does not allow it, or cannot be reached. ``subject`` names the thing.

    ``consumers`` use the subject, where it is refused for that.

    >>> print(ProviderInUse("host0", consumers=["job-1", "job-2", "job-3", "job-4", "job-5"]))
    host0 has allocations and cannot be removed; used by: job-1, job-2, job-3 and 2 more
    """

    def __init__(self, subject: str, detail: str = "", consumers: Iterable[str] = ()) -> None:
        self.subject = subject
        self.detail = detail
        self.consumers: tuple[str, ...] = tuple(consumers)
        super().__init__(subject, detail, *([self.consumers] if self.consumers else []))

    #: what is wrong with the subject; the message is ``<subject> <problem>[: <detail>]``
    problem = "failed"

    def __str__(self) -> str:
        told = f"{self.subject} {self.problem}{f': {self.detail}' if self.detail else ''}"
        more = len(self.consumers) - _NAMED
        others = f" and {more} more" if more > 0 else ""
        users = f"; used by: {', '.join(self.consumers[:_NAMED])}{others}"
        return told + (users if self.consumers else "")


class ProviderNotFound(LedgerError):
    """No provider of that name or uuid is kept."""

    problem = "is not a provider of this ledger"


class ProviderExists(LedgerError):
    """The name or uuid belongs to another provider already."""

    problem = "exists already elsewhere"


class ProviderInUse(LedgerError):
    """A provider with allocations cannot go."""

    problem = "has allocations and cannot be removed"


class InventoryInUse(LedgerError):
    """An inventory with allocations cannot go."""

    problem = "has allocations and its inventory cannot be removed"


class StaleDefinition(LedgerError):
    """Somebody changed the provider since it was read: read it again, then retry."""

    problem = "was changed since it was read"


class ConsumerNotFound(LedgerError):
    """No consumer of that name holds anything."""

    problem = "holds nothing in this ledger"


class ConsumerExists(LedgerError):
    """The consumer holds something already."""

    problem = "holds something already; release it first"


class StaleConsumer(LedgerError):
    """A consumer is not at the generation it was read at any more."""

    problem = "was changed since it was read"


class MoveInProgress(LedgerError):
    """A consumer is moving already: confirm or revert that move first."""

    problem = "is moving already; confirm or revert that move first"


class MoveNotFound(LedgerError):
    """A consumer is not moving, or not by that migration, and never did as far as is known."""

    problem = "is not moving"


class MoveConfirmed(LedgerError):
    """A move was confirmed, so it cannot be reverted any more."""

    problem = "was confirmed and cannot be reverted"


class MoveReverted(LedgerError):
    """A move was reverted, so it cannot be confirmed any more."""

    problem = "was reverted and cannot be confirmed"


class UnitNotHeld(LedgerError):
    """A unit was given back by a consumer that does not hold it."""

    problem = "is not a unit that the consumer holds"


class UnitNotFound(LedgerError):
    """A unit was asked for by name that the provider does not have, or not of that class."""

    problem = "is not a unit of this provider"


class DeviceUnknown(LedgerError):
    """What a consumer holds does not say which devices these are, or what they are called."""

    problem = "holds devices that cannot be told"


class ClassNotFound(LedgerError):
    """A resource class is not kept."""

    problem = "is not a resource class of this ledger"


class ClassInUse(LedgerError):
    """A resource class that something is counted in cannot go."""

    problem = "has inventories and cannot be removed"


class TraitNotFound(LedgerError):
    """A trait is not kept."""

    problem = "is not a trait of this ledger"


class TraitInUse(LedgerError):
    """A trait that some provider has cannot go."""

    problem = "is a trait of some provider and cannot be removed"


class AggregateNotFound(LedgerError):
    """An aggregate is not kept."""

    problem = "is not an aggregate of this ledger"


class AggregateInUse(LedgerError):
    """An aggregate that has members cannot go."""

    problem = "has members and cannot be removed"


class ServerGroupNotFound(LedgerError):
    """A server group is not kept."""

    problem = "is not a server group of this ledger"


class ServerGroupExists(LedgerError):
    """A server group of that name is kept, and asks something else."""

    problem = "is a server group that is kept otherwise"


class ServerGroupInUse(LedgerError):
    """A server group that has members cannot go."""

    problem = "has members and cannot be removed"


class NameExists(LedgerError):
    """A resource class, trait or aggregate of the new name is there already."""

    problem = "is there already"


class StandardName(LedgerError):
    """A standard resource class or trait can be neither renamed nor removed."""

    problem = "is a standard name, which stays"


class CountedTwice(LedgerError):
    """A class would be counted at a host and at the pool that gives it to the host."""

    problem = "is given by a pool and would be counted twice"


class InvalidPlan(LedgerError):
    """A plan would lose or invent an allocation, or does not say where one goes.

    ``problems`` says each that was found, ``consumers`` are the names of those concerned.
    """

    problem = "cannot be carried out"

    def __init__(
        self,
        subject: str,
        detail: str = "",
        problems: Iterable[str] = (),
        consumers: Iterable[str] = (),
    ) -> None:
        super().__init__(subject, detail)
        self.problems = tuple(problems)
        self.consumers = tuple(consumers)


class CursorExpired(LedgerError):
    """Changes after a cursor are not kept any more, or it is of another ledger: read anew."""

    problem = "has expired; read everything anew and go on from there"


class OperationConflict(LedgerError):
    """The operation id was used before, for something else."""

    problem = "is the id of another operation"


class OperationExpired(LedgerError):
    """The operation is older than what the ledger keeps: nobody knows whether it was done."""

    problem = "may have been done and forgotten; look at the ledger and use a new operation"


class UseNotRecorded(LedgerError):
    """Use over time is asked for, and the ledger does not record it, or did not at that time."""

    problem = "is not recorded"


class NotBound(LedgerError):
    """A compute node was asked to save or reload, and no ledger belongs to it."""

    problem = "is not bound to a ledger; use bind() or load()"


class NotSupported(LedgerError):
    """What is asked for cannot be kept where this ledger is kept. Nothing was done.

    ``subject`` is what cannot be: one of the names in ``Backend.lacks``.
    """

    problem = "cannot be kept by this ledger's backend"


class RequestRefused(LedgerError):
    """A service that keeps the ledger refused a request, in words of its own. Nothing was done."""

    problem = "refused a request"


class PartlyWritten(LedgerError):
    """A write that takes several requests was done in part: repeat it, it does the rest.

    ``detail`` names what was written, and why the rest was not; the cause is the error itself.
    """

    problem = "was written in part; repeat it"


class LedgerClosed(LedgerError):
    """The ledger was closed."""

    problem = "is closed"


class BackendNotFound(LedgerError):
    """No backend of that name is installed."""

    problem = "is not a backend"


class DatabaseUnavailable(LedgerError):
    """The database cannot be opened: missing path, refused connection, not a database."""

    problem = "cannot be opened"


class DatabaseReplaced(LedgerError):
    """The file of an open ledger was deleted or replaced: what is written there, nobody sees.

    Open the ledger again, and read anew what was read before.
    """

    problem = "is not the file that was opened; open the ledger again"


class DatabaseFull(LedgerError):
    """There is no space left for what was to be written. Nothing was done."""

    problem = "is full"


class DatabaseDamaged(LedgerError):
    """What is kept cannot be read any more, or contradicts itself: restore a backup."""

    problem = "is damaged"


class ReadOnlyDatabase(LedgerError):
    """The database can be read but not written."""

    problem = "cannot be written"


class DatabaseBusy(LedgerError):
    """Other writers kept the database for longer than the retries last. Nothing was done."""

    problem = "is busy"


class LostConnection(LedgerError):
    """The connection broke. Retry with the same operation id: it happens at most once."""

    problem = "lost its connection"


class SchemaTooNew(LedgerError):
    """The database was made by a newer library that does not admit this one."""

    problem = "has a schema newer than this library"


class SchemaTooOld(LedgerError):
    """The database needs ``resource-objects db upgrade`` first."""

    problem = "has an older schema; run `resource-objects db upgrade`"


class DiscoveryError(LedgerError):
    """A host's own description is missing or cannot be read."""

    problem = "cannot be read"


#: What is wrong with the database, and with nothing that was asked of it: whoever goes on to the
#: next host, or looks for what was done, meets it again.
DATABASE_ERRORS: tuple[type[LedgerError], ...] = (
    DatabaseBusy,
    DatabaseDamaged,
    DatabaseFull,
    DatabaseReplaced,
    DatabaseUnavailable,
    LedgerClosed,
    LostConnection,
    ReadOnlyDatabase,
    SchemaTooNew,
    SchemaTooOld,
)
