"""What Nova's words can break: one exception, with the rule as data.

An error names the key (``hw:cpu_policy`` of a flavor, ``hw_cpu_policy`` of an image, or the option
of a host), its value and what was expected. A caller tells errors apart by ``error.rule``.
"""

from __future__ import annotations

import enum

from resource_objects import exceptions


@enum.unique
class NovaRule(enum.Enum):
    """A rule of Nova's words: the sentence that is true where it is broken, and Nova's exception.

    ``nova_name`` is the exception that Nova raises in its place, ``""`` where Nova accepts it,
    ignores it or fails by accident.

    >>> NovaRule.CELLS_UNEVEN.sentence, NovaRule.CELLS_UNEVEN.nova_name
    ('vCPUs or memory do not divide by the number of guest cells.', 'ImageNUMATopologyAsymmetric')
    """

    def __init__(self, sentence: str, nova_name: str = "") -> None:
        self.sentence = sentence
        self.nova_name = nova_name

    # --- any of them ---

    INVALID_FLAVOR_SIZE = "vCPUs or memory that no flavor has."
    UNREAD_KEY = "A key that has no meaning here, so that less would be asked than the flavor says."
    NOT_WORDS = "Words or options of another kind: a value of extra specs and properties is text."
    INVALID_FLAG = "Neither yes nor no. Nova takes whatever it does not know for no."
    INVALID_CPU_LIST = ("A list of CPUs that does not parse.", "Invalid")

    # --- policies ---

    INVALID_CPU_POLICY = ("A CPU policy that there is not.", "InvalidCPUAllocationPolicy")
    CPU_POLICY_CONFLICT = (
        "The image asks for a CPU policy that the flavor's forbids.",
        "ImageCPUPinningForbidden",
    )
    INVALID_THREAD_POLICY = (
        "A thread policy that there is not.",
        "InvalidCPUThreadAllocationPolicy",
    )
    THREAD_POLICY_CONFLICT = (
        "The image asks for another thread policy than the flavor.",
        "ImageCPUThreadPolicyForbidden",
    )
    THREAD_POLICY_WITHOUT_PINNING = (
        "A thread policy where no vCPU is dedicated.",
        "CPUThreadPolicyConfigurationInvalid",
    )
    INVALID_EMULATOR_POLICY = (
        "A policy of emulator threads that there is not.",
        "InvalidEmulatorThreadsPolicy",
    )
    EMULATOR_POLICY_WITHOUT_PINNING = (
        "Isolated emulator threads where no vCPU is dedicated.",
        "BadRequirementEmulatorThreadsPolicy",
    )

    # --- resources and the trait ---

    INVALID_RESOURCE_COUNT = (
        "An amount of VCPU or PCPU that is no whole number. Nova ignores it here."
    )
    RESOURCES_WITH_POLICY = ("VCPU or PCPU is asked for beside a CPU policy.", "InvalidRequest")
    RESOURCES_OF_BOTH_KINDS = (
        "VCPU and PCPU are asked for, which needs the policy mixed.",
        "InvalidRequest",
    )
    PCPU_COUNT_MISMATCH = (
        "Another number of PCPU than the vCPUs, and the emulator's CPU where it has one, need.",
        "InvalidRequest",
    )
    INVALID_HYPERTHREADING_TRAIT = (
        "Neither required nor forbidden, or forbidden by an image. Nova ignores it here."
    )
    HYPERTHREADING_TRAIT_CONFLICT = (
        "Hyperthreading is required and forbidden. Nova goes by the key it meets first."
    )
    HYPERTHREADING_TRAIT_WITH_POLICY = (
        "The trait is said beside a thread policy.",
        "InvalidRequest",
    )

    # --- masks ---

    REALTIME_MASK_EMPTY = ("The mask leaves no real-time vCPU.", "RealtimeMaskNotFoundOrInvalid")
    REALTIME_WITHOUT_REST = (
        "Every vCPU is real-time, and the emulator's threads are not told where to run.",
        "RealtimeMaskNotFoundOrInvalid",
    )
    REALTIME_MASK_OUT_OF_RANGE = (
        "The mask names vCPUs that the flavor does not have.",
        "RealtimeMaskNotFoundOrInvalid",
    )
    REALTIME_WITHOUT_PINNING = (
        "Real-time vCPUs where none is dedicated.",
        "RealtimeConfigurationInvalid",
    )
    DEDICATED_MASK_IMPROPER = (
        "The mask of dedicated vCPUs leaves none, or none that is shared.",
        "InvalidMixedInstanceDedicatedMask",
    )
    DEDICATED_MASK_OUT_OF_RANGE = (
        "The mask names vCPUs that the flavor does not have.",
        "InvalidMixedInstanceDedicatedMask",
    )
    DEDICATED_MASK_WITHOUT_MIXED = (
        "A mask of dedicated vCPUs under another policy than mixed.",
        "RequiredMixedInstancePolicy",
    )
    MIXED_WITHOUT_MASK = (
        "The policy is mixed, and nothing says which vCPUs are dedicated.",
        "RequiredMixedOrRealtimeCPUMask",
    )
    MIXED_WITH_TWO_MASKS = (
        "The policy is mixed, and two masks say which vCPUs are dedicated.",
        "RequiredMixedOrRealtimeCPUMask",
    )

    # --- memory ---

    INVALID_PAGE_SIZE = ("A page size that no memory has.", "MemoryPageSizeInvalid")
    PAGE_SIZE_CONFLICT = (
        "The image asks for a page size, and the flavor leaves it no choice.",
        "MemoryPageSizeForbidden",
    )
    LOCKED_MEMORY_CONFLICT = (
        "One of flavor and image wants locked memory, the other does not.",
        "FlavorImageLockedMemoryConflict",
    )
    LOCKED_MEMORY_WITHOUT_PAGE_SIZE = ("Locked memory without a page size.", "LockMemoryForbidden")
    INVALID_PMEM_LABEL = (
        "A label of persistent memory that makes no resource class, or that of other labels too."
    )

    # --- guest cells ---

    INVALID_CELL_COUNT = (
        "A number of guest cells that is none, or more than any request has.",
        "InvalidNUMANodesNumber",
    )
    CELLS_SAID_TWICE = (
        "Flavor and image both say the same of the guest cells.",
        "ImageNUMATopologyForbidden",
    )
    CELLS_INCOMPLETE = (
        "CPUs or memory are said of some guest cells and not of the others.",
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
    CELL_CPU_TWICE = ("A vCPU is in two guest cells.", "ImageNUMATopologyCPUDuplicates")
    CELL_CPUS_MISSING = (
        "vCPUs of the flavor are in no guest cell.",
        "ImageNUMATopologyCPUsUnassigned",
    )
    INVALID_CELL_MEMORY = (
        "Memory of a guest cell that is no whole number from 0. Nova fails by accident, or adds it."
    )
    CELL_MEMORY_MISMATCH = (
        "The guest cells have other memory, all together, than the flavor.",
        "ImageNUMATopologyMemoryOutOfRange",
    )
    EMPTY_CELL = (
        "A guest cell of neither vCPUs nor memory. Nova asks for a host cell to put nothing on."
    )

    # --- options of a host ---

    CPU_SET_EMPTY = ("An option that is set and leaves no CPU.", "Invalid")
    CPU_SETS_OVERLAP = (
        "CPUs that shall be shared and dedicated, and are not all of both.",
        "InvalidConfiguration",
    )
    PIN_SET_CONFLICT = (
        "``vcpu_pin_set`` beside ``cpu_dedicated_set``, which replaced it.",
        "InvalidConfiguration",
    )
    CPUS_NOT_OF_HOST = ("CPUs that no cell of the host gives.", "Invalid")
    INVALID_RESERVED_PAGES = (
        "An entry of ``reserved_huge_pages`` that cannot be read.",
        "InvalidReservedMemoryPagesOption",
    )
    PAGES_RESERVED_TWICE = "Two entries for the same pages. Nova goes by the last."
    TOO_MANY_PAGES_RESERVED = (
        "More pages are reserved than there are. Nova takes it for none that are free."
    )
    RESERVED_PAGES_NOT_OF_HOST = (
        "Pages are reserved that the host does not have. Nova ignores them."
    )

    # --- aliases ---

    INVALID_ALIAS = (
        "An entry of ``[pci] alias`` that cannot be read, or says what no alias says.",
        "PciInvalidAlias",
    )
    ALIASES_DISAGREE = (
        "Two entries of one name differ in ``numa_policy`` or ``device_type``.",
        "PciInvalidAlias",
    )
    ALIAS_WITHOUT_IDS = (
        "An alias says neither vendor and product, nor (in Placement) a resource class.",
        "PciInvalidAlias",
    )
    ALIAS_OF_SEVERAL_SPECS = (
        "An alias of several entries, which Placement cannot be asked for.",
        "PciInvalidAlias",
    )
    UNKNOWN_ALIAS = ("A flavor names an alias that there is not.", "PciRequestAliasNotDefined")
    INVALID_ALIAS_COUNT = (
        "``pci_passthrough:alias`` is no list of ``name:count``. Nova fails by accident."
    )
    INVALID_AFFINITY_POLICY = (
        "A NUMA policy of devices that there is not.",
        "InvalidPCINUMAAffinity",
    )
    AFFINITY_POLICY_CONFLICT = (
        "The image asks for another NUMA policy of devices than the flavor.",
        "ImagePCINUMAPolicyForbidden",
    )

    # --- which devices there are for guests ---

    INVALID_DEVICE_SPEC = (
        "An entry of ``[pci] device_spec`` that is no object of JSON, nor a list of such.",
        "PciConfigInvalidSpec",
    )
    INVALID_SPEC_ID = (
        "A vendor or product that is no hexadecimal number up to FFFF, and not ``*``.",
        "PciConfigInvalidSpec",
    )
    INVALID_SPEC_ADDRESS = (
        "An address that is no pattern: hexadecimal numbers and ``*``, or regular expressions.",
        "PciDeviceWrongAddressFormat",
    )
    INVALID_SPEC_FLAG = ("A tag that says yes or no, and says neither.", "PciConfigInvalidSpec")
    INVALID_SPEC_TAG = (
        "A tag whose name or value no tag has. Nova fails later, when it writes its pools."
    )
    INVALID_SPEC_CLASS = (
        "A ``resource_class`` that makes no resource class. Nova fails later, in Placement."
    )
    INVALID_SPEC_TRAITS = "``traits`` that make no trait. Nova fails later, in Placement."
    ADDRESS_AND_DEVNAME = (
        "A device is named by its address and by its interface.",
        "PciDeviceInvalidDeviceName",
    )
    DEVNAME_IN_PLACEMENT = (
        "A device is named by its interface, which cannot be reported in Placement.",
        "PlacementPciException",
    )
    ONE_TIME_USE_WITHOUT_PLACEMENT = (
        "A device is for one use and not reported in Placement, so nothing keeps it after that.",
        "PciConfigInvalidSpec",
    )
    ONE_TIME_USE_OF_PART = (
        "A function that was split off another one is said to be for one use, or not to be.",
        "PlacementPciException",
    )
    REMOTE_MANAGED_FUNCTION = (
        "A physical function is said to be managed from elsewhere: only those split off it can be.",
        "PciDeviceInvalidPFRemoteManaged",
    )
    REMOTE_MANAGED_NOT_PRESENT = (
        "An interface is said to be managed from elsewhere, and no device has it.",
        "PciDeviceRemoteManagedNotPresent",
    )

    # --- resources and traits of a flavor; Nova ignores what is malformed, with a warning ---

    INVALID_REQUEST_KEY = (
        "A key of resources or traits whose group or name no key has. Nova ignores it."
    )
    UNKNOWN_FLAVOR_RESOURCE = (
        "A resource class that cannot be, or does not exist. Nova ignores it, or Placement refuses."
    )
    RESOURCE_NOT_COUNTED = "A class whose amounts say where something goes, which no number does."
    INVALID_RESOURCE_AMOUNT = "An amount that is no whole number from 0. Nova ignores it."
    RESOURCE_SAID_TWICE = "``resource:`` and ``resources:`` say the same class."
    UNKNOWN_FLAVOR_TRAIT = "A trait that cannot be, or does not exist. Placement refuses it."
    INVALID_TRAIT_VALUE = (
        "Neither required nor forbidden, or of an image another than required. Nova ignores it."
    )
    FLAVOR_TRAIT_CONFLICT = (
        "The image requires a trait that the flavor forbids. Placement refuses it."
    )
    INVALID_GROUP_POLICY = "Neither none nor isolate. Nova ignores it."
    GROUP_POLICY_MISSING = (
        "Several named groups, and nothing says whether they share providers. Placement refuses it."
    )
    GROUP_WITHOUT_RESOURCES = "Traits of a group that asks for nothing. Placement refuses it."
    NOTHING_ASKED = "Every resource is suppressed. Placement refuses it."
    TOPOLOGY_DISAGREES = "CPUs or memory that are said otherwise than the topology says them."


class NovaWordsError(exceptions.InvalidInput):
    """Words of Nova's that break one of its rules: ``rule``.

    >>> error = NovaWordsError(
    ...     NovaRule.CPU_POLICY_CONFLICT, "hw_cpu_policy", "dedicated", "shared or none"
    ... )
    >>> print(error, "|", error.rule.nova_name)
    hw_cpu_policy: got 'dedicated', expected shared or none | ImageCPUPinningForbidden
    """

    def __init__(self, rule: NovaRule, what: str, value: object, expected: str) -> None:
        super().__init__("words of Nova", what, value, expected)
        self.args = (rule, what, value, expected)  # a pickle calls the class with these
        self.rule = rule
