"""Sets of CPUs: numbers, lists as text (``0-3,8``), bit masks.

Modelled on the ``cpuset.CPUSet`` of Kubernetes. The search of a placement computes with plain
integer masks, in which bit *n* is CPU *n*.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable

from resource_objects.exceptions import InvalidInput
from resource_objects.resources.matching import bits

#: The highest number of a CPU or a cell. Linux supports 8192 CPUs at most.
MAX_ID = 2**16 - 1

_ITEM = re.compile(r"\s*(\^?)\s*([0-9]{1,5})\s*(?:-\s*([0-9]{1,5})\s*)?", re.ASCII)
_MASK = re.compile(r"[0-9a-f]{1,8}(?:,[0-9a-f]{8})*", re.ASCII)


class CPUSet(tuple[int, ...]):
    """A set of CPUs: an ascending tuple of numbers, each once, with its mask and its text.

    It equals a plain tuple of the same numbers, and it is sent and stored as a list of them.

    ====================================================  ==========================================
    ``CPUSet(numbers)``, :meth:`parse`,                   from numbers, from a list as text,
    :meth:`parse_mask`, :meth:`from_mask`                 from a kernel mask as text, from a mask
    ``str(cpus)``, :meth:`text`, :attr:`mask`             the list as text, the mask
    ``a | b``, ``a & b``, ``a - b``                       union, intersection, difference
    ====================================================  ==========================================

    >>> cpus = CPUSet.parse("0-3,^2,8")
    >>> cpus, str(cpus), bin(cpus.mask)
    ((0, 1, 3, 8), '0-1,3,8', '0b100001011')
    >>> str(cpus | CPUSet([2]) - CPUSet([0, 8]))
    '0-3,8'
    """

    def __new__(cls, numbers: Iterable[int] = ()) -> CPUSet:
        if type(numbers) is cls:
            return numbers
        return super().__new__(cls, sorted(set(numbers)))

    @classmethod
    def from_mask(cls, mask: int) -> CPUSet:
        """Return the CPUs of a mask.

        >>> CPUSet.from_mask(0b1101)
        (0, 2, 3)
        """
        cpus = tuple.__new__(cls, bits(mask))
        cpus.mask = mask
        return cpus

    @classmethod
    def parse(cls, text: str, subject: str = "CPU list", *, allow_empty: bool = False) -> CPUSet:
        """Return the CPUs of a list such as ``0-3,^2,8``.

        The kernel, ``taskset`` and ``numactl`` write such lists; exclusions (``^2``, ``^4-5``) are
        Nova's. Items stand in any order, an exclusion always wins, empty items are ignored. The
        reader of the kernel's files (:mod:`resource_objects.host.sysfs`) is stricter.

        :param subject: the name of the list in an error
        :param allow_empty: whether the list may contain no CPU
        :raises InvalidInput: if the text is not such a list; if it contains no CPU; for a CPU above
            65535

        >>> CPUSet.parse("^1, 0 - 2")
        (0, 2)
        >>> CPUSet.parse("")
        Traceback (most recent call last):
        resource_objects.exceptions.InvalidInput: CPU list: got '', expected a list of CPUs such ...
        """
        included = excluded = 0  # masks: a repeated range costs no memory
        error = InvalidInput("text", subject, text, "a list of CPUs such as 0-3,8 or 0-7,^2")
        if not isinstance(text, str):
            raise error
        for item in text.split(","):
            if not item.strip():
                continue
            match = _ITEM.fullmatch(item)
            if match is None:
                raise error
            first, last = int(match[2]), int(match[3] or match[2])
            if not first <= last <= MAX_ID:
                raise error
            run = (2 << last) - (1 << first)
            if match[1]:
                excluded |= run
            else:
                included |= run
        mask = included & ~excluded
        if not mask and not allow_empty:
            raise error
        return cls.from_mask(mask)

    @classmethod
    def parse_mask(cls, text: str, subject: str = "CPU mask") -> CPUSet:
        """Return the CPUs of a mask as the kernel writes it, in words of 32 bits.

        :raises InvalidInput: if the text is not such a mask; for a CPU above 65535

        >>> CPUSet.parse_mask("00000001,0000000f")
        (0, 1, 2, 3, 32)
        """
        mask = int(text.replace(",", ""), 16) if _MASK.fullmatch(text) else -1
        if not 0 <= mask < 2 << MAX_ID:
            expected = f"a mask such as 00000000,0000000f of CPUs 0 to {MAX_ID}"
            raise InvalidInput("text", subject, text, expected)
        return cls.from_mask(mask)

    @functools.cached_property
    def mask(self) -> int:
        """The mask: bit *n* is set if CPU *n* is in the set."""
        return mask_of(self)

    def text(self, separator: str = ",") -> str:
        """Return the list as text, which :meth:`parse` reads.

        >>> CPUSet([8, 0, 1, 2, 10, 11]).text()
        '0-2,8,10-11'
        """
        runs: list[list[int]] = []
        for cpu in self:
            if runs and cpu == runs[-1][-1] + 1:
                runs[-1][1:] = [cpu]
            else:
                runs.append([cpu])
        return separator.join("-".join(map(str, run)) for run in runs)

    def __str__(self) -> str:
        return self.text()

    def __or__(self, other: CPUSet) -> CPUSet:
        return CPUSet.from_mask(self.mask | other.mask)

    def __and__(self, other: CPUSet) -> CPUSet:
        return CPUSet.from_mask(self.mask & other.mask)

    def __sub__(self, other: CPUSet) -> CPUSet:
        return CPUSet.from_mask(self.mask & ~other.mask)


def mask_of(numbers: Iterable[int]) -> int:
    """Return the mask of some numbers.

    >>> bin(mask_of([0, 2]))
    '0b101'
    """
    mask = 0
    for number in numbers:
        mask |= 1 << number
    return mask
