"""Taking for several consumers at once: all of them, or none."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from resource_objects import exceptions, names
from resource_objects.ledger.base import claim_of
from resource_objects.ledger.fitting import fitted_together, hosts_of
from resource_objects.ledger.found import Choice, Found, Resolve, choices_of
from resource_objects.ledger.picking import Picking
from resource_objects.ledger.taking import (
    FASTER,
    TakeMethods,
    Unchanged,
    described,
    is_stale,
    lost_by,
    requested,
    write_of,
)
from resource_objects.providers import Allocation, Claim
from resource_objects.providers.columns import Columns
from resource_objects.providers.given import expiry
from resource_objects.providers.orders import ClaimOrder, ClaimRecord, Write, subject_of


class _Writes(Protocol):
    """From what each consumer takes to the write, which also relies on some definitions."""

    def __call__(self, picked: Mapping[str, Choice], *guarded: tuple[str, int]) -> Write: ...


class TogetherMethods(TakeMethods):
    """The methods of a ledger that take for several at once."""

    def claim_all(
        self,
        found: Mapping[str, Found],
        *,
        project: str | None = None,
        user: str | None = None,
        consumer_type: str | None = None,
        expires_in: datetime.timedelta | None = None,
        expires_at: datetime.datetime | None = None,
        unchanged: Unchanged = False,
        operation: str | None = None,
    ) -> dict[str, Claim]:
        """Take for several consumers that hold nothing yet, all of them or none.

        Each takes the first of its candidates that is free beside what those before it take, in
        the order of the mapping; there is no fresh search. It is greedy: nobody takes a later
        candidate so that one after it finds room, and so a gang may be refused that some other
        choice would place; put those first who have few candidates. The other arguments are of all
        of them, as for :meth:`claim`. Cost: one write; if that is refused, one read of the trees
        that the candidates are of, and one more write for each place that fills up meanwhile.

        Amounts that lie over a tree and are not assigned are put somewhere after that, beside what
        all others take; for these the trees of their hosts are read first.

        :param found: ``{consumer: what was found}``, each as for :meth:`claim`
        :raises InvalidAmount: if it is empty
        :raises NoCandidates: if nothing was found for one of them
        :raises CapacityException: if they do not fit together, with who holds what
        :raises ConsumerExists: if one of them holds something already
        """
        if not isinstance(found, Mapping) or not found:
            raise exceptions.InvalidAmount("claim_all", found, "{consumer: what was found}")
        wanted = {names.consumer_name(name): one for name, one in found.items()}
        said = described(project, user, consumer_type)
        until = expiry(expires_in, expires_at)
        subject = subject_of(wanted)
        doing, done = self._begin(operation, "claim", subject)
        if done is not None:
            return {record.consumer: claim_of(record) for record in done.claims}
        relied = self._demanded(unchanged)

        def write(picked: Mapping[str, Choice], *guarded: tuple[str, int]) -> Write:
            orders = [
                ClaimOrder(n, c.deltas, request=requested(c), expires_at=until, **said)
                for n, c in picked.items()
            ]
            pairs = [pair for choice in picked.values() for pair in relied(choice)]
            return write_of(doing, "claim", subject, orders, dict.fromkeys((*pairs, *guarded)))

        resolve = self._resolving(wanted.values())
        choices = {
            name: [self._known(way, name, relied) for way in choices_of(one, resolve, "claim")]
            for name, one in wanted.items()
        }
        for name, ways in choices.items():
            if not ways:
                raise exceptions.NoCandidates(f"no candidate for {name}")
        if not any(way.asks for ways in choices.values() for way in ways):
            records = self._taken_together(write, choices, lost_by(unchanged))
        else:
            try:
                records = self._fitted_together(write, choices)
            except exceptions.CapacityException as refusal:
                records = self._done_before(doing, "claim", subject, choices, refusal)
        return {record.consumer: claim_of(record) for record in records}

    def _resolving(self, found: Iterable[Found]) -> Resolve:
        """Return what gives uuids: of all that is named in what was found, in one look."""
        asked = dict.fromkeys(key for one in found for key in _named(one))
        missing = [key for key in asked if not names.is_uuid(key)]
        known = self.backend.uuids(missing) if missing else {}

        def resolve(keys: Collection[str]) -> dict[str, str]:
            uuids = {key: known[key] for key in keys if key in known}
            return uuids | self._uuids([key for key in keys if key not in known])

        return resolve

    def _taken_together(
        self,
        write: _Writes,
        choices: Mapping[str, Sequence[Choice]],
        lost_by: tuple[type[exceptions.ResourceObjectsError], ...],
    ) -> tuple[ClaimRecord, ...]:
        """Commit the first choices of several consumers that are free together."""
        picking = Picking(choices)
        lost: exceptions.ResourceObjectsError | None = None
        while picked := picking.pick():
            try:
                return self.backend.commit(write(picked))
            except lost_by as gone:
                if not picking.is_open:
                    raise
                if lost is None:
                    picking.look(self.backend.read(*picking.places, allocations=False))
                lost = gone
                if not picking.learn(gone):
                    break
        raise lost or exceptions.NoCandidates("no candidates for all of them together")

    def _fitted_together(
        self, write: _Writes, choices: Mapping[str, Sequence[Choice]]
    ) -> tuple[ClaimRecord, ...]:
        """Commit choices of which some are put somewhere, each beside all that come before it.

        Those that were found somewhere come first, whatever the order; where one of them is in the
        way, its next one is tried.
        """
        asking = {name: ways[0] for name, ways in choices.items() if ways[0].asks}
        picking = Picking({name: ways for name, ways in choices.items() if name not in asking})
        picked = picking.pick() or {}
        is_open = any(ask.is_open for choice in asking.values() for ask in choice.asks)
        before: Columns | None = None
        lost: exceptions.ResourceObjectsError | None = None
        for tried in range(self.retries.fits + 1):
            if before is not None:
                self.retries.pause(tried)
            columns = self.backend.read(*hosts_of(asking.values()), *picking.places)
            if columns == before:
                break  # nobody was faster: it is about something else
            try:
                placed = fitted_together(asking, columns, beside=picked.values())
            except exceptions.CapacityException as refusal:
                lost, is_final = refusal, True
            else:
                whole = {name: {**picked, **placed}[name] for name in choices}
                guarded = [pair for way in placed.values() for pair in way.generations]
                try:
                    return self.backend.commit(write(whole, *guarded))
                except FASTER as gone:
                    lost, is_final = gone, not is_open and not is_stale(gone)
            otherwise = _otherwise(picking, columns, lost)
            if otherwise is None and is_final:
                break
            picked, before = (picked, columns) if otherwise is None else (otherwise, None)
        assert lost is not None, "the first try does not break off"
        raise lost


def _otherwise(
    picking: Picking, columns: Columns, lost: exceptions.ResourceObjectsError
) -> dict[str, Choice] | None:
    """Return what else may be picked after a refusal, None if there is nothing."""
    if not picking.is_open:
        return None
    picking.look(columns)
    return picking.pick() if picking.learn(lost) else None


def _named(found: Found) -> Iterator[str]:
    """Yield the providers that something found names, by name or uuid."""
    if isinstance(found, Mapping):
        yield from map(names.provider_key, found)
    elif isinstance(found, Claim | list | tuple):
        for one in found.allocations if isinstance(found, Claim) else found:
            if isinstance(one, Allocation):
                yield one.provider_uuid or one.provider
