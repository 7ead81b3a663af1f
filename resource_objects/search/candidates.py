"""The candidates of a request: a lazy sequence."""

from __future__ import annotations

import itertools
import operator
import threading
import typing
from collections.abc import Callable, Iterator, Sequence

from resource_objects import exceptions
from resource_objects.fields import Shared
from resource_objects.requests import Request
from resource_objects.search.candidate import Candidate

if typing.TYPE_CHECKING:
    from resource_objects.search.explain import Explanation
    from resource_objects.search.order import Options


#: A candidate, or the number of the tree of which it is built when somebody looks at it.
Hit: typing.TypeAlias = "Candidate | int"


class Candidates(Sequence[Candidate], Shared):
    """What a search found: a sequence of candidates that knows what it means to be empty.

    True: there are some. False: refused, no host can hold the request; :meth:`explain` says why.
    If the budget ran out before one was found the answer is neither, and every look at it (``if``,
    ``len``, iterating, indexing) raises :class:`~resource_objects.exceptions.SearchLimitReached`.
    If it ran out after some were found, :attr:`cut_short` is True: there may be more.

    It is lazy: the search goes as far as somebody looks. ``if`` and ``[0]`` look for the first one;
    ``len``, :attr:`steps`, :attr:`cut_short` and :meth:`explain` for all, up to the limit. A
    candidate is built when it is looked at. What is seen does not depend on who looks first, for
    the snapshot below never changes, and any number of threads may read it: one at a time searches
    on. A pickle has all candidates up to the limit, and the explanation with its snapshot.
    """

    __slots__ = (
        *("_build", "_ended", "_error", "_explain", "_found", "_is_done", "_lock", "_rest"),
        *("at", "options", "request"),
    )

    def __init__(
        self,
        found: Iterator[Hit],
        request: Request,
        *,
        build: Callable[[int], Candidate],
        explain: Callable[[], Explanation],
        ended: Callable[[], tuple[int, bool]],
        options: Options,
        at: str | None = None,
    ) -> None:
        """:param build: the candidate of a tree whose number was found
        :param explain: why hosts were left out, when everything is found
        :param ended: the steps taken, and whether there may be more, when everything is found
        """
        self._rest = found
        self._found: list[Hit] = []
        self._is_done = False
        self._error: BaseException | None = None
        self._lock = threading.Lock()
        self._build = build
        self._explain = explain
        self._ended = ended
        #: what was asked
        self.request = request
        #: the provider to which the search was confined, None for everywhere
        self.at = at
        #: limit, order, seed and budget of the search
        self.options = options

    def __reduce__(self) -> tuple[typing.Any, ...]:
        explanation, ended = self.explain(), self._ended()
        found = [self._at(place) for place in range(len(self._found))]
        return _unpickled, (found, self.request, explanation, ended, self.options, self.at)

    def instead(self, found: Sequence[Candidate]) -> Candidates:
        """Return an answer to the same question that is just these candidates."""
        return Candidates(
            iter(found),
            self.request,
            build=self._build,
            explain=self.explain,
            ended=lambda: (0, False),
            options=self.options,
            at=self.at,
        )

    @property
    def steps(self) -> int:
        """Steps the search took."""
        self._pull(None)
        return self._ended()[0]

    @property
    def cut_short(self) -> bool:
        """Whether the budget ran out, so that hosts are left of which nothing is known."""
        self._pull(None)
        return self._ended()[1]

    @property
    def budget(self) -> int:
        """Steps the search was allowed."""
        return self.options.budget

    def explain(self) -> Explanation:
        """Return why the hosts that were left out cannot hold the request."""
        self._pull(None)
        return self._explain()

    def _pull(self, count: int | None) -> None:
        """Search on until so many are found, None for all."""
        if self._is_done or (count is not None and len(self._found) >= count):
            return
        with self._lock:  # another thread may have searched on meanwhile: then there is no more
            if self._error is not None:
                raise self._error
            missing = None if count is None else max(0, count - len(self._found))
            before = len(self._found)
            try:
                self._found += itertools.islice(self._rest, missing)
            except BaseException as error:  # interrupted: what is left is not known ever after
                self._error = error
                raise
            self._is_done |= missing is None or len(self._found) < before + missing

    def _look(self, count: int | None) -> int:
        """Search on until so many are found; return how many are, at least.

        :raises SearchLimitReached: if the budget ran out before one was
        """
        self._pull(count)
        if not self._found and self.cut_short:
            raise exceptions.SearchLimitReached(self.budget)
        return len(self._found)

    def _at(self, place: int) -> Candidate:
        hit = self._found[place]
        if not isinstance(hit, Candidate):
            # two threads may both build it: they are equal
            hit = self._found[place] = self._build(hit)
        return hit

    def __bool__(self) -> bool:
        return self._look(1) > 0

    def __len__(self) -> int:
        return self._look(None)

    def __iter__(self) -> Iterator[Candidate]:
        self._look(1)
        return self._every()

    def _every(self) -> Iterator[Candidate]:
        place = 0
        while place < len(self._found) or self._look(place + 1) > place:
            yield self._at(place)
            place += 1

    @typing.overload
    def __getitem__(self, index: int) -> Candidate: ...

    @typing.overload
    def __getitem__(self, index: slice) -> tuple[Candidate, ...]: ...

    def __getitem__(self, index: int | slice) -> Candidate | tuple[Candidate, ...]:
        if isinstance(index, slice):
            end = index.stop
            is_near = all(part is None or part >= 0 for part in (index.start, end, index.step))
            known = self._look(end if is_near and end is not None else None)
            return tuple(self._at(place) for place in range(*index.indices(known)))
        place = operator.index(index)
        known = self._look(place + 1 if place >= 0 else None)
        return self._at(range(known)[place])

    def __repr__(self) -> str:
        self._pull(None)
        short = ", cut short" if self.cut_short else ""
        return f"<Candidates: {len(self._found)} for {self.request}{short}>"


def _unpickled(
    found: Sequence[Candidate],
    request: Request,
    explanation: Explanation,
    ended: tuple[int, bool],
    options: Options,
    at: str | None,
) -> Candidates:
    return Candidates(
        iter(found),
        request,
        build=found.__getitem__,  # of none: all are built
        explain=lambda: explanation,
        ended=lambda: ended,
        options=options,
        at=at,
    )
