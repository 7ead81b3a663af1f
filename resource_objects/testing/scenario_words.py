"""The words of a scenario: requests, and candidates as one line each."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import Any

from resource_objects import exceptions
from resource_objects.requests import Request, RequestGroup, query
from resource_objects.resources import Amounts
from resource_objects.search import order
from resource_objects.search.candidates import Candidate

#: One thing that a candidate takes: (suffix, provider, amounts as text); no amounts for a group
#: that asks for none.
Taken = tuple[str, str, str]

_CALLS: dict[str, Callable[..., Any]] = {
    "Order": order.Order,
    "Request": Request,
    "RequestGroup": RequestGroup,
}
_PART = re.compile(
    r"(?:(?P<amounts>[A-Z0-9_]+=[^\s]+) of )?(?P<name>.+?)(?: \((?P<suffix>[A-Za-z0-9_-]+)\))?\Z"
)
_NEXT = re.compile(r",\s+")
#: What may be said of a search.
_OPTIONS = ("limit", "per_host", "order", "seed", "budget")


def python_request(text: str, where: str) -> Request:
    """Return a request that is written as in Python, or as amounts alone. Nothing is executed.

    >>> print(python_request("PGPU=2", "line 1"))
    PGPU=2
    >>> print(python_request("Request('VCPU=1', groups=[RequestGroup('PGPU=1', suffix='a')])", ""))
    VCPU=1; a: PGPU=1
    """
    if not text.startswith("Request("):
        return Request(text)
    made: Request = _value(_expression(text, where), where)
    return made


def query_request(text: str) -> query.ParsedQuery:
    """Return what Placement's words ask; spaces between them do not count."""
    return query.parse("".join(text.split()))


def search_options(text: str, where: str) -> dict[str, Any]:
    """Return what is said of a search: ``limit=2, order="spread"``.

    >>> search_options("limit=2, order='spread'", "line 1")
    {'limit': 2, 'order': 'spread'}
    """
    return {name: _value(node, where) for name, node in option_nodes(text, where).items()}


def option_nodes(text: str, where: str) -> dict[str, ast.expr]:
    """Return the expressions of what is said of a search, by name.

    :raises InvalidText: for what is no option
    """
    call = _expression(f"options({text})", where)
    assert isinstance(call, ast.Call)
    found = {word.arg: word.value for word in call.keywords if word.arg}
    if call.args or len(found) < len(call.keywords) or not set(found) <= set(_OPTIONS):
        raise exceptions.InvalidText(where, text, f"of {', '.join(_OPTIONS)}: name=value, ...")
    return found


def _expression(text: str, where: str) -> ast.expr:
    try:
        return ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError) as error:
        raise exceptions.InvalidText(where, text, "what Python reads") from error


def _value(node: ast.expr, where: str) -> Any:
    """Return the value of an expression of literals, requests and groups."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _CALLS:
        given = [_value(one, where) for one in node.args]
        named = {word.arg: _value(word.value, where) for word in node.keywords if word.arg}
        return _CALLS[node.func.id](*given, **named)
    if isinstance(node, ast.List):
        return [_value(one, where) for one in node.elts]
    try:
        return ast.literal_eval(node)
    except ValueError as error:
        raise exceptions.InvalidText(
            where, ast.unparse(node), f"literals and {', '.join(_CALLS)}"
        ) from error


# --- candidates ---


def told(candidate: Candidate, request: Request) -> str:
    """Return a candidate as a line: the host, and what is taken of whom, by group.

    >>> from resource_objects.resources import IntegerAmount
    >>> from resource_objects.providers import Allocation
    >>> found = Candidate(host="host0", mappings={"": ("host0",), "a": ("gpu0",)}, allocations=[
    ...     Allocation(provider="host0", resource_class="VCPU", amount=IntegerAmount(1)),
    ...     Allocation(provider="gpu0", resource_class="PGPU", amount=IntegerAmount(1))])
    >>> request = Request("VCPU=1", groups=[RequestGroup("PGPU=1", suffix="a")])
    >>> print(told(found, request))
    host0: VCPU=1 of host0, PGPU=1 of gpu0 (a)
    """
    parts = ", ".join(map(_said, _taken(candidate, request)))
    return f"{candidate.host}: {parts}"


def _said(taken: Taken) -> str:
    suffix, provider, amounts = taken
    what = f"{amounts} of {provider}" if amounts else provider
    return f"{what} ({suffix})" if suffix else what


def _taken(candidate: Candidate, request: Request) -> list[Taken]:
    """Return what is taken, of whom, and for which group."""
    left = {
        (one.provider, one.resource_class): int(str(one.amount)) for one in candidate.allocations
    }
    named: list[Taken] = []
    for group in request.named:
        (provider,) = candidate.mappings[group.suffix]
        named.append((group.suffix, provider, str(group.resources)))
        for kind, amount in group.resources.items():
            left[provider, kind.name] -= int(str(amount))
    rest: dict[str, dict[str, int]] = {}
    for (provider, name), count in left.items():
        if count:
            rest.setdefault(provider, {})[name] = count
    unnamed = [("", provider, str(Amounts(amounts))) for provider, amounts in rest.items()]
    return [*unnamed, *named]


def candidate_key(line: str, where: str) -> tuple[str, frozenset[Taken]]:
    """Return what a line says of a candidate, in whatever order it says it.

    :raises InvalidText: if it is no such line

    >>> candidate_key("host0: PGPU=1 of gpu0 (a)", "line 1")
    ('host0', frozenset({('a', 'gpu0', 'PGPU=1')}))
    """
    host, colon, rest = line.partition(": ")
    if not colon:
        raise exceptions.InvalidText(where, line, "host: AMOUNTS of PROVIDER (GROUP), ...")
    parts: list[Taken] = []
    for part in _NEXT.split(rest.strip()):
        match = _PART.match(part)
        if match is None or not (match["amounts"] or match["suffix"]):
            raise exceptions.InvalidText(where, part, "AMOUNTS of PROVIDER (GROUP)")
        amounts = str(Amounts(match["amounts"])) if match["amounts"] else ""
        parts.append((match["suffix"] or "", match["name"], amounts))
    if len(set(parts)) < len(parts):
        raise exceptions.InvalidText(where, line, "each part once")
    return host.strip(), frozenset(parts)


def amounts_of(text: str, where: str) -> dict[str, Amounts]:
    """Return what is taken of whom: ``VCPU=1 of host0, PGPU=1 of gpu0``."""
    _, parts = candidate_key(f"somewhere: {text}", where)
    if any(suffix or not amounts for suffix, _, amounts in parts):
        raise exceptions.InvalidText(where, text, "AMOUNTS of PROVIDER, ... without groups")
    found: dict[str, Amounts] = {}
    for _, provider, amounts in sorted(parts):
        found[provider] = found.get(provider, Amounts()) + Amounts(amounts)
    return found
