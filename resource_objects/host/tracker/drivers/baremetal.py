"""A driver for machines that are allocated as a whole: one agent, thousands of hosts.

Each host is one provider with one unit of one class, ``CUSTOM_<CLASS>=1``, named after the resource
class of the node (:func:`node_class`). The rules are those of Nova's driver for Ironic:

* The unit of a node that is not available is reserved. A node is available in the provision state
  ``available`` (or None, if its service has no states), out of maintenance, and not in the power
  state ``error``.
* The unit of a node with an instance is reserved unless it is allocated. With ``reserve_in_use`` it
  is always reserved, as in Nova since 2023.1.
* A node has the traits that its service reports. Of other traits, the families ``COMPUTE_``,
  ``MISC_`` and ``OWNER_`` stay, which concern services and not the machine.
* A node with a new name is found by its uuid, and its host is renamed.

:doc:`/howto/baremetal_driver` describes their consequences.

Source: ``nova/virt/ironic/driver.py``, ``update_provider_tree``, of Nova 2023.1 and later.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self

import os_resource_classes

from resource_objects import names
from resource_objects.exceptions import InvalidInput, NotFound
from resource_objects.host.tracker.driver import Driver
from resource_objects.providers import Provider
from resource_objects.resources import Inventories
from resource_objects.resources.traits import checked_traits

__all__ = ["BareMetalDriver", "BareMetalNode", "node_class"]

#: The provision states in which a node is available.
_AVAILABLE = ("available", None)
#: Families of traits that do not concern the machine.
_FOREIGN_TRAITS = ("COMPUTE_", "MISC_", "OWNER_")


def node_class(resource_class: str) -> str:
    """Return the class of the inventory of nodes of a resource class.

    Each run of other characters than ASCII letters and digits becomes one underscore, and letters
    upper case; a name that begins with ``CUSTOM_`` gets another one (``normalize_name`` of
    os-resource-classes, as Nova and Ironic use it).

    >>> node_class("baremetal.gold-2")
    'CUSTOM_BAREMETAL_GOLD_2'

    :raises InvalidInput: if it is no text, empty or too long
    """
    if not isinstance(resource_class, str) or not resource_class:
        raise InvalidInput(
            "value", "resource class of a node", resource_class, "a name such as gold"
        )
    name = os_resource_classes.normalize_name(resource_class)  # type: ignore[no-untyped-call]
    return names.resource_class_name(name)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BareMetalNode:
    """A machine that is allocated as a whole, as its own service describes it.

    The fields are those of Ironic's API. :meth:`of` accepts the results of its clients.

    >>> node = BareMetalNode(uuid="6b7c0a9e-0d0f-4f83-9c0b-0a4e8b7c1d2e", resource_class="gold")
    >>> node.host, node.is_available
    ('6b7c0a9e-0d0f-4f83-9c0b-0a4e8b7c1d2e', True)
    """

    uuid: str
    resource_class: str
    name: str | None = None
    provision_state: str | None = None
    power_state: str | None = None
    maintenance: bool = False
    instance_uuid: str | None = None
    traits: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        object.__setattr__(self, "uuid", names.uuid_text(self.uuid))
        node_class(self.resource_class)
        if self.name is not None:
            names.provider_name(self.name)
        for field in ("provision_state", "power_state", "instance_uuid"):
            value = getattr(self, field)
            if value is not None and not isinstance(value, str):
                raise InvalidInput("value", f"{field} of node {self.host}", value, "text, or None")
        if not isinstance(self.maintenance, bool):
            raise InvalidInput(
                "value", f"maintenance of node {self.host}", self.maintenance, "a boolean"
            )
        object.__setattr__(self, "traits", checked_traits(self.traits))

    @classmethod
    def of(cls, value: Any) -> Self:
        """Return a node as Ironic's API or one of its clients describes it.

        :param value: a mapping, or an object with such attributes; other fields are ignored, and
            empty text means none
        :raises InvalidInput: if it has no uuid or no resource class, or a field is invalid

        >>> BareMetalNode.of({"uuid": "6b7c0a9e-0d0f-4f83-9c0b-0a4e8b7c1d2e", "name": "lab-0",
        ...                   "resource_class": "gold", "provision_state": "clean wait"}).host
        'lab-0'
        """
        if isinstance(value, cls):
            return value
        fields = {field.name: _field(value, field.name) for field in dataclasses.fields(cls)}
        present = {name: field for name, field in fields.items() if field not in (None, "")}
        for required in ("uuid", "resource_class"):
            if required not in present:
                node = present.get("name") or present.get("uuid") or value
                raise InvalidInput("value", f"{required} of node {node}", None, "a value")
        return cls(**present)

    @property
    def host(self) -> str:
        """The name of its provider: the name of the node, or its uuid if it has no name."""
        return self.name or self.uuid

    @property
    def is_available(self) -> bool:
        """True if the service of the node would allocate it."""
        is_good = self.provision_state in _AVAILABLE and self.power_state != "error"
        return is_good and not self.maintenance


#: The nodes of an agent, or a callable that returns them for each update.
Nodes = Callable[[], Iterable[Any]] | Iterable[Any]


class BareMetalDriver(Driver):
    """Reports each node of an agent as one unit of its class, and whether it is available.

    :param nodes: the nodes, in any form of :meth:`BareMetalNode.of`, or a callable that returns
        them for each update
    :param reserve_in_use: whether a node with an instance is reserved too

    >>> nodes = [{"uuid": "6b7c0a9e-0d0f-4f83-9c0b-0a4e8b7c1d2e", "name": "lab-0",
    ...           "resource_class": "gold", "provision_state": "cleaning"}]
    >>> driver = BareMetalDriver(nodes)
    >>> tree = Provider("lab-0")
    >>> driver.update_provider_tree(tree, driver.get_available_resource("lab-0"))
    >>> print(tree)
    lab-0: CUSTOM_GOLD=1:reserved=1:max_unit=1
    """

    def __init__(self, nodes: Nodes, *, reserve_in_use: bool = False) -> None:
        if not callable(nodes) and (isinstance(nodes, str) or not isinstance(nodes, Iterable)):
            raise InvalidInput(
                "value", "nodes", nodes, "a list of nodes, or a callable that returns one"
            )
        self._read = nodes if callable(nodes) else lambda nodes=tuple(nodes): nodes
        self._reserve_in_use = reserve_in_use
        self._nodes: Mapping[str, BareMetalNode | InvalidInput] | None = None
        self._ambiguous: Mapping[str, InvalidInput] = {}

    def hosts(self) -> Iterable[str]:
        """Read the nodes, and return the names of their hosts.

        An invalid node is included, so that it is reported: by its name, else by its uuid, else by
        its index in the list. So is a node with the name of another one: by its uuid.
        """
        nodes: dict[str, BareMetalNode | InvalidInput] = {}
        for index, value in enumerate(self._read()):
            node: BareMetalNode | InvalidInput
            host = unique = f"nodes[{index}]"
            try:
                node = BareMetalNode.of(value)
                host, unique = node.host, node.uuid
            except InvalidInput as error:
                node = error
                for key in ("uuid", "name"):
                    with contextlib.suppress(InvalidInput):
                        host = names.provider_name(_field(value, key))
            if host in nodes:
                expected = "each once among the nodes of an agent"
                node = InvalidInput("repetition", "name of a node", host, expected)
                host = unique
            nodes[host] = node
        self._nodes, self._ambiguous = nodes, _ambiguous_classes(nodes)
        return list(nodes)

    def node(self, host: str) -> BareMetalNode:
        """Return the node of a host as it was read last.

        :raises NotFound: if the agent does not have it
        :raises InvalidInput: if it is invalid
        """
        if self._nodes is None:
            self.hosts()
        node = (self._nodes or {}).get(host)
        if node is None:
            raise NotFound("provider", host, "no node of this agent")
        if isinstance(node, InvalidInput):
            raise node.with_traceback(None)  # it is raised by each update
        return node

    def identity(self, host: str) -> str | None:
        """Return the uuid of the node."""
        return self.node(host).uuid

    def is_renamed(self, host: str, before: str) -> bool:
        """Return True if no node has the previous name: uuids of nodes are unique."""
        self.node(host)
        return before not in (self._nodes or {})

    def get_available_resource(self, host: str) -> BareMetalNode:
        """Return the node, as :meth:`node` does."""
        return self.node(host)

    def update_provider_tree(self, tree: Provider, available: Any) -> None:
        """Set the unit of the node, reserved if it is not available, and its traits."""
        node: BareMetalNode = available
        name = node_class(node.resource_class)
        is_allocated = any(
            record.used
            for _, inventory in tree.inventories.by_name()
            for record in inventory.to_records()
        )
        if node.instance_uuid is None:
            is_reserved = not node.is_available
        else:  # without an allocation it is in use all the same
            is_reserved = self._reserve_in_use or not is_allocated
        if is_allocated and name not in tree.inventories:
            is_reserved = True  # it is allocated in another class
        reserved = ":reserved=1" if is_reserved else ""
        foreign = (trait for trait in tree.traits if trait.startswith(_FOREIGN_TRAITS))
        tree.update(
            inventories=Inventories(f"{name}=1{reserved}:max_unit=1"),
            traits=node.traits.union(foreign),
        )

    def consumers(self, host: str) -> Mapping[str, Any]:
        """Return the instance of a node, which has the whole node; nothing without one."""
        node = self.node(host)
        amounts = {node_class(node.resource_class): 1}
        return {} if node.instance_uuid is None else {node.instance_uuid: amounts}

    def warnings(self, host: str) -> Iterable[InvalidInput]:
        """Return the error that nodes of another resource class have the class of this one."""
        return [self._ambiguous[host]] if host in self._ambiguous else []


def _field(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def _ambiguous_classes(
    nodes: Mapping[str, BareMetalNode | InvalidInput],
) -> dict[str, InvalidInput]:
    """Return errors about different resource classes that become the same class, by host.

    Each resource class but the first, in the order of their names, is reported for one host.
    """
    hosts: dict[str, dict[str, str]] = defaultdict(dict)
    for host, node in nodes.items():
        if isinstance(node, BareMetalNode):
            hosts[node_class(node.resource_class)].setdefault(node.resource_class, host)
    errors: dict[str, InvalidInput] = {}
    for name, first_hosts in hosts.items():
        first, *repeated = sorted(first_hosts)
        for other in repeated:
            expected = f"one name for {name}: {first} of {first_hosts[first]} becomes that too"
            errors[first_hosts[other]] = InvalidInput(
                "repetition", "resource class of a node", other, expected
            )
    return errors
