"""One cell of a guest in Nova's JSON: read in any version, written in any.

What means what is told in :mod:`~resource_objects.interop.nova.instance_topology`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, NamedTuple

from resource_objects.exceptions import InvalidPrimitive
from resource_objects.interop.nova import _primitive
from resource_objects.interop.nova._primitive import bounds, ids, number
from resource_objects.interop.nova._versions import GUEST, GUEST_CELL, Versions
from resource_objects.resources.numa import GuestCell, NUMATopologyAmount, PagePool, words
from resource_objects.resources.numa.cpus import MAX_ID

_FIELDS: Final = frozenset(
    {
        "id",
        "cpuset",
        "pcpuset",
        "cpuset_reserved",
        "memory",
        "pagesize",
        "cpu_topology",
        "cpu_pinning_raw",
        "cpu_policy",
        "cpu_thread_policy",
    }
)
#: Of the plain dicts; limits were the scheduler's, usage the host's.
_PLAIN_FIELDS: Final = frozenset({"id", "cpus", "mem", "pagesize"})
_PLAIN_MEMORY: Final = frozenset({"total"})

_MEMORY = bounds(GuestCell, "memory_mb")
_SIZE = bounds(PagePool, "size_kib")
_POLICIES: Final = (words.SHARED, words.DEDICATED, words.MIXED)

#: Nova's numbers for page sizes in words.
PAGE_WORDS: Final = {-1: words.SMALL, -2: words.LARGE, -3: words.ANY}
PAGE_NUMBERS: Final = {word: number for number, word in PAGE_WORDS.items()}
#: Id of a cell that was taken from its host.
CLEARED: Final = -1


class Cell(NamedTuple):
    """A guest cell as it was found: what its ``id`` means is not decided."""

    id: int
    guest: GuestCell
    policy: str
    thread_policy: str | None
    pins: Mapping[int, int]
    reserved: tuple[int, ...]
    page_size: str  #: a word, KiB in digits, or "" for none

    @property
    def size_kib(self) -> int | None:
        """The page size as a number, None if there is none, or it is a word."""
        return int(self.page_size) if self.page_size.isdecimal() else None


def read_cell(data: dict[Any, Any]) -> Cell:
    """Return a cell as it is, by its content: the version may lie."""
    _primitive.only(data, _FIELDS)
    pins = _read_pins(data.get("cpu_pinning_raw"))
    shared, dedicated, policy = _read_vcpus(data, pins)
    if set(pins or ()).difference(dedicated):
        raise InvalidPrimitive("cpu_pinning_raw", pins, f"CPUs of dedicated vCPUs: {dedicated}")
    reserved = data.get("cpuset_reserved")
    return Cell(
        number(data.get("id"), "id", CLEARED, MAX_ID),
        GuestCell(
            shared=shared,
            dedicated=dedicated,
            memory_mb=number(data.get("memory"), "memory", *_MEMORY),
        ),
        policy,
        _one_of(words.THREAD_POLICIES, data.get("cpu_thread_policy"), "cpu_thread_policy"),
        pins or {},
        () if reserved is None else ids(reserved, "cpuset_reserved"),
        _read_page_size(data.get("pagesize")),
    )


def _read_vcpus(
    data: Mapping[Any, Any], pins: Mapping[int, int] | None
) -> tuple[tuple[int, ...], tuple[int, ...], str]:
    """Return shared and dedicated vCPUs, and the policy."""
    shared = ids(data.get("cpuset"), "cpuset")
    dedicated = ids(data.get("pcpuset", ()), "pcpuset")
    if "cpu_policy" in data:
        policy = _one_of(_POLICIES, data["cpu_policy"], "cpu_policy") or words.SHARED
    else:  # before 1.3 it was pinning that told, if only to be pinned later
        policy = words.SHARED if pins is None else words.DEDICATED
    if policy == words.MIXED and "pcpuset" not in data:
        raise InvalidPrimitive("pcpuset", None, "dedicated vCPUs, for the policy is mixed")
    if policy == words.SHARED and dedicated:
        raise InvalidPrimitive("pcpuset", dedicated, "none, for the policy is shared")
    if policy == words.DEDICATED and shared:
        if dedicated:
            raise InvalidPrimitive("cpuset", shared, "none, for the policy is dedicated")
        shared, dedicated = (), shared
    return shared, dedicated, policy


def _read_pins(value: object) -> dict[int, int] | None:
    if value is None:
        return None
    pins = {}
    for vcpu, cpu in _primitive.mapping(value, "cpu_pinning_raw").items():
        if not isinstance(vcpu, str) or not vcpu.isdecimal() or not vcpu.isascii() or len(vcpu) > 7:
            raise InvalidPrimitive("cpu_pinning_raw", vcpu, "the number of a vCPU, as text")
        pins[int(vcpu)] = number(cpu, f"cpu_pinning_raw[{vcpu}]", 0, MAX_ID)
    return pins


def _read_page_size(value: object) -> str:
    if value is None:
        return ""
    if type(value) is int and value in PAGE_WORDS:
        return PAGE_WORDS[value]
    size = value if type(value) is int else 0
    if not _SIZE[0] <= size <= _SIZE[1] or size & (size - 1):
        raise InvalidPrimitive(
            "pagesize", value, "-1 (small), -2 (large), -3 (any), a power of two in KiB, or null"
        )
    return str(size)


def _one_of(known: tuple[str, ...], value: object, what: str) -> str | None:
    if value is None:
        return None
    if value not in known:
        raise InvalidPrimitive(what, value, f"{', '.join(known)} or null")
    return str(value)


def of_plain(value: object) -> dict[Any, Any]:
    """Return a cell from before Liberty in the names of later ones."""
    plain = _primitive.mapping(value, "")
    _primitive.only(plain, _PLAIN_FIELDS)
    memory = _primitive.mapping(plain.get("mem", {}), "mem")
    _primitive.only(memory, _PLAIN_MEMORY, "mem.")
    return {
        "id": plain.get("id"),
        "cpuset": _primitive.cpu_list(plain.get("cpus", ""), "cpus"),
        "memory": memory.get("total", 0),
        "pagesize": plain.get("pagesize"),
    }


# --- writing --------------------------------------------------------------------------------------

#: First version of a cell that says each, and of a topology that has the policy of the emulator.
_PAGES, _PINS, _POLICY, _RESERVED, _PCPUSET, _MIXED = 1, 2, 3, 4, 5, 6
_EMULATOR = 3


def unsaid(
    amount: NUMATopologyAmount, versions: Versions, left_out: Collection[str]
) -> Iterator[str]:
    """Yield what versions have no word for, but for what may be left out."""
    minor, policy = versions[GUEST_CELL], amount.cpu_policy
    if amount.gives_back:
        yield "it is given back"
    for name in ("physnets", "tunneled", "one_socket"):
        if getattr(amount, name) and name not in left_out:
            yield f"it has {name}"
    if policy == words.MIXED and minor < _MIXED:
        yield "it has shared and dedicated vCPUs"
    if amount.emulator_policy is not None and versions[GUEST] < _EMULATOR:
        yield "it has a policy for emulator threads"
    if amount.emulator_cpu is not None and minor < _RESERVED:
        yield "it has a CPU for the emulator"
    if amount.thread_policy is not None and minor < _POLICY:
        yield "it has a thread policy"
    if policy == words.DEDICATED and minor < _PINS:
        yield "it has dedicated vCPUs"
    if amount.page_size and minor < _PAGES:
        yield "it has a page size"


def written_cell(
    amount: NUMATopologyAmount, place: int, page_size: int | None, minor: int
) -> dict[str, Any]:
    """Return a guest cell in the wire form of a version."""
    guest = amount.cells[place]
    placed = amount.placed[place] if amount.placed else None
    is_pinned, policy = bool(guest.dedicated and placed), amount.cpu_policy
    data: dict[str, Any] = {
        "id": place if placed is None else placed.cell,
        "cpuset": guest.shared if minor >= _PCPUSET else guest.vcpus,
        "memory": guest.memory_mb,
    }
    if minor >= _PAGES:
        data["pagesize"] = page_size
    if minor >= _PINS:
        pins = {str(vcpu): cpu for vcpu, cpu in placed.pins} if placed and is_pinned else None
        is_told_by_pins = minor < _POLICY and policy == words.DEDICATED
        data["cpu_pinning_raw"] = {} if pins is None and is_told_by_pins else pins
        data["cpu_topology"] = None
    if minor >= _POLICY:
        data |= {"cpu_policy": policy, "cpu_thread_policy": amount.thread_policy}
    if minor >= _RESERVED:
        has_emulator = place == 0 and amount.emulator_cpu is not None
        data["cpuset_reserved"] = [amount.emulator_cpu] if has_emulator else None
    if minor >= _PCPUSET:
        data["pcpuset"] = guest.dedicated
    return _primitive.enveloped(GUEST_CELL, minor, data)
