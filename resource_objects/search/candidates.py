"""The candidates of a request: a lazy sequence."""

from __future__ import annotations

import itertools
import operator
import threading
import typing
from collections.abc import Callable, Iterator, Sequence

from resource_objects import exceptions
from resource_objects.fields import Shared
from resource_objects.providers import Allocation
from resource_objects.requests import Request
from resource_objects.search.candidate import Candidate, Chosen

if typing.TYPE_CHECKING:
    from resource_objects.search.explain import Explanation
    from resource_objects.search.order import Options

#: A candidate, or the number of the tree for which it is built when it is read.
Entry: typing.TypeAlias = "Candidate | int"


class Candidates(Sequence[Candidate], Shared):
    """The result of a search: a sequence of candidates.

    True: there are some. False: refused, no host can satisfy the request; :meth:`explain` returns
    the reasons. If the budget ran out before a candidate was found, every access (``if``, ``len``,
    iterating, indexing) raises :class:`~resource_objects.exceptions.SearchLimitReached`. If it ran
    out later, :attr:`cut_short` is True: there may be more.

    The sequence is lazy. ``if`` and ``[0]`` search for the first candidate; ``len``, :attr:`steps`,
    :attr:`cut_short` and :meth:`explain` for all, up to the limit. A candidate is built when it is
    read. The result does not depend on the order of access, for the snapshot never changes. Threads
    may share it: one at a time searches. A pickle has all candidates up to the limit, and the
    explanation with its snapshot.
    """

    __slots__ = (
        *("_build", "_ended", "_error", "_explain", "_entries", "_is_done", "_lock", "_remaining"),
        *("at", "options", "request"),
    )

    def __init__(
        self,
        entries: Iterator[Entry],
        request: Request,
        *,
        build: Callable[[int], Candidate],
        explain: Callable[[], Explanation],
        ended: Callable[[], tuple[int, bool]],
        options: Options,
        at: str | None = None,
    ) -> None:
        """:param build: returns the candidate of a tree that arrays decided

        :param explain: returns why hosts have no candidate, when all candidates are found
        :param ended: returns the steps taken, and whether there may be more candidates, likewise
        """
        self._remaining = entries
        self._entries: list[Entry] = []
        self._is_done = False
        self._error: BaseException | None = None
        self._lock = threading.Lock()
        self._build = build
        self._explain = explain
        self._ended = ended
        #: the request of the search
        self.request = request
        #: the provider to which the search was confined, None for everywhere
        self.at = at
        #: limit, order, seed and budget of the search
        self.options = options

    def __reduce__(self) -> tuple[typing.Any, ...]:
        explanation, ended = self.explain(), self._ended()
        candidates = [self._at(place) for place in range(len(self._entries))]
        return _unpickled, (candidates, self.request, explanation, ended, self.options, self.at)

    def instead(self, candidates: Sequence[Candidate]) -> Candidates:
        """Return the result of the same search with these candidates in place of its own."""
        return Candidates(
            iter(candidates),
            self.request,
            build=self._build,
            explain=self.explain,
            ended=lambda: (0, False),
            options=self.options,
            at=self.at,
        )

    @property
    def steps(self) -> int:
        """The steps that the search took."""
        self._search(None)
        return self._ended()[0]

    @property
    def cut_short(self) -> bool:
        """Whether the budget ran out, so that some hosts are undecided."""
        self._search(None)
        return self._ended()[1]

    @property
    def budget(self) -> int:
        """The steps that the search was allowed."""
        return self.options.budget

    def explain(self) -> Explanation:
        """Return why the hosts without a candidate cannot satisfy the request."""
        self._search(None)
        return self._explain()

    def _search(self, count: int | None) -> None:
        """Search until ``count`` candidates are found; None for all."""
        if self._is_done or (count is not None and len(self._entries) >= count):
            return
        with self._lock:  # another thread may have searched meanwhile: then fewer are missing
            if self._error is not None:
                raise self._error
            missing = None if count is None else max(0, count - len(self._entries))
            before = len(self._entries)
            try:
                self._entries += itertools.islice(self._remaining, missing)
            except BaseException as error:  # interrupted: the rest remains unknown
                self._error = error
                raise
            self._is_done |= missing is None or len(self._entries) < before + missing

    def _available(self, count: int | None) -> int:
        """Search until ``count`` candidates are found; return the number found, maybe more.

        :raises SearchLimitReached: if the budget ran out before one was found
        """
        self._search(count)
        if not self._entries and self.cut_short:
            raise exceptions.SearchLimitReached(self.budget)
        return len(self._entries)

    def _at(self, place: int) -> Candidate:
        entry = self._entries[place]
        if not isinstance(entry, Candidate):
            # two threads may both build it: the results are equal
            entry = self._entries[place] = self._build(entry)
        return entry

    def __bool__(self) -> bool:
        return self._available(1) > 0

    def __len__(self) -> int:
        return self._available(None)

    def __iter__(self) -> Iterator[Candidate]:
        self._available(1)  # an error is raised here, not at the first step
        return self._iterate()

    def _iterate(self) -> Iterator[Candidate]:
        place = 0
        while place < len(self._entries) or self._available(place + 1) > place:
            yield self._at(place)
            place += 1

    @typing.overload
    def __getitem__(self, index: int) -> Candidate: ...

    @typing.overload
    def __getitem__(self, index: slice) -> tuple[Candidate, ...]: ...

    def __getitem__(self, index: int | slice) -> Candidate | tuple[Candidate, ...]:
        if isinstance(index, slice):
            end = index.stop
            is_forward = all(part is None or part >= 0 for part in (index.start, end, index.step))
            count = self._available(end if is_forward and end is not None else None)
            return tuple(self._at(place) for place in range(*index.indices(count)))
        place = operator.index(index)
        count = self._available(place + 1 if place >= 0 else None)
        return self._at(range(count)[place])

    def __repr__(self) -> str:
        self._search(None)
        short = ", cut short" if self.cut_short else ""
        return f"<Candidates: {len(self._entries)} for {self.request}{short}>"


def _unpickled(
    candidates: Sequence[Candidate],
    request: Request,
    explanation: Explanation,
    ended: tuple[int, bool],
    options: Options,
    at: str | None,
) -> Candidates:
    return Candidates(
        iter(candidates),
        request,
        build=candidates.__getitem__,  # never called: all are built
        explain=lambda: explanation,
        ended=lambda: ended,
        options=options,
        at=at,
    )


#: What can be claimed: candidates, of which the first that is free is allocated; one candidate; or
#: allocations, also those of a claim.
Claimable: typing.TypeAlias = (
    Candidates | Candidate | Chosen | Sequence[Candidate] | Sequence[Allocation]
)


def choices(candidates: typing.Any) -> Iterator[Sequence[Allocation]]:
    """Yield the allocations of each candidate, in their order.

    :param candidates: what can be claimed
    :raises InvalidInput: for anything else
    """
    if isinstance(candidates, Chosen):
        candidates = candidates.candidate
    if isinstance(candidates, Candidate):
        candidates = [candidates]
    is_list = isinstance(candidates, list | tuple)
    if is_list and candidates and isinstance(candidates[0], Allocation):
        yield candidates
    elif is_list or isinstance(candidates, Candidates):
        for candidate in candidates:
            if not isinstance(candidate, Candidate):
                raise exceptions.InvalidInput("amount", "claim", candidate, "a candidate")
            yield candidate.allocations
    else:
        raise exceptions.InvalidInput("amount", "claim", candidates, "candidates or allocations")
