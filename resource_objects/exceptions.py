"""The errors of the library: one type for each reaction of the caller.

* :class:`InvalidInput` (a ``ValueError``): an argument is wrong. Correct it.
* :class:`CapacityException`: the request is valid, and there is no capacity for it. Its
  :class:`~resource_objects.reasons.Reason` objects say why. Wait, or request less.
* :class:`LedgerError`: the stored state does not allow it (:class:`NotFound`, :class:`InUse`,
  :class:`Stale`, ...), or the database does not answer (:class:`DatabaseError`).

Every error has a stable ``code``, which names the case: ``NotFound("provider", "host0").code`` is
``"ProviderNotFound"``. The native HTTP API sends this code. Errors can be pickled.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

from resource_objects.reasons import UNIT_RULES, Reason, Rule, sentences

_SHOWN = 80
_NAMED = 3


def show(value: object) -> str:
    """Return ``repr(value)`` cut to a length that fits an error message.

    >>> show("x" * 200)[-4:]
    "...'"
    """
    try:
        text = repr(value)
    except Exception as error:  # an error in a foreign __repr__ must not hide the real error
        return f"<{type(value).__name__} whose repr fails: {type(error).__name__}>"
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 4]}...{text[-1]}"


class ResourceObjectsError(Exception):
    """The base of every error that the library raises on purpose."""

    def __post_init__(self) -> None:
        """Set the arguments with which a pickle calls the type of a dataclass."""
        values = (getattr(self, field.name) for field in fields(self) if field.init)  # type: ignore[arg-type]
        self.args = tuple(values)

    @property
    def code(self) -> str:
        """A stable name of the case; by default the name of the type."""
        return type(self).__name__

    def matches(self, *kinds: type[Exception] | str) -> bool:
        """Return True if the error is of one of these types, or has one of these codes."""
        return any(
            self.code == kind if isinstance(kind, str) else isinstance(self, kind) for kind in kinds
        )

    def is_about(self, *subjects: str) -> bool:
        """Return True if the ``subject`` of the error is one of these."""
        return getattr(self, "subject", None) in subjects


# --- invalid arguments --------------------------------------------------------------------------


@dataclass(eq=False, repr=False)
class InvalidInput(ResourceObjectsError, ValueError):
    """An invalid value: its kind, its name, the value, and the values that are allowed.

    ``subject`` is the kind of value, one of :attr:`CODES`; it decides ``code``. A derived type has
    one subject of its own, which is not in that table, and one code.

    >>> raise InvalidInput("amount", "total", -1, "an integer from 1 to 9")
    Traceback (most recent call last):
    resource_objects.exceptions.InvalidInput: total: got -1, expected an integer from 1 to 9
    """

    #: The code of each kind of value.
    CODES: ClassVar[Mapping[str, str]] = {
        "value": "InvalidInput",
        "field": "InvalidField",  # a field of a versioned object, or an argument
        "field name": "UnknownField",
        "primitive": "InvalidPrimitive",  # the wire form of an object
        "amount": "InvalidAmount",
        "kind of amount": "WrongAmountKind",
        "unassigned amount": "NotAssigned",  # where only an assigned amount has a meaning
        "negative amount": "NegativeAmount",
        "ratio": "InvalidRatio",
        "resource class": "InvalidResourceClass",
        "unknown resource class": "UnknownResourceClass",
        "trait": "InvalidTrait",
        "unknown trait": "UnknownTrait",
        "name": "InvalidName",  # of a provider, consumer, project or user; or a uuid
        "text": "InvalidText",
        "repetition": "DuplicateKey",
        "request": "InvalidRequest",
        "move": "InvalidMove",
        "row": "InvalidRow",  # a foreign record, such as a row of compute_nodes
        "device rule": "InvalidRule",
        "site file": "InvalidSite",
        "trace": "InvalidTrace",
        "provider configuration": "InvalidConfiguration",
        "PCI address": "InvalidAddress",
        "device": "InvalidDevice",
        "URL": "InvalidURL",  # of a ledger; its secrets are removed from the value
    }

    subject: str
    what: str
    value: object
    expected: str

    def __post_init__(self) -> None:
        if self.subject == "URL":
            self.value = _without_secrets(self.value)
        super().__post_init__()

    @property
    def code(self) -> str:
        """The code of the kind of value; of a derived type, its name unless it defines another."""
        name = type(self).__name__
        return self.CODES.get(self.subject, name) if name == "InvalidInput" else name

    def renamed(self, what: str, value: object) -> InvalidInput:
        """Return the same error with another name of the value."""
        arguments: tuple[Any, ...] = (*self.args[:-3], what, value, self.expected)
        return type(self)(*arguments)

    def __str__(self) -> str:
        return f"{self.what}: got {show(self.value)}, expected {self.expected}"


@dataclass(eq=False, repr=False)
class InvalidInventory(InvalidInput):
    """An inventory whose figures contradict each other or are out of range."""

    subject: str = field(default="inventory", init=False)


@dataclass(eq=False, repr=False)
class ForeignAmount(InvalidInput):
    """An amount that is assigned to CPUs, cells or devices that this inventory does not have."""

    subject: str = field(default="foreign amount", init=False)


@dataclass(eq=False, repr=False)
class InvalidTree(InvalidInput):
    """Providers that do not form a tree."""

    subject: str = field(default="tree", init=False)


def _without_secrets(value: object) -> object:
    """Return the scheme and host of a URL, without the rest: it may be a password.

    >>> InvalidInput("URL", "URL", "mysql://me:secret@db/lab?charset=latin1", "utf8mb4").value
    'mysql://db/...'
    """
    if not isinstance(value, str):
        return type(value).__name__
    match = re.fullmatch(r"([A-Za-z0-9+.-]+://)(?:[^/?#@]*@)?([^/?#@:]*).*", value, re.DOTALL)
    if match is not None:
        recognized = match[1] + match[2]
        return value if value.rstrip("/") == recognized.rstrip("/") else f"{recognized}/..."
    return value if re.fullmatch(r"[A-Za-z0-9_.+-]*(?::/{0,3})?", value) else "..."


# --- versioned objects and plug-ins -------------------------------------------------------------


class FieldNotSet(ResourceObjectsError, AttributeError, NotImplementedError):
    """A field was read that is not set on this object.

    It is an ``AttributeError``, so that ``hasattr`` returns False, and a ``NotImplementedError``,
    which versioned objects raise by convention.
    """


class FrozenValue(ResourceObjectsError, AttributeError):
    """A frozen value (an amount, a request, a candidate) cannot be changed."""


class UnsupportedVersion(ResourceObjectsError):
    """A wire form in a version that this library does not support."""


@dataclass(eq=False, repr=False)
class CannotDowngrade(ResourceObjectsError):
    """An older version of an object cannot express a value of this one."""

    objname: str
    version: str
    reason: str

    def __str__(self) -> str:
        return f"{self.objname} cannot be expressed in version {self.version}: {self.reason}"


@dataclass(eq=False, repr=False)
class PluginError(ResourceObjectsError):
    """A plug-in cannot be used: its namespace, its name and the reason.

    ``is_installed`` is False if there is no plug-in of this name; its code is ``PluginNotFound``.
    """

    namespace: str
    name: str
    reason: str
    is_installed: bool = True

    @property
    def code(self) -> str:
        """``PluginError`` or ``PluginNotFound``."""
        return "PluginError" if self.is_installed else "PluginNotFound"

    def __str__(self) -> str:
        return f"plug-in {self.name!r} of {self.namespace} cannot be used: {self.reason}"


@dataclass(eq=False, repr=False)
class FilterFailed(ResourceObjectsError):
    """A filter or weigher of a scheduler raised an error instead of an answer.

    ``host`` is None if it was called for all hosts at once. ``detail`` is the error as a text.

    >>> print(FilterFailed("quiet", "host0", ValueError("no such figure")))
    quiet failed on host0: ValueError: no such figure
    """

    name: str
    host: str | None
    detail: object

    def __post_init__(self) -> None:
        error = self.detail
        is_foreign = isinstance(error, Exception) and not isinstance(error, ResourceObjectsError)
        self.detail = f"{type(error).__name__}: {error}" if is_foreign else str(error)
        super().__post_init__()

    def __str__(self) -> str:
        return f"{self.name} failed on {self.host or 'all hosts'}: {self.detail}"


# --- refusals -----------------------------------------------------------------------------------


class CapacityException(ResourceObjectsError):
    """There is no capacity for the request. ``reasons`` has every constraint that failed.

    ``code`` follows from the reasons: ``UnitRuleViolated`` if all of them are about ``min_unit``,
    ``max_unit`` or ``step_size``; ``InventoryNotFound`` if no provider has such an inventory;
    ``UnitTaken`` if requested units are allocated to others; ``ServerGroupViolated`` for the policy
    of a server group; ``ProviderDisabled`` if a disabled provider or unit refuses a write, or
    is the only obstacle of a search; else ``CapacityException``.

    >>> raise CapacityException([Reason(Rule.CAPACITY, 8, bound=16, used=13, resource="VCPU")])
    Traceback (most recent call last):
    resource_objects.exceptions.CapacityException: VCPU requested 8, free 3 of 16
    """

    def __init__(self, reasons: Iterable[Reason] | Any, *, is_disabled: bool = False) -> None:
        """:param reasons: the reasons; or an object that computes them when they are read, by
            ``.reasons`` and ``.first_reasons(count)``

        :param is_disabled: True if disabled providers or units refuse it, whatever else is
        """
        is_lazy = hasattr(reasons, "first_reasons")
        self._source: Any = reasons if is_lazy else tuple(reasons)
        self._is_disabled = is_disabled
        super().__init__(self._source)

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """The reasons of the refusal; of a search, of every refused host in order of the names.

        :raises FilterFailed: if a filter of the search fails to say why it refused a host
        """
        if not isinstance(self._source, tuple):
            self._source = tuple(self._source.reasons)
        return tuple(self._source)

    def first_reasons(self, count: int) -> tuple[tuple[Reason, ...], int]:
        """Return the first reasons, and the number of further ones."""
        if not isinstance(self._source, tuple):
            first: tuple[tuple[Reason, ...], int] = self._source.first_reasons(count)
            return first
        return self._source[:count], max(0, len(self._source) - count)

    @property
    def code(self) -> str:
        """The code that follows from the reasons; of a derived type, its name."""
        if type(self).__name__ != "CapacityException":
            return type(self).__name__
        rules = {reason.rule for reason in self.reasons}
        is_full = any(r.rule is Rule.CAPACITY and r.bound <= 0 for r in self.reasons)
        is_only_disabled = Rule.DISABLED in rules and (is_full or len(rules) == 1)
        if self._is_disabled or is_only_disabled:
            return "ProviderDisabled"
        if rules and rules <= UNIT_RULES:
            return "UnitRuleViolated"
        return (
            _CODES.get(rules.pop(), "CapacityException") if len(rules) == 1 else "CapacityException"
        )

    def __str__(self) -> str:
        return "; ".join(sentences(self.reasons))


#: The code of a refusal whose reasons all have one rule.
_CODES = {
    Rule.NO_INVENTORY: "InventoryNotFound",
    Rule.UNIT_TAKEN: "UnitTaken",
    Rule.SERVER_GROUP: "ServerGroupViolated",
}


class HostRefused(CapacityException):
    """A host refuses a consumer for which it was chosen, although the ledger had capacity.

    ``detail`` is the host's own explanation.

    >>> print(HostRefused("host0", "vm-1", "the image needs firmware that is not here"))
    host0 refuses vm-1: the image needs firmware that is not here
    """

    def __init__(
        self, host: str, consumer: str = "", detail: object = "", reasons: Iterable[Reason] = ()
    ) -> None:
        super().__init__(reasons)
        self.args = host, consumer, str(detail), self.reasons
        self.host, self.consumer, self.detail = self.args[:3]

    def __str__(self) -> str:
        why = "; ".join(filter(None, [self.detail, *sentences(self.reasons)]))
        return f"{self.host} refuses {self.consumer}{f': {why}' if why else ''}"


class NoCandidates(CapacityException):
    """A search found no candidate, or all of its candidates are allocated to others by now.

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
        :param reasons: None: those of ``explanation``, of which a text has none
        """
        if reasons is None:
            reasons = () if isinstance(explanation, str) else explanation
        super().__init__(reasons)
        self._what = what
        self.explanation = explanation

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
    """A claim waited in the queue until its time was over.

    ``ahead`` are consumers that were before it in the queue, earliest first; a few of them, if
    there are many. ``refusal`` is the last refusal, None if the claim was never the first in the
    queue; ``reasons`` are those of the refusal.

    >>> print(WaitTimedOut("job-3", ["job-1", "job-2"]))
    job-3 waited in vain: job-1, job-2 are before it
    """

    def __init__(
        self, consumer: str, ahead: Iterable[str] = (), refusal: CapacityException | None = None
    ) -> None:
        super().__init__(refusal or ())
        self.args = consumer, tuple(ahead), refusal
        self.consumer, self.ahead, self.refusal = self.args

    def __str__(self) -> str:
        verb = "is" if len(self.ahead) == 1 else "are"
        before = f"{', '.join(self.ahead)} {verb} before it" if self.ahead else ""
        detail = "; ".join(filter(None, [before, str(self.refusal or "")]))
        return f"{self.consumer} waited in vain{f': {detail}' if detail else ''}"


@dataclass(eq=False, repr=False)
class SearchLimitReached(ResourceObjectsError):
    """The budget of a search ended before there was an answer: neither yes nor no."""

    budget: int
    found: int = 0

    def __str__(self) -> str:
        return f"cut short after {self.budget} steps, {self.found} found: neither yes nor no"


# --- the ledger and its database ----------------------------------------------------------------


@dataclass(eq=False, repr=False)
class LedgerError(ResourceObjectsError):
    """The stored state does not allow the action, or cannot be reached.

    ``subject`` is the kind of thing concerned, ``name`` is its name; ``consumers`` use it, if it is
    refused for that. Each type lists its subjects in :attr:`CASES`.

    >>> print(InUse("provider", "host0", consumers=("job-1", "job-2", "job-3", "job-4", "job-5")))
    host0 has allocations and cannot be removed; used by: job-1, job-2, job-3 and 2 more
    """

    #: The code and the sentence of each subject; the message is ``<name> <sentence>[: <detail>]``.
    CASES: ClassVar[Mapping[str, tuple[str, str]]] = {
        "ledger": ("LedgerError", "failed"),
        "request": ("RequestRefused", "refused a request"),  # by a remote service
        "write": ("PartlyWritten", "was written in part; repeat it"),
    }

    subject: str
    name: str
    detail: str = ""
    consumers: tuple[str, ...] = ()

    @property
    def code(self) -> str:
        """The code of the subject; of a subject that is not listed, the name of the type."""
        return self.CASES[self.subject][0] if self.subject in self.CASES else type(self).__name__

    def __str__(self) -> str:
        sentence = self.CASES.get(self.subject, ("", "failed"))[1]
        text = f"{self.name} {sentence}{f': {self.detail}' if self.detail else ''}"
        more = len(self.consumers) - _NAMED
        further = f" and {more} more" if more > 0 else ""
        users = f"; used by: {', '.join(self.consumers[:_NAMED])}{further}"
        return text + (users if self.consumers else "")


class NotFound(LedgerError):
    """A kind and name of which the ledger has nothing.

    >>> NotFound("provider", "host9").code
    'ProviderNotFound'
    """

    CASES = {
        "provider": ("ProviderNotFound", "is not a provider of this ledger"),
        "consumer": ("ConsumerNotFound", "has no allocations in this ledger"),
        "unit": ("UnitNotFound", "is not a unit of this provider"),
        "device": ("DeviceUnknown", "holds devices that cannot be identified"),
        "resource class": ("ClassNotFound", "is not a resource class of this ledger"),
        "trait": ("TraitNotFound", "is not a trait of this ledger"),
        "aggregate": ("AggregateNotFound", "is not an aggregate of this ledger"),
        "server group": ("ServerGroupNotFound", "is not a server group of this ledger"),
        "move": ("MoveNotFound", "has no such move"),
        "backend": ("BackendNotFound", "is not a backend"),
    }


class AlreadyExists(LedgerError):
    """The name or uuid is that of another thing in this ledger."""

    CASES = {
        "provider": ("ProviderExists", "exists already elsewhere"),
        "consumer": ("ConsumerExists", "has allocations already; release them first"),
        "server group": ("ServerGroupExists", "is a server group that is stored differently"),
        "name": ("NameExists", "is there already"),  # of a class, trait or aggregate
    }


class InUse(LedgerError):
    """Something that is used cannot be removed."""

    CASES = {
        "provider": ("ProviderInUse", "has allocations and cannot be removed"),
        "inventory": ("InventoryInUse", "has allocations and its inventory cannot be removed"),
        "resource class": ("ClassInUse", "has inventories and cannot be removed"),
        "trait": ("TraitInUse", "is a trait of some provider and cannot be removed"),
        "aggregate": ("AggregateInUse", "has members and cannot be removed"),
        "server group": ("ServerGroupInUse", "has members and cannot be removed"),
    }


class Stale(LedgerError):
    """The generation that was read is not the current one: read again, then retry."""

    CASES = {
        "provider": ("StaleDefinition", "was changed since it was read"),
        "consumer": ("StaleConsumer", "was changed since it was read"),
    }


class Conflict(LedgerError):
    """The action contradicts what is stored; a retry will not help."""

    CASES = {
        "move": ("MoveInProgress", "is moving already"),
        "confirmed move": ("MoveConfirmed", "was confirmed and cannot be reverted"),
        "reverted move": ("MoveReverted", "was reverted and cannot be confirmed"),
        "unit": ("UnitNotHeld", "is not a unit that the consumer holds"),  # in a release
        "operation": ("OperationConflict", "is the id of another operation"),
        "pool": ("CountedTwice", "is provided by a pool and would be counted twice"),
        "binding": ("NotBound", "is not bound to a ledger; use bind() or load()"),
    }


class NotSupported(LedgerError):
    """A capability that this ledger does not have. Nothing was done.

    The name of a capability is one of the names in ``Backend.unsupported``.
    """

    CASES = {
        "capability": ("NotSupported", "cannot be stored by this ledger's backend"),
        "standard name": ("StandardName", "is a standard name, which cannot be changed"),
    }


class Expired(LedgerError):
    """A cursor or operation that the ledger does not store any more.

    After an expired cursor, read everything again. An expired operation may have been carried out:
    look at the ledger, then use a new operation.
    """

    CASES = {
        "cursor": ("CursorExpired", "has expired; read everything anew and go on from there"),
        "operation": (
            "OperationExpired",
            "may have been done and forgotten; look at the ledger and use a new operation",
        ),
    }


@dataclass(eq=False, repr=False)
class InvalidPlan(LedgerError):
    """A plan would lose or invent an allocation, or does not say where one moves to.

    ``problems`` are the faults, one sentence each; ``consumers`` are the consumers concerned.
    """

    CASES = {"plan": ("InvalidPlan", "cannot be carried out")}

    subject: str = field(default="plan", init=False)
    problems: tuple[str, ...] = ()


@dataclass(eq=False, repr=False)
class DiscoveryError(LedgerError):
    """A host's description of itself is missing or cannot be read."""

    CASES = {"host": ("DiscoveryError", "cannot be read")}

    subject: str = field(default="host", init=False)


class DatabaseError(LedgerError):
    """The database cannot be used, whatever was requested. ``subject`` is its condition.

    >>> error = DatabaseError("busy", "lab.db", "locked for 10 s")
    >>> print(error.code, "|", error)
    DatabaseBusy | lab.db is busy: locked for 10 s
    """

    CASES = {
        "unavailable": ("DatabaseUnavailable", "cannot be opened"),
        # retry with the same operation id: the write happens at most once
        "lost": ("LostConnection", "lost its connection"),
        "busy": ("DatabaseBusy", "is busy"),  # for longer than the retries last; nothing was done
        "full": ("DatabaseFull", "is full"),  # nothing was done
        "damaged": ("DatabaseDamaged", "is damaged"),  # restore a backup
        "read-only": ("ReadOnlyDatabase", "cannot be written"),
        "replaced": ("DatabaseReplaced", "is not the file that was opened; open the ledger again"),
        "closed": ("LedgerClosed", "is closed"),
        "schema too new": ("SchemaTooNew", "has a schema newer than this library"),
        "schema too old": (
            "SchemaTooOld",
            "has an older schema; run `resource-objects db upgrade`",
        ),
    }
