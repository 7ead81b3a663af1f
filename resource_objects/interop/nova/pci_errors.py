"""What Nova's words about devices can break: one type per rule, as in :mod:`.errors`.

``nova_name`` is the exception that Nova raises in its place, ``""`` where Nova accepts it, ignores
it or fails by accident.
"""

from __future__ import annotations

from resource_objects.interop.nova.errors import InvalidWords

# --- aliases ------------------------------------------------------------------------------------


class InvalidAlias(InvalidWords):
    """An entry of ``[pci] alias`` that cannot be read, or says what no alias says."""

    nova_name = "PciInvalidAlias"


class AliasesDisagree(InvalidWords):
    """Two entries of one name differ in ``numa_policy`` or ``device_type``."""

    nova_name = "PciInvalidAlias"


class AliasWithoutIds(InvalidWords):
    """An alias says neither vendor and product, nor (in Placement) a resource class."""

    nova_name = "PciInvalidAlias"


class AliasOfSeveralSpecs(InvalidWords):
    """An alias of several entries, which Placement cannot be asked for."""

    nova_name = "PciInvalidAlias"


class UnknownAlias(InvalidWords):
    """A flavor names an alias that there is not."""

    nova_name = "PciRequestAliasNotDefined"


class InvalidAliasCount(InvalidWords):
    """``pci_passthrough:alias`` is no list of ``name:count``. Nova fails by accident."""


class InvalidAffinityPolicy(InvalidWords):
    """A NUMA policy of devices that there is not."""

    nova_name = "InvalidPCINUMAAffinity"


class AffinityPolicyConflict(InvalidWords):
    """The image asks for another NUMA policy of devices than the flavor."""

    nova_name = "ImagePCINUMAPolicyForbidden"


# --- which devices there are for guests ---------------------------------------------------------


class InvalidDeviceSpec(InvalidWords):
    """An entry of ``[pci] device_spec`` that is no object of JSON, nor a list of such."""

    nova_name = "PciConfigInvalidSpec"


class InvalidSpecId(InvalidWords):
    """A vendor or product that is no hexadecimal number up to FFFF, and not ``*``."""

    nova_name = "PciConfigInvalidSpec"


class InvalidSpecAddress(InvalidWords):
    """An address that is no pattern: hexadecimal numbers and ``*``, or regular expressions."""

    nova_name = "PciDeviceWrongAddressFormat"


class InvalidSpecFlag(InvalidWords):
    """A tag that says yes or no, and says neither."""

    nova_name = "PciConfigInvalidSpec"


class InvalidSpecTag(InvalidWords):
    """A tag whose name or value no tag has. Nova fails later, when it writes its pools."""


class InvalidSpecClass(InvalidWords):
    """A ``resource_class`` that makes no resource class. Nova fails later, in Placement."""


class InvalidSpecTraits(InvalidWords):
    """``traits`` that make no trait. Nova fails later, in Placement."""


class AddressAndDevname(InvalidWords):
    """A device is named by its address and by its interface."""

    nova_name = "PciDeviceInvalidDeviceName"


class DevnameInPlacement(InvalidWords):
    """A device is named by its interface, which cannot be reported in Placement."""

    nova_name = "PlacementPciException"


class OneTimeUseWithoutPlacement(InvalidWords):
    """A device is for one use, and nothing keeps it after that: it is not reported in Placement."""

    nova_name = "PciConfigInvalidSpec"


class OneTimeUseOfPart(InvalidWords):
    """A function that was split off another one is said to be for one use, or not to be."""

    nova_name = "PlacementPciException"


class RemoteManagedFunction(InvalidWords):
    """A physical function is said to be managed from elsewhere: only those split off it can be."""

    nova_name = "PciDeviceInvalidPFRemoteManaged"


class RemoteManagedNotPresent(InvalidWords):
    """An interface is said to be managed from elsewhere, and no device has it."""

    nova_name = "PciDeviceRemoteManagedNotPresent"
