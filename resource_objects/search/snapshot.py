"""The snapshot: an immutable picture of the ledger at one moment."""

from __future__ import annotations

from typing import Any, NoReturn

from resource_objects import exceptions
from resource_objects.providers.columns import Columns
from resource_objects.requests import Request
from resource_objects.resources import Resource, resource
from resource_objects.search import fleet, matcher
from resource_objects.search.candidates import Candidates

#: How many candidates are returned, and how many steps are taken, unless told otherwise.
DEFAULT_LIMIT = 10
DEFAULT_BUDGET = 1_000_000


class Snapshot:
    """Everything a ledger kept at one moment; it never changes.

    Asking who could hold a request: :meth:`candidates`. Looking: :attr:`hosts`, :meth:`capacity`,
    :meth:`used`, :meth:`free`. Any number of threads may share one.

    >>> from resource_objects.providers.columns import InventoryColumns, ProviderColumns
    >>> snapshot = Snapshot(Columns(
    ...     ProviderColumns([1], ["1fa4cd25-8a38-4bb3-8a37-7b5d4a6f6f33"], ["host0"], [None], [1],
    ...                     [0]),
    ...     InventoryColumns([1], ["VCPU"], [8], [0], [1], [None], [1], [1000000], [8], [3])))
    >>> snapshot
    <Snapshot: 1 hosts, 1 providers>
    >>> print(snapshot.candidates("VCPU=2")[0])
    VCPU=2 of host0
    >>> print(snapshot.candidates("VCPU=6").explain())
    host0: VCPU asked 6, free 5 of 8
    """

    __slots__ = ("_fleet", "at")
    _fleet: fleet.Fleet
    #: the provider to which this picture is confined, None for everything
    at: str | None

    def __init__(self, columns: Columns, *, at: str | None = None) -> None:
        """Make a snapshot of what ``backend.read()`` returned.

        :param at: the provider to which the columns are confined, if they are: a claim of what is
            found searches there again after a lost race

        Cost: linear, about 2 microseconds per provider and per inventory.

        :raises InvalidRow: if the columns do not belong together
        :raises InvalidTree: if the parents of some provider never end
        """
        object.__setattr__(self, "_fleet", fleet.read(columns))
        object.__setattr__(self, "at", at)

    def candidates(
        self, request: Any, *, limit: int | None = DEFAULT_LIMIT, budget: int = DEFAULT_BUDGET
    ) -> Candidates:
        """Return who could hold a request: one candidate per host, in the order of their names.

        A host is found whenever some choice of its providers holds the request. Each class is
        given by one provider; where devices give it (providers below the root, of a class of
        devices or with one unit each) also by several of them together. Each part keeps the unit
        rules of its provider. Each required trait is had by all who give some class, themselves
        or through a provider above them; a forbidden one by nobody who gives, nor above.

        The same snapshot, request, limit and budget give the same answer. Cost: milliseconds for
        the hosts that cannot, however many; some 50 microseconds for each that can.

        :param request: a :class:`~resource_objects.requests.Request`, or what one is made from
        :param limit: at most so many candidates; None is as many as there are hosts
        :param budget: at most so many steps (one step is one thing tried)
        :raises InvalidInput: for a request that cannot be, or a limit or budget below 1
        """
        if limit is not None:
            _check("limit", limit)
        asked = Request.of(request)
        return matcher.search(self._fleet, asked, limit, _check("budget", budget), at=self.at)

    @property
    def hosts(self) -> tuple[str, ...]:
        """The names of the hosts, sorted."""
        return self._fleet.hosts

    def capacity(self, key: Resource | str) -> int:
        """Return how much of a resource there is, over all providers."""
        return sum(self._fleet.rows(resource(key).name).capacity.tolist())

    def used(self, key: Resource | str) -> int:
        """Return how much of a resource is used, over all providers."""
        return sum(self._fleet.rows(resource(key).name).used.tolist())

    def free(self, key: Resource | str) -> int:
        """Return how much of a resource is left: :meth:`capacity` less :meth:`used`."""
        return self.capacity(key) - self.used(key)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise exceptions.FrozenValue(f"Snapshot.{name} cannot change")

    def __delattr__(self, name: str) -> NoReturn:
        raise exceptions.FrozenValue(f"Snapshot.{name} cannot change")

    def __repr__(self) -> str:
        return f"<Snapshot: {len(self.hosts)} hosts, {len(self._fleet.names)} providers>"


def _check(what: str, value: object) -> int:
    if type(value) is not int or value < 1:
        raise exceptions.InvalidRequest(what, value, "an integer of 1 or more")
    return value
