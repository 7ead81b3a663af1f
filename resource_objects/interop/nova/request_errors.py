"""What Nova's words about resources and traits can break: one type per rule, as in :mod:`.errors`.

``nova_name`` is ``""`` for all of them: Nova ignores with a warning what is malformed, and what
Placement then refuses ends as *no valid host was found*.
"""

from __future__ import annotations

from resource_objects.interop.nova.errors import InvalidWords


class InvalidRequestKey(InvalidWords):
    """A key of resources or traits whose group or name no key has. Nova ignores it."""


class UnknownFlavorResource(InvalidWords):
    """A resource class that cannot be, or does not exist. Nova ignores it, or Placement refuses."""


class ResourceNotCounted(InvalidWords):
    """A class whose amounts say where something goes, which no number does."""


class InvalidResourceAmount(InvalidWords):
    """An amount that is no whole number from 0. Nova ignores it."""


class ResourceSaidTwice(InvalidWords):
    """``resource:`` and ``resources:`` say the same class."""


class UnknownFlavorTrait(InvalidWords):
    """A trait that cannot be, or does not exist. Placement refuses it."""


class InvalidTraitValue(InvalidWords):
    """Neither required nor forbidden, or of an image another than required. Nova ignores it."""


class FlavorTraitConflict(InvalidWords):
    """The image requires a trait that the flavor forbids. Placement refuses it."""


class InvalidGroupPolicy(InvalidWords):
    """Neither none nor isolate. Nova ignores it."""


class GroupPolicyMissing(InvalidWords):
    """Several named groups, and nothing says whether they share providers. Placement refuses it."""


class GroupWithoutResources(InvalidWords):
    """Traits of a group that asks for nothing. Placement refuses it."""


class NothingAsked(InvalidWords):
    """Every resource is suppressed. Placement refuses it."""


class TopologyDisagrees(InvalidWords):
    """CPUs or memory that are said otherwise than the topology says them."""


class NotOfFlavor(InvalidWords):
    """A request says what no flavor can."""
