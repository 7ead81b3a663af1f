"""Site: what a file says."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Self

from resource_objects.exceptions import InvalidInput
from resource_objects.providers import Provider
from resource_objects.providers.definition import ProviderDefinition, to_definition
from resource_objects.providers.disabled import Disabled
from resource_objects.providers.pools import SHARES
from resource_objects.site.parts import Entry, SitePart
from resource_objects.site.ranges import expanded
from resource_objects.site.reading import VERSION, Reader
from resource_objects.site.writing import Writer, entry_lines, joined
from resource_objects.yaml_nodes import read_nodes

#: After so many machines it is told how far it is.
TOLD = 500


@dataclasses.dataclass(frozen=True, slots=True)
class Site:
    """What a file says. :meth:`parse` reads one, ``str()`` writes it, :meth:`of` makes it of trees.

    ``file`` is what errors call it.

    >>> site = Site.parse("machines: {'lab-[0-1]': {inventories: VCPU=8}}")
    >>> site.machine_names
    ('lab-0', 'lab-1')
    >>> print(site)
    version: 1
    machines:
      lab-[0-1]:
        inventories: VCPU=8
    >>> Site.parse("machines:\\n  lab-0: {inventories: VCPU}", file="lab.yaml")
    Traceback (most recent call last):
    resource_objects.exceptions.InvalidInput: lab.yaml, line 2, inventories: got 'VCPU', ...
    """

    machines: tuple[SitePart, ...] = ()
    pools: tuple[SitePart, ...] = ()
    file: str = dataclasses.field(default="site", compare=False)

    @classmethod
    def parse(cls, text: str | bytes, *, file: str = "site") -> Self:
        """Return what the text of a file says. Cost: linear in its length.

        :param file: what errors call it
        :raises InvalidInput: naming the line, for what is no site, or says something twice
        """
        return cls(*Reader(file).read(read_nodes(text, file)), file)

    @classmethod
    def of(cls, roots: Iterable[Provider]) -> Self:
        """Return the file that says these trees: equal neighbours as a range, in natural order.

        Cost: linear in the providers.
        """
        definitions: list[ProviderDefinition] = []
        out: dict[str, Disabled] = {}
        for root in roots:
            called = {one.name: one.name for one in root.walk()}
            for one, above in root.parents():
                parent = None if above is None else above.name
                definitions.append(to_definition(one, one.name, parent, called))
                if one.disabled is not None:
                    out[one.name] = one.disabled
        return cls.of_definitions(Writer(definitions, out))

    @classmethod
    def of_definitions(
        cls, writer: Writer, told: Callable[[int, int], object] | None = None
    ) -> Self:
        """Return the file that says what a writer was given.

        :param told: is called with how many machines are done, and of how many
        """
        found: tuple[list[SitePart], list[SitePart]] = ([], [])
        roots = writer.roots
        for number, root in enumerate(roots, 1):
            found[SHARES in root.traits].append(writer.part(root, root))
            if told is not None and number % TOLD == 0:
                told(number, len(roots))
        machines, pools = map(joined, found)
        return cls(machines, pools)

    @classmethod
    def from_dict(cls, given: Mapping[str, Any], *, file: str = "site") -> Self:
        """Return what plain data says, as :meth:`to_dict` gives it.

        :raises InvalidInput: for what is no site, or says something twice

        >>> print(Site.from_dict({"machines": {"lab-0": {"inventories": {"VCPU": 8}}}}))
        version: 1
        machines:
          lab-0:
            inventories: VCPU=8
        """
        with unlined():
            return cls.parse(json.dumps(given, ensure_ascii=False), file=file)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON, as the file says it."""
        found: dict[str, Any] = {"version": VERSION}
        for word, parts in (("machines", self.machines), ("pools", self.pools)):
            if parts:
                found[word] = {part.name: part.to_dict() for part in parts}
        return found

    @property
    def machine_names(self) -> tuple[str, ...]:
        """The names of all machines and pools."""
        return tuple(entry.name for entry in self.entries())

    def entries(self) -> Iterator[Entry]:
        """Yield all machines, then all pools, one by one."""
        for parts, is_pool in ((self.machines, False), (self.pools, True)):
            for part in parts:
                for name in expanded(part.name):
                    yield Entry(name, part, is_pool)

    def __str__(self) -> str:
        lines = [f"version: {VERSION}"]
        for word, parts in (("machines", self.machines), ("pools", self.pools)):
            if parts:
                lines.append(f"{word}:")
                lines += itertools.chain.from_iterable(entry_lines(part, "  ") for part in parts)
        return "\n".join(lines)


@contextlib.contextmanager
def unlined() -> Iterator[None]:
    """Leave out the line where a site is refused that was no text: nobody has seen its lines."""
    try:
        yield
    except InvalidInput as error:
        if not error.is_about("site file"):
            raise
        what = re.sub(r", line [0-9]+", "", error.what)
        raise InvalidInput("site file", what, error.value, error.expected) from error
