"""The table of what both versions are asked: a kind of question, what it covers, how it is drawn.

The function that answers a kind is in the folder ``process`` under the same name. A new subject is
a row here, and a row of ``ANSWERS`` there.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable

from tests.peers.before import questions, questions_host, questions_ledger, questions_search
from tests.peers.before.questions import Case


@dataclasses.dataclass(frozen=True)
class Subject:
    """A kind of question.

    ``sample`` is how many are asked where no other number is chosen.
    """

    kind: str
    covers: str
    draw: Callable[[random.Random, int], Case]
    sample: int


SUBJECTS = [
    Subject("query", "query strings of Placement, read and written", questions.query_string, 120),
    Subject("amounts", "amounts as text, read and written", questions.amounts, 120),
    Subject("cells", "topologies on the cells of a host", questions.cells, 200),
    Subject("devices", "devices, near some host cells or anywhere", questions.devices, 200),
    Subject("joint", "topologies and devices together", questions.joint, 150),
    Subject("search", "candidates, as a set and in order", questions_search.search, 100),
    Subject(
        "explanations",
        "the verdict on each host, rules and figures of its reasons, the nearest hosts",
        questions_search.explanations,
        160,
    ),
    Subject("gangs", "gangs, with levels and limits of places", questions_search.gangs, 100),
    Subject("how_many", "how many of a request fit", questions_search.how_many, 60),
    Subject("claims", "claims step by step, in memory and on SQLite", questions_ledger.claims, 30),
    Subject(
        "disabled", "disable and enable, in memory and on SQLite", questions_ledger.disabled, 20
    ),
    Subject(
        "server_groups",
        "members of server groups, in memory and on SQLite",
        questions_ledger.server_groups,
        24,
    ),
    Subject("reshapes", "reshapes, in memory and on SQLite", questions_ledger.reshapes, 30),
    Subject(
        "plans",
        "plans of trees and of scenarios, in memory and on SQLite",
        questions_ledger.plans,
        16,
    ),
    Subject("rows", "rows of compute nodes, read and written", questions_host.rows, 120),
    Subject("saves", "saves of compute nodes, in memory and on SQLite", questions_host.saves, 24),
    Subject("adoption", "hosts that are in use when they are saved", questions_host.adoption, 24),
    Subject(
        "discovery",
        "captured and generated machines: facts, cells, devices, trees",
        questions_host.discovery,
        50,
    ),
    Subject("flavors", "flavors and images as requests", questions.flavors, 200),
    Subject(
        "pci_specs", "``[pci] device_spec`` and the devices it is about", questions.pci_specs, 120
    ),
    Subject("wire", "wire forms of every registered object", questions.wire_form, 150),
]
BY_KIND = {one.kind: one for one in SUBJECTS}


def case(kind: str, seed: int) -> Case:
    """Return the question of a kind and a seed: always the same one."""
    made = BY_KIND[kind].draw(random.Random(f"{kind} {seed}"), seed)
    return {"kind": kind, "seed": seed, **made}


def drawn_objects(seed: int) -> list[object]:
    """Return the wire forms from which the questions of ``wire`` are drawn."""
    found: list[object] = questions.wire(questions.objects(random.Random(seed)))
    return found
