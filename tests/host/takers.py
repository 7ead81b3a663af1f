"""Processes that take from one host through compute nodes, until it gives no more."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

import resource_objects as ro
from resource_objects.host.compute_node import ComputeNode
from resource_objects.testing.conformance.races import processes


def take(url: str, request: str, consumer: str | None, most: int) -> list[ro.Amounts]:
    """Take amounts of host0, one by one; return those that were saved, assigned."""
    taken: list[ro.Amounts] = []
    with ro.connect(url) as ledger:
        node = ComputeNode.load(ledger, "host0", consumer)
        while len(taken) < most and node.inventories.can_provide(request):
            assigned = node.inventories.consume(request)
            try:
                node.save()
                taken.append(assigned)
            except ro.CapacityException:
                node.reload()
    return taken


def taken_by(
    url: str, request: str, consumers: Sequence[str | None], most_named: int = 99
) -> list[list[ro.Amounts]]:
    """Return the amounts that processes consumed at the same time, one for each consumer.

    :param most_named: the maximum number for a named consumer; one without a name takes all it can
    """
    with ProcessPoolExecutor(len(consumers), processes()) as pool:
        begun = [
            pool.submit(take, url, request, name, 99 if name is None else most_named)
            for name in consumers
        ]
        return [item.result(120) for item in begun]
