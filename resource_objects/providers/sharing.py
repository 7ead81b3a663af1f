"""What holds of all shares of a tree at once, whoever stated them and when.

A tree is checked whole when somebody syncs it (:meth:`Provider.check_shares`), but two writers may
change different parts of it at the same moment, and a plan says parts only. So a backend checks
again, on all shares as a write leaves them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import TypeVar

from resource_objects import exceptions

_Provider = TypeVar("_Provider", bound=Hashable)
_Class = TypeVar("_Class", bound=Hashable)


def check_shares(
    shares: Iterable[tuple[tuple[_Provider, _Class], tuple[_Provider, _Class]]],
    root_of: Mapping[_Provider, object],
    name_of: Mapping[_Provider, str],
) -> None:
    """Raise unless shares are within their trees, of something else, once, and flat.

    Flat: what the target of a share uses in turn, the sharer states too; so nothing uses itself.
    Providers and classes are known by whatever names them: numbers, uuids. Cost: linear.

    :param shares: ``(sharer, target)``, each ``(provider, class)``: all shares of some trees
    :param root_of: the root of each provider of these trees
    :param name_of: the name of each sharer
    :raises StaleDefinition: naming a sharer of which it is not so

    >>> check_shares([(("cell0", "VCPU"), ("host0", "VCPU"))], {"cell0": 1, "host0": 1}, {})
    """
    stated: dict[tuple[_Provider, _Class], set[tuple[_Provider, _Class]]] = {}
    for sharer, target in shares:
        known = stated.setdefault(sharer, set())
        name = name_of.get(sharer[0], "")
        if root_of.get(sharer[0]) != root_of.get(target[0]):
            raise exceptions.StaleDefinition(name, "it shares what is in another tree")
        if sharer == target or target in known:
            raise exceptions.StaleDefinition(name, "it shares itself, or something twice")
        known.add(target)
    for sharer, targets in stated.items():
        for target in targets:
            if not stated.get(target, set()) <= targets:
                raise exceptions.StaleDefinition(
                    name_of.get(sharer[0], ""), "what it shares uses more than it states itself"
                )
