"""A query string says here what it says to OpenStack Placement, except where the table says so.

The real service runs in this process and is asked over its HTTP interface, at microversion 1.39,
with strings that are mostly right and often slightly wrong. Both must accept a string, or both
refuse it, and what both accept must come out as the same groups and conditions. Where they part,
one of :class:`Difference` must explain it, and each of those is proved by a case of its own.
"""

from __future__ import annotations

import enum
import random
import urllib.parse
import uuid
from collections import Counter
from typing import Any

import pytest
from oslo_utils import uuidutils

from benchmarks.peer import Placement
from resource_objects import exceptions, names
from resource_objects.requests import query
from resource_objects.testing.refusals import is_one_of

# other libraries' own, at import and at the first request
pytestmark = pytest.mark.filterwarnings("ignore")

SEEDS = range(60)
STRINGS = 25  #: for each seed
TRAITS = ("CUSTOM_QUERY_A", "CUSTOM_QUERY_B", "HW_CPU_X86_AVX2")
A, B, _ = TRAITS
CLASS = "CUSTOM_QUERY_X"
AGGREGATES = [str(uuid.UUID(int=n)) for n in (1, 2, 3)]
ROOT = str(uuid.UUID(int=4))


class Difference(enum.Enum):
    """Where the two part, and what we do instead."""

    CLASS_TWICE = "the last counts there, refused here"
    KEY_TWICE = "the last counts there, or the first; refused here"
    SPELLING = "an amount is what Python reads as a number there, ASCII digits here"
    BITS = "numbers have no bound there, 63 bits here"
    BANGS = "all leading ! of a forbidden trait are dropped there, one here"
    CONTRADICTION = "an aggregate that is required and forbidden fits nowhere there, refused here"
    NAMES = "aggregates and trees have uuids alone there, names as well here"
    UNMADE = "a CUSTOM_ class or trait that nobody made is refused there, nobody has it here"
    LINE_END = "the end of line after a key or limit is not seen there, refused here"
    SIZE = "there may be any number of groups there, 1000 here"
    HIDDEN = "what a group says is not looked at there once another fits nowhere, always here"


class Theirs:
    """Placement, with a provider, and the custom names that the strings say."""

    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        for trait in TRAITS[:2]:
            placement.ask("PUT", f"/traits/{trait}")
        placement.ask("PUT", f"/resource_classes/{CLASS}")
        placement.create("query", {"VCPU": 8, "MEMORY_MB": 64, CLASS: 8}, TRAITS, AGGREGATES[:2])

    def accepts(self, text: str) -> bool:
        """Return whether a string is a question for it.

        It fails (500) on what it did not foresee, such as ``limit=&limit=1``.
        """
        status, body = self._placement.answer("GET", f"/allocation_candidates?{text}")
        assert status in (200, 400, 500), (text, body)
        return status == 200

    def read(self, text: str) -> dict[str, Any]:
        """Return what a string says, as plain data."""
        import microversion_parse
        import webob
        from placement import lib, microversion

        asked = webob.Request.blank(f"/allocation_candidates?{text}")
        version = microversion_parse.Version(1, 39)
        version.max_version = version
        asked.environ[microversion.MICROVERSION_ENVIRON] = version
        wide = lib.RequestWideParams.from_request(asked)
        groups = lib.RequestGroup.dict_from_request(asked, wide)
        return {
            "groups": {suffix: self._group(group) for suffix, group in groups.items()},
            "policy": wide.group_policy,
            "subtrees": _unique(wide.same_subtrees),
            "root": (
                sorted(wide.anchor_required_traits or ()),
                sorted(wide.anchor_forbidden_traits or ()),
            ),
            "limit": wide.limit or None,
        }

    @staticmethod
    def _group(group: Any) -> dict[str, Any]:
        return {
            "resources": dict(group.resources),
            "traits": _unique(group.required_traits),
            "forbidden": sorted(group.forbidden_traits),
            "aggregates": _unique(group.member_of),
            "not": sorted(group.forbidden_aggs),
            "tree": group.in_tree and names.provider_key(group.in_tree),
        }


def _unique(sets: Any) -> list[list[str]]:
    return sorted(map(sorted, {frozenset(some) for some in sets}))


def ours(text: str) -> dict[str, Any]:
    """Return what a string says here, in the same form."""
    found = query.parse(text)
    request = found.request
    groups = request.groups if request.unnamed.resources else request.named
    return {
        "groups": {
            group.suffix: {
                "resources": {kind.name: int(n) for kind, n in group.resources.items()},
                "traits": _unique([*([trait] for trait in group.required), *group.any_of]),
                "forbidden": sorted(group.forbidden),
                "aggregates": _unique(group.member_of),
                "not": sorted(group.not_member_of),
                "tree": group.in_tree,
            }
            for group in groups
        },
        "policy": request.group_policy,
        "subtrees": sorted(map(sorted, request.same_subtree)),
        "root": (sorted(request.root_required), sorted(request.root_forbidden)),
        "limit": found.limit,
    }


@pytest.fixture(scope="module")
def theirs(placement: Placement) -> Theirs:
    """Return Placement with what the strings are about."""
    return Theirs(placement)


# --- why they part ------------------------------------------------------------------------------


def why_refused(text: str, error: exceptions.InvalidInput, theirs: Theirs) -> Difference | None:
    """Return why we refuse a string that Placement takes."""
    value = error.value
    if is_one_of(error, "DuplicateKey"):
        return Difference.KEY_TWICE if error.what == "query" else Difference.CLASS_TWICE
    if is_one_of(error, "InvalidAmount"):
        return _about_number(error)
    if error.what.startswith("member_of") and "is not forbidden too" in error.expected:
        return Difference.CONTRADICTION
    if is_one_of(error, "InvalidTrait") and str(value).startswith("!"):
        return Difference.BANGS
    if error.what == "query" and str(value).endswith("\n"):
        return Difference.LINE_END
    if error.what == "query" and str(value).endswith(" groups"):
        return Difference.SIZE
    if is_one_of(error, "InvalidTrait", "UnknownTrait"):
        alone = urllib.parse.urlencode({"resources": "VCPU:1", "required": value})
        return None if theirs.accepts(alone) else Difference.HIDDEN
    if is_one_of(error, "InvalidResourceClass", "UnknownResourceClass"):
        alone = urllib.parse.urlencode({"resources": f"{value}:1"})
        return None if theirs.accepts(alone) else Difference.HIDDEN
    return None


def _about_number(error: exceptions.InvalidInput) -> Difference | None:
    text = str(error.value)
    if "over all groups" in error.expected:
        return Difference.BITS
    if error.what == "limit":
        return Difference.LINE_END if text.endswith("\n") else Difference.BITS
    if int(text) >= 2**63:
        return Difference.BITS
    return None if text.isascii() and text.isdigit() else Difference.SPELLING


def why_accepted(text: str) -> Difference | None:
    """Return why we take a string that Placement refuses."""
    found = query.parse(text).request
    for group in found.groups:
        keys = {*group.not_member_of, *frozenset().union(*group.member_of)}
        if any(not uuidutils.is_uuid_like(key) for key in [*keys, *filter(None, [group.in_tree])]):
            return Difference.NAMES
    asked = {kind.name for kind in found.resources}
    traits = {*found.root_required, *found.root_forbidden}
    for group in found.groups:
        traits |= {*group.required, *group.forbidden, *frozenset().union(*group.any_of)}
    custom = {name for name in asked | traits if name.startswith("CUSTOM_")}
    return Difference.UNMADE if custom - {*TRAITS, CLASS} else None


# --- strings ------------------------------------------------------------------------------------


class Strings:
    """An endless source of query strings."""

    SUFFIXES = ("", "", "1", "_A", "-b", "x" * 64)

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def one(self) -> str:
        """Return a string that is right, or nearly."""
        pick = self._random
        pairs = self._right()
        if pick.random() < 0.6:
            for _ in range(pick.choice([1, 1, 2])):
                self._spoil(pairs)
        pick.shuffle(pairs)
        items = [
            f"{urllib.parse.quote_plus(key)}={urllib.parse.quote_plus(value, safe=self._safe())}"
            for key, value in pairs
        ]
        return pick.choice(["&", "&", ";"]).join(items)

    def _safe(self) -> str:
        return self._random.choice(["", ":,!"])

    def _right(self) -> list[tuple[str, str]]:
        pick = self._random
        chosen = pick.sample(sorted(set(self.SUFFIXES)), k=pick.choice([1, 1, 2, 3]))
        pairs: list[tuple[str, str]] = []
        named = [suffix for suffix in chosen if suffix]
        linked = pick.sample(named, k=pick.randint(0, len(named)))
        if linked:
            pairs.append(("same_subtree", ",".join(linked)))
        for suffix in chosen:
            if suffix not in linked or pick.random() < 0.7:
                pairs.append((f"resources{suffix}", self._amounts()))
            for _ in range(pick.choice([0, 1, 1, 2])):
                pairs.append((f"required{suffix}", self._traits()))
            for _ in range(pick.choice([0, 0, 1, 2])):
                pairs.append((f"member_of{suffix}", self._aggregates()))
            if pick.random() < 0.2:
                pairs.append((f"in_tree{suffix}", ROOT))
        if len(named) > 1 or pick.random() < 0.2:
            pairs.append(("group_policy", pick.choice(["none", "isolate"])))
        if pick.random() < 0.2:
            pairs.append(("root_required", pick.choice([A, f"!{A}", f"{A},!{B}"])))
        if pick.random() < 0.3:
            pairs.append(("limit", str(pick.randint(1, 20))))
        return pairs

    def _amounts(self) -> str:
        pick = self._random
        classes = pick.sample(["VCPU", "MEMORY_MB", CLASS], k=pick.choice([1, 1, 2]))
        return ",".join(f"{name}:{pick.randint(1, 12)}" for name in classes)

    def _traits(self) -> str:
        pick = self._random
        some = pick.sample(TRAITS, k=pick.choice([1, 2]))
        if pick.random() < 0.3:
            return "in:" + ",".join(some)
        return pick.choice([",", ", "]).join(pick.choice(["", "", "!"]) + trait for trait in some)

    def _aggregates(self) -> str:
        pick = self._random
        some = pick.sample(AGGREGATES, k=pick.choice([1, 2]))
        one = "in:" if len(some) > 1 or pick.random() < 0.2 else ""
        return pick.choice(["", "", "!"]) + one + ",".join(some)

    def _spoil(self, pairs: list[tuple[str, str]]) -> None:
        pick = self._random
        at = pick.randrange(len(pairs))
        key, value = pairs[at]
        how = pick.choice(["drop", "repeat", "key", "value", "value", "value", "other"])
        if how == "drop" and len(pairs) > 1:
            del pairs[at]
        elif how == "repeat":
            pairs.append(pairs[at])
        elif how == "key":
            wrong = ["colour", f"{key}$", f"{key}\n", key[:-1], f"{key}1", f"{key}{'y' * 65}"]
            pairs[at] = (pick.choice(wrong), value)
        elif how == "value":
            where = pick.randint(0, len(value))
            extra = pick.choice([",", ":", "!", "in:", " ", "1", "0", "-", "_", "A", "+", "\n"])
            cut = pick.choice([0, 0, 1])
            pairs[at] = (key, value[:where] + extra + value[where + cut :])
        else:
            wrong = [
                "",
                " ",
                "0",
                "none",
                "VCPU:1,VCPU:2",
                "CUSTOM_NOBODY",
                "HW_NO",
                "_A,1",
                "rack1",
            ]
            pairs[at] = (key, pick.choice(wrong))


def told(text: str, theirs: Theirs) -> str:
    """Ask both, and return how it ended: both took it, both refused it, or a difference."""
    they = theirs.accepts(text)
    try:
        here = ours(text)
    except exceptions.InvalidInput as error:
        if not they:
            return "refused"
        why = why_refused(text, error, theirs)
        assert why is not None, f"Placement takes {text!r}, we: {error!r}"
        return why.name
    if they:
        assert here == theirs.read(text), text
        return "accepted"
    why = why_accepted(text)
    assert why is not None, f"Placement refuses {text!r}, we read {here}"
    return why.name


@pytest.mark.parametrize("seed", SEEDS)
def test_a_string_says_the_same_to_both(seed: int, theirs: Theirs) -> None:
    strings = Strings(seed)
    ends = Counter(told(strings.one(), theirs) for _ in range(STRINGS))
    assert ends["accepted"] > 0


# --- the differences, each proved ---------------------------------------------------------------

VM = "resources=VCPU:1"
PROOFS = [
    (Difference.CLASS_TWICE, "resources=VCPU:1,VCPU:2"),
    (Difference.KEY_TWICE, f"{VM}&resources=VCPU:2"),
    (Difference.KEY_TWICE, f"{VM}&in_tree={ROOT}&in_tree={AGGREGATES[0]}"),
    (Difference.KEY_TWICE, f"{VM}&limit=1&limit=2"),
    (Difference.KEY_TWICE, f"{VM}&group_policy=none&group_policy=isolate"),
    (Difference.SPELLING, "resources=VCPU:%2B1"),
    (Difference.SPELLING, "resources=VCPU:%201"),
    (Difference.SPELLING, "resources=VCPU:1%0A"),
    (Difference.SPELLING, "resources=VCPU:1_0"),
    (Difference.SPELLING, "resources=VCPU:%D9%A3"),
    (Difference.BITS, f"{VM}&limit={2**63}"),
    (Difference.BITS, f"{VM}&resources1=VCPU:{2**63 - 1}"),
    (Difference.BANGS, f"{VM}&required=!!{A}"),
    (Difference.BANGS, f"{VM}&root_required=!!{A}"),
    (Difference.CONTRADICTION, f"{VM}&member_of={AGGREGATES[0]}&member_of=!{AGGREGATES[0]}"),
    (Difference.NAMES, f"{VM}&member_of=rack1"),
    (Difference.NAMES, f"{VM}&in_tree=host0"),
    (Difference.UNMADE, "resources=CUSTOM_NOBODY_HAS_THIS:1"),
    (Difference.UNMADE, f"{VM}&required=CUSTOM_NOBODY_HAS_THIS"),
    (Difference.LINE_END, f"{VM}&limit=1%0A"),
    (Difference.LINE_END, f"resources1%0A=VCPU:1&{VM}"),
    (
        Difference.SIZE,
        "&".join(["group_policy=none", *(f"resources{n}=VCPU:1" for n in range(1001))]),
    ),
    (Difference.HIDDEN, "resources=VCPU:1000000&resources1=VCPU:1&required1=HW_NO"),
    (Difference.HIDDEN, f"{VM}&member_of={AGGREGATES[2]}&required=HW_NO"),
]


@pytest.mark.parametrize(("difference", "text"), PROOFS, ids=[text[:60] for _, text in PROOFS])
def test_a_difference_is_one(difference: Difference, text: str, theirs: Theirs) -> None:
    assert told(text, theirs) == difference.name


def test_every_difference_is_proved() -> None:
    assert {difference for difference, _ in PROOFS} == set(Difference)


def test_a_tree_is_found_there_by_one_spelling_of_its_uuid_alone(
    placement: Placement, theirs: Theirs
) -> None:
    key = placement.create("spelled", {"VCPU": 8})
    for text, found in ((key, 1), (key.upper(), 0), (key.replace("-", ""), 0)):
        said = f"{VM}&in_tree={text}"
        answer = placement.ask("GET", f"/allocation_candidates?{said}")
        assert len(answer["allocation_requests"]) == found
        assert query.parse(said).request.unnamed.in_tree == key


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (f"{VM}&limit=&limit=1", "limit"),
        (f"{VM}&limit={'9' * 5000}", "limit"),
        (f"resources=VCPU:{2**63}", "resources"),
    ],
    ids=["no limit and one", "digits", "amount"],
)
def test_it_fails_on_what_it_did_not_foresee(text: str, key: str, placement: Placement) -> None:
    assert placement.answer("GET", f"/allocation_candidates?{text}")[0] == 500
    with pytest.raises(exceptions.InvalidInput, match=f"^{key}: got"):
        query.parse(text)
