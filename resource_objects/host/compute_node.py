"""The compute node: a host's record in the words of the field, and its inventories.

This is the adapter of the *resource-objects* specification: it turns the columns of Nova's
``compute_nodes`` into inventories and back, and saves them. What it is *not*: a place where usage
is kept. The ledger keeps it; a node is a view of one host.

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

State is held once: plain inventories, beside the columns as they came. Columns are a projection of
both, computed when asked (:mod:`resource_objects.host.columns` says how); inventories are read from
the row when first asked for. What binds a node to a ledger is a member
(:mod:`resource_objects.host.view`), which also saves it, and
:mod:`resource_objects.host.stated` what may be stated of it.

**disk_available_least** is a report: how much disk was free, at that moment, whatever the books
say. Nova's *compute-node-inventory* specification made it the ``max_unit`` of DISK_GB, a definition
written anew with each report, and one that a second claim passes as easily as the first; Nova's
scheduler takes the smaller of ``free_disk_gb`` and the report. Here it is a ceiling of this view:
at the moment of the report what may be used is what was used then plus what was free. Every
decision of the view keeps to it, also the sum of several, until the next report. It is in no
inventory that is handed out and in no definition, so a report writes nothing to a ledger.

**Cells and devices.** What is in ``numa_topology`` is an inventory like the others,
``NUMA_TOPOLOGY``. It says where; it adds nothing (D1): ``request.resources`` names every count, and
its topology knows that these stand beside it. A bare topology takes its counts itself. So a loop
over a request's resources has one result in any order:

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

Devices are the inventory ``DEVICES``, if the ledger or the caller lists them. ``pci_stats`` is
written from that inventory. A row's own ``pci_stats`` only counts free devices, so it is carried as
text and makes no inventory. Cells and devices that are requested together through ``inventories``
are decided together:

    >>> from resource_objects.resources.pci import Device, PCIInventory
    >>> node.update_inventories({"DEVICES": PCIInventory([
    ...     Device("0000:5e:00.0", "10de", "2330", resource_class="PGPU", numa_node=1)])})
    True
    >>> request = Request(
    ...     "VCPU=2,NUMA_TOPOLOGY=1:shared=2:memory=512,DEVICES=PGPU@required")
    >>> taken = node.inventories.consume(request.resources)
    >>> taken["NUMA_TOPOLOGY"].host_cells, taken["DEVICES"].addresses
    (frozenset({1}), ('0000:5e:00.0',))

One by one, as in the loop above, nobody sees what belongs together: that devices have to be near
cells, or how much a consumer may have in all. A save that finds this refuses it by name, and
:meth:`ComputeNode.check_save` tells beforehand.

Not made for several threads at once, like every inventory.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Self

from resource_objects import base, exceptions, fields, names
from resource_objects.host import rows, stated
from resource_objects.host.adoption import Drift, RecordedUsage
from resource_objects.host.columns import (
    CARRIED,
    COUNTS,
    DERIVED,
    DISK_REPORT,
    NOTHING,
    RATIOS,
    ROW,
    NodeState,
    Settings,
    aside_of,
    carried_field,
    column_of,
    columns,
    count_of,
    members,
    read_inventories,
    read_ratios,
    read_reserved,
    reserved_of,
)
from resource_objects.host.view import HostView, Pending, SaveResult, check_placed
from resource_objects.providers.holders import unattributed
from resource_objects.resources import (
    Amount,
    Amounts,
    IntegerAmount,
    IntegerInventory,
    Inventories,
    Inventory,
    Limits,
    Resource,
)

if TYPE_CHECKING:
    from resource_objects.ledger import Ledger

__all__ = ["ComputeNode", "SaveResult", "unattributed"]

_DISK = "DISK_GB"


@base.register
class ComputeNode(base.ResourceObject):
    """A host's record: columns as Nova names them, and the inventories that they say.

    ============  =================================================================================
    read          :meth:`from_row`, :meth:`from_nova`, :meth:`read`, :meth:`load`
    ask, take     :attr:`inventories`, :attr:`limits`, :attr:`pending`, :attr:`pending_located`
    adapt         :meth:`get_inventories`, :meth:`update_inventories`
    write back    :meth:`changes`, :meth:`write_to`, :meth:`to_row`
    ledger        :meth:`bind`, :meth:`check_save`, :meth:`save`, :meth:`reload`
    ============  =================================================================================

    Any column may be unset, as in Nova; reading one that is raises ``FieldNotSet``. A resource is
    in the inventories if its total is above 0 and its used figure is set: of what is unknown,
    nothing is given out.

    * ``vcpus``, ``memory_mb`` (MiB), ``local_gb`` (GiB), their ``*_used`` figures and ratios,
      ``numa_topology``, ``pci_stats`` and the columns of plug-ins say what the inventories are:
      they are read here and changed there;
    * ``free_ram_mb`` and ``free_disk_gb`` are computed when asked, may be negative, and are kept
      nowhere;
    * every other column is somebody else's and is carried: value and type come back as they were.
      ``other_columns`` holds those this library has no name for.

    ``row`` are the columns as they came; ``known`` those that the record has now, where that is
    something else (None: the same). ``given_reserved`` and ``given_ratios`` are what reading was
    told besides; ``saved`` are the inventories as they were read, or as the ledger last said;
    ``of_ledger`` is whether they are a ledger's. ``disk_limit_gb`` is the ceiling of the report.

    Cost: reading a row some 50 microseconds, inventories 100 more when first asked for, and the
    JSON of cells and devices then; asking and taking what a plain inventory costs; a column what it
    takes to write it.
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

    _view: HostView | None = None
    _changed_fields: frozenset[str] = frozenset()  # type: ignore[assignment]

    def _store(self, name: str, value: Any) -> None:
        super()._store(name, value)
        self._changed_fields |= {name}

    def __init__(
        self, *, reserved: Any = None, ratios: Any = None, other_columns: Any = None, **values: Any
    ) -> None:
        """Make a node of columns; one that is kept in text may be given as its inventory."""
        super().__init__()
        for name in values:
            if name not in (*_written_columns(), DISK_REPORT, *CARRIED):
                raise exceptions.InvalidInput(
                    "field name", f"ComputeNode.{name}", values[name], "a column of a compute node"
                )
        others = rows.checked(dict(other_columns or {}))
        self._begin({**others, **values}, reserved, read_ratios(ratios))
        self._store("known", fields.FrozenDict())

    # --- reading ---

    @classmethod
    def from_row(
        cls, row: Any, *, reserved: Any = None, ratios: Any = None, initial_ratios: Any = None
    ) -> Self:
        """Return the node of a row of ``compute_nodes``; columns that it lacks are unset.

        :param row: a mapping of columns, SQLAlchemy's ``Row``, or a :class:`ComputeNode`, of which
            a copy that belongs to no ledger comes out
        :param reserved: what the host keeps for itself, such as ``"VCPU=1,MEMORY_MB=512"``: it is
            within the row's used figures
        :param ratios: allocation ratios that count whatever the row states, such as ``"VCPU=16"``
        :param initial_ratios: ratios where the row states none, instead of Nova's

        :raises InvalidInput: naming the column, its value and what was expected; of a parameter
            that cannot be

        >>> ComputeNode.from_row({"vcpus": 8, "vcpus_used": "3"})
        Traceback (most recent call last):
        resource_objects.exceptions.InvalidInput: vcpus_used: got '3', expected an integer ...
        """
        if isinstance(row, ComputeNode):
            if reserved is None:
                reserved = row._known_reserved()
            ratios = {**row.ratios, **read_ratios(ratios)}
            row = {**row.to_row(), **row._located()}
        return cls._of_columns(rows.row_of_mapping(row), reserved, ratios, initial_ratios)

    @classmethod
    def from_nova(
        cls, node: Any, *, reserved: Any = None, ratios: Any = None, initial_ratios: Any = None
    ) -> Self:
        """Return the node of a ``nova.objects.ComputeNode``; what is unset there is unset here.

        :param node: the object, its primitive, or JSON text of that

        Columns are as Nova's own ``save`` would write them: ``stats``, ``supported_instances`` and
        ``pci_stats`` as JSON text. Cost: twice that of a row, and what Nova takes to put its PCI
        pools into words. Parameters and errors as :meth:`from_row`.
        """
        return cls._of_columns(rows.row_of_nova(node), reserved, ratios, initial_ratios)

    @classmethod
    def read(
        cls, source: Any, *, reserved: Any = None, ratios: Any = None, initial_ratios: Any = None
    ) -> Self:
        """Return the node of a row, of Nova's object, or of a :class:`ComputeNode`.

        Also of the primitive of Nova's object, and of JSON text of that or of a row. Parameters and
        errors as :meth:`from_row`.
        """
        source = rows.parsed(source)
        foreign = rows.is_nova_primitive(source) or (
            rows.is_nova_object(source) and not isinstance(source, ComputeNode)
        )
        reader = cls.from_nova if foreign else cls.from_row
        return reader(source, reserved=reserved, ratios=ratios, initial_ratios=initial_ratios)

    @classmethod
    def _of_columns(
        cls, row: Mapping[str, Any], reserved: Any, ratios: Any, initial_ratios: Any
    ) -> Self:
        given, initial = read_ratios(ratios), read_ratios(initial_ratios, "initial_ratios")
        read_reserved(NOTHING if reserved is None else reserved)
        kept = rows.checked(row)
        unstated = {n: ratio for n, ratio in initial.items() if not kept.get(COUNTS[n].ratio, 0)}
        node = cls()
        try:
            node._begin(kept, reserved, {**unstated, **given})
        except exceptions.InvalidInput as error:
            raise rows.as_row_error(error) from error
        node.obj_reset_changes()
        return node

    def _begin(self, given: Mapping[str, Any], reserved: Any, ratios: Mapping[str, Any]) -> None:
        """Take over columns, checked."""
        whole = {name: one for name, one in given.items() if isinstance(one, Inventory)}
        row = {name: value for name, value in given.items() if name not in whole}
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
        self._store("disk_limit_gb", self._limit_by_report())
        if whole:
            self._load_inventories()
            self._take_over(
                {c.resource: whole[c.names[0]] for c in columns() if c.names[0] in whole}
            )

    def _validate(self) -> None:
        """Check what came over a wire; ``_begin`` checks columns that are given."""
        if not self.of_ledger:  # else the row says no more what there is
            for column in columns():
                column.check(self.row, self._settings)
        if self.obj_attr_is_set("inventories") != self.obj_attr_is_set("saved"):
            raise exceptions.InvalidInput(
                "field", "ComputeNode.saved", None, "set if inventories are"
            )
        if self.obj_attr_is_set("inventories"):
            self._follow_report()

    @classmethod
    def load(cls, ledger: Ledger, name: str, consumer: str | None = None) -> Self:
        """Return the node of a host of a ledger, bound to it (see :meth:`bind`).

        ``host`` and ``hypervisor_hostname`` are the provider's name, ``uuid`` its uuid. Used
        figures are what the ledger says is used, and the reserved. What the host has none of has
        total 0; what its children have is theirs. Cost: one read of the host's tree.

        :param name: name or uuid of the host; the node stays with that uuid when names move
        :raises InvalidInput: if the ledger is none, or the name cannot be one
        :raises NotFound: if there is no such host
        """
        view = HostView(ledger, name, consumer)
        counts = {name: count for name in COUNTS if (count := view.count(name)) is not None}
        ratios: dict[str, Any] = {
            COUNTS[name].ratio: float(count.allocation_ratio) for name, count in counts.items()
        }
        node = cls(host=view.host, hypervisor_hostname=view.host, uuid=view.uuid, **ratios)
        node._attach(view)
        node.obj_reset_changes()
        return node

    def obj_load_attr(self, attrname: str) -> None:
        """Read the inventories from the row when they are first asked for.

        :raises InvalidInput: if a column cannot be read
        :raises FieldNotSet: for a column that is not set
        """
        if attrname not in ("inventories", "saved"):
            super().obj_load_attr(attrname)
        self._load_inventories()

    def _load_inventories(self) -> None:
        found = read_inventories(self.row, self._settings)
        self._become(found, found.obj_clone())

    def _become(self, saved: Inventories, now: Inventories) -> None:
        """Have other inventories: those that somebody has in hand stay this node's."""
        if self.obj_attr_is_set("inventories"):
            there = members(self.inventories)
            self.inventories.replace_contents(now)
            for name in set(there).difference(members(now)):
                _close(name, there[name])
        else:
            object.__setattr__(self, "_obj_inventories", now)
        self._keep_saved(saved)
        for inventory in members(self.inventories).values():
            if not isinstance(inventory, IntegerInventory) and inventory.taken is None:
                inventory.taken = ()
        self._follow_report()

    def _keep_saved(self, saved: Inventories) -> None:
        object.__setattr__(self, "_obj_saved", saved)  # not marked: nobody sets it

    # --- columns ---

    @property
    def _settings(self) -> Settings:
        return Settings(self.given_reserved, self.given_ratios)

    def _state(self) -> NodeState:
        is_kept = self._view is None or self._view.is_stored
        known = {} if self.known is None else self.known
        return NodeState(
            self.inventories, self.saved, self._settings, self.of_ledger, is_kept, known
        )

    def _columns(self) -> dict[str, Any]:
        """Return the columns that say what the inventories are, those that are set."""
        if not self.obj_attr_is_set("inventories"):
            return {name: self.row[name] for name in _written_columns() if name in self.row}
        stated.check_kinds(self.inventories, self.saved)
        state = self._state()
        found: dict[str, Any] = {}
        for column in columns():
            found.update(column.write(self.row, state))
        return found

    def __getattr__(self, name: str) -> Any:
        if name in DERIVED:  # the property found that one of its sources is not set
            column = COUNTS[DERIVED[name]]
            super().obj_load_attr(
                column.used if self.obj_attr_is_set(column.total) else column.total
            )
        if name.startswith("_") or name not in _written_columns():
            raise AttributeError(name)
        if not self.obj_attr_is_set(name):
            self.obj_load_attr(name)
        return self._columns()[name]

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_") and name not in self.fields:
            self._refuse_following(name)
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        self._refuse_following(name)
        super().__delattr__(name)
        if name == DISK_REPORT:
            self._report(None)

    def obj_attr_is_set(self, attrname: str) -> bool:
        """Return whether a column is set; of inventories, whether they were read."""
        if attrname in self.fields:
            return f"_obj_{attrname}" in self.__dict__
        return attrname in self._columns()

    def update(self, **values: Any) -> bool:
        """Set several carried columns at once, checked together; return whether anything changed.

        :raises FrozenValue: for what the inventories say; nothing changed
        """
        for name in values:
            self._refuse_following(name)
        changed = super().update(**values)
        if DISK_REPORT in values:
            self._report(self._limit_by_report())
        return changed

    def _refuse_following(self, name: str) -> None:
        following = (
            *_written_columns(),
            *DERIVED,
            "other_columns",
            "reserved",
            "ratios",
            "pending",
        )
        inner = name in self.fields and name not in (*CARRIED, DISK_REPORT)
        if name == "other_columns":
            raise base.ReadOnlyField("ComputeNode.other_columns is read-only")
        if inner or name in following:
            raise exceptions.FrozenValue(
                f"ComputeNode.{name} follows the inventories: change them, or update_inventories()"
            )

    @property
    def other_columns(self) -> Mapping[str, Any]:
        """The columns this library has no name for, as they came."""
        known = {*_written_columns(), *CARRIED, DISK_REPORT}
        return fields.FrozenDict({n: value for n, value in self.row.items() if n not in known})

    @property
    def free_ram_mb(self) -> int:
        """Memory left in MiB: total less used, as Nova computes it. Overcommit does not count."""
        return int(self.memory_mb - self.memory_mb_used)

    @property
    def free_disk_gb(self) -> int:
        """Disk left in GiB: total less used, as Nova computes it. Overcommit does not count."""
        return int(self.local_gb - self.local_gb_used)

    @property
    def reserved(self) -> Amounts:
        """What the host keeps for itself, as far as it is known."""
        found = {
            name: 0 if self.of_ledger else reserved_of(self._settings, name) for name in COUNTS
        }
        if self.obj_attr_is_set("inventories"):
            for name in COUNTS:
                kept = count_of(self.inventories, name)
                if kept is not None:
                    found[name] = kept.reserved - aside_of(name, self.inventories)
        return Amounts(found)

    def _known_reserved(self) -> Amounts | None:
        found = self.reserved
        return found if found or self.of_ledger or self.given_reserved is not None else None

    @property
    def ratios(self) -> Mapping[str, Decimal]:
        """The allocation ratios that were given and that no inventory contradicts."""
        if not self.obj_attr_is_set("inventories"):
            return self.given_ratios
        has = {name: count_of(self.inventories, name) for name in self.given_ratios}
        return fields.FrozenDict(
            {
                name: ratio
                for name, ratio in self.given_ratios.items()
                if getattr(has[name], "allocation_ratio", ratio) == ratio
            }
        )

    # --- the report of disk ---

    def _limit_by_report(self) -> int | None:
        """Return how much disk may be used in all, by what is reported as free now."""
        least = getattr(self, f"_obj_{DISK_REPORT}", None)
        if least is None:
            return None
        used: int | None
        disk = count_of(self.saved, _DISK) if self.obj_attr_is_set("inventories") else None
        if disk is not None:
            used = disk.used
        elif self.of_ledger:
            used = 0
        else:
            recorded = self.row.get(COUNTS[_DISK].used)
            own = reserved_of(self._settings, _DISK)
            used = None if recorded is None else recorded - own
        return None if used is None else max(0, min(int(used + least), fields.MAX_AMOUNT))

    def _report(self, limit: int | None) -> None:
        self._store("disk_limit_gb", limit)
        if self.obj_attr_is_set("inventories"):
            self._follow_report()

    def _follow_report(self) -> None:
        disk = count_of(self.inventories, _DISK)
        if disk is not None:
            disk.usage_limit = self.disk_limit_gb

    @property
    def limits(self) -> Limits:
        """The bounds besides the capacities, by resource: what the report of disk leaves."""
        limit = self.disk_limit_gb
        return Limits({} if limit is None else {_DISK: IntegerAmount(limit)})

    # --- asking and taking ---

    @property
    def pending(self) -> Amounts:
        """What is used by this view and not saved, in units."""
        return self._pending.amounts

    @property
    def pending_located(self) -> Mapping[str, tuple[Amount, ...]]:
        """What is used by this view and not saved of cells and devices, assigned, by resource."""
        return self._pending.placed

    @property
    def _pending(self) -> Pending:
        if not self.obj_attr_is_set("inventories"):
            return Pending()
        return Pending.between(self.saved, self.inventories)

    def get_inventories(self) -> dict[Resource, Inventory]:
        """Return copies of the inventories, by resource, to keep or to change.

        >>> node = ComputeNode(vcpus=8, vcpus_used=2, local_gb=0, local_gb_used=0)
        >>> [(str(kind), held.capacity, held.used) for kind, held in node.get_inventories().items()]
        [('VCPU', 32, 2)]
        """
        return {kind: inventory.obj_clone() for kind, inventory in self.inventories.items()}

    def update_inventories(self, inventories: Mapping[Any, Inventory | None]) -> bool:
        """Take over totals, reserved, ratios and used figures; return whether anything changed.

        Resources that are not named stay as they are. None says that there is none of it (any
        more): total 0. A used figure that differs is consumed or given back by this view, whatever
        the capacity says: the caller states a fact. Of ``NUMA_TOPOLOGY`` the cells and what is used
        of them are taken over, as a fact that is nobody's and not pending; its ratios are those of
        VCPU and MEMORY_MB. ``PCPU`` has as many as the cells. Of ``DEVICES`` likewise the
        devices and what is used of them; ``pci_stats`` is written from these.

        :raises InvalidInventory: for a resource that a compute node has no columns for, another
            kind of inventory, unit rules that no column says, other cells or devices or usage of
            them than the ledger has, or CPUs of cells taken by number only; nothing changed
        :raises InvalidInput: for a resource that nobody knows

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
        return self._take_over(inventories)

    def _take_over(self, inventories: Mapping[Any, Inventory | None]) -> bool:
        wanted = stated.by_resource(inventories)
        before = members(self.inventories)
        row = None if self.of_ledger else self.row
        saved, now = stated.take_over(wanted, members(self.saved), before, row, self._settings)
        changed = now != before
        self._become(Inventories(saved), Inventories(now))
        return changed

    def _located(self) -> dict[str, Inventory]:
        """Return the inventories that a text may not say in full, by the column they are in."""
        if not self.obj_attr_is_set("inventories"):
            return {}
        return {
            column.names[0]: self.inventories[column.resource].obj_clone()
            for column in columns()
            if column.resource not in COUNTS and column.resource in self.inventories
        }

    # --- writing back ---

    def to_row(self) -> dict[str, Any]:
        """Return every column that is set, the derived ones, and those carried without a name.

        :raises CannotDowngrade: for cells that no version of ``numa_topology`` can say
        :raises InvalidInventory: for an inventory that no column can say
        """
        row = self._columns()
        for name in (*CARRIED, DISK_REPORT):
            if self.obj_attr_is_set(name):
                row[name] = getattr(self, name)
        for name, of in DERIVED.items():
            column = COUNTS[of]
            if column.total in row and column.used in row:
                row[name] = row[column.total] - row[column.used]
        return {**row, **self.other_columns}

    def changes(self) -> dict[str, Any]:
        """Return ``{column: value}`` of what changed since it was read, derived columns too.

        Of a node that was made and not read, that is every column that is set. What was written
        somewhere is forgotten by ``obj_reset_changes()``, as in Nova. Errors as :meth:`to_row`.

        >>> node = ComputeNode.from_row({"memory_mb": 1024, "memory_mb_used": 512})
        >>> print(node.inventories.consume("MEMORY_MB=256"))
        MEMORY_MB=256
        >>> node.changes()
        {'memory_mb_used': 768, 'free_ram_mb': 256}
        """
        row, before = self.to_row(), self.row if self.known is None else self.known
        derived = {name: row.pop(name) for name in DERIVED if name in row}
        found = {name: value for name, value in row.items() if not _is_same(name, value, before)}
        for name, value in derived.items():
            column = COUNTS[DERIVED[name]]
            if column.total in found or column.used in found:
                found[name] = value
        return found

    def obj_what_changed(self) -> set[str]:
        """Return the names of the fields that changed since it was read."""
        before = self.row if self.known is None else self.known
        changed = {
            name
            for name in (*CARRIED, DISK_REPORT)
            if self.obj_attr_is_set(name) and not _is_same(name, getattr(self, name), before)
        }
        if self.obj_attr_is_set("inventories") and self.inventories != self.saved:
            changed.add("inventories")
        return changed

    def obj_reset_changes(self, fields: list[str] | None = None, recursive: bool = False) -> None:
        """Forget what changed: what is there now counts as read. Pending stays pending."""
        if fields is None and (self.known is not None or self._is_touched()):
            row = self.to_row()
            kept = {name: value for name, value in row.items() if name not in DERIVED}
            self._store("known", self._coerce("known", kept))
        self._changed_fields -= {*(self.fields if fields is None else fields)}

    def _is_touched(self) -> bool:
        return self.obj_attr_is_set("inventories") or bool(
            self._changed_fields.intersection((*CARRIED, DISK_REPORT))
        )

    def write_to(self, target: Any) -> None:
        """Set what changed, and nothing else, on a row (a mapping) or on Nova's object.

        Nova's own change tracking sees exactly these fields. Ratios are written as floats, which
        is what these columns are; of at most six places, they read back exactly.

        :raises InvalidInput: if the target is neither; for a changed column that Nova's object
            cannot be given (``supported_instances``, ``extra_resources``); nothing was set
        """
        rows.write(target, self.changes())

    # --- the ledger ---

    def bind(
        self, ledger: Ledger, consumer: str | None = None, provider: str | None = None
    ) -> Self:
        """Make this node a view of a host of a ledger; return it.

        From now on the ledger says what is used: used figures become the ledger's, with what is
        pending on top. What a *record* says is used and no consumer of the ledger explains is used
        too: the first save of the host writes it, as what its *unattributed* consumer holds, also
        beyond the capacity (:mod:`resource_objects.host.adoption`). That happens once; what a
        record says more afterwards is :attr:`drift`. Who really
        uses it gets it by ``ledger.attribute``. Totals, and reserved and ratios that were given or
        stated, stay this node's and are written by :meth:`save` where they differ; others become
        the ledger's. A host that the ledger does not know is made by the first save, with its
        cells, and with its devices if they are known. One that it
        knows is known by its uuid from now on: whoever has its name later is another machine. Cost:
        one read of the tree.

        :param consumer: who holds what this view consumes; by default the host's *unattributed*
            consumer (:func:`unattributed`)
        :param provider: name of the host in the ledger, by default ``hypervisor_hostname``, else
            ``host``
        :raises InvalidInput: if the ledger is none; if there is no name, or one that no provider or
            consumer can have
        :raises AlreadyExists: if the provider of that name has another uuid than this node
        :raises CapacityException: if more is pending to be given back than is used there
        """
        ratios, columns_now = self.ratios, self._columns()
        figures = stated.figures(columns_now, self._known_reserved(), ratios)
        settings = Settings(None, ratios)
        view = HostView(
            ledger,
            self._host_name() if provider is None else provider,
            consumer,
            record=self._recorded_usage(),
            uuid=self._provider_uuid(),
            inventories=self.inventories,
            figures=figures,
            ratios={n: column.ratio_of(columns_now, settings) for n, column in COUNTS.items()},
            pending=self._pending,
        )
        if self._view is not None:
            view.continue_from(self._view)
        adopted = {
            name: count.allocation_ratio
            for name in COUNTS
            if "allocation_ratio" not in figures[name] and (count := view.count(name)) is not None
        }
        self._store("given_ratios", self._coerce("given_ratios", {**ratios, **adopted}))
        self._attach(view)
        if getattr(self, f"_obj_{DISK_REPORT}", None) is not None:
            self._report(self._limit_by_report())
        return self

    def _recorded_usage(self) -> RecordedUsage | None:
        """Return the usage that this record reports, None if a ledger reported it."""
        if self.of_ledger:
            return self._view.record if self._view is not None else None
        saved = (
            self.saved.obj_clone()
            if self.obj_attr_is_set("saved")
            else read_inventories(self.row, self._settings)
        )
        without_total = {
            name: used
            for name in COUNTS
            if count_of(saved, name) is None
            and (used := stated.recorded(self.row, self._settings, name))
        }
        return RecordedUsage(saved, without_total, self.given_reserved is not None)

    def _attach(self, view: HostView) -> None:
        """Show the inventories of a view of a ledger."""
        self._view, self._context = view, view.ledger
        self._store("of_ledger", True)
        object.__setattr__(self, "_obj_inventories", view.inventories)
        object.__setattr__(self, "_obj_saved", view.stored)
        self._follow_report()

    def _host_name(self) -> str:
        for name in ("hypervisor_hostname", "host"):
            found: str | None = getattr(self, f"_obj_{name}", None)
            if found is not None:
                return found
        raise exceptions.InvalidInput(
            "name", "provider name", None, "hypervisor_hostname or host to be set"
        )

    def _provider_uuid(self) -> str | None:
        uuid = getattr(self, "_obj_uuid", None)
        return None if uuid is None else names.uuid_text(uuid)

    @property
    def view(self) -> HostView:
        """The host of a ledger that the node is bound to.

        :raises Conflict: if there is no ledger
        """
        if self._view is None:
            host = getattr(self, "_obj_hypervisor_hostname", None) or getattr(
                self, "_obj_host", None
            )
            raise exceptions.Conflict("binding", host or "compute node")
        return self._view

    @property
    def drift(self) -> Drift:
        """What the record said and the ledger does not know.

        What it says is used beyond that, of a host adopted before; and what it counts as free and
        the ledger's host does not have. It is as it was when the node was bound, and nothing of it
        is written: the ledger knows who holds what. Nothing of a node that was loaded.

        :raises Conflict: if there is no ledger
        """
        return self.view.drift

    @property
    def consumer(self) -> str:
        """Who holds what this view saves.

        :raises Conflict: if there is no ledger
        """
        return self.view.consumer

    def check(self) -> None:
        """Raise if an inventory says what cannot be written back: another figure than its source.

        :raises InvalidInventory: for a resource that no column says, other dedicated CPUs than the
            cells have, or cells and devices of a ledger that were edited by hand
        """
        stated.check_kinds(self.inventories, self.saved)
        if self.of_ledger:
            check_placed(self.inventories, self.saved)

    def check_save(self) -> None:
        """Raise what :meth:`save` would refuse now, also what one-by-one taking could not see.

        That is what belongs together: devices of a consumer with a name are near its cells, and
        unit rules bind all that it holds. Cost: one read of the tree; nothing is written.

        :raises Conflict: if there is no ledger
        :raises CapacityException: with who holds what
        :raises NotFound: if the host is gone
        """
        self.view.check_save()

    def save(self, *, operation: str | None = None) -> SaveResult:  # type: ignore[override]
        """Write what is pending to the ledger: usage as one guarded claim, the definition merged.

        Usage goes as deltas of this view's consumer (``ledger.adjust``), never as an absolute
        figure and never touching what another consumer holds. Totals, reserved and ratios that
        changed here are written to the host, and nothing else of it: children, traits, other
        classes and figures that others changed stay. Devices that were claimed here are in use
        afterwards (``allocated``). Carried columns go to :meth:`write_to`; the
        ledger has no place for them. With nothing pending, nothing is read or written. Afterwards
        the view is what the ledger says.

        Refused: nothing changed, in the ledger or here; what was pending still is. (Usage and
        definition are one write.) After a lost
        connection call again: what was sent is not done twice. The ledger's unit rules bind all
        that a consumer with a name holds; the *unattributed* one stands for many, and each of its
        changes is judged by itself, when it is consumed.

        :param operation: id of the write of usage, for a caller that may have to repeat it in
            another process; use it for one change only
        :raises Conflict: if there is no ledger
        :raises CapacityException: if it does not fit, with who holds what, or gives back more than
            the consumer holds; for a consumer with a name, also if its devices are not near its
            cells
        :raises Stale: if a figure was changed here and by somebody else
        :raises NotFound: if the host is gone, even if another has its name now
        :raises AlreadyExists: if the host was not there, and its name is another machine's now
        :raises InvalidInventory: as :meth:`check`
        :raises InvalidInput: if the record is not adopted yet, the host has devices, and the column
            that counts them cannot be read
        :raises DatabaseError: if it is not known whether it was done
        """
        view = self.view
        try:
            result = view.save(operation)
        finally:
            self._attach(view)
        if result:
            self._store("given_reserved", self.reserved)  # as the ledger has it
        return result

    def reload(self) -> None:
        """Read the host again; what was pending, and not saved, is dropped.

        :raises Conflict: if there is no ledger
        :raises NotFound: if the host is gone
        """
        view = self.view
        view.reload()
        self._attach(view)
        self._store("given_reserved", self.reserved)  # as the ledger has it

    # --- copies ---

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Copy the record; the copy is a view of the same ledger."""
        twin = super().__deepcopy__(memo)
        twin._changed_fields = self._changed_fields
        if twin.obj_attr_is_set("inventories"):
            twin._follow_report()
        if self._view is not None:
            twin._view = self._view.copy(twin.inventories, twin.saved)
        return twin

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the record, without the ledger, which belongs to a process."""
        return {**super().__getstate__(), "_view": None}

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self._key() == other._key() or self._compared() == other._compared()

    __hash__ = None  # type: ignore[assignment]  # it changes

    def _compared(self) -> tuple[Any, ...]:
        """Return what equality is about; texts are equal where what they stand for is."""
        carried = {n: getattr(self, f"_obj_{n}", None) for n in (*CARRIED, DISK_REPORT)}
        counted = {n: v for n, v in self._columns().items() if n not in _texts()}
        same = (carried, counted, dict(self.other_columns), self.reserved, self.disk_limit_gb)
        try:
            return (*same, self.inventories, self._pending)
        except exceptions.InvalidInput as error:
            if not error.is_about("row"):
                raise
            return (*same, {n: self.row.get(n) for n in _texts()})

    def __str__(self) -> str:
        name = getattr(self, "_obj_hypervisor_hostname", None) or getattr(self, "_obj_host", None)
        try:
            return f"{name or 'compute node'}: {self.inventories}"
        except exceptions.InvalidInput as error:
            if not error.is_about("row"):
                raise
            return f"{name or 'compute node'}: {error}"


def _written_columns() -> tuple[str, ...]:
    """Return the columns that say what the inventories are."""
    return tuple(name for column in columns() for name in column.names)


def _texts() -> tuple[str, ...]:
    return tuple(n for column in columns() if column.resource not in COUNTS for n in column.names)


def _is_same(name: str, value: Any, row: Mapping[str, Any]) -> bool:
    """Return whether a column is as in a row (True is not 1)."""
    if name not in row:
        return False
    was = row[name]
    return was is value or (bool(was == value) and isinstance(was, bool) == isinstance(value, bool))


def _close(name: str, inventory: Inventory) -> None:
    """Let an inventory that a node has no more provide nothing, whoever has it in hand."""
    column = column_of(name)
    if isinstance(inventory, IntegerInventory):
        inventory.usage_limit = 0
    elif column is not None:
        column.close(inventory)
