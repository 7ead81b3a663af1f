"""The request, and the options of its search, as arguments of a command line.

The options are those of ``openstack allocation candidate list``, and further ones. Options of a
group apply to the group of the preceding ``--group``, or else to the unnamed group.

With commas, one value of ``--required`` or ``--member-of`` is enough, as in osc-placement 4
(microversion 1.39) and in ``provider list``. In a query string of Placement a comma between traits
means all of them.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from resource_objects import exceptions
from resource_objects.cli import base

if TYPE_CHECKING:
    from resource_objects.requests import Request, RequestGroup
    from resource_objects.requests.query import ParsedQuery
    from resource_objects.resources import Amounts
    from resource_objects.search.order import Order

#: ``{word: what was said}``, of one group.
Said = dict[str, list[str]]

_OURS, _PLACEMENT = "ours", "placement"
#: Options of the whole request that a query string contains itself.
_OF_REQUEST = (
    *("amounts", "groups", "group_policy", "same_subtree", "root_required"),
    *("near", "near_policy"),
)


class ToGroup(argparse.Action):
    """Stores an option for the group that was named last."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        """Store it."""
        _group(namespace, namespace.group).setdefault(self.dest, []).append(str(values))


class NameGroup(argparse.Action):
    """Selects the group that the options after it are about."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        """Record the name; a group without options is satisfied by any provider."""
        if not values:
            raise argparse.ArgumentError(self, "expected the name of a group, such as _GPU")
        namespace.group = str(values)
        _group(namespace, namespace.group)


def _group(namespace: argparse.Namespace, suffix: str) -> Said:
    groups: dict[str, Said] = namespace.groups or {}
    namespace.groups = groups
    return groups.setdefault(suffix, {})


def _request_defaults(parser: Any) -> None:
    parser.set_defaults(group="", groups=None)


#: The options of a request.
REQUEST = (
    _request_defaults,
    base.argument("amounts", "AMOUNTS", "such as VCPU=2,MEMORY_MB=4096", nargs="?"),
    base.section(
        "of a group",
        base.argument("--resource", "AMOUNTS", "such as VCPU=2", action=ToGroup),
        base.argument(
            "--required",
            "TRAITS",
            "a trait; T1,T2 or in:T1,T2: one of them; !T: without it",
            action=ToGroup,
        ),
        base.argument("--forbidden", "TRAIT", "a trait that no provider may have", action=ToGroup),
        base.argument(
            "--member-of",
            "AGGREGATES",
            "an aggregate; A,B or in:A,B: one of them; !A, !A,B: in none",
            action=ToGroup,
        ),
        base.argument(
            "--in-tree",
            "PROVIDER",
            "all of the group from the tree of this one (name or uuid)",
            action=ToGroup,
        ),
        description="each may be repeated, --in-tree excepted",
    ),
    base.argument(
        "--group",
        "SUFFIX",
        "the following options apply to this group, of one provider; may be repeated",
        action=NameGroup,
    ),
    base.argument(
        "--group-policy", None, "isolate: no two by one provider", choices=("none", "isolate")
    ),
    base.repeated(
        "--same-subtree",
        "SUFFIXES",
        "one of the providers of these groups is above the others; may be repeated",
    ),
    base.repeated(
        "--root-required", "TRAIT", "a trait of the host itself; !TRAIT: not of it; may be repeated"
    ),
    base.argument(
        "--near",
        "LEVEL",
        "from as few NUMA cells (numa) as possible, or as few providers with this trait",
    ),
    base.argument(
        "--near-policy",
        None,
        "required: from one of them (default: preferred, the fewest first)",
        choices=("preferred", "required"),
    ),
    base.argument("--query", "QUERY", "all of this in Placement's words: resources=VCPU:1&..."),
    base.argument(
        "--compatibility",
        None,
        "the rules of the search (default: of this library; of --query: placement)",
        choices=(_OURS, _PLACEMENT),
    ),
)
#: The options of the order in which hosts are searched.
ORDER = (
    base.argument(
        "--order",
        None,
        "pack: the fullest host first; spread: the emptiest",
        choices=("name", "pack", "spread", "random"),
        default="name",
    ),
    base.repeated(
        "--weight", "CLASS=NUMBER", "how much its fullness counts (default: 1); may be repeated"
    ),
    base.repeated(
        "--prefer", "TRAIT[=NUMBER]", "hosts with it come first; below 0: last; may be repeated"
    ),
    base.argument("--among", "N", "with a seed: the number of shuffled hosts", type=int),
    base.argument("--seed", "N", "the same seed gives the same order", type=int),
)
_BUDGET = base.argument("--budget", "STEPS", "the maximum number of steps", type=int)
_MOST = "the maximum total usage of a provider, whatever its capacity"
#: The options of a search.
SEARCH = base.section(
    "the search",
    base.argument("--at", "PROVIDER", "only at this provider and what is below it"),
    base.argument("--limit", "N", "the maximum number of candidates (default: 10)", type=int),
    base.argument(
        "--per-host",
        "N",
        "the maximum number for one host (default: 1; by Placement's rules all)",
        type=int,
    ),
    *ORDER,
    _BUDGET,
    base.repeated(
        "--limits",
        "PROVIDER:AMOUNTS",
        f"{_MOST}, such as host0:VCPU=20,MEMORY_MB=65536; may be repeated",
    ),
)
#: The options of a search whose candidates are not to be allocated.
BOUNDS = base.section(
    "the search",
    _BUDGET,
    base.repeated("--limits", "PROVIDER:AMOUNTS", f"{_MOST}; may be repeated"),
)


def parse_request(args: argparse.Namespace) -> ParsedQuery:
    """Return the request, and the limit of candidates if the query has one.

    :raises InvalidInput: naming the option, its value and the expected values
    :raises Misused: if nothing is requested
    """
    from resource_objects.requests import query

    if args.query is None:
        if args.amounts is None and not args.groups:
            raise base.Misused("no request: expected AMOUNTS such as VCPU=2, --resource or --query")
        return query.ParsedQuery(_request(args))
    refuse_words(args, "--query", _OF_REQUEST)
    parsed = query.parse(args.query)
    if args.compatibility == _OURS:
        return query.ParsedQuery(parsed.request.replace(compatibility=None), parsed.limit)
    return parsed


def refuse_words(args: argparse.Namespace, option: str, words: Iterable[str] = ()) -> None:
    """Raise an error for options of a request next to an option that specifies all of it.

    :param words: the refused options, as attributes; else all of :data:`REQUEST`
    :raises InvalidInput: naming the first of them
    """
    for name in words or (*_OF_REQUEST, "query", "compatibility"):
        if getattr(args, name):
            expected = "no other option of the request"
            raise exceptions.InvalidInput(
                "request", f"beside {option}", _word(name, args), expected
            )


def _word(name: str, args: argparse.Namespace) -> str:
    if name == "amounts":
        return str(args.amounts)
    if name == "groups":
        suffix, words = next(iter(args.groups.items()))
        return f"--group {suffix}" if suffix else f"--{_option(next(iter(words)))}"
    return f"--{_option(name)}"


def _option(name: str) -> str:
    return name.replace("_", "-")


def _request(args: argparse.Namespace) -> Request:
    from resource_objects.requests import Request
    from resource_objects.requests import query as values

    groups: dict[str, Said] = dict(args.groups or {})
    unnamed = groups.pop("", {})
    if args.amounts is not None:
        unnamed = {**unnamed, "resource": [args.amounts, *unnamed.get("resource", [])]}
    root_required, root_forbidden, _ = _traits("--root-required", args.root_required, is_any=False)
    return Request(
        _amounts("", unnamed),
        **_conditions("", unnamed),
        groups=[_named(suffix, value) for suffix, value in groups.items()],
        group_policy=args.group_policy,
        same_subtree=[values.read_suffixes("--same-subtree", value) for value in args.same_subtree],
        root_required=root_required,
        root_forbidden=root_forbidden,
        compatibility=_PLACEMENT if args.compatibility == _PLACEMENT else None,
        near=args.near,
        near_policy=args.near_policy,
    )


def _named(suffix: str, options: Said) -> RequestGroup:
    from resource_objects.requests import RequestGroup

    return RequestGroup(_amounts(suffix, options), suffix=suffix, **_conditions(suffix, options))


def _key(word: str, suffix: str) -> str:
    """Return the name of an option in an error."""
    return f"--{word} of group {suffix}" if suffix else f"--{word}"


def _amounts(suffix: str, options: Said) -> Amounts:
    """Return the amounts of a group."""
    from resource_objects.requests.query import named_by
    from resource_objects.resources import Amounts

    key, total = _key("resource", suffix), Amounts()
    for text in options.get("resource", ()):
        with named_by(key):
            amounts = Amounts.parse(text)
        if not amounts:
            raise exceptions.InvalidInput("text", key, text, "CLASS=AMOUNT, such as VCPU=2")
        for name, _ in amounts.by_name():
            if name in total:
                raise exceptions.InvalidInput("repetition", key, name, "each class once")
        total += amounts
    return total


def _conditions(suffix: str, options: Said) -> dict[str, Any]:
    """Return the conditions of a group, as arguments of its constructor."""
    from resource_objects.requests import query as values
    from resource_objects.resources.traits import checked_traits

    required, forbidden, any_of = _traits(_key("required", suffix), options.get("required", ()))
    with values.named_by(_key("forbidden", suffix)):
        forbidden |= checked_traits(options.get("forbidden", ()))
    trees = options.get("in_tree", [])
    if len(trees) > 1:
        raise exceptions.InvalidInput("repetition", _key("in-tree", suffix), trees, "one provider")
    member_of, not_member_of = _aggregates(_key("member-of", suffix), options.get("member_of", ()))
    return {
        "required": required,
        "forbidden": forbidden,
        "any_of": any_of,
        "member_of": member_of,
        "not_member_of": not_member_of,
        "in_tree": values.read_tree(_key("in-tree", suffix), trees[0]) if trees else None,
    }


def _traits(
    key: str, texts: Iterable[str], *, is_any: bool = True
) -> tuple[frozenset[str], frozenset[str], list[frozenset[str]]]:
    """Return the traits that are required and forbidden, and sets of which one is enough."""
    from resource_objects.requests import query as values

    required, forbidden = frozenset[str](), frozenset[str]()
    any_of = []
    for text in texts:
        if "," not in text and not text.startswith("in:"):
            of_text, not_of_text = values.read_traits(key, text)
            required, forbidden = required | of_text, forbidden | not_of_text
        elif is_any:
            any_of.append(values.read_any_trait(key, text))
        else:
            raise exceptions.InvalidInput("trait", key, text, "one trait; the word may be repeated")
    return required, forbidden, any_of


def _aggregates(key: str, texts: Iterable[str]) -> tuple[list[frozenset[str]], frozenset[str]]:
    """Return sets of aggregates of which one is enough, and those that are excluded."""
    from resource_objects.requests import query as values

    member_of, not_member_of = [], frozenset[str]()
    for text in texts:
        sign = "!" if text.startswith("!") else ""
        listed = text.removeprefix("!").removeprefix("in:")
        try:
            aggregates, is_excluded = values.read_aggregates(key, f"{sign}in:{listed}")
        except exceptions.InvalidInput as error:
            raise error.renamed(key, text) from error
        if is_excluded:
            not_member_of |= aggregates
        else:
            member_of.append(aggregates)
    return member_of, not_member_of


def parse_bounds(args: argparse.Namespace) -> dict[str, Any]:
    """Return the budget and the limits.

    :raises InvalidInput: naming the option, its value and the expected values
    """
    options = {"budget": args.budget, "limits": _limits(args.limits) or None}
    return {name: value for name, value in options.items() if value is not None}


def parse_search(args: argparse.Namespace, limit: int | None = None) -> dict[str, Any]:
    """Return the options of the search.

    :param limit: the maximum number of candidates that the query contains
    :raises InvalidInput: naming the option, its value and the expected values
    """
    if limit is not None and args.limit is not None:
        raise exceptions.InvalidInput(
            "repetition", "--limit", args.limit, "one limit: the query has one"
        )
    options = {
        "limit": args.limit if limit is None else limit,
        "per_host": args.per_host,
        "order": parse_order(args),
        "seed": args.seed,
    }
    options = {name: value for name, value in options.items() if value is not None}
    return {**options, **parse_bounds(args)}


def parse_request_and_search(args: argparse.Namespace) -> tuple[Request, dict[str, Any]]:
    """Return the request and the options of its search.

    :raises Misused: for an invalid option, or if nothing is requested
    """
    with base.misused():
        parsed = parse_request(args)
        return parsed.request, parse_search(args, parsed.limit)


def _limits(texts: Iterable[str]) -> dict[str, str]:
    """Return limits by provider; its name may have colons, a count has none."""
    limits: dict[str, str] = {}
    for text in texts:
        provider, _, amounts = text.rpartition(":")
        if not provider or "=" not in amounts:
            raise exceptions.InvalidInput("request", "--limits", text, "PROVIDER:AMOUNTS")
        if provider in limits:
            raise exceptions.InvalidInput("repetition", "--limits", provider, "each provider once")
        limits[provider] = amounts
    return limits


def parse_order(args: argparse.Namespace) -> Order:
    """Return the order of hosts.

    :raises InvalidInput: naming the option, its value and the expected values
    """
    from resource_objects.search.order import Order

    return Order(
        args.order,
        weights=_figures("--weight", args.weight, None),
        preferred=_figures("--prefer", args.prefer, 1.0),
        among=args.among,
    )


def _figures(word: str, texts: Iterable[str], unsaid: float | None) -> dict[str, float]:
    """Return numbers by name; ``unsaid`` is that of a name without one, None if it must have it."""

    figures: dict[str, float] = {}
    for text in texts:
        name, equals, number = text.partition("=")
        try:
            value = float(number) if equals else unsaid
        except ValueError:
            value = None
        if value is None or not name:
            expected = f"{'CLASS' if unsaid is None else 'TRAIT'}=NUMBER"
            raise exceptions.InvalidInput("request", word, text, expected)
        if name in figures:
            raise exceptions.InvalidInput("repetition", word, name, "each name once")
        figures[name] = value
    return figures
