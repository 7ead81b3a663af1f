"""``GET /allocation_candidates``, from microversion 1.10 on.

The query becomes a request in Placement's words (:mod:`resource_objects.requests.query`), which the
process's snapshot answers: it shows everything that was committed before the request came.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import webob

from resource_objects import exceptions
from resource_objects.requests import Request, RequestGroup
from resource_objects.rest import errors, schemas, words
from resource_objects.rest.asked import Asked
from resource_objects.rest.exchanged import Way, exchanged, way_of
from resource_objects.search import Snapshot
from resource_objects.search.candidates import Candidate
from resource_objects.search.fleet import Fleet

_OF_GROUP = ("resources", "required", "member_of", "in_tree")
#: At most so many steps are searched.
BUDGET = 10_000_000


def list_all(asked: Asked) -> webob.Response:
    asked.needs(10)
    asked.query(schemas.candidates_query(asked.version.minor))
    request = request_of(asked)
    said = next(iter(asked.http.GET.getall("limit")), None)  # the first, as in Placement
    most = None if said is None else min(int(said[:10]), schemas.MOST)
    snapshot = asked.ledger.snapshot()
    fleet = snapshot.fleet
    found: list[Way] = []
    if request is not None:
        ways = [way_of(fleet, one) for one in _found(snapshot, request, most)]
        if not asked.since(29):
            ways = [way for way in ways if _is_of_single_providers(fleet, way)]
        found = exchanged(fleet, request, ways, most)
    told = [_told(asked, fleet, one) for one in found]
    summaries = _summaries(asked, fleet, found, request)
    return asked.reply(json={"allocation_requests": told, "provider_summaries": summaries})


def _found(snapshot: Snapshot, request: Request, limit: int | None) -> list[Candidate]:
    """Return the candidates; of a tree or aggregate that nobody knows there are none."""
    try:
        return list(snapshot.candidates(request, limit=limit, budget=BUDGET))
    except exceptions.ProviderNotFound:
        return []
    except exceptions.SearchLimitReached as error:
        raise errors.Refused(503, f"The search was cut short, neither yes nor no: {error}") from (
            error
        )


# --- what is asked ---


def request_of(asked: Asked) -> Request | None:
    """Return the request of a query; None if what it says fits nowhere, whatever is kept."""
    given = asked.http.GET.dict_of_lists()
    groups = _groups(given)
    _check_groups(asked, groups, given)
    said = {suffix: _said(asked, suffix, some) for suffix, some in groups.items()}
    root = _root_traits(asked, given)
    words.check_traits(asked.ledger, root.all().union(*(one.traits.all() for one in said.values())))
    if any(one.is_nowhere for one in said.values()):
        return None
    subtrees = list(_subtrees(given, groups))
    try:
        made = [one.group(suffix) for suffix, one in said.items()]
        unnamed = next((one for one in made if not one.suffix), RequestGroup(""))
        request = Request(
            unnamed.resources,
            groups=[one for one in made if one.suffix],
            group_policy=given["group_policy"][0] if "group_policy" in given else None,
            same_subtree=subtrees,
            root_required=root.required,
            root_forbidden=root.forbidden,
            compatibility="placement",
            **unnamed.arguments(),
        )
    except exceptions.InvalidInput as error:
        raise errors.bad(f"Invalid query string parameters: {error}", errors.BAD_VALUE) from error
    return request


@dataclasses.dataclass(frozen=True, slots=True)
class _Said:
    """What a query says of one group."""

    amounts: Mapping[str, int]
    traits: words.Traits
    member: words.Aggregates
    tree: str | None

    @property
    def is_nowhere(self) -> bool:
        """Whether it must be a member of what it must not be a member of."""
        return any(some <= self.member.forbidden for some in self.member.required)

    def group(self, suffix: str) -> RequestGroup:
        """Return the group."""
        return RequestGroup(
            self.amounts,
            suffix=suffix,
            required=self.traits.required,
            forbidden=self.traits.forbidden,
            any_of=self.traits.any_of,
            member_of=self.member.required,
            not_member_of=self.member.forbidden,
            in_tree=self.tree,
        )


def _said(asked: Asked, suffix: str, given: Mapping[str, list[str]]) -> _Said:
    resources, trees = given.get("resources"), given.get("in_tree")
    traits = words.traits(asked, f"required{suffix}", given.get("required", ()))
    _check_conflict(f"required{suffix}", traits)
    return _Said(
        {} if resources is None else words.resources(asked.ledger, resources[-1]),
        traits,
        words.aggregates(asked, f"member_of{suffix}", given.get("member_of", ())),
        None if trees is None else words.tree(f"in_tree{suffix}", trees[-1]),
    )


def _groups(given: Mapping[str, list[str]]) -> dict[str, dict[str, list[str]]]:
    """Return what is said of each group, by its suffix."""
    found: dict[str, dict[str, list[str]]] = {}
    for key, values in given.items():
        for name in _OF_GROUP:
            if key.startswith(name):
                found.setdefault(key[len(name) :], {})[name] = values
    return found


def _check_groups(
    asked: Asked, groups: Mapping[str, Mapping[str, list[str]]], given: Mapping[str, list[str]]
) -> None:
    """Refuse groups that say too little."""
    linked = {one for text in given.get("same_subtree", ()) for one in text.split(",")}
    has_some = [suffix for suffix, said in groups.items() if "resources" in said]
    if not asked.since(36):
        _check_orphans(asked, groups)
    for suffix, said in groups.items():
        if "resources" in said or suffix in linked:
            continue
        if asked.since(36) and suffix and has_some:
            raise errors.bad(
                "Resourceless suffixed group request should be specified in `same_subtree` query "
                f"param: bad group(s) - {suffix}.",
                errors.BAD_VALUE,
            )
        if has_some or not asked.since(36):
            raise errors.bad("All request groups must specify resources.", errors.BAD_VALUE)
    if not has_some:
        if groups:
            raise errors.bad(
                "There must be at least one resources or resources[$S] parameter.",
                errors.MISSING_VALUE,
            )
        raise errors.bad(
            "At least one request group (`resources` or `resources{$S}`) is required.",
            errors.MISSING_VALUE,
        )
    if sum(bool(suffix) for suffix in has_some) > 1 and "group_policy" not in given:
        raise errors.bad(
            'The "group_policy" parameter is required when specifying more than one '
            '"resources{N}" parameter.',
            errors.MISSING_VALUE,
        )


def _check_orphans(asked: Asked, groups: Mapping[str, Mapping[str, list[str]]]) -> None:
    """Refuse conditions of groups that ask for nothing, as there were none before 1.36."""
    for name, said_as in (("required", "traits"), ("member_of", "member_of")):
        orphans = [
            name + suffix
            for suffix, said in groups.items()
            if name in said and "resources" not in said
        ]
        if orphans and name == "member_of" and asked.since(32):
            raise errors.bad("All member_of parameters must be associated with resources")
        if orphans:
            raise errors.bad(
                f"Found the following orphaned {said_as} keys: {', '.join(sorted(orphans))}"
            )


def _check_conflict(key: str, traits: words.Traits) -> None:
    both = traits.required & traits.forbidden
    if both:
        raise errors.bad(
            f"Conflicting required and forbidden traits found in {key}: {', '.join(sorted(both))}",
            errors.BAD_VALUE,
        )


def _root_traits(asked: Asked, given: Mapping[str, list[str]]) -> words.Traits:
    said = given.get("root_required", [])
    if len(said) > 1:
        raise errors.bad(
            "Query parameter 'root_required' may be specified only once.", errors.DUPLICATE_KEY
        )
    found = words.traits(asked, "root_required", said, sets=False)
    _check_conflict("root_required", found)
    return found


def _subtrees(
    given: Mapping[str, list[str]], groups: Mapping[str, object]
) -> Iterator[frozenset[str]]:
    for text in given.get("same_subtree", ()):
        some = frozenset(item.strip() for item in text.split(","))
        if "" in some:
            raise errors.bad(
                "Empty string (unsuffixed group) can not be specified in `same_subtree`",
                errors.BAD_VALUE,
            )
        unknown = sorted(some - groups.keys())
        if unknown:
            raise errors.bad(
                "Real suffixes should be specified in `same_subtree`: "
                f"{', '.join(unknown)} not found in {', '.join(sorted(groups))}.",
                errors.BAD_VALUE,
            )
        yield some


# --- what is told ---


def _is_of_single_providers(fleet: Fleet, way: Way) -> bool:
    """Return whether it takes of no two providers of one tree, which is all that 1.28 could say."""
    return len({int(fleet.tree[place]) for place in way.takes}) == len(way.takes)


def _told(asked: Asked, fleet: Fleet, way: Way) -> dict[str, Any]:
    if not asked.since(12):
        return {
            "allocations": [
                {"resource_provider": {"uuid": fleet.uuids[place]}, "resources": some}
                for place, some in way.takes.items()
            ]
        }
    told: dict[str, Any] = {
        "allocations": {
            fleet.uuids[place]: {"resources": some} for place, some in way.takes.items()
        }
    }
    if asked.since(34):
        told["mappings"] = {
            suffix: [fleet.uuids[place] for place in places]
            for suffix, places in way.groups.items()
        }
    return told


def _summaries(
    asked: Asked, fleet: Fleet, found: Iterable[Way], request: Request | None
) -> dict[str, Any]:
    """Return every provider of every tree that occurs: what it has, uses, and is."""
    used = {
        place
        for way in found
        for place in itertools.chain(way.takes, itertools.chain.from_iterable(way.groups.values()))
    }
    trees = sorted({int(fleet.tree[place]) for place in used})
    classes = None
    if not asked.since(27) and request is not None:
        classes = {name for group in request.groups for name in group.resources.names()}
    told: dict[str, Any] = {}
    for tree in trees:
        places = fleet.of_tree(tree)
        traits = _traits(fleet, places) if asked.since(17) else {}
        for place in places:
            if not asked.since(29) and place not in used:
                continue
            told[fleet.uuids[place]] = _summary(asked, fleet, place, traits.get(place, []))
        for name, rows in fleet.classes.items():
            if classes is not None and name not in classes:
                continue
            part = rows.part(rows.of_tree(tree))
            figures = (part.provider.tolist(), part.capacity.tolist(), part.used.tolist())
            for place, capacity, taken in zip(*figures, strict=True):
                if fleet.uuids[place] in told:
                    resources = told[fleet.uuids[place]]["resources"]
                    resources[name] = {"capacity": capacity, "used": taken}
    return told


def _summary(asked: Asked, fleet: Fleet, place: int, traits: list[str]) -> dict[str, Any]:
    told: dict[str, Any] = {"resources": {}}
    if asked.since(17):
        told["traits"] = traits
    if asked.since(29):
        above = int(fleet.parent[place])
        told["parent_provider_uuid"] = None if above == place else fleet.uuids[above]
        told["root_provider_uuid"] = fleet.uuids[fleet.of_tree(int(fleet.tree[place]))[0]]
    return told


def _traits(fleet: Fleet, places: range) -> dict[int, list[str]]:
    """Return the traits of the providers of a tree, standard ones first."""
    found: dict[int, list[str]] = {}
    for name, having in fleet.traits.items():
        first, end = having.searchsorted((places.start, places.stop)).tolist()
        for place in having[first:end].tolist():
            found.setdefault(place, []).append(name)
    for some in found.values():
        some.sort(key=lambda name: (name.startswith("CUSTOM_"), name))
    return found


ROUTES = (("/allocation_candidates", {"GET": ("placement:allocation_candidates:list", list_all)}),)
