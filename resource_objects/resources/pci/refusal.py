"""Why devices cannot be had: request by request, with the figures; or all at once."""

from __future__ import annotations

from collections.abc import Iterator

from resource_objects.exceptions import Reason, Rule
from resource_objects.resources.pci import pieces
from resource_objects.resources.pci.divide import relaxed
from resource_objects.resources.pci.near import Where, rings
from resource_objects.resources.pci.question import Demand, Question

#: What the reasons are about, where requests do not say a class.
ANY_CLASS = "PCI_DEVICES"


def reasons(question: Question, where: Where | None) -> tuple[Reason, ...]:
    """Return what stands against an amount that cannot be met."""
    found = [reason for demand in question.demands for reason in _alone(question, demand, where)]
    if found:
        return tuple(found)
    flow = relaxed(question)
    asked = sum(question.counts)
    most = asked - sum(flow.missing) - flow.is_complete
    return (Reason(Rule.AT_ONCE, asked, most, 0, ANY_CLASS),)


def _alone(question: Question, demand: Demand, where: Where | None) -> Iterator[Reason]:
    """Yield what stands against one request, if it were alone."""
    name = demand.asked.resource_class or ANY_CLASS
    kind: str | None = "|".join(map(pieces.say_spec, demand.asked.specs))
    kind = None if kind == name else kind
    shelf = question.shelf
    every = sum(shelf.size(group) for group in demand.serving)
    if not every:
        yield Reason(Rule.NO_INVENTORY, demand.needed, 0, 0, name, unit=kind)
        return
    free = sum(len(question.free[group]) for group in demand.serving)
    if free < demand.needed:
        yield Reason(Rule.CAPACITY, demand.needed, every, every - free, name, unit=kind)
        return
    far = rings(demand.asked.affinity, where)
    near = sum(
        len(question.free[group])
        for group in demand.serving
        if far(shelf.groups[group].node) is not None
    )
    if near < demand.needed:
        yield Reason(Rule.AFFINITY, demand.needed, near, 0, name, unit=kind)
