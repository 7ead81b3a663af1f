"""Drawn trees: read, built in a ledger, and drawn again.

A drawing is both what people look at and what a test is built from, so that the two never differ::

    host0             VCPU 8 ratio 1.5 used 2 by job-1   aggregates: rack1
    ├── host0/gpu0    PGPU 1   traits: CUSTOM_H100
    └── host0/gpu1    PGPU 1   traits: CUSTOM_H100

    host1             VCPU 8   aggregates: rack1
    └── /gpu[0-7]     PGPU 1
    nfs               pool, DISK_GB 1000   aggregates: rack1

===================================  ============================================================
``VCPU 8``                           an inventory: its class and its total; several have commas
``reserved 1 ratio 1.5``             its figures: also ``min``, ``max``, ``step`` (of what is
                                     asked for at once)
``used 2 by job-1``                  what is held, and by whom; without a name by somebody
``uses 2 CUSTOM_SLICE of gpu0``      a share: what one of these uses of another inventory
``pool``                             the trait ``MISC_SHARES_VIA_AGGREGATE``
``traits: ...``                      names, with commas
``aggregates: ...``                  names, with commas
``/gpu0``                            a name that goes on from that of the provider above
``gpu[0-7]``                         eight providers, each with all that is drawn below it
``"my host"``                        a name of other characters than letters, digits and ``_.:/@+-``
===================================  ============================================================

Each level is four columns wide. ASCII does too: ``+--`` for the branches, ``|`` beside them. There
are no empty lines in a drawing. Rejected: YAML and JSON, which say as much and show no tree.

>>> drawing = Drawing.parse('''
... host0          VCPU 8 used 2 by job-1
... └── /gpu[0-1]  PGPU 1   traits: CUSTOM_H100
... ''')
>>> print(drawing)
host0           VCPU 8 used 2 by job-1
├── host0/gpu0  PGPU 1  traits: CUSTOM_H100
└── host0/gpu1  PGPU 1  traits: CUSTOM_H100
>>> Drawing.parse(str(drawing)) == drawing
True
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from resource_objects import exceptions
from resource_objects.names import resource_class_order
from resource_objects.providers import Provider
from resource_objects.providers.columns import Columns, trees
from resource_objects.resources import IntegerInventory, Inventories
from resource_objects.testing import drawing_build, drawing_lines
from resource_objects.testing.drawing_lines import LAST, MIDDLE, NOTHING, PAST
from resource_objects.testing.drawing_words import Held, plain, written

if TYPE_CHECKING:
    from resource_objects.ledger import Ledger

__all__ = ["Drawing", "Held", "draw"]


@dataclasses.dataclass(frozen=True)
class Drawing:
    """Trees, and what is held of them; equal if they look the same.

    Reading: :meth:`parse`, :meth:`of` a ledger. Drawing: :func:`str`. Building: :meth:`build`.

    ``roots`` have no uuid, no generation and nothing used: what is used is ``held``.
    """

    roots: tuple[Provider, ...]
    held: tuple[Held, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "roots", tuple(_bare(root) for root in self.roots))
        places = {provider.name: place for place, provider in enumerate(self.walk())}
        for one in self.held:
            if one.provider not in places or one.amount < 1:
                raise exceptions.InvalidText("drawing", one, "above 0, of a provider of the trees")
        order = sorted(
            self.held,
            key=lambda one: (
                places[one.provider],
                resource_class_order(one.resource_class),
                one.consumer,
            ),
        )
        object.__setattr__(self, "held", tuple(order))

    @classmethod
    def parse(cls, text: str, *, source: str = "drawing", first_line: int = 1) -> Drawing:
        """Return what is drawn.

        :param source: where the text is from, and ``first_line`` the number of its first line, for
            errors
        :raises InvalidText: if it is no drawing; names the line and what was expected there
        """
        roots, held = drawing_lines.read(text, source, first_line)
        return cls(roots, held)

    @classmethod
    def of(cls, kept: Ledger | Columns) -> Drawing:
        """Return what a ledger, or the columns of one, keeps: by name.

        :raises InvalidInventory: if something in it is no count, such as a NUMA topology
        """
        columns = kept if isinstance(kept, Columns) else kept.backend.read()
        names = dict(zip(columns.providers.provider_id, columns.providers.name, strict=True))
        held = (
            Held(consumer, names[number], kind, amount)
            for number, kind, consumer, amount in zip(*columns.allocations, strict=True)
        )
        return cls(tuple(trees(columns)), tuple(held))

    def build(self, ledger: Ledger) -> None:
        """Make the trees in a ledger, and let the consumers hold what they hold.

        What is held may be more than there is, as after a shrink.

        :raises ProviderExists, InvalidTree: as ``ledger.sync``
        """
        drawing_build.build(ledger, self.roots, self.held)

    def walk(self) -> Iterator[Provider]:
        """Yield all providers, parents before children."""
        for root in self.roots:
            yield from root.walk()

    def by_name(self) -> Drawing:
        """Return the same with the roots, and all children, in the order of their names."""
        return Drawing(tuple(_sorted(self.roots)), self.held)

    def __str__(self) -> str:
        lines = [line for root in self.roots for line in _lines(root, "", "")]
        held: dict[str, list[Held]] = {}
        for one in self.held:
            held.setdefault(one.provider, []).append(one)
        width = max((len(line) for line, _ in lines), default=0)
        return "\n".join(
            f"{line:{width}}  {written(provider, held.get(provider.name, []))}".rstrip()
            for line, provider in lines
        )


def draw(kept: Ledger | Columns | Drawing) -> str:
    """Return the trees of a ledger as :meth:`Drawing.parse` reads them.

    >>> import resource_objects as ro
    >>> with ro.connect("memory://") as ledger:
    ...     gpu = ro.Provider("gpu", "PGPU=1")
    ...     done = ledger.sync(ro.Provider("lab", "VCPU=8", children=[gpu]))
    ...     print(draw(ledger))
    lab      VCPU 8
    └── gpu  PGPU 1
    """
    return str(kept if isinstance(kept, Drawing) else Drawing.of(kept))


def _lines(provider: Provider, branch: str, below: str) -> Iterator[tuple[str, Provider]]:
    """Yield the lines of a tree, names and branches only."""
    yield branch + plain(provider.name), provider
    for number, child in enumerate(provider.children, 1):
        is_last = number == len(provider.children)
        yield from _lines(
            child, below + (LAST if is_last else MIDDLE), below + (NOTHING if is_last else PAST)
        )


def _bare(provider: Provider) -> Provider:
    """Return a copy without what a ledger adds."""
    return Provider(
        provider.name,
        Inventories({name: _unused(one) for name, one in provider.inventories.by_name()}),
        traits=provider.traits,
        aggregates=provider.aggregates or frozenset(),
        shares=sorted(provider.shares, key=lambda s: (s.resource_class, s.of, s.of_class)),
        children=[_bare(child) for child in provider.children],
    )


def _unused(inventory: object) -> object:
    if not isinstance(inventory, IntegerInventory):
        return inventory
    copied = inventory.obj_clone()
    copied.used = 0
    return copied


def _sorted(providers: Iterable[Provider]) -> Iterator[Provider]:
    for provider in sorted(providers, key=lambda one: one.name):
        copied = provider.obj_clone()
        copied.update(children=tuple(_sorted(provider.children)))
        yield copied
