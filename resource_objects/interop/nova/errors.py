"""What Nova's words can break: one type per rule.

Each names the key (``hw:cpu_policy`` of a flavor, ``hw_cpu_policy`` of an image, or the option of a
host), its value and what was expected. ``nova_name`` is the exception that Nova raises in its
place, ``""`` where Nova accepts it, ignores it or fails by accident.
"""

from __future__ import annotations

from typing import ClassVar

from resource_objects import exceptions


class InvalidWords(exceptions.InvalidInput):
    """Base: words of Nova's that break one of its rules.

    >>> error = CPUPolicyConflict("hw_cpu_policy", "dedicated", "shared or none")
    >>> print(error, "|", error.nova_name)
    hw_cpu_policy: got 'dedicated', expected shared or none | ImageCPUPinningForbidden
    """

    #: Nova's own exception for it.
    nova_name: ClassVar[str] = ""


# --- any of them --------------------------------------------------------------------------------


class InvalidFlavorSize(InvalidWords):
    """vCPUs or memory that no flavor has."""


class NotWords(InvalidWords):
    """Words or options of another kind: a value of extra specs and properties is text."""


class InvalidFlag(InvalidWords):
    """Neither yes nor no. Nova takes whatever it does not know for no."""


class InvalidCPUList(InvalidWords):
    """A list of CPUs that does not parse."""

    nova_name = "Invalid"


# --- policies -----------------------------------------------------------------------------------


class InvalidCPUPolicy(InvalidWords):
    """A CPU policy that there is not."""

    nova_name = "InvalidCPUAllocationPolicy"


class CPUPolicyConflict(InvalidWords):
    """The image asks for a CPU policy that the flavor's forbids."""

    nova_name = "ImageCPUPinningForbidden"


class InvalidThreadPolicy(InvalidWords):
    """A thread policy that there is not."""

    nova_name = "InvalidCPUThreadAllocationPolicy"


class ThreadPolicyConflict(InvalidWords):
    """The image asks for another thread policy than the flavor."""

    nova_name = "ImageCPUThreadPolicyForbidden"


class ThreadPolicyWithoutPinning(InvalidWords):
    """A thread policy where no vCPU is dedicated."""

    nova_name = "CPUThreadPolicyConfigurationInvalid"


class InvalidEmulatorPolicy(InvalidWords):
    """A policy of emulator threads that there is not."""

    nova_name = "InvalidEmulatorThreadsPolicy"


class EmulatorPolicyWithoutPinning(InvalidWords):
    """Isolated emulator threads where no vCPU is dedicated."""

    nova_name = "BadRequirementEmulatorThreadsPolicy"


# --- resources and the trait --------------------------------------------------------------------


class InvalidResourceCount(InvalidWords):
    """An amount of VCPU or PCPU that is no whole number. Nova ignores it here."""


class ResourcesWithPolicy(InvalidWords):
    """VCPU or PCPU is asked for beside a CPU policy."""

    nova_name = "InvalidRequest"


class ResourcesOfBothKinds(InvalidWords):
    """VCPU and PCPU are asked for, which needs the policy mixed."""

    nova_name = "InvalidRequest"


class PCPUCountMismatch(InvalidWords):
    """Another number of PCPU than the vCPUs, and the emulator's CPU where it has one, need."""

    nova_name = "InvalidRequest"


class InvalidHyperthreadingTrait(InvalidWords):
    """Neither required nor forbidden, or forbidden by an image. Nova ignores it here."""


class HyperthreadingTraitConflict(InvalidWords):
    """Hyperthreading is required and forbidden. Nova goes by the key it meets first."""


class HyperthreadingTraitWithPolicy(InvalidWords):
    """The trait is said beside a thread policy."""

    nova_name = "InvalidRequest"


# --- masks --------------------------------------------------------------------------------------


class RealtimeMaskEmpty(InvalidWords):
    """The mask leaves no real-time vCPU."""

    nova_name = "RealtimeMaskNotFoundOrInvalid"


class RealtimeWithoutRest(InvalidWords):
    """Every vCPU is real-time, and the emulator's threads are not told where to run."""

    nova_name = "RealtimeMaskNotFoundOrInvalid"


class RealtimeMaskOutOfRange(InvalidWords):
    """The mask names vCPUs that the flavor does not have."""

    nova_name = "RealtimeMaskNotFoundOrInvalid"


class RealtimeWithoutPinning(InvalidWords):
    """Real-time vCPUs where none is dedicated."""

    nova_name = "RealtimeConfigurationInvalid"


class DedicatedMaskImproper(InvalidWords):
    """The mask of dedicated vCPUs leaves none, or none that is shared."""

    nova_name = "InvalidMixedInstanceDedicatedMask"


class DedicatedMaskOutOfRange(InvalidWords):
    """The mask names vCPUs that the flavor does not have."""

    nova_name = "InvalidMixedInstanceDedicatedMask"


class DedicatedMaskWithoutMixed(InvalidWords):
    """A mask of dedicated vCPUs under another policy than mixed."""

    nova_name = "RequiredMixedInstancePolicy"


class MixedWithoutMask(InvalidWords):
    """The policy is mixed, and nothing says which vCPUs are dedicated."""

    nova_name = "RequiredMixedOrRealtimeCPUMask"


class MixedWithTwoMasks(InvalidWords):
    """The policy is mixed, and two masks say which vCPUs are dedicated."""

    nova_name = "RequiredMixedOrRealtimeCPUMask"


# --- memory -------------------------------------------------------------------------------------


class InvalidPageSize(InvalidWords):
    """A page size that no memory has."""

    nova_name = "MemoryPageSizeInvalid"


class PageSizeConflict(InvalidWords):
    """The image asks for a page size, and the flavor leaves it no choice."""

    nova_name = "MemoryPageSizeForbidden"


class LockedMemoryConflict(InvalidWords):
    """One of flavor and image wants locked memory, the other does not."""

    nova_name = "FlavorImageLockedMemoryConflict"


class LockedMemoryWithoutPageSize(InvalidWords):
    """Locked memory without a page size."""

    nova_name = "LockMemoryForbidden"


class InvalidPmemLabel(InvalidWords):
    """A label of persistent memory that makes no resource class, or that of other labels too."""


# --- guest cells --------------------------------------------------------------------------------


class InvalidCellCount(InvalidWords):
    """A number of guest cells that is none, or more than any request has."""

    nova_name = "InvalidNUMANodesNumber"


class CellsSaidTwice(InvalidWords):
    """Flavor and image both say the same of the guest cells."""

    nova_name = "ImageNUMATopologyForbidden"


class CellsIncomplete(InvalidWords):
    """CPUs or memory are said of some guest cells and not of the others."""

    nova_name = "ImageNUMATopologyIncomplete"


class CellsUneven(InvalidWords):
    """vCPUs or memory do not divide by the number of guest cells."""

    nova_name = "ImageNUMATopologyAsymmetric"


class CellCPUOutOfRange(InvalidWords):
    """A guest cell has a vCPU that the flavor does not have."""

    nova_name = "ImageNUMATopologyCPUOutOfRange"


class CellCPUTwice(InvalidWords):
    """A vCPU is in two guest cells."""

    nova_name = "ImageNUMATopologyCPUDuplicates"


class CellCPUsMissing(InvalidWords):
    """vCPUs of the flavor are in no guest cell."""

    nova_name = "ImageNUMATopologyCPUsUnassigned"


class InvalidCellMemory(InvalidWords):
    """Memory of a guest cell that is no whole number from 0. Nova fails by accident, or adds it."""


class CellMemoryMismatch(InvalidWords):
    """The guest cells have other memory, all together, than the flavor."""

    nova_name = "ImageNUMATopologyMemoryOutOfRange"


class EmptyCell(InvalidWords):
    """A guest cell of neither vCPUs nor memory. Nova asks for a host cell to put nothing on."""


# --- options of a host --------------------------------------------------------------------------


class CPUSetEmpty(InvalidWords):
    """An option that is set and leaves no CPU."""

    nova_name = "Invalid"


class CPUSetsOverlap(InvalidWords):
    """CPUs that shall be shared and dedicated, and are not all of both."""

    nova_name = "InvalidConfiguration"


class PinSetConflict(InvalidWords):
    """``vcpu_pin_set`` beside ``cpu_dedicated_set``, which replaced it."""

    nova_name = "InvalidConfiguration"


class CPUsNotOfHost(InvalidWords):
    """CPUs that no cell of the host gives."""

    nova_name = "Invalid"


class InvalidReservedPages(InvalidWords):
    """An entry of ``reserved_huge_pages`` that cannot be read."""

    nova_name = "InvalidReservedMemoryPagesOption"


class PagesReservedTwice(InvalidWords):
    """Two entries for the same pages. Nova goes by the last."""


class TooManyPagesReserved(InvalidWords):
    """More pages are reserved than there are. Nova takes it for none that are free."""


class ReservedPagesNotOfHost(InvalidWords):
    """Pages are reserved that the host does not have. Nova ignores them."""
