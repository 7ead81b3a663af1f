"""Site: the machines and pools that a file describes."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self

import yaml

from resource_objects.exceptions import InvalidInput
from resource_objects.providers.pools import SHARES
from resource_objects.site.parts import SitePart
from resource_objects.site.ranges import expand
from resource_objects.site.reading import VERSION, read_site
from resource_objects.site.writing import Writer, join

#: An export reports its progress after this number of machines.
PROGRESS_STEP = 500


@dataclasses.dataclass(frozen=True, slots=True)
class SiteMachine:
    """A machine or a pool of a file, with its entry."""

    name: str
    part: SitePart
    is_pool: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Site:
    """The content of a site file. :meth:`parse` reads text, ``str()`` writes it.

    ``file`` is the name of the file in error messages.

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
        """Return the site of the text of a file. Cost: linear in its length.

        :param file: the name of the file in error messages
        :raises InvalidInput: naming the line, if the text is no site or names something twice
        """
        return cls(*read_site(text, file), file)

    @classmethod
    def of_definitions(
        cls, writer: Writer, progress: Callable[[int, int], object] | None = None
    ) -> Self:
        """Return the site of the trees of a writer.

        :param progress: ``progress(done, total)``, in machines
        """
        machines: list[SitePart] = []
        pools: list[SitePart] = []
        for number, root in enumerate(writer.roots, 1):
            (pools if SHARES in root.traits else machines).append(writer.part(root, root))
            if progress is not None and number % PROGRESS_STEP == 0:
                progress(number, len(writer.roots))
        return cls(join(machines), join(pools))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], *, file: str = "site") -> Self:
        """Return the site of plain data, as :meth:`to_dict` returns it.

        :raises InvalidInput: if the data are no site, or name something twice

        >>> print(Site.from_dict({"machines": {"lab-0": {"inventories": {"VCPU": 8}}}}))
        version: 1
        machines:
          lab-0:
            inventories: VCPU=8
        """
        with without_lines():
            return cls.parse(json.dumps(data, ensure_ascii=False), file=file)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON, with the keys of a file."""
        return self._to_dict(is_short=False)

    def _to_dict(self, *, is_short: bool) -> dict[str, Any]:
        data: dict[str, Any] = {"version": VERSION}
        for word, parts in (("machines", self.machines), ("pools", self.pools)):
            if parts:
                data[word] = {part.name: part.to_dict(is_short=is_short) for part in parts}
        return data

    @property
    def machine_names(self) -> tuple[str, ...]:
        """The names of all machines and pools."""
        return tuple(machine.name for machine in self.each_machine())

    def each_machine(self) -> Iterator[SiteMachine]:
        """Yield all machines, then all pools."""
        for parts, is_pool in ((self.machines, False), (self.pools, True)):
            for part in parts:
                for name in expand(part.name):
                    yield SiteMachine(name, part, is_pool)

    def __str__(self) -> str:
        data = self._to_dict(is_short=True)
        text: str = yaml.dump(  # type: ignore[no-untyped-call]
            data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_NO_WRAP
        )
        return text.rstrip("\n")


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """Writes mappings in lines and lists in brackets, without aliases."""

    def ignore_aliases(self, data: object) -> bool:
        return True


_Dumper.add_representer(
    list,
    lambda dumper, items: dumper.represent_sequence(
        "tag:yaml.org,2002:seq", items, flow_style=True
    ),
)
_NO_WRAP = 1 << 30


@contextlib.contextmanager
def without_lines() -> Iterator[None]:
    """Leave out the line in errors about a site that was not read from a file."""
    try:
        yield
    except InvalidInput as error:
        if not error.is_about("site file"):
            raise
        subject = re.sub(r", line [0-9]+", "", error.what)
        raise InvalidInput("site file", subject, error.value, error.expected) from error
