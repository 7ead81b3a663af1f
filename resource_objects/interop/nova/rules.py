"""The rules of Nova's formats, and the exception that names the broken one.

An error names the key (``hw:cpu_policy`` of a flavor, ``hw_cpu_policy`` of an image, or an option
of a host), its value and what is allowed. Callers tell errors apart by ``error.rule``.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, TypeVar

from resource_objects import exceptions

__all__ = ["InvalidNovaInput", "NovaRule"]

_T = TypeVar("_T")


@enum.unique
class NovaRule(enum.Enum):
    """A rule of flavors, images, aliases or options: what is wrong, and the exception of Nova.

    ``nova_name`` is the exception that Nova raises for it. It is ``""`` where Nova accepts the
    value, ignores it or fails by accident.

    >>> NovaRule.CELLS_UNEVEN.sentence, NovaRule.CELLS_UNEVEN.nova_name
    ('vCPUs or memory do not divide by the number of guest cells.', 'ImageNUMATopologyAsymmetric')
    """

    def __init__(self, sentence: str, nova_name: str = "") -> None:
        self.sentence = sentence
        self.nova_name = nova_name

    def error(self, name: str, value: object, expected: str) -> InvalidNovaInput:
        """Return the error for a value that breaks this rule."""
        return InvalidNovaInput(self, name, value, expected)

    def convert(self, name: str, value: Any, function: Callable[[Any], _T]) -> _T:
        """Return ``function(value)``; its InvalidInput becomes an error of this rule."""
        try:
            return function(value)
        except exceptions.InvalidInput as error:
            raise self.error(name, value, error.expected) from error

    # --- flavors and images: general ---

    INVALID_FLAVOR_SIZE = "A number of vCPUs, of memory or of disk that no flavor has."
    UNREAD_KEY = "A key without a meaning here: ignoring it could request less than the flavor."
    NOT_WORDS = "A value of the wrong type: extra specs and properties are text by key."
    INVALID_FLAG = "Neither yes nor no. Nova reads unknown text as no."
    INVALID_CPU_LIST = "Not a list of CPUs.", "Invalid"

    # --- policies ---

    INVALID_CPU_POLICY = "An unknown CPU policy.", "InvalidCPUAllocationPolicy"
    CPU_POLICY_CONFLICT = (
        "The image requests a CPU policy that the policy of the flavor forbids.",
        "ImageCPUPinningForbidden",
    )
    INVALID_THREAD_POLICY = "An unknown thread policy.", "InvalidCPUThreadAllocationPolicy"
    THREAD_POLICY_CONFLICT = (
        "The image requests another thread policy than the flavor.",
        "ImageCPUThreadPolicyForbidden",
    )
    THREAD_POLICY_WITHOUT_PINNING = (
        "A thread policy without dedicated vCPUs.",
        "CPUThreadPolicyConfigurationInvalid",
    )
    INVALID_EMULATOR_POLICY = (
        "An unknown policy of the emulator threads.",
        "InvalidEmulatorThreadsPolicy",
    )
    EMULATOR_POLICY_WITHOUT_PINNING = (
        "Isolated emulator threads without dedicated vCPUs.",
        "BadRequirementEmulatorThreadsPolicy",
    )

    # --- VCPU, PCPU and the trait of hyperthreading ---

    INVALID_RESOURCE_COUNT = "An amount of VCPU or PCPU that is not an integer. Nova ignores it."
    RESOURCES_WITH_POLICY = "VCPU or PCPU in addition to a CPU policy.", "InvalidRequest"
    RESOURCES_OF_BOTH_KINDS = (
        "VCPU and PCPU are requested, which needs the policy mixed.",
        "InvalidRequest",
    )
    PCPU_COUNT_MISMATCH = (
        "PCPU differs from the vCPUs, plus one for isolated emulator threads.",
        "InvalidRequest",
    )
    INVALID_HYPERTHREADING_TRAIT = (
        "Neither required nor forbidden, or forbidden by an image. Nova ignores it."
    )
    HYPERTHREADING_TRAIT_CONFLICT = (
        "Hyperthreading is required and forbidden. In Nova the first key decides."
    )
    HYPERTHREADING_TRAIT_WITH_POLICY = "The trait in addition to a thread policy.", "InvalidRequest"

    # --- masks ---

    REALTIME_MASK_EMPTY = "The mask has no real-time vCPU.", "RealtimeMaskNotFoundOrInvalid"
    REALTIME_WITHOUT_REST = (
        "Every vCPU is real-time, and the emulator threads have no policy.",
        "RealtimeMaskNotFoundOrInvalid",
    )
    REALTIME_MASK_OUT_OF_RANGE = (
        "The mask has vCPUs that the flavor does not have.",
        "RealtimeMaskNotFoundOrInvalid",
    )
    REALTIME_WITHOUT_PINNING = (
        "Real-time vCPUs without dedicated vCPUs.",
        "RealtimeConfigurationInvalid",
    )
    DEDICATED_MASK_IMPROPER = (
        "The mask has no dedicated vCPU, or no shared vCPU remains.",
        "InvalidMixedInstanceDedicatedMask",
    )
    DEDICATED_MASK_OUT_OF_RANGE = (
        "The mask has vCPUs that the flavor does not have.",
        "InvalidMixedInstanceDedicatedMask",
    )
    DEDICATED_MASK_WITHOUT_MIXED = (
        "A mask of dedicated vCPUs under another policy than mixed.",
        "RequiredMixedInstancePolicy",
    )
    MIXED_WITHOUT_MASK = "The policy mixed without a mask.", "RequiredMixedOrRealtimeCPUMask"
    MIXED_WITH_TWO_MASKS = "The policy mixed with two masks.", "RequiredMixedOrRealtimeCPUMask"

    # --- memory ---

    INVALID_PAGE_SIZE = "Not a page size.", "MemoryPageSizeInvalid"
    PAGE_SIZE_CONFLICT = (
        "The image requests a page size, and the flavor does not allow it to choose.",
        "MemoryPageSizeForbidden",
    )
    LOCKED_MEMORY_CONFLICT = (
        "Flavor and image disagree about locked memory.",
        "FlavorImageLockedMemoryConflict",
    )
    LOCKED_MEMORY_WITHOUT_PAGE_SIZE = "Locked memory without a page size.", "LockMemoryForbidden"
    INVALID_PMEM_LABEL = (
        "A label of persistent memory without a resource class, or with that of other labels."
    )

    # --- guest cells ---

    INVALID_CELL_COUNT = "A number of guest cells below 1 or too large.", "InvalidNUMANodesNumber"
    CELLS_SAID_TWICE = (
        "Flavor and image both specify the guest cells.",
        "ImageNUMATopologyForbidden",
    )
    CELLS_INCOMPLETE = (
        "CPUs or memory of some guest cells, and not of all.",
        "ImageNUMATopologyIncomplete",
    )
    CELLS_UNEVEN = (
        "vCPUs or memory do not divide by the number of guest cells.",
        "ImageNUMATopologyAsymmetric",
    )
    CELL_CPU_OUT_OF_RANGE = (
        "A guest cell has a vCPU that the flavor does not have.",
        "ImageNUMATopologyCPUOutOfRange",
    )
    CELL_CPU_TWICE = "A vCPU is in two guest cells.", "ImageNUMATopologyCPUDuplicates"
    CELL_CPUS_MISSING = "vCPUs are in no guest cell.", "ImageNUMATopologyCPUsUnassigned"
    INVALID_CELL_MEMORY = (
        "Memory of a guest cell that is not an integer from 0. Nova fails by accident, or adds it."
    )
    CELL_MEMORY_MISMATCH = (
        "The memory of all guest cells differs from that of the flavor.",
        "ImageNUMATopologyMemoryOutOfRange",
    )
    EMPTY_CELL = "A guest cell without vCPUs and memory. Nova requests a host cell for it."

    # --- options of a host ---

    CPU_SET_EMPTY = "An option that is set and has no CPU.", "Invalid"
    CPU_SETS_OVERLAP = (
        "CPUs that are shared and dedicated, where the two sets are not equal.",
        "InvalidConfiguration",
    )
    PIN_SET_CONFLICT = (
        "``vcpu_pin_set`` in addition to ``cpu_dedicated_set``, which replaced it.",
        "InvalidConfiguration",
    )
    CPUS_NOT_OF_HOST = "CPUs that no cell of the host offers.", "Invalid"
    INVALID_RESERVED_PAGES = (
        "Not an entry of ``reserved_huge_pages``.",
        "InvalidReservedMemoryPagesOption",
    )
    PAGES_RESERVED_TWICE = "Two entries for the same pages. In Nova the last decides."
    TOO_MANY_PAGES_RESERVED = "More pages are reserved than exist. Nova offers none of them."
    RESERVED_PAGES_NOT_OF_HOST = "Reserved pages that the host does not have. Nova ignores them."

    # --- aliases ---

    INVALID_ALIAS = "Not an entry of ``[pci] alias``, or an unknown key in one.", "PciInvalidAlias"
    ALIASES_DISAGREE = (
        "Two entries of one name differ in ``numa_policy`` or ``device_type``.",
        "PciInvalidAlias",
    )
    ALIAS_WITHOUT_IDS = (
        "An alias without vendor and product, or (in Placement) a resource class.",
        "PciInvalidAlias",
    )
    ALIAS_OF_SEVERAL_SPECS = (
        "An alias of several entries, which cannot be requested from Placement.",
        "PciInvalidAlias",
    )
    UNKNOWN_ALIAS = "A flavor requests an unknown alias.", "PciRequestAliasNotDefined"
    INVALID_ALIAS_COUNT = (
        "``pci_passthrough:alias`` is not a list of ``name:count``. Nova fails by accident."
    )
    INVALID_AFFINITY_POLICY = "An unknown NUMA policy of devices.", "InvalidPCINUMAAffinity"
    AFFINITY_POLICY_CONFLICT = (
        "The image requests another NUMA policy of devices than the flavor.",
        "ImagePCINUMAPolicyForbidden",
    )

    # --- device specs ---

    INVALID_DEVICE_SPEC = (
        "Not an entry of ``[pci] device_spec``: an object of JSON, or a list of objects.",
        "PciConfigInvalidSpec",
    )
    INVALID_SPEC_ID = (
        "A vendor or product that is not a hexadecimal number up to FFFF, and not ``*``.",
        "PciConfigInvalidSpec",
    )
    INVALID_SPEC_ADDRESS = (
        "Not an address pattern: hexadecimal numbers and ``*``, or regular expressions.",
        "PciDeviceWrongAddressFormat",
    )
    INVALID_SPEC_FLAG = "A tag that is neither yes nor no.", "PciConfigInvalidSpec"
    INVALID_SPEC_TAG = "A tag with an invalid name or value. Nova fails when it stores its pools."
    INVALID_SPEC_CLASS = "A ``resource_class`` that makes no class. Nova fails in Placement."
    INVALID_SPEC_TRAITS = "``traits`` that make no trait. Nova fails in Placement."
    ADDRESS_AND_DEVNAME = (
        "An address in addition to the name of an interface.",
        "PciDeviceInvalidDeviceName",
    )
    DEVNAME_IN_PLACEMENT = (
        "The name of an interface, where devices are reported in Placement.",
        "PlacementPciException",
    )
    ONE_TIME_USE_WITHOUT_PLACEMENT = (
        "One-time use of a device that is not reported in Placement. Nothing reserves it later.",
        "PciConfigInvalidSpec",
    )
    ONE_TIME_USE_OF_PART = (
        "``one_time_use`` of a virtual function or another part of a device.",
        "PlacementPciException",
    )
    REMOTE_MANAGED_FUNCTION = (
        "A remotely managed physical function: only its virtual functions can be.",
        "PciDeviceInvalidPFRemoteManaged",
    )
    REMOTE_MANAGED_NOT_PRESENT = (
        "A remotely managed interface that no device has.",
        "PciDeviceRemoteManagedNotPresent",
    )

    # --- resources and traits of a flavor; Nova ignores malformed keys with a warning ---

    INVALID_REQUEST_KEY = "A malformed key of resources or traits. Nova ignores it."
    UNKNOWN_FLAVOR_RESOURCE = (
        "A malformed or unknown resource class. Nova ignores it, or Placement rejects it."
    )
    RESOURCE_NOT_COUNTED = "A placed resource (NUMA topology, devices), which is not a number."
    INVALID_RESOURCE_AMOUNT = "An amount that is not an integer from 0. Nova ignores it."
    RESOURCE_SAID_TWICE = "``resource:`` and ``resources:`` specify the same class."
    UNKNOWN_FLAVOR_TRAIT = "A malformed or unknown trait. Placement rejects it."
    INVALID_TRAIT_VALUE = (
        "Neither required nor forbidden, or not required by an image. Nova ignores it."
    )
    FLAVOR_TRAIT_CONFLICT = (
        "The image requires a trait that the flavor forbids. Placement rejects it."
    )
    INVALID_GROUP_POLICY = "Neither none nor isolate. Nova ignores it."
    GROUP_POLICY_MISSING = "Several named groups without a policy. Placement rejects it."
    GROUP_WITHOUT_RESOURCES = "Traits of a group without resources. Placement rejects it."
    NOTHING_ASKED = "Every resource is suppressed. Placement rejects it."
    TOPOLOGY_DISAGREES = "CPUs or memory that differ from the topology."


class InvalidNovaInput(exceptions.InvalidInput):
    """A value of Nova's formats that breaks one of their rules, ``rule``.

    >>> error = NovaRule.CPU_POLICY_CONFLICT.error("hw_cpu_policy", "dedicated", "shared or none")
    >>> print(error, "|", error.rule.nova_name)
    hw_cpu_policy: got 'dedicated', expected shared or none | ImageCPUPinningForbidden
    """

    def __init__(self, rule: NovaRule, name: str, value: object, expected: str) -> None:
        super().__init__("words of Nova", name, value, expected)
        self.args = (rule, name, value, expected)  # a pickle calls the class with these
        self.rule = rule

    @property
    def code(self) -> str:
        """The code of all these errors; ``rule`` tells them apart."""
        return "NovaWordsError"
