"""A driver for machines that are given out whole: one agent, thousands of hosts.

Each host is one provider with one unit of one class, ``CUSTOM_<CLASS>=1``, named after the node's
resource class as Nova names it (:func:`class_of`). The rules are those of Nova's driver for Ironic:

* A node that is not available is reserved: the unit is there and nobody gets it. Available is a
  node in the state ``available`` (or in none: who knows no states), not in maintenance, and not in
  power state ``error``. So it is reserved while it is cleaned, and can be had again after that.
* A node with an instance is not reserved while somebody holds the unit: whoever has the instance
  (:meth:`BareMetalDriver.consumers` says who that is). If nobody holds it, it is reserved, and
  drift tells of the instance. With ``reserve_in_use`` it is, as in Nova
  since 2023.1: then a node that is given back is not given out again before a look at it finds it
  available. The price is that the ledger shows more use than capacity for each node in use. An
  agent does without it that looks at a host just before it gives back what was held there.
* A node has the traits that it says. Of others stay those of the families ``COMPUTE_``, ``MISC_``
  and ``OWNER_``, which are about services and not about the machine.

Which agent has which nodes is not decided here (Nova uses a hash ring): a node that an agent names
no more stays in the ledger as it is, and the agent that names it next finds it by its name. While
two name it, both write the same. A node that is called otherwise is found by its uuid, and its
host renamed.

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
from resource_objects.resources.traits import known_traits

__all__ = ["BareMetalDriver", "BareMetalNode", "class_of"]

#: Provision states in which a node can be given out; None of who knows no states.
_GOOD_STATES = ("available", None)
_BAD_POWER = ("error",)
#: Families of traits that are not the node's to say.
_OF_OTHERS = ("COMPUTE_", "MISC_", "OWNER_")


def class_of(resource_class: str) -> str:
    """Return the class that nodes of a resource class are counted in.

    Each run of what is neither a letter of ASCII nor a digit becomes one underscore, then all is
    upper case; a name that begins with ``CUSTOM_`` gets another (``normalize_name`` of
    os-resource-classes, as Nova and Ironic use it).

    >>> class_of("baremetal.gold-2")
    'CUSTOM_BAREMETAL_GOLD_2'

    :raises InvalidInput: if it is too long; if it is no text, or empty
    """
    if not isinstance(resource_class, str) or not resource_class:
        raise InvalidInput(
            "value", "resource class of a node", resource_class, "a name such as gold"
        )
    made = os_resource_classes.normalize_name(resource_class)  # type: ignore[no-untyped-call]
    return names.resource_class_name(made)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BareMetalNode:
    """A machine that is given out whole, with what its own service says of it.

    The fields are those of Ironic's API. :meth:`of` takes what its clients return.

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
        class_of(self.resource_class)
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
        object.__setattr__(self, "traits", known_traits(self.traits))

    @classmethod
    def of(cls, given: Any) -> Self:
        """Return a node as Ironic's API or one of its clients describes it.

        :param given: a mapping, or an object with such attributes; more than the fields do not
            matter. An empty text is none
        :raises InvalidInput: if it has no uuid or no resource class, or what it has is none

        >>> BareMetalNode.of({"uuid": "6b7c0a9e-0d0f-4f83-9c0b-0a4e8b7c1d2e", "name": "lab-0",
        ...                   "resource_class": "gold", "provision_state": "clean wait"}).host
        'lab-0'
        """
        if isinstance(given, cls):
            return given
        every = {field.name: _said(given, field.name) for field in dataclasses.fields(cls)}
        said = {name: value for name, value in every.items() if value not in (None, "")}
        for needed in ("uuid", "resource_class"):
            if needed not in said:
                who = said.get("name") or said.get("uuid") or given
                raise InvalidInput("value", f"{needed} of node {who}", None, "one: nodes have it")
        return cls(**said)

    @property
    def host(self) -> str:
        """The name of its provider: its own, or the uuid of one that has none."""
        return self.name or self.uuid

    @property
    def is_available(self) -> bool:
        """Whether its own service would give it out."""
        return (
            self.provision_state in _GOOD_STATES
            and self.power_state not in _BAD_POWER
            and not self.maintenance
        )


#: What yields the nodes of an agent: asked at each look.
Nodes = Callable[[], Iterable[Any]] | Iterable[Any]


class BareMetalDriver(Driver):
    """Says of each node of an agent that it is one unit of its class, and whether it can be had.

    :param nodes: the nodes, or a callable that returns them at each look: as
        :meth:`BareMetalNode.of` takes them
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
        self._nodes = nodes if callable(nodes) else tuple(nodes)
        self._reserve_in_use = reserve_in_use
        self._known: Mapping[str, BareMetalNode | InvalidInput] | None = None
        self._alike: Mapping[str, InvalidInput] = {}

    def hosts(self) -> Iterable[str]:
        """Return the names of the nodes' hosts, after asking for the nodes.

        A node that is none is among them, so that it is told: by its uuid if its name is another's
        already, by its place in the list if it has neither.
        """
        known: dict[str, BareMetalNode | InvalidInput] = {}
        for place, given in enumerate(self._nodes() if callable(self._nodes) else self._nodes):
            host, node = _read(place, given)
            if host in known:
                twice = InvalidInput(
                    "repetition", "name of a node", host, "each once among the nodes of an agent"
                )
                host, node = (node.uuid if isinstance(node, BareMetalNode) else _at(place)), twice
            known[host] = node
        self._known = known
        self._alike = _alike(known)
        return list(known)

    def node(self, host: str) -> BareMetalNode:
        """Return the node of a host as it was at the last look.

        :raises NotFound: if it was not there
        :raises InvalidInput: if it is none
        """
        if self._known is None:
            self.hosts()
        found = (self._known or {}).get(host)
        if found is None:
            raise NotFound("provider", host, "no node of this agent")
        if isinstance(found, InvalidInput):
            raise found.with_traceback(None)  # it is raised at each look
        return found

    def identity(self, host: str) -> str | None:
        """Return the uuid of the node."""
        return self.node(host).uuid

    def is_renamed(self, host: str, before: str) -> bool:
        """Return whether no node is called as this one was: uuids of nodes are unique."""
        self.node(host)
        return before not in (self._known or {})

    def get_available_resource(self, host: str) -> BareMetalNode:
        """Return the node, as :meth:`node` does."""
        return self.node(host)

    def update_provider_tree(self, tree: Provider, available: Any) -> None:
        """Let the root be the node: its one unit, reserved if it cannot be had, and its traits."""
        node: BareMetalNode = available
        kind = class_of(node.resource_class)
        if node.instance_uuid is None:
            is_kept = not node.is_available
        else:  # held by nobody it is in use all the same
            is_kept = self._reserve_in_use or not _is_held(tree)
        if kind not in tree.inventories and _is_held(tree):
            is_kept = True  # in another class
        reserved = ":reserved=1" if is_kept else ""
        tree.update(
            inventories=Inventories(f"{kind}=1{reserved}:max_unit=1"),
            traits=node.traits.union(one for one in tree.traits if one.startswith(_OF_OTHERS)),
        )

    def consumers(self, host: str) -> Mapping[str, Any]:
        """Return the instance of a node, which has all of it; nobody if it has none."""
        node = self.node(host)
        whole = {class_of(node.resource_class): 1}
        return {} if node.instance_uuid is None else {node.instance_uuid: whole}

    def warnings(self, host: str) -> Iterable[InvalidInput]:
        """Return that nodes of another resource class are counted in the class of this one."""
        return [self._alike[host]] if host in self._alike else []


def _is_held(tree: Provider) -> bool:
    return any(record.used for _, one in tree.inventories.by_name() for record in one.to_records())


def _said(given: Any, name: str) -> Any:
    return given.get(name) if isinstance(given, Mapping) else getattr(given, name, None)


def _read(place: int, given: Any) -> tuple[str, BareMetalNode | InvalidInput]:
    """Return the host of a node, and the node or why it is none."""
    try:
        node = BareMetalNode.of(given)
    except InvalidInput as error:
        for key in ("name", "uuid"):
            with contextlib.suppress(InvalidInput):
                return names.provider_name(_said(given, key)), error
        return _at(place), error
    return node.host, node


def _at(place: int) -> str:
    return f"nodes[{place}]"


def _alike(known: Mapping[str, BareMetalNode | InvalidInput]) -> dict[str, InvalidInput]:
    """Return what is to be told of different resource classes that become the same, by host.

    One host of each class but the first, in the order of their names, is told of it.
    """
    first: dict[str, dict[str, str]] = defaultdict(dict)
    for host, node in known.items():
        if isinstance(node, BareMetalNode):
            first[class_of(node.resource_class)].setdefault(node.resource_class, host)
    found: dict[str, InvalidInput] = {}
    for made, hosts in first.items():
        said, *others = sorted(hosts)
        for other in others:
            expected = f"one name for {made}: {said} of {hosts[said]} becomes that too"
            found[hosts[other]] = InvalidInput(
                "repetition", "resource class of a node", other, expected
            )
    return found
