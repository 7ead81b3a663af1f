"""The keys of Placement's query string: which group each is about, and what a group says.

What they mean is told in :mod:`.query`.
"""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any, Final, TypeAlias

from resource_objects import exceptions
from resource_objects.requests import query_values as values
from resource_objects.requests.request import MAX_GROUPS, POLICIES

#: No query string is longer, in characters.
MAX_LENGTH = 2**20

_OF_GROUP: Final = ("resources", "required", "member_of", "in_tree")
_OF_REQUEST: Final = ("group_policy", "same_subtree", "root_required", "limit")
#: Keys that may be said more than once.
_REPEATED: Final = ("required", "member_of", "same_subtree")
_KEY = re.compile(rf"({'|'.join(_OF_GROUP)})([A-Za-z0-9_-]{{1,64}})?")
_MALFORMED = re.compile(rf"({'|'.join(_OF_GROUP)})(.+)", re.DOTALL)

#: No message names more groups.
_NAMED = 5

#: ``{key without suffix: values}``
Words: TypeAlias = dict[str, list[str]]


def pairs(given: object) -> Iterator[tuple[str, str]]:
    """Yield keys and values, decoded."""
    if isinstance(given, str):
        given = _split(given)
    if isinstance(given, bytes | Mapping) or not isinstance(given, Iterable):
        raise exceptions.InvalidRequest("query", given, "a query string, or keys and values")
    for pair in given:
        is_pair = isinstance(pair, tuple | list) and len(pair) == 2
        if not is_pair or not all(isinstance(word, str) for word in pair):
            raise exceptions.InvalidRequest("query", pair, "a key and its value, both text")
        key, value = pair
        if not value.strip():
            raise exceptions.InvalidRequest(key, value, "a value")
        yield key, value


def _split(text: str) -> Iterator[tuple[str, str]]:
    """Yield the keys and values of a query string; ``;`` separates as ``&`` does."""
    if len(text) > MAX_LENGTH:
        raise exceptions.InvalidRequest("query", text, f"at most {MAX_LENGTH} characters")
    for item in re.split("[&;]", text):
        if not item:
            continue
        try:
            key, _, value = item.partition("=")
            yield (
                urllib.parse.unquote_plus(key, errors="strict"),
                urllib.parse.unquote_plus(value, errors="strict"),
            )
        except UnicodeDecodeError as error:
            raise exceptions.InvalidRequest("query", item, "percent-encoded UTF-8") from error


def sorted_out(pairs: Iterable[tuple[str, str]]) -> tuple[dict[str, Words], Words]:
    """Return what is said of each group, by suffix, and of the request as a whole."""
    groups: dict[str, Words] = {}
    wide: Words = {}
    for key, value in pairs:
        found = _KEY.fullmatch(key)
        if found:
            name, suffix = found[1], found[2] or ""
            words = groups.setdefault(suffix, {})
        elif key in _OF_REQUEST:
            name, words = key, wide
        else:
            raise _unknown(key)
        if name in words and name not in _REPEATED:
            raise exceptions.DuplicateKey("query", key, "this key once")
        words.setdefault(name, []).append(value)
    return groups, wide


def _unknown(key: str) -> exceptions.InvalidRequest:
    found = _MALFORMED.fullmatch(key)
    if found:
        expected = f"{found[1]} and a suffix of 1 to 64 of A-Z, a-z, 0-9, _ and -"
    else:
        expected = f"one of {', '.join(_OF_REQUEST)}, or with a suffix {', '.join(_OF_GROUP)}"
    return exceptions.InvalidRequest("query", key, expected)


def check_groups(groups: Mapping[str, Words], wide: Words) -> None:
    """Raise for groups that say too little."""
    if not any("resources" in words for words in groups.values()):
        raise exceptions.InvalidRequest("resources", "nothing", values.AMOUNTS)
    if len(groups) > MAX_GROUPS:
        raise exceptions.InvalidRequest("query", f"{len(groups)} groups", f"at most {MAX_GROUPS}")
    named = _some(suffix for suffix in groups if suffix)
    linked = [
        (text, values.suffixes("same_subtree", text)) for text in wide.get("same_subtree", ())
    ]
    for text, some in linked:
        if not some <= groups.keys():
            expected = f"suffixes of groups of the query: {named}"
            raise exceptions.InvalidRequest("same_subtree", text, expected)
    in_some = frozenset[str]().union(*(some for _, some in linked))
    for suffix, words in groups.items():
        if "resources" not in words and suffix not in in_some:
            name, said = next(iter(words.items()))
            or_linked = f", or same_subtree={suffix},..." if suffix else ""
            expected = f"resources{suffix}=... beside it{or_linked}"
            raise exceptions.InvalidRequest(name + suffix, said[0], expected)
    if len(groups.keys() - {""}) > 1 and "group_policy" not in wide:
        expected = f"none or isolate, for the groups {named}"
        raise exceptions.InvalidRequest("group_policy", "nothing", expected)


def _some(suffixes: Iterable[str]) -> str:
    """Return suffixes as text, of many the first few."""
    listed = list(suffixes)
    more = f" and {len(listed) - _NAMED} more" if len(listed) > _NAMED else ""
    return f"{', '.join(listed[:_NAMED]) or 'there are none'}{more}"


def read_group(suffix: str, words: Words) -> tuple[dict[str, int], dict[str, Any]]:
    """Return the amounts of a group and its conditions, as its constructor takes them."""
    amounts: dict[str, int] = {}
    for text in words.get("resources", ()):
        amounts = values.amounts(f"resources{suffix}", text)
    conditions: dict[str, Any] = {
        **_read_traits(f"required{suffix}", words.get("required", ())),
        **_read_aggregates(f"member_of{suffix}", words.get("member_of", ())),
    }
    for text in words.get("in_tree", ()):
        conditions["in_tree"] = values.tree(f"in_tree{suffix}", text)
    return amounts, conditions


def _read_traits(key: str, said: Iterable[str]) -> dict[str, Any]:
    required: set[str] = set()
    forbidden: set[str] = set()
    any_of: list[frozenset[str]] = []
    for text in said:
        if text.startswith("in:"):
            any_of.append(values.any_trait(key, text))
        else:
            wanted, unwanted = values.traits(key, text)
            required |= wanted
            forbidden |= unwanted
    _check_conflict(key, required, forbidden)
    for some in any_of:
        if some <= forbidden:
            expected = "at least one trait that is not forbidden too"
            raise exceptions.InvalidRequest(key, f"in:{','.join(sorted(some))}", expected)
    return {"required": required, "forbidden": forbidden, "any_of": any_of}


def _read_aggregates(key: str, said: Iterable[str]) -> dict[str, Any]:
    member_of: list[frozenset[str]] = []
    not_member_of: set[str] = set()
    for text in said:
        some, is_forbidden = values.aggregates(key, text)
        if is_forbidden:
            not_member_of |= some
        else:
            member_of.append(some)
    for some in member_of:
        if some <= not_member_of:
            expected = "at least one aggregate that is not forbidden too"
            raise exceptions.InvalidRequest(key, values.format_aggregates(key, some), expected)
    return {"member_of": member_of, "not_member_of": not_member_of}


def read_wide(wide: Words) -> dict[str, Any]:
    """Return what is said of the request as a whole, as its constructor takes it."""
    found: dict[str, Any] = {}
    for text in wide.get("group_policy", ()):
        if text not in POLICIES:
            raise exceptions.InvalidRequest("group_policy", text, " or ".join(POLICIES))
        found["group_policy"] = text
    found["same_subtree"] = [
        values.suffixes("same_subtree", text) for text in wide.get("same_subtree", ())
    ]
    for text in wide.get("root_required", ()):
        required, forbidden = values.traits("root_required", text)
        _check_conflict("root_required", required, forbidden)
        found.update(root_required=required, root_forbidden=forbidden)
    return found


def _check_conflict(key: str, required: Set[str], forbidden: Set[str]) -> None:
    both = sorted(required & forbidden)
    if both:
        raise exceptions.InvalidRequest(key, both, "traits that are not forbidden too")
