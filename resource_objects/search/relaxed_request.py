"""A request that asks for less: what of it may be dropped, and amounts that may be smaller.

Whoever looks for relaxations (:mod:`.relaxations`) tries these. Nothing here knows what there is,
but for the unit rules of counts, nor any kind of amount that says where it goes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from resource_objects import exceptions
from resource_objects.requests import Request, RequestGroup
from resource_objects.resources import Amount, Amounts, resource
from resource_objects.resources.weakening import Step, Weakening
from resource_objects.search.candidate import Candidate

#: Amounts in so small a range are tried one by one, whatever the unit rules.
FEW_AMOUNTS = 64
#: Of more different unit rules of one class, the others are not looked at.
MOST_RULES = 8


class Weaker(NamedTuple):
    """A request without one of its conditions."""

    kind: str
    subject: str
    told: str
    made: Callable[[], Request]  #: raises InvalidInput if what is left is no request


def weaker(request: Request) -> Iterator[Weaker]:
    """Yield a request without each of its conditions, one by one.

    >>> for one in weaker(Request("VCPU=2", required=["CUSTOM_SSD"], in_tree="host0")):
    ...     print(one.kind, one.subject, "->", one.made())
    trait CUSTOM_SSD -> VCPU=2 in_tree=host0
    tree host0 -> VCPU=2 required=CUSTOM_SSD
    """
    if request.near is not None and request.must_be_near:
        told = f"near {request.near} preferred, not required"
        yield Weaker("near", request.near, told, partial(request.replace, near_policy="preferred"))
    if request.isolates:
        told = "groups on one provider, not isolated"
        yield Weaker("policy", "isolate", told, partial(request.replace, group_policy=None))
    for some in request.same_subtree:
        rest = tuple(one for one in request.same_subtree if one != some)
        name = ",".join(sorted(some))
        made = partial(request.replace, same_subtree=rest)
        yield Weaker("subtree", name, f"{name} not below one provider", made)
    for field in ("root_required", "root_forbidden"):
        for trait in sorted(getattr(request, field)):
            left = {field: getattr(request, field) - {trait}}
            yield Weaker(
                "trait", trait, f"without {field} {trait}", partial(request.replace, **left)
            )
    for group in request.groups:
        where = f" of group {group.suffix}" if group.suffix else ""
        for kind, subject, told, fields in (*_of_traits(group), *_of_places(group)):
            new = partial(_regrouped, request, group, fields)
            yield Weaker(kind, subject, told + where, new)
        if group.suffix:
            told = f"without group {group.suffix}"
            yield Weaker("group", group.suffix, told, partial(_without_group, request, group))


#: Kind, subject, words, and the fields of the group without that.
_Fields: TypeAlias = tuple[str, str, str, dict[str, Any]]


def _of_traits(group: RequestGroup) -> Iterator[_Fields]:
    for field, said in (("required", "without the trait"), ("forbidden", "also with the trait")):
        for trait in sorted(getattr(group, field)):
            yield "trait", trait, f"{said} {trait}", {field: getattr(group, field) - {trait}}
    for some in group.any_of:
        name = "|".join(sorted(some))
        rest = tuple(one for one in group.any_of if one != some)
        yield "trait", name, f"without any of {name}", {"any_of": rest}
    for name, required, forbidden in group.traits_of:
        for trait in sorted(required | forbidden):
            every = (
                (n, r - {trait}, f - {trait}) if n == name else (n, r, f)
                for n, r, f in group.traits_of
            )
            kept = tuple(one for one in every if one[1] or one[2])
            yield "trait", trait, f"{name} without the trait {trait}", {"traits_of": kept}


def _of_places(group: RequestGroup) -> Iterator[_Fields]:
    for some in group.member_of:
        rest = tuple(one for one in group.member_of if one != some)
        name = "|".join(sorted(some))
        yield "aggregate", name, f"also outside {name}", {"member_of": rest}
    for name in sorted(group.not_member_of):
        left = group.not_member_of - {name}
        yield "aggregate", name, f"also in {name}", {"not_member_of": left}
    if group.in_tree is not None:
        yield "tree", group.in_tree, f"also outside {group.in_tree}", {"in_tree": None}
    for kind, amount in group.resources.by_name():
        if resource(kind).is_located or amount.locates:
            counts = {
                name: one.with_beside(())
                for name, one in group.resources.counted().by_name()
                if name != kind
            }
            fields = {"resources": Amounts(counts)}
            yield "topology", kind, f"the counts of {kind} alone", fields


def _regrouped(request: Request, group: RequestGroup, fields: Mapping[str, Any]) -> Request:
    return _with(request, group, group.replace(**fields))


def _with(request: Request, old: RequestGroup, new: RequestGroup) -> Request:
    if not new.resources and not old.suffix:
        new = RequestGroup()
    return request.replace(groups=tuple(new if one is old else one for one in request.groups))


def _without_group(request: Request, group: RequestGroup) -> Request:
    rest = (some - {group.suffix} for some in request.same_subtree)
    return request.replace(
        groups=tuple(one for one in request.groups if one is not group),
        same_subtree=tuple(some for some in rest if len(some) > 1),
    )


# --- what says where ------------------------------------------------------------------------------


class Located(NamedTuple):
    """One way in which what says where may ask for less, and the requests of its steps."""

    way: Weakening[Amount]
    made: Callable[[Amount | None], Request]  #: raises InvalidInput if there is no such request


class Mildest(NamedTuple):
    """The first step that fits, what is asked then, and what was found."""

    step: Step[Amount]
    request: Request
    candidate: Candidate
    is_smallest: bool = True  #: whether none before it fits


def located(request: Request) -> Iterator[Located]:
    """Yield each way in which what says where may ask for less; its counts go with it.

    What way there is, the kind says (:meth:`.Resource.weaker`): of a kind that says none, all or
    nothing is asked.

    >>> for one in located(Request("VCPU=2,PGPU=2,DEVICES=2*PGPU")):
    ...     print(one.way.kind, "->", one.made(one.way.step(1).made()))
    amount -> VCPU=2,PGPU=1,DEVICES=PGPU
    policy -> VCPU=2,PGPU=2,DEVICES=2*PGPU@preferred
    """
    for group in request.groups:
        for name, amount in group.resources.by_name():
            for way in resource(name).weaker(amount) if amount.locates else ():
                yield Located(way, partial(_with_located, request, group, name))


def _with_located(
    request: Request, group: RequestGroup, name: str, amount: Amount | None
) -> Request:
    """Return a request for another amount that says where, or for none."""
    kept = dict(group.resources.by_name())
    implied = {} if amount is None else amount.located
    for of in kept.pop(name).located:
        if kept.pop(of, None) is not None and implied.get(of):  # it is stated, too
            kept[of] = resource(of).make_amount(implied[of])
    if amount is not None:
        kept[name] = amount
    traits_of = tuple(one for one in group.traits_of if one[0] in kept)
    return _with(request, group, group.replace(resources=Amounts(kept), traits_of=traits_of))


def mildest(one: Located, found: Callable[[Request], Candidate | None]) -> Mildest | None:
    """Return the first step after which it fits, if one does; None if none does.

    Where who can give it after one step can after each later one, halves find it. Else all steps
    are tried, if they are few. (Unit rules of the host bind no amount that says where it goes.)

    :param found: returns who fits a request
    """

    def tried(number: int) -> Mildest | None:
        step = one.way.step(number)
        try:
            wanted = one.made(step.made())
            who = found(wanted)
        except exceptions.InvalidInput:  # it contradicts what is asked beside it
            return None
        return None if who is None else Mildest(step, wanted, who)

    steps, is_ordered = one.way.steps, one.way.is_ordered
    if not is_ordered and steps <= FEW_AMOUNTS:
        return next(filter(None, map(tried, range(1, steps + 1))), None)
    best = tried(steps)
    if best is None and steps > 1:
        steps -= 1  # the last may leave nothing
        best = tried(steps)
    low, high = 1, steps
    while best is not None and low < high:
        middle = (low + high) // 2
        better = tried(middle)
        if better is None:
            low = middle + 1
        else:
            high, best = middle, better
    return None if best is None else best._replace(is_smallest=is_ordered)


# --- amounts --------------------------------------------------------------------------------------


class Less(NamedTuple):
    """An amount of a request that may be smaller."""

    subject: str
    asked: int
    where: str  #: in which group, as words
    made: Callable[[int], Request | None]  #: with another count; None if that is no request

    def told(self, count: int) -> str:
        """Return what would be asked, and what was."""
        return f"{self.subject}={count} instead of {self.asked}{self.where}"


def lesser(request: Request) -> Iterator[Less]:
    """Yield each plain count of a request that may be smaller, everything else as it is asked.

    A count of which another amount of the request says where it is goes with that one.

    >>> for one in lesser(Request("VCPU=2,PGPU=1")):
    ...     print(one.told(0), "->", one.made(0))
    VCPU=0 instead of 2 -> PGPU=1
    PGPU=0 instead of 1 -> VCPU=2
    """
    for group in request.groups:
        by_others = {name for amount in group.resources.values() for name in amount.located}
        where = f" of group {group.suffix}" if group.suffix else ""
        for name, amount in group.resources.by_name():
            records = amount.to_records(name)
            if amount.locates or name in by_others or len(records) != 1:
                continue
            yield Less(name, records[0].amount, where, partial(_with_count, request, group, name))


def _with_count(request: Request, group: RequestGroup, name: str, count: int) -> Request | None:
    counts = dict(group.resources.by_name())
    counts.pop(name)
    if count:
        counts[name] = resource(name).make_amount(count)
    traits_of = tuple(one for one in group.traits_of if count or one[0] != name)
    try:
        return _with(request, group, group.replace(resources=Amounts(counts), traits_of=traits_of))
    except exceptions.InvalidInput:
        return None


class Largest(NamedTuple):
    """The largest count that fits, what is asked then, and what was found."""

    amount: int
    request: Request
    candidate: Candidate
    is_smallest: bool = True  #: whether nothing between it and what was asked fits


def largest(
    less: Less, rules: Collection[tuple[int, int]], found: Callable[[Request], Candidate | None]
) -> Largest | None:
    """Return the largest count below what is asked that fits, if one does; None if none does.

    Where all inventories have the same unit rules, who can give more can give less, down to the
    least: halves find it. Else all counts are tried, if they are few.

    :param rules: the (step, least) of all inventories of the class, each once
    :param found: returns who fits a request
    """

    def tried(count: int) -> Largest | None:
        wanted = less.made(count)
        who = None if wanted is None else found(wanted)
        return None if who is None or wanted is None else Largest(count, wanted, who)

    if len(rules) > 1 and less.asked <= FEW_AMOUNTS:
        return next(filter(None, map(tried, range(less.asked - 1, -1, -1))), None)
    every = [_halved(tried, step, low, less.asked) for step, low in sorted(rules)[:MOST_RULES]]
    best = max((one for one in every if one is not None), key=lambda one: one.amount, default=None)
    best = tried(0) if best is None else best
    return None if best is None else best._replace(is_smallest=len(rules) < 2)


def _halved(
    tried: Callable[[int], Largest | None], step: int, least: int, asked: int
) -> Largest | None:
    """Return the largest multiple of a step that fits, where each less than one that does does."""
    low, high = -(-least // step), (asked - 1) // step  # in steps
    best = tried(low * step) if low <= high else None
    while best is not None and low < high:
        middle = -(-(low + high) // 2)
        one = tried(middle * step)
        if one is None:
            high = middle - 1
        else:
            low, best = middle, one
    return best
