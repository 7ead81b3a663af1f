"""``GET /allocation_candidates``, from microversion 1.10 on.

The query becomes a request in Placement's words (:mod:`resource_objects.requests.query`), which the
process's snapshot answers: it shows everything that was committed before the request came.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from typing import Any, TypeAlias

import webob

from resource_objects.exceptions import InvalidInput, NotFound, SearchLimitReached
from resource_objects.requests import Request, RequestGroup
from resource_objects.rest import errors, schemas, words
from resource_objects.rest.asked import Asked
from resource_objects.rest.exchanged import Way, exchanged, way_of
from resource_objects.rest.native import api as native
from resource_objects.search import Snapshot
from resource_objects.search.candidate import Candidate
from resource_objects.search.explain import Explanation
from resource_objects.search.fleet import Fleet

#: Says why nothing was found.
Explained: TypeAlias = Callable[[], Explanation] | None

_OF_GROUP = ("resources", "required", "member_of", "in_tree")
#: At most so many steps are searched, of some 0.1 milliseconds each, and so many candidates told.
BUDGET, MOST = 1_000_000, 100_000


def list_all(asked: Asked) -> webob.Response:
    asked.needs(10)
    asked.tells_json()
    asked.query(schemas.candidates_query(asked.version.minor), first=("limit", "group_policy"))
    request = request_of(asked)
    said = next(iter(asked.http.GET.getall("limit")), None)  # the first, as in Placement
    most = MOST if said is None else min(int(said[:10]), MOST)
    snapshot = asked.ledger.snapshot()
    fleet = snapshot.fleet
    every: list[Way] = []
    explained: Explained = None
    if request is not None:
        # before 1.29 some are left out of what is found, and others are summed up with what is told
        limit = most if asked.since(29) else MOST
        some, explained = _found(snapshot, request, limit)
        ways = [way_of(fleet, one) for one in some]
        if not asked.since(29):
            ways = [way for way in ways if _is_of_single_providers(fleet, way)]
        every = exchanged(fleet, request, ways, limit)
    found = every[:most]
    told = [_told(asked, fleet, one) for one in found]
    summaries = _summaries(asked, fleet, found, every, request)
    body: dict[str, Any] = {"allocation_requests": told, "provider_summaries": summaries}
    if found or not native.is_asked(asked):
        return asked.reply(json=body)
    body["explanation"] = None if explained is None else explained().to_dict(native.HOSTS)
    return native.tell_version(asked.reply(json=body))


def _found(snapshot: Snapshot, request: Request, limit: int) -> tuple[list[Candidate], Explained]:
    """Return the candidates, and what says why there are none.

    Of a tree or aggregate that nobody knows there are none.
    """
    try:
        found = snapshot.candidates(request, limit=limit, budget=BUDGET)
        return list(found), found.explain
    except NotFound:
        return [], None
    except SearchLimitReached as error:
        raise errors.Refused(503, f"The search was cut short, neither yes nor no: {error}") from (
            error
        )


# --- what is asked ---


def request_of(asked: Asked) -> Request | None:
    """Return the request of a query; None if what it says fits nowhere, whatever is kept."""
    given = asked.http.GET.dict_of_lists()
    root = _root_traits(asked, given)
    subtrees = list(_subtrees(given))
    groups = _groups(given)
    said = {suffix: _said(asked, suffix, some) for suffix, some in groups.items()}
    if asked.since(36):
        _check_linked(groups, frozenset().union(*subtrees))
    else:
        _check_orphans(asked, groups)
    conflicts = [
        f"required{suffix}: ({', '.join(names)})"
        for suffix, one in said.items()
        for names in one.traits.conflicts()
    ]
    if conflicts:
        raise errors.bad(
            "Conflicting required and forbidden traits found in the following traits keys: "
            + ", ".join(sorted(conflicts))
        )
    if sum(map(bool, groups)) > 1 and "group_policy" not in given:
        raise errors.bad(
            'The "group_policy" parameter is required when specifying more than one '
            '"resources{N}" parameter.'
        )
    words.check_classes(asked.ledger, [name for one in said.values() for name in one.amounts])
    words.check_traits(asked.ledger, root.all().union(*(one.traits.all() for one in said.values())))
    if any(one.is_nowhere for one in said.values()):
        return None
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
    except InvalidInput as error:
        raise errors.bad(f"Invalid query string parameters: {error}") from error
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
        """Whether nobody can be so, whatever is kept."""
        is_contradiction = any(some <= self.member.forbidden for some in self.member.required)
        return is_contradiction or words.is_too_much(self.amounts)

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
    amounts = [words.resources(text) for text in given.get("resources", ())]
    trees = [words.tree(text) for text in given.get("in_tree", ())]
    return _Said(
        amounts[-1] if amounts else {},
        words.traits(asked, given.get("required", ())),
        words.aggregates(asked, given.get("member_of", ()), suffix),
        trees[-1] if trees else None,
    )


def _groups(given: Mapping[str, list[str]]) -> dict[str, dict[str, list[str]]]:
    found: dict[str, dict[str, list[str]]] = {}
    for key, values in given.items():
        for name in _OF_GROUP:
            if key.startswith(name):
                found.setdefault(key[len(name) :], {})[name] = values
    return found


def _check_linked(groups: Mapping[str, Mapping[str, list[str]]], linked: Set[str]) -> None:
    """Refuse groups that ask for nothing and stand in no ``same_subtree``, and suffixes of none."""
    empty = [suffix for suffix, said in groups.items() if "resources" not in said]
    if len(empty) == len(groups):
        raise errors.bad(
            "There must be at least one resources or resources[$S] parameter.",
            errors.MISSING_VALUE,
        )
    alone = [suffix for suffix in empty if suffix not in linked]
    if alone:
        raise errors.bad(
            "Resourceless suffixed group request should be specified in `same_subtree` query "
            f"param: bad group(s) - {sorted(alone)}.",
            errors.BAD_VALUE,
        )
    unknown = sorted(linked - groups.keys())
    if unknown:
        raise errors.bad(
            "Real suffixes should be specified in `same_subtree`: "
            f"{unknown} not found in {list(groups)}.",
            errors.BAD_VALUE,
        )


def _check_orphans(asked: Asked, groups: Mapping[str, Mapping[str, list[str]]]) -> None:
    """Refuse groups that ask for nothing, as there were none before 1.36."""
    for name, text in (
        (
            "required",
            "All traits parameters must be associated with resources.  "
            "Found the following orphaned traits keys: ",
        ),
        (
            "member_of",
            "All member_of parameters must be associated with resources. "
            "Found the following orphaned member_of keys: ",
        ),
    ):
        orphans = [
            name + suffix
            for suffix, said in groups.items()
            if name in said and "resources" not in said
        ]
        if orphans:
            raise errors.bad(text + ", ".join(orphans))
    if not all("resources" in said for said in groups.values()):
        raise errors.bad("All request groups must specify resources.")
    if not groups:
        raise errors.bad("At least one request group (`resources` or `resources{$S}`) is required.")


def _root_traits(asked: Asked, given: Mapping[str, list[str]]) -> words.Traits:
    said = given.get("root_required", [])
    if len(said) > 1:
        raise errors.bad(
            "Query parameter 'root_required' may be specified only once.", errors.DUPLICATE_KEY
        )
    found = words.traits(asked, said, sets=False)
    conflicts = sorted(found.required & found.forbidden)
    if conflicts:
        raise errors.bad(
            "Conflicting required and forbidden traits found in root_required: "
            + ", ".join(conflicts),
            errors.BAD_VALUE,
        )
    return found


def _subtrees(given: Mapping[str, list[str]]) -> Iterator[frozenset[str]]:
    for text in given.get("same_subtree", ()):
        some = frozenset(item.strip() for item in text.split(","))
        if "" in some:
            raise errors.bad(
                "Empty string (unsuffixed group) can not be specified in `same_subtree`",
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
    asked: Asked,
    fleet: Fleet,
    found: Iterable[Way],
    every: Iterable[Way],
    request: Request | None,
) -> dict[str, Any]:
    """Return every provider of every tree that gives something: what it has, uses, and is.

    Before 1.29 only those that some candidate takes of, also one that is not told.

    :param every: the candidates, also those that are not told
    """
    trees = sorted({int(fleet.tree[place]) for way in found for place in way.takes})
    used = set() if asked.since(29) else {place for way in every for place in way.takes}
    classes = None
    if not asked.since(27) and request is not None:
        classes = {name for group in request.groups for name in group.resources.names()}
    told: dict[str, Any] = {}
    for tree in trees:
        summaries = _of_tree(asked, fleet, fleet.of_tree(tree))
        if not asked.since(29):
            summaries = {place: one for place, one in summaries.items() if place in used}
        for name, rows in fleet.classes.items():
            if classes is not None and name not in classes:
                continue
            here = rows.of_tree(tree)
            columns = (rows.provider, rows.capacity, rows.used)
            figures = (column[here].tolist() for column in columns)
            for place, capacity, taken in zip(*figures, strict=True):
                if place in summaries:
                    resources = summaries[place]["resources"]
                    resources[name] = {"capacity": capacity, "used": taken}
        told |= {fleet.uuids[place]: one for place, one in summaries.items()}
    return told


def _of_tree(asked: Asked, fleet: Fleet, places: range) -> dict[int, dict[str, Any]]:
    told: dict[int, dict[str, Any]] = {place: {"resources": {}} for place in places}
    if asked.since(17):
        traits = _traits(fleet, places)
        for place, one in told.items():
            one["traits"] = traits.get(place, [])
    if asked.since(29):
        root = fleet.uuids[places[0]]
        parents = fleet.parent[places.start : places.stop].tolist()
        for (place, one), above in zip(told.items(), parents, strict=True):
            one["parent_provider_uuid"] = None if above == place else fleet.uuids[above]
            one["root_provider_uuid"] = root
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
