"""What Placement 16 answers otherwise than the service, on purpose: when, and why.

``python -m tests.peers.placement.peer_differences`` rewrites
``doc/source/explanation/placement_differences.txt``. A test holds the file to this, and random
sequences of requests to both (``test_sequences.py``): whatever differs must be explained here, and
each entry is met.
"""

from __future__ import annotations

import json
import pathlib
import re
import uuid
from collections.abc import Callable, Collection
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote

from resource_objects.requests import Request
from tests.peers.placement import peer_bugs
from tests.peers.placement.peer_answers import Unlike
from tests.peers.placement.peer_state import State

HERE = pathlib.Path(__file__).resolve().parent
TABLE = HERE.parents[2] / "doc" / "source" / "explanation" / "placement_differences.txt"

#: What is explained by a difference: ``status``, ``body``, headers by name, what is ``kept``.
Explained = Collection[str]

_ALL = (
    *("status", "body", "kept"),
    *("cache-control", "content-length", "content-type", "last-modified", "location", "vary"),
)
_MOST = 2**31 - 1


class Difference(NamedTuple):
    """What Placement does, what we do, of which answers that explains what, and who shows it."""

    name: str
    placement: str
    ours: str
    explains: Callable[[Unlike], Explained]
    file: str = "test_sequences.py"
    test: str = "test_a_difference_in_its_smallest_case"


def _statuses(unlike: Unlike) -> tuple[int, int]:
    return unlike.theirs.status, unlike.ours.status


def _vary(unlike: Unlike) -> Explained:
    theirs, ours = unlike.theirs.headers.get("vary"), unlike.ours.headers.get("vary")
    is_so = theirs is None and ours == ["openstack-api-version"]
    raised = (
        unlike.theirs.status in (401, 403, 404) or "content-type header" in unlike.theirs.detail
    )
    return ["vary"] if is_so and raised else ()


def _unauthorized(unlike: Unlike) -> Explained:
    if _statuses(unlike) != (401, 401):
        return ()
    is_so = "errors" not in unlike.theirs.body and "errors" in unlike.ours.body
    return ["body", "openstack-api-version"] if is_so else ()


def _discovery(unlike: Unlike) -> Explained:
    is_so = unlike.sent.path.partition("?")[0] == "" and _statuses(unlike) == (401, 200)
    return (*_ALL, "openstack-api-version", "link") if is_so else ()


def _html(unlike: Unlike) -> Explained:
    theirs, ours = (one.headers.get("content-type") or "" for one in (unlike.theirs, unlike.ours))
    is_so = theirs.startswith("text/") and ours == "application/json"
    same = unlike.theirs.status == unlike.ours.status >= 400
    return ["body", "content-type"] if is_so and same else ()


def _modified(unlike: Unlike) -> Explained:
    theirs, ours = ("last-modified" in one.headers for one in (unlike.theirs, unlike.ours))
    same = unlike.theirs.status == unlike.ours.status == 200
    return ["last-modified"] if ours and not theirs and same else ()


def _hidden(unlike: Unlike) -> Explained:
    if _statuses(unlike) != (200, 400):
        return ()
    is_empty = not any(unlike.theirs.body.values())
    said = ("Invalid resource class in resources parameter", "No such trait")
    return _ALL if is_empty and any(one in unlike.ours.detail for one in said) else ()


def _stuck(unlike: Unlike) -> Explained:
    said = "consumer generation conflict - expected"
    if f"{said} 0 but got" in unlike.theirs.detail and unlike.theirs.status == 409:
        return _ALL
    if f"{said} null but got 0" in unlike.ours.detail and unlike.ours.status == 409:
        return _ALL
    return ["kept"] if _keeps_types(*unlike.state) else ()


def _keeps_types(theirs: State, ours: State) -> bool:
    """Return whether consumers have a type only there, which those have that stayed behind."""
    typeless = {(*row[:4], None) for row in theirs.get("consumer", ())}
    there = {row for row in ours.get("consumer", ()) if row in typeless}
    both = {row for row in theirs.get("consumer", ()) if (*row[:4], None) not in there}
    return theirs != ours and theirs | {"consumer": both | there} == ours


def _crash(unlike: Unlike) -> Explained:
    is_so = unlike.theirs.status >= 500 and 400 <= unlike.ours.status < 500
    return (*_ALL, "openstack-api-version") if is_so else ()


def _huge(unlike: Unlike) -> Explained:
    amounts = re.findall("[0-9]{19,}", unlike.sent.path)
    is_so = any(int(one) >= 2**63 for one in amounts) and _statuses(unlike) == (500, 200)
    return (*_ALL, "openstack-api-version") if is_so and not any(unlike.ours.body.values()) else ()


def _below(unlike: Unlike) -> Explained:
    """The pool is looked up by the number that it has in the database."""
    is_so = unlike.sent.path.startswith("/allocation_candidates") and _statuses(unlike) == (
        500,
        200,
    )
    if not is_so or not re.search(r"\n\s*[0-9]+\s*\Z", unlike.theirs.detail):
        return ()
    summaries = unlike.ours.body["provider_summaries"].values()
    pool = "MISC_SHARES_VIA_AGGREGATE"  # what an older version does not tell may be so
    pools = [one for one in summaries if pool in one.get("traits", [pool])]
    below = any(one.get("parent_provider_uuid", "") is not None for one in pools)
    return (*_ALL, "openstack-api-version") if below or not summaries else ()


def _nameless(unlike: Unlike) -> Explained:
    is_so = _statuses(unlike) == (200, 400) and "['name']" in unlike.ours.detail
    return _ALL if is_so and unlike.sent.method == "PUT" else ()


def _allow(unlike: Unlike) -> Explained:
    is_so = "allow" not in unlike.theirs.headers and "allow" in unlike.ours.headers
    return ["allow"] if is_so and _statuses(unlike) == (405, 405) else ()


def _unchecked(unlike: Unlike) -> Explained:
    """Figures of inventories that are taken unchecked."""
    is_reshape = unlike.sent.path.startswith("/reshaper") and unlike.theirs.status == 409
    if unlike.ours.status != 400 or not (unlike.theirs.status < 300 or is_reshape):
        return ()
    said = ("The reserved value is", "less than its min_unit", "ratio")
    return _ALL if any(one in unlike.ours.detail for one in said) else ()


def _policy(unlike: Unlike) -> Explained:
    is_so = unlike.ours.status == 403 and unlike.theirs.status in (404, 405, 406, 415)
    return _ALL if is_so else ()


_UUID = re.compile(
    r"\{?[0-9a-fA-F]{8}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{12}\}?"
)


def _spelling(unlike: Unlike) -> Explained:
    """A uuid in the path or as a parent is looked up as it is spelled."""
    said = unquote(unlike.sent.path) + (unlike.sent.body or b"").decode("utf-8", "replace")
    others = [one for one in _UUID.findall(said) if one != str(uuid.UUID(one))]
    if not others or unlike.theirs.status not in (200, 400, 404):
        return ()
    is_empty = unlike.theirs.status == 200 and not any(
        one for one in (unlike.theirs.body or {}).values() if isinstance(one, list | dict)
    )
    told = (
        any(one in unlike.theirs.detail for one in others)
        or "does not exist" in unlike.theirs.detail
    )
    return _ALL if is_empty or told or _is_more(unlike) else ()


def _is_more(unlike: Unlike) -> bool:
    """Return whether there are more than here, as nobody is in an aggregate that is forbidden."""
    if _statuses(unlike) != (200, 200) or "member_of" not in unlike.sent.path:
        return False
    both = [
        one.body.get("allocation_requests", one.body.get("resource_providers", ()))
        for one in (unlike.theirs, unlike.ours)
    ]
    return "!" in unquote(unlike.sent.path) and all(one in both[0] for one in both[1])


def _in_use(unlike: Unlike) -> Explained:
    both = unlike.theirs, unlike.ours
    if not all(one.status == 409 and isinstance(one.body, dict) for one in both):
        return ()
    codes = [one.body["errors"][0].get("code") for one in both]
    is_so = codes == ["placement.concurrent_update", "placement.inventory.inuse"]
    return ["body"] if is_so and unlike.sent.method == "DELETE" else ()


def _found(unlike: Unlike) -> tuple[Request, list[Any], list[Any]] | None:
    """Return a request for candidates, and what both answer; None if it is none, or refused."""
    if unlike.request is None or _statuses(unlike) != (200, 200):
        return None
    both = unlike.theirs, unlike.ours
    theirs, ours = (one.body["allocation_requests"] for one in both)
    return unlike.request, theirs, ours


def _empties(unlike: Unlike) -> Explained:
    found = _found(unlike)
    return ["body"] if found and peer_bugs.empties(found[0]) and not found[1] else ()


def _forgets(unlike: Unlike) -> Explained:
    found = _found(unlike)
    if not found or not peer_bugs.forgets_tree(found[0]):
        return ()
    return ["body"] if all(one in found[1] for one in found[2]) else ()


def _leaks(unlike: Unlike) -> Explained:
    found = _found(unlike)
    if not found or not peer_bugs.leaks(found[0]):
        return ()
    who = [sorted(str(sorted(one["allocations"])) for one in some) for some in found[1:]]
    return ["body"] if who[0] == who[1] or set(who[0]) <= set(who[1]) else ()


def _loses(unlike: Unlike) -> Explained:
    found = _found(unlike)
    if not found or not found[0].unnamed.resources:
        return ()
    summaries = unlike.ours.body["provider_summaries"].values()
    shares = any("MISC_SHARES_VIA_AGGREGATE" in one.get("traits", ()) for one in summaries)
    some = len(found[1]) < len(found[2]) and all(one in found[2] for one in found[1])
    return ["body"] if shares and some else ()


def _length(unlike: Unlike) -> Explained:
    is_so = "content-length" in unlike.theirs.headers and _statuses(unlike) == (204, 204)
    return ["content-length"] if is_so else ()


def _link(unlike: Unlike) -> Explained:
    is_so = unlike.sent.path.partition("?")[0] in ("", "/") and _statuses(unlike) == (200, 200)
    return ["link"] if is_so and "link" not in unlike.theirs.headers else ()


def _words(unlike: Unlike) -> list[tuple[str, str]]:
    query = unlike.sent.path.partition("?")[2]
    return parse_qsl(query, keep_blank_values=True, errors="replace")


def _prefix(unlike: Unlike) -> Explained:
    said = dict(_words(unlike)).get("name", "")
    if not (said.startswith("startswith:") and _statuses(unlike) == (200, 200)):
        return ()
    prefix = said.removeprefix("startswith:")
    some = [name for name in unlike.theirs.body["traits"] if name.startswith(prefix)]
    return ["body"] if {"traits": some} == unlike.ours.body else ()


def _twice(unlike: Unlike) -> Explained:
    words = _words(unlike)
    said = [[value for key, value in words if key == name] for name in ("limit", "group_policy")]
    is_so = any(one and one[0] != one[-1] for one in said)
    return _ALL if is_so and _statuses(unlike) == (200, 400) else ()


def _unprintable(unlike: Unlike) -> Explained:
    theirs, ours = _statuses(unlike)
    is_so = (theirs < 300 or theirs == 409) and ours == 400
    return _ALL if is_so and "printable characters" in unlike.ours.detail else ()


def _newline(unlike: Unlike) -> Explained:
    is_so = "\n" in unquote(unlike.sent.path) or b"\\n" in (unlike.sent.body or b"")
    is_path = unquote(unlike.sent.path.partition("?")[0]).endswith("\n")
    if is_path and (unlike.ours.status == 404 or unlike.ours.body == {"allocations": {}}):
        return _ALL  # nobody is called so; who is not there holds nothing
    theirs, ours = _statuses(unlike)
    refused = ours == 400 and (theirs < 300 or theirs == 409)
    return _ALL if is_so and refused else ()


def _disabled(unlike: Unlike) -> Explained:
    if unlike.ours.status == 409 and unlike.theirs.status in (204, 409):
        return _ALL if "COMPUTE_STATUS_DISABLED was set" in unlike.ours.detail else ()
    if not unlike.sent.path.startswith("/allocation_candidates") or _statuses(unlike) != (200, 200):
        return ()
    theirs, ours = (one.body["allocation_requests"] for one in (unlike.theirs, unlike.ours))
    more = [one for one in theirs if one not in ours]
    is_so = all(one in theirs for one in ours) and all(_providers(one) & unlike.out for one in more)
    return ["body"] if more and is_so else ()


def _providers(told: Any) -> set[str]:
    """Return the uuids of all providers of a candidate, or of a body."""
    return set(re.findall("[0-9a-f-]{36}", json.dumps(told)))


def _float(unlike: Unlike) -> Explained:
    if not unlike.inexact:
        return ()
    said = unlike.sent.path + (unlike.sent.body or b"").decode("utf-8", "replace")
    if _statuses(unlike) == (409, 204):
        return _ALL if any(uuid in said and name in said for uuid, name in unlike.inexact) else ()
    if _statuses(unlike) != (200, 200) or "resources" not in unlike.sent.path:
        return ()
    kind = (
        "allocation_requests" if "allocation_requests" in unlike.ours.body else "resource_providers"
    )
    theirs, ours = unlike.theirs.body[kind], unlike.ours.body[kind]
    who = {uuid for uuid, _ in unlike.inexact}
    more = [one for one in ours if one not in theirs]
    is_so = all(one in ours for one in theirs) and all(_providers(one) & who for one in more)
    told = _providers(unlike.ours.body) & who
    return ["body"] if is_so and told else ()


def _max_unit(unlike: Unlike) -> Explained:
    if not (unlike.theirs.status == unlike.ours.status < 300):
        return ()
    theirs, ours = unlike.state
    unbounded = {
        (*row[:5], row[5] if row[5] <= row[2] else _MOST, *row[6:])
        for row in theirs.get("inventory", ())
    }
    kept = ["kept"] if theirs | {"inventory": unbounded} == ours else []
    return [*kept, "body"] if _unbounded(unlike.theirs.body) == unlike.ours.body else kept


def _unbounded(body: Any) -> Any:
    """Return figures with no bound where ``max_unit`` is above the total."""
    if not isinstance(body, dict):
        return body
    made = {key: _unbounded(one) for key, one in body.items()}
    if made.get("max_unit", 0) > made.get("total", _MOST):
        made["max_unit"] = _MOST
    return made


DIFFERENCES = (
    Difference(
        "vary",
        "401, 403 and 404 have no ``vary``, although they depend on the microversion",
        "Each answer has ``vary``",
        _vary,
    ),
    Difference(
        "unauthorized",
        "401 has a body in another form than all other errors, and no microversion",
        "The same form as all errors",
        _unauthorized,
    ),
    Difference(
        "discovery",
        "With ``noauth2``, ``GET`` of the versions needs a token if the ``/`` is omitted",
        "It needs none",
        _discovery,
    ),
    Difference(
        "html",
        "A client that accepts JSON but prefers HTML or text gets errors in the preferred type",
        "Errors are JSON for each client that accepts it",
        _html,
    ),
    Difference(
        "last_modified",
        "A ``PUT`` of a provider, and an empty list of inventories, have no ``last-modified``",
        "They have it from 1.15 on",
        _modified,
    ),
    Difference(
        "hidden",
        "An unknown resource class or trait is not an error if another condition matches no "
        "provider",
        "400, whatever the other conditions are",
        _hidden,
    ),
    Difference(
        "stuck",
        "An empty write for a consumer without allocations leaves a consumer with generation 0: "
        "a client that follows the documentation cannot claim for it again",
        "No consumer remains",
        _stuck,
    ),
    Difference(
        "crash",
        "An inventory with an empty name is a 500; so is a ``PUT`` of traits during another "
        "write of them, and ``GET /usages`` by consumer type on PostgreSQL",
        "400, 409, and the usages",
        _crash,
    ),
    Difference(
        "huge",
        "An amount of 2\\ :sup:`63` or more in a query is a 500",
        "No provider has this amount",
        _huge,
    ),
    Difference(
        "below",
        "A pool below the root of a tree that provides none of the other classes is not read, "
        "and the answer is a 500",
        "It provides its amounts",
        _below,
    ),
    Difference(
        "nameless",
        "A provider may be renamed to an empty name",
        "400, as when it is created",
        _nameless,
    ),
    Difference(
        "allow",
        "405 of ``DELETE .../inventories`` before 1.5 has no ``allow``",
        "It has ``allow``",
        _allow,
    ),
    Difference(
        "unchecked",
        "``reserved`` above the total is accepted if the capacity rounds to 0, a ratio may be "
        "0, negative or have more than six decimals, ``min_unit`` may be above ``max_unit``, "
        "and a reshape checks nothing",
        "400, also by a reshape. A ratio is above 0 and at most 4000",
        _unchecked,
    ),
    Difference(
        "policy",
        "A client without permission gets errors of the version, the type or the body first",
        "403",
        _policy,
    ),
    Difference(
        "spelling",
        "A uuid in capitals or without dashes is accepted, and then not found: in a path, as a "
        "parent, in allocations, in ``in_tree``; an aggregate with such a uuid is another one",
        "It is the same uuid",
        _spelling,
    ),
    Difference(
        "in_use",
        "``DELETE`` of an inventory in use has the code ``placement.concurrent_update``, so "
        "clients repeat it for ever",
        "``placement.inventory.inuse``",
        _in_use,
    ),
    Difference(
        "empties",
        "A group without amounts that has only forbidden traits or aggregates matches no provider",
        "It matches the other providers",
        _empties,
    ),
    Difference(
        "forgets",
        "``in_tree`` of a group without amounts is ignored",
        "It is a condition",
        _forgets,
    ),
    Difference(
        "leaks",
        "Without ``group_policy=none`` the amounts of a class requested by the unnamed and a "
        "named group are also added up in other candidates",
        "Each candidate has its own amounts",
        _leaks,
        "test_candidates.py",
        "test_amounts_of_groups_leak_without_a_policy",
    ),
    Difference(
        "loses",
        "If only pools provide the amounts of the unnamed group, one host of all is listed",
        "All possible hosts",
        _loses,
        "test_candidates.py",
        "test_placement_and_the_enumerator_find_the_same",
    ),
    Difference(
        "length",
        "204 has a ``content-length``, which RFC 9110 forbids",
        "It has none",
        _length,
    ),
    Difference(
        "link",
        "``GET /`` links to no document",
        "It has a ``link`` to the OpenAPI document of the native API, by RFC 8631",
        _link,
    ),
    Difference(
        "prefix",
        "In ``startswith:`` of traits ``%`` and ``_`` are wildcards, and on some databases "
        "lower case matches upper case",
        "A literal prefix",
        _prefix,
    ),
    Difference(
        "twice",
        "If ``limit`` or ``group_policy`` is repeated, the last value is checked, and the first "
        "one used",
        "Both are checked",
        _twice,
    ),
    Difference(
        "newline",
        "Paths, and names of custom classes, custom traits and consumer types, may end with a "
        "newline",
        "404, 400, no allocations",
        _newline,
    ),
    Difference(
        "unprintable",
        "Names of providers, projects and users may contain control characters, and spaces at "
        "their ends",
        "400",
        _unprintable,
    ),
    Difference(
        "disabled",
        "``COMPUTE_STATUS_DISABLED`` is an ordinary trait: a provider with it is a candidate "
        "unless the trait is forbidden, and can be claimed",
        "A provider with it, and its descendants, are disabled: no candidates, and a claim is a "
        "409",
        _disabled,
    ),
    Difference(
        "float",
        "A capacity is a product of floats: 100 times 0.57 is 56",
        "57",
        _float,
    ),
    Difference(
        "max_unit",
        "A ``max_unit`` above the total is stored",
        "It is no bound: reported as 2147483647",
        _max_unit,
    ),
)


SECTIONS = {"": DIFFERENCES}


def explained(unlike: Unlike) -> list[str]:
    """Return the names of the differences that explain all that differs; none if some is left."""
    left, names = set(unlike.where), []
    for one in DIFFERENCES:
        some = left.intersection(one.explains(unlike))
        if some:
            left -= some
            names.append(one.name)
    return [] if left else names


def text() -> str:
    """Return the table as it stands in the documentation."""
    lines = [".. list-table::", "   :header-rows: 1", "   :widths: 55 45", ""]
    lines += ["   * - Placement 16", "     - here"]
    for one in DIFFERENCES:
        lines += [f"   * - {one.placement}", f"     - {one.ours}"]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    TABLE.write_text(text())
