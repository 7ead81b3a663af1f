"""The answer: candidates, each one complete way to hold a request."""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from resource_objects import base, exceptions, fields, names
from resource_objects._ovo import fields as ovo_fields
from resource_objects.fields import MAX_AMOUNT, FrozenDict
from resource_objects.providers import Allocation
from resource_objects.providers.allocation import by_provider, total
from resource_objects.requests import Request
from resource_objects.resources import Amounts
from resource_objects.search.order import Options

if typing.TYPE_CHECKING:
    from resource_objects.search.explain import Explanation


class Generation(ovo_fields.FieldType[tuple[str, int]]):
    """A provider's uuid with the generation of its definition."""

    _number = fields.StrictInteger(0, MAX_AMOUNT)

    def coerce(self, obj: typing.Any, attr: str, value: typing.Any) -> tuple[str, int]:
        if not isinstance(value, list | tuple) or len(value) != 2:
            raise ValueError(attr)
        return names.uuid_text(value[0]), self._number.coerce(obj, attr, value[1])

    def to_primitive(self, obj: typing.Any, attr: str, value: tuple[str, int]) -> list[typing.Any]:
        return list(value)

    def describe(self) -> str:
        return "a uuid and a generation"

    def get_schema(self) -> dict[str, typing.Any]:
        return {"type": ["array"], "minItems": 2, "maxItems": 2}


def _suffix(value: object) -> str:
    return "" if value == "" else names.label(value)


class Mappings(fields.FrozenDictOf):
    """Who gives each group: provider names by suffix."""

    def __init__(self) -> None:
        name = fields.Checked(names.provider_name, "a provider name", "^.{1,200}$")
        super().__init__(_suffix, fields.TupleOf(name))


@base.register_record
class Candidate(base.Value):
    """One complete way to hold a request: what to take of whom.

    ``host`` is the name of the root of the tree that gives it; what that tree does not have may be
    of a pool linked to it. There is one allocation per provider and resource class.

    ``located`` are the amounts that say where they go, assigned: which host cells, CPUs and pages.
    They add nothing to the allocations, which carry the units.

    ``mappings`` tells, by the suffix of each group, the names of the providers that it is given by;
    ``""`` is the group without a name.

    ``generations`` are ``(uuid, generation)`` of the definitions it was decided on: of those who
    give, and of the providers above them, whose traits count too.

    >>> from resource_objects.resources import IntegerAmount
    >>> cpus = Allocation(provider="host0", resource_class="VCPU", amount=IntegerAmount(2))
    >>> print(Candidate(host="host0", allocations=(cpus,)))
    VCPU=2 of host0
    """

    # Version 1.0: Initial version
    # Version 1.1: allocations carry units; generations
    # Version 1.2: located
    # Version 1.3: mappings
    VERSION = "1.3"

    CHILD_VERSIONS = {
        "resource_objects.Allocation": [("1.0", "1.0"), ("1.1", "1.1")],
    }

    fields = {
        "host": fields.NameField(),
        "allocations": fields.TupleOfObjectsField("Allocation"),
        "generations": fields.Field(fields.TupleOf(Generation()), default=()),
        "located": fields.ObjectField("Amounts", default=Amounts()),
        "mappings": fields.Field(Mappings(), default=FrozenDict()),
    }
    host: str
    allocations: tuple[Allocation, ...]
    generations: tuple[tuple[str, int], ...] = ()
    located: Amounts = Amounts()
    mappings: Mapping[str, tuple[str, ...]] = FrozenDict()

    def obj_make_compatible(self, primitive: dict[str, typing.Any], target_version: str) -> None:
        """Leave out what older versions do not know; refuse to lose what they cannot say.

        Generations and mappings may go, for they are not what is taken.
        """
        if target_version in ("1.0", "1.1", "1.2"):
            primitive.pop("mappings", None)
        if target_version in ("1.0", "1.1"):
            located = primitive.pop("located", None)
            if located and located[self._obj_primitive_key("data")]["by_class"]:
                raise exceptions.CannotDowngrade(
                    self.obj_name(), target_version, "it cannot say located"
                )
        if target_version == "1.0":
            primitive.pop("generations", None)
        super().obj_make_compatible(primitive, target_version)

    def _validate(self) -> None:
        if not self.allocations:
            raise exceptions.InvalidField("Candidate.allocations", (), "at least one allocation")
        seen: set[tuple[str, str]] = set()
        for taken in self.allocations:
            if taken.amount.is_negative or taken.amount.is_zero:
                raise exceptions.InvalidField(
                    "Candidate.allocations", str(taken), "amounts above 0"
                )
            key = taken.provider, taken.resource_class
            if key in seen:
                raise exceptions.DuplicateKey("Candidate.allocations", key, "each only once")
            seen.add(key)

    @property
    def amounts(self) -> Amounts:
        """All that is taken, summed over providers."""
        return total(self.allocations)

    def by_provider(self) -> dict[str, Amounts]:
        """Return ``{provider name: amounts}``, in the order of the allocations."""
        return by_provider(self.allocations)

    def __str__(self) -> str:
        return ", ".join(f"{amounts} of {name}" for name, amounts in self.by_provider().items())


class Candidates(Sequence[Candidate]):
    """What a search found: a sequence of candidates that knows what it means to be empty.

    True: there are some. False: refused, no host can hold the request; :meth:`explain` says why.
    If the budget ran out before one was found the answer is neither, and every look at it (``if``,
    ``len``, iterating, indexing) raises :class:`~resource_objects.exceptions.SearchLimitReached`.
    If it ran out after some were found, :attr:`cut_short` is True: there may be more.

    It does not change, and any number of threads may read it.
    """

    __slots__ = ("_explain", "_found", "at", "cut_short", "options", "request", "steps")

    def __init__(
        self,
        found: Iterable[Candidate],
        request: Request,
        *,
        explain: Callable[[], Explanation],
        options: Options,
        steps: int = 0,
        cut_short: bool = False,
        at: str | None = None,
    ) -> None:
        self._found = tuple(found)
        self._explain = explain
        #: what was asked
        self.request = request
        #: the provider to which the search was confined, None for everywhere
        self.at = at
        #: limit, order, seed and budget of the search
        self.options = options
        #: steps the search took
        self.steps = steps
        #: whether the budget ran out, so that hosts are left of which nothing is known
        self.cut_short = cut_short

    @property
    def budget(self) -> int:
        """Steps the search was allowed."""
        return self.options.budget

    def explain(self) -> Explanation:
        """Return why the hosts that were left out cannot hold the request."""
        return self._explain()

    def _answer(self) -> tuple[Candidate, ...]:
        if self.cut_short and not self._found:
            raise exceptions.SearchLimitReached(self.budget)
        return self._found

    def __bool__(self) -> bool:
        return bool(self._answer())

    def __len__(self) -> int:
        return len(self._answer())

    def __iter__(self) -> Iterator[Candidate]:
        return iter(self._answer())

    @typing.overload
    def __getitem__(self, index: int) -> Candidate: ...

    @typing.overload
    def __getitem__(self, index: slice) -> tuple[Candidate, ...]: ...

    def __getitem__(self, index: int | slice) -> Candidate | tuple[Candidate, ...]:
        return self._answer()[index]

    def __repr__(self) -> str:
        short = ", cut short" if self.cut_short else ""
        return f"<Candidates: {len(self._found)} for {self.request}{short}>"
