"""The compute node: a host's record in Nova's terms, and its inventories.

This is the adapter of the *resource-objects* specification. It converts the columns of Nova's
``compute_nodes`` to inventories and back. It does *not* store usage: a ledger does, and a node can
be a view of one host in it (:mod:`resource_objects.host.view`).

    >>> from resource_objects.resources import Amounts
    >>> node = ComputeNode.from_row(
    ...     {"vcpus": 8, "vcpus_used": 3, "cpu_allocation_ratio": 2.0, "cpu_info": "{}"},
    ...     reserved="VCPU=1",
    ... )
    >>> request = Amounts("VCPU=4")
    >>> for resource, amount in request.items():
    ...     if node.inventories[resource].can_provide(amount):
    ...         print(node.inventories[resource].consume(amount))
    4
    >>> node.vcpus_used, node.changes()
    (7, {'vcpus_used': 7})

The inventories and the columns as they were read are the only state. Columns of inventories are
computed from both when they are read (:mod:`resource_objects.host.columns`), and assigning to one
raises ``FrozenValue``: the inventories change, and the columns follow. Inventories are read from
the row when they are first requested.

**disk_available_least** is a report: how much disk was free at one moment. Nova's
*compute-node-inventory* specification made it the ``max_unit`` of DISK_GB, which each report writes
anew, and which a second claim passes as easily as the first; Nova's scheduler takes the smaller of
``free_disk_gb`` and the report. Here it limits this node: until the next report, the usage is at
most the usage at the report plus the reported free disk. It is in no copy of an inventory and in no
definition, so a report writes nothing to a ledger.

**Cells and devices.** ``numa_topology`` is the inventory ``NUMA_TOPOLOGY``. A topology places
amounts and adds none: ``request.resources`` lists every count, and its topology knows that
these are counted separately; a topology on its own uses its counts itself. So a loop over the
resources of a request has one result in any order:

    >>> from resource_objects.requests import Request
    >>> from resource_objects.resources.numa import HostCell, NUMATopologyInventory
    >>> cells = [HostCell(n, shared=range(4 * n, 4 * n + 4), memory_mb=8192) for n in (0, 1)]
    >>> node = ComputeNode(vcpus=8, vcpus_used=0, memory_mb=16384, memory_mb_used=0,
    ...                    numa_topology=NUMATopologyInventory(cells))
    >>> request = Request("VCPU=4,MEMORY_MB=4096,NUMA_TOPOLOGY=2:shared=4:memory=4096")
    >>> for resource, amount in request.resources.items():
    ...     if node.inventories[resource].can_provide(amount):
    ...         print(resource, node.inventories[resource].consume(amount))
    VCPU 4
    MEMORY_MB 4096
    NUMA_TOPOLOGY 2:shared=4:memory=4096:on=0+1
    >>> node.vcpus_used, node.memory_mb_used
    (4, 4096)

Devices are the inventory ``DEVICES``, if the ledger or the caller lists them; ``pci_stats`` is
written from it. A row's own ``pci_stats`` only counts free devices, so it is carried as text and
makes no inventory. Cells and devices that are requested together are decided together:

    >>> from resource_objects.resources.pci import Device, PCIInventory
    >>> node.update_inventories({"DEVICES": PCIInventory([
    ...     Device("0000:5e:00.0", "10de", "2330", resource_class="PGPU", numa_node=1)])})
    True
    >>> request = Request(
    ...     "VCPU=2,NUMA_TOPOLOGY=1:shared=2:memory=512,DEVICES=PGPU@required")
    >>> assigned = node.inventories.consume(request.resources)
    >>> assigned["NUMA_TOPOLOGY"].host_cells, assigned["DEVICES"].addresses
    (frozenset({1}), ('0000:5e:00.0',))

The loop above decides one resource after the other: it cannot see that devices have to be near
cells, or the maximum of one consumer. A save refuses such a violation, and
:meth:`ComputeNode.check_save` reports it in advance.

Not for several threads at once, like every inventory.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NoReturn, Self

from resource_objects import base, exceptions, fields, names
from resource_objects.host import nova_columns
from resource_objects.host.adoption import Drift, RecordedUsage
from resource_objects.host.columns import (
    CARRIED,
    COUNTS,
    DERIVED,
    DISK_REPORT,
    NOTHING,
    RATIOS,
    ROW,
    Column,
    NodeState,
    Settings,
    apply_specified,
    carried_field,
    check_expressible,
    columns,
    count_of,
    members,
    read_inventories,
    read_ratios,
    read_reserved,
    recorded_ratio,
    reserved_elsewhere,
    reserved_of,
    specified,
    units,
)
from resource_objects.host.view import HostView, Pending, SaveResult, check_placed, update_in_place
from resource_objects.providers.holders import unattributed
from resource_objects.resources import (
    Amount,
    Amounts,
    IntegerAmount,
    Inventories,
    Inventory,
    Limits,
    Resource,
)

if TYPE_CHECKING:
    from resource_objects.ledger import Ledger

__all__ = ["ComputeNode", "SaveResult", "unattributed"]

_DISK = "DISK_GB"


class computed(property):  # noqa: N801  # it is used as a decorator, like property
    """A property of a node that follows its inventories: assigning raises ``FrozenValue``."""

    def __set__(self, node: object, value: object) -> NoReturn:
        name = getattr(self.fget, "__name__", "")
        raise exceptions.FrozenValue(
            f"ComputeNode.{name} follows the inventories: use inventories[...].consume() or "
            "update_inventories()"
        )

    def __delete__(self, node: object) -> NoReturn:
        self.__set__(node, None)


def _computed_column(name: str) -> computed:
    def read(node: ComputeNode) -> Any:
        return node._column(name)

    read.__name__ = name
    return computed(read)


@base.register
class ComputeNode(base.ResourceObject):
    """A host's record: columns with Nova's names, and the inventories that they describe.

    ==========  ===================================================================================
    read        :meth:`from_row`, :meth:`from_nova`, :meth:`read`, :meth:`load`
    allocate    :attr:`inventories`, :attr:`limits`, :attr:`pending`, :attr:`pending_placed`
    adapt       :meth:`get_inventories`, :meth:`update_inventories`
    write back  :meth:`changes`, :meth:`write_to`, :meth:`to_row`
    ledger      :meth:`bind`, :meth:`check_save`, :meth:`save`, :meth:`reload`
    ==========  ===================================================================================

    Any column may be unset, as in Nova; reading an unset one raises ``FieldNotSet``. A resource has
    an inventory if its total is above 0 and its used figure is set: nothing can be allocated of an
    unknown amount.

    * ``vcpus``, ``memory_mb`` (MiB), ``local_gb`` (GiB), their ``*_used`` figures and ratios,
      ``numa_topology``, ``pci_stats`` and the columns of plug-ins describe the inventories. They
      are computed: assigning raises ``FrozenValue``;
    * ``free_ram_mb`` and ``free_disk_gb`` are computed too, and may be negative;
    * every other column is carried: its value and type come back as they were, or as they were
      assigned. ``other_columns`` are those that are unknown here.

    ``row`` are the columns as they were read, ``known`` those that the record has now, if these
    differ. ``given_reserved`` and ``given_ratios`` are parameters of reading. ``saved`` are the
    inventories as they were read, or as the ledger has them; ``of_ledger`` is whether they are a
    ledger's. ``disk_limit_gb`` is the limit of the disk report.

    Cost: some 50 microseconds to read a row, 100 more and the JSON of cells when the inventories
    are first requested; a column costs its writing.
    """

    # Version 1.0: Initial version
    VERSION = "1.0"
    PARTIAL = True

    uuid: str | None = fields.text(nullable=True, read_only=True)
    host: str | None = fields.text(nullable=True)
    hypervisor_hostname: str | None = fields.text(nullable=True)
    disk_available_least: int | None = fields.integer(
        -fields.MAX_FIGURE, fields.MAX_FIGURE, nullable=True
    )
    row: Mapping[str, Any] = fields.field(ROW, default=fields.FrozenDict())
    known: Mapping[str, Any] | None = fields.field(ROW, default=None)
    given_reserved: Amounts | None = fields.nested("Amounts", default=None)
    given_ratios: Mapping[str, Decimal] = fields.field(RATIOS, default=fields.FrozenDict())
    inventories: Inventories = fields.nested("Inventories")
    saved: Inventories = fields.nested("Inventories")
    of_ledger: bool = fields.boolean(default=False)
    disk_limit_gb: int | None = fields.integer(0, default=None)
    fields = {name: carried_field(read_only=name == "id") for name in CARRIED}

    vcpus = _computed_column("vcpus")
    vcpus_used = _computed_column("vcpus_used")
    cpu_allocation_ratio = _computed_column("cpu_allocation_ratio")
    memory_mb = _computed_column("memory_mb")
    memory_mb_used = _computed_column("memory_mb_used")
    ram_allocation_ratio = _computed_column("ram_allocation_ratio")
    local_gb = _computed_column("local_gb")
    local_gb_used = _computed_column("local_gb_used")
    disk_allocation_ratio = _computed_column("disk_allocation_ratio")
    numa_topology = _computed_column("numa_topology")
    pci_stats = _computed_column("pci_stats")

    if TYPE_CHECKING:  # columns of plug-ins

        def __getattr__(self, name: str) -> Any: ...

    _view: HostView | None = None

    def __init__(
        self, *, reserved: Any = None, ratios: Any = None, other_columns: Any = None, **values: Any
    ) -> None:
        """Make a node of columns; a column of text may be passed as its inventory."""
        super().__init__()
        for name in values:
            if name not in (*_inventory_columns(), DISK_REPORT, *CARRIED):
                raise exceptions.InvalidInput(
                    "field name", f"ComputeNode.{name}", values[name], "a column of a compute node"
                )
        others = nova_columns.checked(dict(other_columns or {}))
        self._start({**others, **values}, reserved, read_ratios(ratios))
        self._store("known", fields.FrozenDict())

    # --- reading ---

    @classmethod
    def from_row(
        cls, row: Any, *, reserved: Any = None, ratios: Any = None, initial_ratios: Any = None
    ) -> Self:
        """Return the node of a row of ``compute_nodes``; columns that it lacks are unset.

        :param row: a mapping of columns, SQLAlchemy's ``Row``, or a :class:`ComputeNode`, of which
            the result is a copy that is bound to no ledger
        :param reserved: the amounts that the host reserves for itself, such as
            ``"VCPU=1,MEMORY_MB=512"``. The row's used figures include them
        :param ratios: allocation ratios that override those of the row, such as ``"VCPU=16"``
        :param initial_ratios: ratios where the row has none, in place of Nova's
        :raises InvalidInput: naming the column, its value and what is allowed, or the parameter

        >>> ComputeNode.from_row({"vcpus": 8, "vcpus_used": "3"})
        Traceback (most recent call last):
        resource_objects.exceptions.InvalidInput: vcpus_used: got '3', expected an integer ...
        """
        if isinstance(row, ComputeNode):
            if reserved is None:
                reserved = row._known_reserved()
            ratios = {**row.ratios, **read_ratios(ratios)}
            row = {**row.to_row(), **row._placed_inventories()}
        return cls._of_columns(nova_columns.row_of(row), reserved, ratios, initial_ratios)

    @classmethod
    def from_nova(
        cls, node: Any, *, reserved: Any = None, ratios: Any = None, initial_ratios: Any = None
    ) -> Self:
        """Return the node of a ``nova.objects.ComputeNode``; its unset fields are unset here.

        Columns are as Nova's own ``save`` would write them: ``stats``, ``supported_instances`` and
        ``pci_stats`` as JSON text. Cost: twice that of a row, and Nova's serialization of its PCI
        pools. Parameters and errors as :meth:`from_row`.

        :param node: the object, its primitive, or JSON text of that
        """
        return cls._of_columns(nova_columns.row_of_nova(node), reserved, ratios, initial_ratios)

    @classmethod
    def read(
        cls, source: Any, *, reserved: Any = None, ratios: Any = None, initial_ratios: Any = None
    ) -> Self:
        """Return the node of a row, of Nova's object, or of a :class:`ComputeNode`.

        Also of the primitive of Nova's object, and of JSON text of that or of a row. Parameters and
        errors as :meth:`from_row`.
        """
        source = nova_columns.parsed(source)
        is_novas = nova_columns.is_nova_primitive(source) or (
            nova_columns.is_nova_object(source) and not isinstance(source, ComputeNode)
        )
        read = cls.from_nova if is_novas else cls.from_row
        return read(source, reserved=reserved, ratios=ratios, initial_ratios=initial_ratios)

    @classmethod
    def _of_columns(
        cls, row: Mapping[str, Any], reserved: Any, ratios: Any, initial_ratios: Any
    ) -> Self:
        passed, initial = read_ratios(ratios), read_ratios(initial_ratios, "initial_ratios")
        read_reserved(NOTHING if reserved is None else reserved)
        checked = nova_columns.checked(row)
        unset = {n: ratio for n, ratio in initial.items() if not checked.get(COUNTS[n].ratio, 0)}
        node = cls()
        try:
            node._start(checked, reserved, {**unset, **passed})
        except exceptions.InvalidInput as error:
            raise nova_columns.as_row_error(error) from error
        if node._has_inventories:
            node.obj_reset_changes()
        return node

    def _start(self, values: Mapping[str, Any], reserved: Any, ratios: Mapping[str, Any]) -> None:
        """Set columns, checked."""
        passed = {name: value for name, value in values.items() if isinstance(value, Inventory)}
        row = {name: value for name, value in values.items() if name not in passed}
        settings = Settings(None if reserved is None else read_reserved(reserved), ratios)
        for column in columns():
            column.check(row, settings)
        for name in (*CARRIED, DISK_REPORT):
            if name in row:
                self._store(name, self._coerce(name, row[name]))
        self._store("row", self._coerce("row", row))
        self._store("given_reserved", settings.reserved)
        self._store("given_ratios", self._coerce("given_ratios", ratios))
        self._store("known", None)
        self._store("disk_limit_gb", self._reported_limit())
        if passed:
            by_resource = {
                c.resource: passed[c.names[0]] for c in columns() if c.names[0] in passed
            }
            self._specify(by_resource)

    def _validate(self) -> None:
        """Check an object from a wire; ``_start`` checks the arguments of the constructor."""
        _inventory_columns()  # the columns of plug-ins are attributes from now on
        if not self.of_ledger:  # the row of a ledger's host does not describe its inventories
            for column in columns():
                column.check(self.row, self._settings)
        if self._has_inventories != self.obj_attr_is_set("saved"):
            raise exceptions.InvalidInput(
                "field", "ComputeNode.saved", None, "set if inventories are"
            )
        if self._has_inventories:
            self._limit_disk()

    def obj_load_attr(self, attrname: str) -> None:
        """Read the inventories from the row when they are first requested.

        :raises InvalidInput: if a column cannot be read
        :raises FieldNotSet: for a column that is not set
        """
        if attrname not in ("inventories", "saved"):
            super().obj_load_attr(attrname)
        stored = read_inventories(self.row, self._settings)
        self._store("inventories", stored.obj_clone())
        update_in_place(self.inventories)
        self._store("saved", stored)
        self._limit_disk()

    # --- columns ---

    @property
    def _has_inventories(self) -> bool:
        return "_obj_inventories" in self.__dict__

    @property
    def _settings(self) -> Settings:
        return Settings(self.given_reserved, self.given_ratios)

    def _columns(self, *only: Column) -> dict[str, Any]:
        """Return the columns of the inventories that are set, of some resources or of all."""
        if not self._has_inventories:
            return {name: self.row[name] for name in _inventory_columns() if name in self.row}
        check_expressible(self.inventories, self.saved)
        state = NodeState(
            self.inventories,
            self.saved,
            self._settings,
            self.of_ledger,
            self._view is None or self._view.is_stored,
            self.known or {},
        )
        written: dict[str, Any] = {}
        for column in only or columns():
            written.update(column.write(self.row, state))
        return written

    def _column(self, name: str) -> Any:
        written = self._columns(*(column for column in columns() if name in column.names))
        if name not in written:
            raise exceptions.FieldNotSet(f"ComputeNode.{name} is not set")
        return written[name]

    def _carried(self) -> dict[str, Any]:
        """Return the carried columns that are set, with the report of disk."""
        values = ((name, f"_obj_{name}") for name in (*CARRIED, DISK_REPORT))
        return {name: self.__dict__[key] for name, key in values if key in self.__dict__}

    def obj_attr_is_set(self, attrname: str) -> bool:
        """Return whether a column is set; of inventories, whether they were read."""
        if attrname in self.fields:
            return f"_obj_{attrname}" in self.__dict__
        return attrname in self._columns()

    def update(self, **values: Any) -> bool:
        """Set several carried columns at once, checked together; return whether anything changed.

        :raises FrozenValue: for a column or field that follows the inventories; nothing changed
        """
        for name in values:
            self._check_carried(name)
        changed = super().update(**values)
        if DISK_REPORT in values:
            self._set_disk_limit(self._reported_limit())
        return changed

    def __delattr__(self, name: str) -> None:
        self._check_carried(name)
        super().__delattr__(name)
        if name == DISK_REPORT:
            self._set_disk_limit(None)

    def _check_carried(self, name: str) -> None:
        if isinstance(attribute := getattr(type(self), name, None), computed):
            attribute.__delete__(self)  # raises
        if name in self.fields and name not in (*CARRIED, DISK_REPORT):
            hint = "update_inventories() changes the inventories"
            raise exceptions.FrozenValue(f"ComputeNode.{name} is set by reading only: {hint}")

    @property
    def other_columns(self) -> Mapping[str, Any]:
        """The columns that are unknown to this library, as they were read. Read-only."""
        names = {*_inventory_columns(), *CARRIED, DISK_REPORT}
        return fields.FrozenDict({n: value for n, value in self.row.items() if n not in names})

    @other_columns.setter
    def other_columns(self, value: object) -> NoReturn:
        raise base.ReadOnlyField("ComputeNode.other_columns is read-only")

    @computed
    def free_ram_mb(self) -> int:
        """The free memory in MiB: total less used, as Nova computes it, without overcommit."""
        return int(self.memory_mb - self.memory_mb_used)

    @computed
    def free_disk_gb(self) -> int:
        """The free disk in GiB: total less used, as Nova computes it, without overcommit."""
        return int(self.local_gb - self.local_gb_used)

    @computed
    def reserved(self) -> Amounts:
        """The amounts that the host reserves for itself, as far as they are known."""
        reserved = dict.fromkeys(COUNTS, 0)
        for name in COUNTS:
            count = count_of(self.inventories, name) if self._has_inventories else None
            if count is not None:
                reserved[name] = count.reserved - reserved_elsewhere(name, self.inventories)
            elif not self.of_ledger:
                reserved[name] = reserved_of(self._settings, name)
        return Amounts(reserved)

    def _known_reserved(self) -> Amounts | None:
        reserved: Amounts = self.reserved
        is_known = reserved or self.of_ledger or self.given_reserved is not None
        return reserved if is_known else None

    @computed
    def ratios(self) -> Mapping[str, Decimal]:
        """The allocation ratios that were passed and that the inventories still have."""
        if not self._has_inventories:
            return self.given_ratios
        current = {
            name: getattr(count_of(self.inventories, name), "allocation_ratio", ratio)
            for name, ratio in self.given_ratios.items()
        }
        return fields.FrozenDict(
            {name: ratio for name, ratio in self.given_ratios.items() if current[name] == ratio}
        )

    # --- the report of disk ---

    def _reported_limit(self) -> int | None:
        """Return the maximum usage of disk by the present report, None without one."""
        least = self.__dict__.get(f"_obj_{DISK_REPORT}")
        if least is None:
            return None
        disk = count_of(self.saved, _DISK) if self._has_inventories else None
        if disk is not None:
            used: int | None = disk.used
        elif self.of_ledger:
            used = 0
        else:
            recorded = self.row.get(COUNTS[_DISK].used)
            used = None if recorded is None else recorded - reserved_of(self._settings, _DISK)
        return None if used is None else max(0, min(int(used + least), fields.MAX_AMOUNT))

    def _set_disk_limit(self, limit: int | None) -> None:
        self._store("disk_limit_gb", limit)
        if self._has_inventories:
            self._limit_disk()

    def _limit_disk(self) -> None:
        disk = count_of(self.inventories, _DISK)
        if disk is not None:
            disk.usage_limit = self.disk_limit_gb

    @property
    def limits(self) -> Limits:
        """The limits in addition to the capacities, by resource: that of the disk report."""
        limit = self.disk_limit_gb
        return Limits({} if limit is None else {_DISK: IntegerAmount(limit)})

    # --- allocating ---

    @computed
    def pending(self) -> Amounts:
        """The usage of this node that is not saved, in units."""
        return self._pending.amounts

    @property
    def pending_placed(self) -> Mapping[str, tuple[Amount, ...]]:
        """The assigned amounts of cells and devices that are not saved, by resource."""
        return self._pending.placed

    @property
    def _pending(self) -> Pending:
        if not self._has_inventories:
            return Pending()
        return Pending.between(self.saved, self.inventories)

    def get_inventories(self) -> dict[Resource, Inventory]:
        """Return copies of the inventories, by resource.

        >>> node = ComputeNode(vcpus=8, vcpus_used=2, local_gb=0, local_gb_used=0)
        >>> [(str(kind), held.capacity, held.used) for kind, held in node.get_inventories().items()]
        [('VCPU', 32, 2)]
        """
        return {kind: inventory.obj_clone() for kind, inventory in self.inventories.items()}

    def update_inventories(self, inventories: Mapping[Any, Inventory | None]) -> bool:
        """Set totals, reserved amounts, ratios and used figures; return whether anything changed.

        Other resources stay as they are. None removes a resource: total 0. A different used figure
        is pending usage of this node, whatever the capacity is: the caller states a fact. The cells
        of ``NUMA_TOPOLOGY`` and the devices of ``DEVICES`` are set with their usage, which is not
        pending. The ratios of cells are those of VCPU and MEMORY_MB, and ``PCPU`` has the total of
        the cells.

        :raises InvalidInventory: for a resource without columns, another kind of inventory, unit
            rules that no column contains, cells or devices that differ from those of the ledger, or
            CPUs of cells that are allocated by number only; nothing changed
        :raises InvalidInput: for an unknown resource

        >>> from resource_objects.resources import IntegerInventory
        >>> node = ComputeNode(memory_mb=1024, memory_mb_used=0)
        >>> node.update_inventories({"MEMORY_MB": IntegerInventory(2048, reserved=512)})
        True
        >>> node.memory_mb, node.memory_mb_used, node.free_ram_mb
        (2048, 512, 1536)
        """
        if not isinstance(inventories, Mapping):
            raise exceptions.InvalidInventory(
                "inventories", inventories, "a mapping of resources to inventories"
            )
        return self._specify(inventories)

    def _specify(self, inventories: Mapping[Any, Inventory | None]) -> bool:
        values, before = specified(inventories), members(self.inventories)
        row = None if self.of_ledger else self.row
        saved, now = apply_specified(values, members(self.saved), before, row, self._settings)
        changed = now != before
        update_in_place(self.inventories, now)
        self._store("saved", Inventories(saved))
        if self._view is not None:
            self._view.stored = self.saved
        self._limit_disk()
        return changed

    def _placed_inventories(self) -> dict[str, Inventory]:
        """Return the inventories that a text may not express completely, by their column."""
        if not self._has_inventories:
            return {}
        return {
            column.names[0]: self.inventories[column.resource].obj_clone()
            for column in columns()
            if column.resource not in COUNTS and column.resource in self.inventories
        }

    # --- writing back ---

    def to_row(self) -> dict[str, Any]:
        """Return every column that is set, with the derived and the unknown ones.

        :raises CannotDowngrade: for cells that no version of ``numa_topology`` can express
        :raises InvalidInventory: for an inventory that no column can express
        """
        row = {**self._columns(), **self._carried()}
        for name, of in DERIVED.items():
            column = COUNTS[of]
            if column.total in row and column.used in row:
                row[name] = row[column.total] - row[column.used]
        return {**row, **self.other_columns}

    def changes(self) -> dict[str, Any]:
        """Return ``{column: value}`` of what changed since it was read, with derived columns.

        All columns of a node that was constructed are changed. ``obj_reset_changes()`` forgets the
        changes, as in Nova. Errors as :meth:`to_row`.

        >>> node = ComputeNode.from_row({"memory_mb": 1024, "memory_mb_used": 512})
        >>> print(node.inventories.consume("MEMORY_MB=256"))
        MEMORY_MB=256
        >>> node.changes()
        {'memory_mb_used': 768, 'free_ram_mb': 256}
        """
        row, before = self.to_row(), self.row if self.known is None else self.known
        derived = {name: row.pop(name) for name in DERIVED if name in row}
        changed = {name: value for name, value in row.items() if not _is_same(name, value, before)}
        for name, value in derived.items():
            column = COUNTS[DERIVED[name]]
            if column.total in changed or column.used in changed:
                changed[name] = value
        return changed

    def obj_what_changed(self) -> set[str]:
        """Return the names of the fields that changed since it was read."""
        before = self.row if self.known is None else self.known
        carried = self._carried().items()
        changed = {name for name, value in carried if not _is_same(name, value, before)}
        if self._has_inventories and self.inventories != self.saved:
            changed.add("inventories")
        return changed

    def obj_reset_changes(self, fields: list[str] | None = None, recursive: bool = False) -> None:
        """Count the present columns as read. Pending usage stays pending."""
        if fields is None:
            row = self.to_row()
            present = {name: value for name, value in row.items() if name not in DERIVED}
            self._store("known", self._coerce("known", present))

    def write_to(self, target: Any) -> None:
        """Set the changed columns of a row (a mapping) or of Nova's object, and no others.

        So Nova's own change tracking reports exactly these fields. Ratios are written as floats,
        the type of these columns; with at most six places, they read back exactly.

        :raises InvalidInput: if the target is neither; for a changed column that Nova's object
            cannot be given (``supported_instances``, ``extra_resources``); nothing was set
        """
        nova_columns.write(target, self.changes())

    # --- the ledger ---

    @classmethod
    def load(cls, ledger: Ledger, name: str, consumer: str | None = None) -> Self:
        """Return the node of a host of a ledger, bound to it (see :meth:`bind`).

        ``host`` and ``hypervisor_hostname`` are the provider's name, ``uuid`` its uuid. Used
        figures include the reserved amounts. A resource that the host lacks has total 0; the
        inventories of its children are not included. Cost: one read of the host's tree.

        :param name: name or uuid of the host; the node stays with its uuid if it is renamed
        :raises InvalidInput: if the ledger is none, or the name cannot be one
        :raises NotFound: if the host does not exist
        """
        view = HostView(ledger, name, consumer)
        ratios = {
            column.ratio: float(count.allocation_ratio)
            for column in COUNTS.values()
            if (count := view.count(column.resource)) is not None
        }
        node = cls()
        columns = {"host": view.host, "hypervisor_hostname": view.host, "uuid": view.uuid}
        node._start({**columns, **ratios}, None, {})
        node._take_over(view)
        node.obj_reset_changes()
        return node

    def bind(
        self, ledger: Ledger, consumer: str | None = None, provider: str | None = None
    ) -> Self:
        """Make this node a view of a host of a ledger, and return it.

        Used figures are the ledger's from now on, plus pending usage. Usage that the *record*
        reports and no consumer explains is included: the first save of the host allocates it to the
        host's *unattributed* consumer, even beyond the capacity
        (:mod:`resource_objects.host.adoption`). That happens once; a later difference is
        :attr:`drift`. ``ledger.attribute`` moves the usage to its actual consumers.

        Totals, and reserved amounts and ratios that were passed or recorded, stay those of this
        node: :meth:`save` writes them if they differ. Others become the ledger's. The first save
        creates a host that the ledger does not have, with its cells and its known devices. The node
        identifies a host by its uuid: another machine may get its name later. Cost: one read of the
        tree.

        :param consumer: the consumer of usage of this node; by default the host's *unattributed*
            consumer (:func:`unattributed`)
        :param provider: name of the host in the ledger, by default ``hypervisor_hostname``, else
            ``host``
        :raises InvalidInput: if the ledger is none; if there is no name, or it cannot be one of a
            provider or consumer
        :raises AlreadyExists: if the provider of that name has another uuid than this node
        :raises CapacityException: if more is pending to be released than is used
        """
        row, ratios, reserved = self._columns(), self.ratios, self._known_reserved()
        figures: dict[str, dict[str, Any]] = {name: {} for name in COUNTS}
        for name, column in COUNTS.items():
            if column.total in row:
                figures[name]["total"] = row[column.total]
            if reserved is not None:
                figures[name]["reserved"] = units(reserved, name)
            if name in ratios or recorded_ratio(column.ratio, row.get(column.ratio)):
                figures[name]["allocation_ratio"] = column.ratio_of(row, Settings(None, ratios))
        uuid, settings = self.__dict__.get("_obj_uuid"), Settings(None, ratios)
        view = HostView(
            ledger,
            self._host_name() if provider is None else provider,
            consumer,
            record=self._recorded_usage(),
            uuid=None if uuid is None else names.uuid_text(uuid),
            inventories=self.inventories,
            figures=figures,
            ratios={name: column.ratio_of(row, settings) for name, column in COUNTS.items()},
            pending=self._pending,
            continues=self._view,
        )
        stored_ratios = {
            name: count.allocation_ratio
            for name in COUNTS
            if "allocation_ratio" not in figures[name] and (count := view.count(name)) is not None
        }
        self._store("given_ratios", self._coerce("given_ratios", {**ratios, **stored_ratios}))
        self._take_over(view)
        if self.__dict__.get(f"_obj_{DISK_REPORT}") is not None:
            self._set_disk_limit(self._reported_limit())
        return self

    def _recorded_usage(self) -> RecordedUsage | None:
        """Return the usage that this record reports, None if a ledger reported it."""
        if self.of_ledger:
            return self._view.record if self._view is not None else None
        saved = self.saved.obj_clone()
        without_total = {
            name: used
            for name, column in COUNTS.items()
            if count_of(saved, name) is None
            and (used := column.recorded_usage(self.row, self._settings))
        }
        return RecordedUsage(saved, without_total, self.given_reserved is not None)

    def _take_over(self, view: HostView) -> None:
        """Use the inventories of a view of a ledger from now on."""
        self._view, self._context = view, view.ledger
        self._store("of_ledger", True)
        self._store("inventories", view.inventories)
        self._store("saved", view.stored)
        self._limit_disk()

    def _host_name(self) -> str:
        for name in ("hypervisor_hostname", "host"):
            value: str | None = self.__dict__.get(f"_obj_{name}")
            if value is not None:
                return value
        raise exceptions.InvalidInput(
            "name", "provider name", None, "hypervisor_hostname or host to be set"
        )

    @property
    def view(self) -> HostView:
        """The host of the ledger that this node is bound to.

        :raises Conflict: if there is no ledger
        """
        if self._view is None:
            raise exceptions.Conflict("binding", self._label())
        return self._view

    @property
    def drift(self) -> Drift:
        """The recorded usage that the ledger of an adopted host lacked when the node was bound.

        None of it is written: the ledger knows the consumers. Empty for a node that was loaded.

        :raises Conflict: if there is no ledger
        """
        return self.view.drift

    @property
    def consumer(self) -> str:
        """The consumer of the usage that this node saves.

        :raises Conflict: if there is no ledger
        """
        return self.view.consumer

    def check(self) -> None:
        """Raise if an inventory was edited in a way that cannot be written back.

        :raises InvalidInventory: for a resource without a column, other dedicated CPUs than the
            cells have, or edited cells or devices of a ledger
        """
        check_expressible(self.inventories, self.saved)
        if self.of_ledger:
            check_placed(self.inventories, self.saved)

    def check_save(self) -> None:
        """Raise the error that :meth:`save` would raise now; nothing is written.

        It also reports violations that allocating one resource after the other cannot see: devices
        of a named consumer that are not near its cells, and unit rules on all its allocations.
        Cost: two reads of the tree and one of the consumers.

        :raises Conflict: if there is no ledger
        :raises CapacityException: with the consumers
        :raises NotFound: if the host was removed
        """
        self.view.check_save()

    def save(self, *, operation: str | None = None) -> SaveResult:  # type: ignore[override]
        """Write the pending usage and the changed figures to the ledger.

        It is one transaction; adoption comes before usage in a transaction of its own.
        Usage is written as a change of the allocations of this node's consumer, never as an
        absolute figure, and no other consumer's is touched. Changed totals, reserved amounts and
        ratios are written to the host; its children, traits, other classes and the figures that
        others changed stay. Devices that were claimed here are in use afterwards (``allocated``).
        Carried columns are written by :meth:`write_to` only. Without a change nothing is read or
        written. Afterwards the node has the figures of the ledger.

        After a refusal nothing changed here, and in the ledger at most the adoption was written.
        After a lost connection call it again: no write is repeated. Unit rules apply to all
        allocations of a named consumer; the *unattributed* one stands for many, whose amounts are
        checked when they are consumed.

        :param operation: the id of the write of usage, for a caller that may have to repeat it in
            another process; for one change only
        :raises Conflict: if there is no ledger
        :raises CapacityException: if it does not fit, with the consumers; if more is released than
            is allocated to the consumer; if devices of a named consumer are not near its cells
        :raises Stale: if a figure was changed here and by another process
        :raises NotFound: if the host was removed, even if another has its name now
        :raises AlreadyExists: if a new host has the name of another machine
        :raises InvalidInventory: as :meth:`check`
        :raises DatabaseError: if the outcome is not known
        """
        view = self.view
        try:
            result = view.save(operation)
        finally:
            self._take_over(view)
        if result:
            self._store("given_reserved", self.reserved)  # that of the ledger
        return result

    def reload(self) -> None:
        """Read the host again; pending usage and changed figures are dropped.

        :raises Conflict: if there is no ledger
        :raises NotFound: if the host was removed
        """
        self.view.reload()
        self._take_over(self.view)
        self._store("given_reserved", self.reserved)  # that of the ledger

    # --- copies ---

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return a copy, which is a view of the same host."""
        twin = super().__deepcopy__(memo)
        if twin._has_inventories:
            twin._limit_disk()
        if self._view is not None:
            twin._view = self._view.copy(twin.inventories, twin.saved)
        return twin

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes without the ledger, which belongs to a process."""
        return {**super().__getstate__(), "_view": None}

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self._key() == other._key() or self._comparable() == other._comparable()

    __hash__ = None  # type: ignore[assignment]  # it changes

    def _comparable(self) -> tuple[Any, ...]:
        """Return the compared values; texts are equal if their inventories are."""
        texts = [n for c in columns() if c.resource not in COUNTS for n in c.names]
        counted = {n: v for n, v in self._columns().items() if n not in texts}
        row = (self._carried(), counted, dict(self.other_columns))
        values = (*row, self.reserved, self.disk_limit_gb)
        try:
            return (*values, self.inventories, self._pending)
        except exceptions.InvalidInput as error:
            if not error.is_about("row"):
                raise
            return (*values, {name: self.row.get(name) for name in texts})

    def _label(self) -> str:
        values = (self.__dict__.get(f"_obj_{name}") for name in ("hypervisor_hostname", "host"))
        return next(filter(None, values), "compute node")

    def __str__(self) -> str:
        try:
            return f"{self._label()}: {self.inventories}"
        except exceptions.InvalidInput as error:
            if not error.is_about("row"):
                raise
            return f"{self._label()}: {error}"


def _inventory_columns() -> tuple[str, ...]:
    """Return the columns of the inventories."""
    return _declared(columns())


@functools.lru_cache(maxsize=4)
def _declared(all_columns: tuple[Column, ...]) -> tuple[str, ...]:
    """Return the names of columns, after those of plug-ins became attributes of nodes."""
    names = tuple(name for column in all_columns for name in column.names)
    for name in names:
        if not hasattr(ComputeNode, name):
            setattr(ComputeNode, name, _computed_column(name))
    return names


def _is_same(name: str, value: Any, row: Mapping[str, Any]) -> bool:
    """Return whether a row has this value of a column (True is not 1)."""
    if name not in row:
        return False
    before = row[name]
    is_equal = bool(before == value) and isinstance(before, bool) == isinstance(value, bool)
    return before is value or is_equal
