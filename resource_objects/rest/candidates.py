"""``GET /allocation_candidates``, from microversion 1.10 on.

The query is translated to a request, which is searched in the process's snapshot: it contains
every write that was committed before the client's request arrived.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from typing import Any, TypeAlias

import webob

from resource_objects.exceptions import InvalidInput, NotFound, SearchLimitReached
from resource_objects.requests import Request, RequestGroup
from resource_objects.rest import errors, query_values, schemas, translation
from resource_objects.rest.exchanges import Assignment, assignment_of, with_exchanges
from resource_objects.rest.native import api as native
from resource_objects.rest.request import ClientRequest
from resource_objects.search import Snapshot
from resource_objects.search.candidate import Candidate
from resource_objects.search.explain import Explanation
from resource_objects.search.fleet import Fleet

#: Computes the explanation of a search.
Explain: TypeAlias = Callable[[], Explanation] | None

_KEYS_OF_GROUP = ("resources", "required", "member_of", "in_tree")
#: The limits of a search: its steps, of some 0.1 milliseconds each, and its candidates.
BUDGET, MAX_CANDIDATES = 1_000_000, 100_000


def list_all(request: ClientRequest) -> webob.Response:
    request.require_version(10)
    request.require_json_accepted()
    schema = schemas.candidates_query(request.version.minor)
    request.check_query(schema, first=("limit", "group_policy"))
    search_request = request_of(request)
    limit_text = next(iter(request.http.GET.getall("limit")), None)  # the first, as in Placement
    limit = MAX_CANDIDATES if limit_text is None else min(int(limit_text[:10]), MAX_CANDIDATES)
    snapshot = request.ledger.snapshot()
    fleet = snapshot.fleet
    assignments: list[Assignment] = []
    explain: Explain = None
    if search_request is not None:
        # before 1.29 some candidates are left out, and the summaries include candidates that are
        # beyond the limit
        search_limit = limit if request.since(29) else MAX_CANDIDATES
        candidates, explain = _search(snapshot, search_request, search_limit)
        assignments = [assignment_of(fleet, candidate) for candidate in candidates]
        if not request.since(29):  # at most one provider of each tree
            trees = [{int(fleet.tree[place]) for place in a.amounts} for a in assignments]
            pairs = zip(assignments, trees, strict=True)
            assignments = [a for a, of_trees in pairs if len(of_trees) == len(a.amounts)]
        assignments = with_exchanges(fleet, search_request, assignments, search_limit)
    listed = assignments[:limit]
    body: dict[str, Any] = {
        "allocation_requests": [_to_json(request, fleet, assignment) for assignment in listed],
        "provider_summaries": _summaries(request, fleet, listed, assignments, search_request),
    }
    if listed or not native.is_requested(request):
        return request.reply(json=body)
    body["explanation"] = None if explain is None else explain().to_dict(native.HOSTS)
    return native.with_version(request.reply(json=body))


def _search(snapshot: Snapshot, request: Request, limit: int) -> tuple[list[Candidate], Explain]:
    """Return the candidates, and the function that explains why there are none.

    A request with an unknown tree or aggregate has no candidates.
    """
    try:
        candidates = snapshot.candidates(request, limit=limit, budget=BUDGET)
        return list(candidates), candidates.explain
    except NotFound:
        return [], None
    except SearchLimitReached as error:
        raise errors.Refused(503, f"The search was cut short, neither yes nor no: {error}") from (
            error
        )


# --- the query ---


@dataclasses.dataclass(frozen=True, slots=True)
class _GroupQuery:
    """The parsed keys of one group."""

    amounts: Mapping[str, int]
    traits: query_values.Traits
    aggregates: query_values.Aggregates
    in_tree: str | None

    @property
    def is_impossible(self) -> bool:
        """Whether no provider can ever satisfy the group."""
        forbidden = self.aggregates.forbidden
        is_contradiction = any(some <= forbidden for some in self.aggregates.required)
        return is_contradiction or query_values.exceed_all_inventories(self.amounts)

    def group(self, suffix: str) -> RequestGroup:
        """Return the group."""
        return RequestGroup(
            self.amounts,
            suffix=suffix,
            required=self.traits.required,
            forbidden=self.traits.forbidden,
            any_of=self.traits.any_of,
            member_of=self.aggregates.required,
            not_member_of=self.aggregates.forbidden,
            in_tree=self.in_tree,
        )


def request_of(request: ClientRequest) -> Request | None:
    """Return the request of a query; None if no host can ever satisfy it."""
    query = request.http.GET.dict_of_lists()
    root = _root_traits(request, query)
    subtrees = list(_subtrees(query))
    keys_by_suffix = _keys_by_suffix(query)
    groups = {
        suffix: _parse_group(request, suffix, keys_by_suffix[suffix]) for suffix in keys_by_suffix
    }
    if request.since(36):
        _check_groups(keys_by_suffix, frozenset().union(*subtrees))
    else:
        _check_groups_before_1_36(keys_by_suffix)
    conflicts = [
        f"required{suffix}: ({', '.join(traits)})"
        for suffix, group in groups.items()
        for traits in group.traits.conflicts()
    ]
    if conflicts:
        raise errors.bad(
            "Conflicting required and forbidden traits found in the following traits keys: "
            + ", ".join(sorted(conflicts))
        )
    if sum(map(bool, groups)) > 1 and "group_policy" not in query:
        raise errors.bad(
            'The "group_policy" parameter is required when specifying more than one '
            '"resources{N}" parameter.'
        )
    classes = [name for group in groups.values() for name in group.amounts]
    query_values.check_classes(request.ledger, classes)
    traits = root.all().union(*(group.traits.all() for group in groups.values()))
    query_values.check_traits(request.ledger, traits)
    if any(group.is_impossible for group in groups.values()):
        return None
    try:
        request_groups = [group.group(suffix) for suffix, group in groups.items()]
        unnamed = next((g for g in request_groups if not g.suffix), RequestGroup(""))
        return Request(
            unnamed.resources,
            groups=[group for group in request_groups if group.suffix],
            group_policy=query["group_policy"][0] if "group_policy" in query else None,
            same_subtree=subtrees,
            root_required=root.required,
            root_forbidden=root.forbidden,
            compatibility="placement",
            **unnamed.arguments(),
        )
    except InvalidInput as error:
        raise errors.bad(f"Invalid query string parameters: {error}") from error


def _keys_by_suffix(query: Mapping[str, list[str]]) -> dict[str, dict[str, list[str]]]:
    """Return the keys of each group with their values, by suffix."""
    keys_by_suffix: dict[str, dict[str, list[str]]] = {}
    for key, values in query.items():
        for name in _KEYS_OF_GROUP:
            if key.startswith(name):
                keys_by_suffix.setdefault(key[len(name) :], {})[name] = values
    return keys_by_suffix


def _parse_group(request: ClientRequest, suffix: str, keys: Mapping[str, list[str]]) -> _GroupQuery:
    amounts = [query_values.parse_resources(text) for text in keys.get("resources", ())]
    trees = [query_values.parse_in_tree(text) for text in keys.get("in_tree", ())]
    return _GroupQuery(
        amounts[-1] if amounts else {},
        query_values.parse_traits(request, keys.get("required", ())),
        query_values.parse_aggregates(request, keys.get("member_of", ()), suffix),
        trees[-1] if trees else None,
    )


def _check_groups(groups: Mapping[str, Mapping[str, list[str]]], linked: Set[str]) -> None:
    """Raise a 400 for groups without resources outside ``same_subtree``, and unknown suffixes.

    :param linked: the suffixes in ``same_subtree``
    """
    empty = [suffix for suffix, keys in groups.items() if "resources" not in keys]
    if len(empty) == len(groups):
        raise errors.bad(
            "There must be at least one resources or resources[$S] parameter.",
            errors.MISSING_VALUE,
        )
    unlinked = [suffix for suffix in empty if suffix not in linked]
    if unlinked:
        raise errors.bad(
            "Resourceless suffixed group request should be specified in `same_subtree` query "
            f"param: bad group(s) - {sorted(unlinked)}.",
            errors.BAD_VALUE,
        )
    unknown = sorted(linked - groups.keys())
    if unknown:
        raise errors.bad(
            "Real suffixes should be specified in `same_subtree`: "
            f"{unknown} not found in {list(groups)}.",
            errors.BAD_VALUE,
        )


def _check_groups_before_1_36(groups: Mapping[str, Mapping[str, list[str]]]) -> None:
    """Raise a 400 for groups without resources."""
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
            for suffix, keys in groups.items()
            if name in keys and "resources" not in keys
        ]
        if orphans:
            raise errors.bad(text + ", ".join(orphans))
    if not all("resources" in keys for keys in groups.values()):
        raise errors.bad("All request groups must specify resources.")
    if not groups:
        raise errors.bad("At least one request group (`resources` or `resources{$S}`) is required.")


def _root_traits(request: ClientRequest, query: Mapping[str, list[str]]) -> query_values.Traits:
    texts = query.get("root_required", [])
    if len(texts) > 1:
        raise errors.bad(
            "Query parameter 'root_required' may be specified only once.", errors.DUPLICATE_KEY
        )
    traits = query_values.parse_traits(request, texts, allows_sets=False)
    conflicts = sorted(traits.required & traits.forbidden)
    if conflicts:
        raise errors.bad(
            "Conflicting required and forbidden traits found in root_required: "
            + ", ".join(conflicts),
            errors.BAD_VALUE,
        )
    return traits


def _subtrees(query: Mapping[str, list[str]]) -> Iterator[frozenset[str]]:
    for text in query.get("same_subtree", ()):
        suffixes = frozenset(item.strip() for item in text.split(","))
        if "" in suffixes:
            raise errors.bad(
                "Empty string (unsuffixed group) can not be specified in `same_subtree`",
                errors.BAD_VALUE,
            )
        yield suffixes


# --- the response ---


def _to_json(request: ClientRequest, fleet: Fleet, assignment: Assignment) -> dict[str, Any]:
    if not request.since(12):
        return {
            "allocations": [
                {"resource_provider": {"uuid": fleet.uuids[place]}, "resources": amounts}
                for place, amounts in assignment.amounts.items()
            ]
        }
    body: dict[str, Any] = {
        "allocations": {
            fleet.uuids[place]: {"resources": amounts}
            for place, amounts in assignment.amounts.items()
        }
    }
    if request.since(34):
        body["mappings"] = {
            suffix: [fleet.uuids[place] for place in places]
            for suffix, places in assignment.groups.items()
        }
    return body


def _summaries(
    request: ClientRequest,
    fleet: Fleet,
    listed: Iterable[Assignment],
    assignments: Iterable[Assignment],
    search_request: Request | None,
) -> dict[str, Any]:
    """Return the summaries of all providers of the trees of the listed assignments.

    Before 1.29 only of the providers of assignments, including those beyond the limit.
    """
    trees = sorted({int(fleet.tree[place]) for a in listed for place in a.amounts})
    used = set() if request.since(29) else {place for a in assignments for place in a.amounts}
    classes = None
    if not request.since(27) and search_request is not None:
        classes = {name for group in search_request.groups for name in group.resources.names()}
    by_uuid: dict[str, Any] = {}
    for tree in trees:
        summaries = _of_tree(request, fleet, fleet.of_tree(tree))
        if not request.since(29):
            summaries = {place: s for place, s in summaries.items() if place in used}
        for name, rows in fleet.classes.items():
            if classes is not None and name not in classes:
                continue
            in_tree = rows.of_tree(tree)
            columns = (rows.provider, rows.capacity, rows.used)
            figures = (column[in_tree].tolist() for column in columns)
            for place, capacity, usage in zip(*figures, strict=True):
                if place in summaries:
                    resources = summaries[place]["resources"]
                    resources[name] = {"capacity": capacity, "used": usage}
        by_uuid |= {fleet.uuids[place]: summary for place, summary in summaries.items()}
    return by_uuid


def _of_tree(request: ClientRequest, fleet: Fleet, places: range) -> dict[int, dict[str, Any]]:
    summaries: dict[int, dict[str, Any]] = {place: {"resources": {}} for place in places}
    if request.since(17):
        traits = _traits(fleet, places)
        for place, summary in summaries.items():
            summary["traits"] = traits.get(place, [])
    if request.since(29):
        root = fleet.uuids[places[0]]
        parents = fleet.parent[places.start : places.stop].tolist()
        for (place, summary), parent in zip(summaries.items(), parents, strict=True):
            summary["parent_provider_uuid"] = None if parent == place else fleet.uuids[parent]
            summary["root_provider_uuid"] = root
    return summaries


def _traits(fleet: Fleet, places: range) -> dict[int, list[str]]:
    """Return the traits of the providers of a tree, standard traits first."""
    traits: dict[int, list[str]] = {}
    for name, providers in fleet.traits.items():
        first, end = providers.searchsorted((places.start, places.stop)).tolist()
        for place in providers[first:end].tolist():
            traits.setdefault(place, []).append(name)
    for names in traits.values():
        names.sort(key=translation.name_sort_key)
    return traits


ROUTES = (("/allocation_candidates", {"GET": ("placement:allocation_candidates:list", list_all)}),)
