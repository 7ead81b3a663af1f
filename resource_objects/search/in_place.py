"""A change of a consumer in place: it keeps the devices, partitions and CPUs that it can.

A search may choose others that are as good. So its first host is searched again, without the use of
the consumer, and with the providers that it uses first.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from resource_objects import exceptions
from resource_objects.providers.orders import Key, Use
from resource_objects.requests import Request
from resource_objects.resources import Amount, Amounts
from resource_objects.search.candidate import Candidate, Chosen
from resource_objects.search.candidates import Candidates

if TYPE_CHECKING:
    from resource_objects.search.scenario import Scenario

#: The maximum number of parts that are tried next to those that a consumer uses.
MOST_PARTS = 32


def kept_in_place(
    candidates: Candidates,
    uses: Iterable[Use],
    without: Callable[[str], Scenario],
    staying: Callable[[str, Mapping[str, Amount]], Mapping[str, Amount]],
) -> Iterator[Chosen]:
    """Yield a candidate on the host of the first one with what its consumer uses there.

    None if the first one keeps all that it needs. Cost: a search of one host; if a placed amount
    changes, a search for each part that is added to those in use.

    :param uses: the use of the consumer
    :param without: returns a scenario of a host in which the consumer uses nothing
    :param staying: returns which of some placed amounts the consumer has on a host, assigned
    """
    first, used = candidates[0], {use.key: use for use in uses}
    if not _is_lost(first, used):
        return
    options = dataclasses.replace(candidates.options, keeps=frozenset(uuid for uuid, _ in used))
    scenario = without(first.host)
    _enable(scenario, used.values())
    request = candidates.request
    if first.located:
        amounts = {
            name: amount
            for name, amount in request.groups[0].resources.by_name()
            if name in first.located.names() and not amount.is_assigned
        }
        request = _assigned(request, staying(first.host, amounts))
    for trial in dict.fromkeys((request, candidates.request)):
        for snapshot in _snapshots(scenario, _unused_parts(scenario, trial, options.keeps)):
            try:
                best = snapshot.searched(trial, options)[:1]
            except exceptions.SearchLimitReached:
                continue
            for candidate in best:
                yield Chosen(_with_units(candidate, used), candidates.request)
                return


def _is_lost(first: Candidate, used: Mapping[Key, Use]) -> bool:
    """Return True if the consumer would lose an inventory or a unit of the classes of a candidate.

    Amounts of the host itself are the same wherever they are allocated.
    """
    allocations = first.allocations
    if all(a.provider == first.host and not a.units for a in allocations):
        return False
    classes = {allocation.resource_class for allocation in allocations}
    lost = {key for key in used if key[1] in classes}
    for allocation in allocations:
        key = allocation.provider_uuid or "", allocation.resource_class
        if key in used and set(allocation.units) <= set(used[key].units):
            lost.discard(key)
    return bool(lost)


def _enable(scenario: Scenario, uses: Iterable[Use]) -> None:
    """Enable the providers that a consumer uses: it may keep them although they are disabled."""
    fleet = scenario.snapshot.fleet
    for use in uses:
        place = fleet.place_by_key.get(use.provider_uuid)
        if place in fleet.disabled:
            scenario.enable(use.provider_uuid)


def _assigned(request: Request, amounts: Mapping[str, Amount]) -> Request:
    """Return a request with some placed amounts assigned."""
    group = request.groups[0]
    resources = Amounts({**dict(group.resources.by_name()), **amounts})
    return request.replace(groups=(group.replace(resources=resources), *request.groups[1:]))


def _unused_parts(scenario: Scenario, request: Request, used: frozenset[str]) -> list[str]:
    """Return the parts of a host that may get a placed amount, but for those in use."""
    fleet = scenario.snapshot.fleet
    places = {
        place
        for name, amount in request.groups[0].resources.by_name()
        if not amount.is_assigned
        for place in fleet.parts_of(name).provider.tolist()
    }
    return [
        fleet.names[place]
        for place in sorted(places - fleet.disabled.keys())
        if fleet.uuids[place] not in used
    ]


def _snapshots(scenario: Scenario, parts: Sequence[str]) -> Iterator[Any]:
    """Yield a snapshot with all parts disabled, then one after each part that is enabled again.

    After ``MOST_PARTS`` snapshots the last one has all parts enabled. The scenario is changed: it
    has the parts of the last snapshot that was yielded.
    """
    for part in parts:
        scenario.disable(part)
    for part in parts[:MOST_PARTS]:
        yield scenario.snapshot
        scenario.enable(part)
    for part in parts[MOST_PARTS:]:
        scenario.enable(part)
    yield scenario.snapshot


def _with_units(candidate: Candidate, used: Mapping[Key, Use]) -> Candidate:
    """Return a candidate with the units of its consumer, if the request names none."""
    if candidate.located:  # its units are assigned
        return candidate
    allocations = []
    for allocation in candidate.allocations:
        use = used.get((allocation.provider_uuid or "", allocation.resource_class))
        if allocation.units and use is not None:
            units = tuple(dict.fromkeys((*use.units, *allocation.units)))
            allocation = allocation.replace(units=units[: len(allocation.units)])
        allocations.append(allocation)
    return candidate.replace(allocations=tuple(allocations))
