"""Relaxed requests: a request without one of its conditions, or with less of an amount.

Nothing here knows a snapshot or a kind of placed amount. :mod:`.relaxations` tries the requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from resource_objects.requests import Request, RequestGroup
from resource_objects.resources import Amount, Amounts, resource
from resource_objects.resources.relaxations import RelaxationLadder, RelaxationStep


def amounts_of(request: Request) -> dict[str, int]:
    """Return the requested amount of each class, over all groups."""
    amounts: dict[str, int] = {}
    for group in request.groups:
        for name, amount in group.resources.by_name():
            records = ((record.resource_class, record.amount) for record in amount.to_records(name))
            for resource_class, count in amount.placed_counts.items() or records:
                amounts[resource_class] = amounts.get(resource_class, 0) + count
    return amounts


#: The conditions of a group that are sets of names, or tuples of sets: field, kind and description.
_CONDITIONS = (
    ("required", "trait", "without the trait {}"),
    ("forbidden", "trait", "also with the trait {}"),
    ("any_of", "trait", "without any of {}"),
    ("member_of", "aggregate", "also outside {}"),
    ("not_member_of", "aggregate", "also in {}"),
)


class Dropped(NamedTuple):
    """One condition of a request, and the request without it."""

    kind: str
    subject: str
    description: str
    make: Callable[[], Request]  #: raises InvalidInput if the rest is not a request


def dropped_conditions(request: Request) -> Iterator[Dropped]:
    """Yield each condition of a request with the request without it.

    >>> for dropped in dropped_conditions(
    ...     Request("VCPU=2", required=["CUSTOM_SSD"], in_tree="host0")
    ... ):
    ...     print(dropped.kind, dropped.subject, "->", dropped.make())
    trait CUSTOM_SSD -> VCPU=2 in_tree=host0
    tree host0 -> VCPU=2 required=CUSTOM_SSD
    """
    replace = partial(partial, request.replace)
    if request.near is not None and request.must_be_near:
        description = f"near {request.near} preferred, not required"
        yield Dropped("near", request.near, description, replace(near_policy="preferred"))
    if request.isolates:
        description = "groups on one provider, not isolated"
        yield Dropped("policy", "isolate", description, replace(group_policy=None))
    for names, others in _without_each(request.same_subtree, ","):
        yield Dropped(
            "subtree", names, f"{names} not below one provider", replace(same_subtree=others)
        )
    for field in ("root_required", "root_forbidden"):
        for trait, others in _without_each(getattr(request, field)):
            yield Dropped("trait", trait, f"without {field} {trait}", replace(**{field: others}))
    for group in request.groups:
        suffix = f" of group {group.suffix}" if group.suffix else ""
        for kind, subject, description, fields in _group_conditions(group):
            make = partial(_with_group, request, group, fields)
            yield Dropped(kind, subject, description + suffix, make)
        if group.suffix:
            make = partial(_without_group, request, group)
            yield Dropped("group", group.suffix, f"without group {group.suffix}", make)


def _group_conditions(group: RequestGroup) -> Iterator[tuple[str, str, str, dict[str, Any]]]:
    """Yield the kind, subject and description of each condition, with the fields without it."""
    for field, kind, description in _CONDITIONS:
        for names, others in _without_each(getattr(group, field)):
            yield kind, names, description.format(names), {field: others}
    for condition in group.traits_of:
        name, required, forbidden = condition
        for trait in sorted(required | forbidden):
            relaxed = name, required - {trait}, forbidden - {trait}
            conditions = tuple(
                relaxed if other is condition else other
                for other in group.traits_of
                if other is not condition or any(relaxed[1:])
            )
            yield "trait", trait, f"{name} without the trait {trait}", {"traits_of": conditions}
    if group.in_tree is not None:
        yield "tree", group.in_tree, f"also outside {group.in_tree}", {"in_tree": None}
    for name, amount in group.resources.by_name():
        if resource(name).is_placed or amount.is_placed:
            counts = {
                counted: count.counting_separately(())
                for counted, count in group.resources.with_implied_counts().by_name()
                if counted != name
            }
            yield "topology", name, f"the counts of {name} alone", {"resources": Amounts(counts)}


def _without_each(value: Any, separator: str = "|") -> Iterator[tuple[str, Any]]:
    """Yield each name of a set, or each set of a tuple as text, with the rest."""
    if isinstance(value, tuple):
        for names in value:
            yield separator.join(sorted(names)), tuple(other for other in value if other != names)
    else:
        for name in sorted(value):
            yield name, value - {name}


def _with_group(request: Request, old: RequestGroup, fields: Mapping[str, Any]) -> Request:
    new = old.replace(**fields)
    if not new.resources and not old.suffix:
        new = RequestGroup()
    return request.replace(groups=tuple(new if group is old else group for group in request.groups))


def _without_group(request: Request, dropped: RequestGroup) -> Request:
    subtrees = (suffixes - {dropped.suffix} for suffixes in request.same_subtree)
    return request.replace(
        groups=tuple(group for group in request.groups if group is not dropped),
        same_subtree=tuple(suffixes for suffixes in subtrees if len(suffixes) > 1),
    )


def _with_amounts(request: Request, group: RequestGroup, amounts: Mapping[str, Amount]) -> Request:
    traits_of = tuple(condition for condition in group.traits_of if condition[0] in amounts)
    fields = {"resources": Amounts(amounts), "traits_of": traits_of}
    return _with_group(request, group, fields)


def with_count(request: Request, group: RequestGroup, name: str, count: int) -> Request:
    amounts = dict(group.resources.by_name())
    del amounts[name]
    if count:
        amounts[name] = resource(name).make_amount(count)
    return _with_amounts(request, group, amounts)


def placed_reductions(
    request: Request,
) -> Iterator[tuple[RelaxationLadder[Amount], Callable[[RelaxationStep[Amount]], Request]]]:
    """Yield each way to reduce a placed amount, with a function that makes the request of a step.

    The counts that the amount implies are reduced with it. The function raises ``InvalidInput`` if
    there is no such request.

    >>> for reduction, make in placed_reductions(Request("VCPU=2,PGPU=2,DEVICES=2*PGPU")):
    ...     print(reduction.kind, "->", make(reduction.step(1)))
    amount -> VCPU=2,PGPU=1,DEVICES=PGPU
    policy -> VCPU=2,PGPU=2,DEVICES=2*PGPU@preferred
    """
    for group in request.groups:
        for name, amount in group.resources.by_name():
            for reduction in resource(name).relaxations(amount) if amount.is_placed else ():
                yield reduction, partial(_with_step, request, group, name)


def _with_step(
    request: Request, group: RequestGroup, name: str, step: RelaxationStep[Amount]
) -> Request:
    amounts, reduced = dict(group.resources.by_name()), step.make()
    implied = {} if reduced is None else reduced.placed_counts
    for counted in amounts.pop(name).placed_counts:
        if amounts.pop(counted, None) is not None and implied.get(counted):  # it is stated, too
            amounts[counted] = resource(counted).make_amount(implied[counted])
    if reduced is not None:
        amounts[name] = reduced
    return _with_amounts(request, group, amounts)
