"""The ledger as a whole: all its parts in one class."""

from __future__ import annotations

from resource_objects.ledger.claims import ClaimMethods
from resource_objects.ledger.history import HistoryMethods
from resource_objects.ledger.names import NameMethods
from resource_objects.ledger.plans import PlanMethods
from resource_objects.ledger.pools import PoolMethods


class Ledger(PlanMethods, PoolMethods, NameMethods, ClaimMethods, HistoryMethods):
    """Providers, what they have, and who uses it, kept in a backend.

    ==============  ===============================================================================
    declare         :meth:`sync`, :meth:`remove`, :meth:`rename`, :meth:`reparent`,
                    :meth:`set_inventories`, :meth:`set_traits`, :meth:`set_aggregates`
    pools           :meth:`share`, :meth:`unshare`, :meth:`report`, :meth:`pools`
    names           :meth:`classes`, :meth:`traits`, :meth:`aggregates`, and ``ensure_``,
                    ``rename_`` and ``remove_`` of each
    read            :meth:`provider`, :meth:`inventories`, :meth:`trees`, :meth:`providers`,
                    :meth:`consumers`, :meth:`held`, :meth:`assigned`, :meth:`usage`,
                    :meth:`totals`, :meth:`over_capacity`
    search          :meth:`snapshot`, then ``candidates``
    take, give      :meth:`claim`, :meth:`claim_all`, :meth:`adjust`, :meth:`replace`,
                    :meth:`move`, :meth:`swap`, :meth:`release`
    keep            :meth:`confirm`, :meth:`renew`, :meth:`expired`, :meth:`release_expired`
    plan            :meth:`diff`, :meth:`apply`, :meth:`reshape`, :meth:`audit`
    history         :meth:`cursor`, :meth:`changes`, :meth:`is_fresh`, :meth:`prune`
    end             :meth:`close`, or use it in a ``with`` statement
    ==============  ===============================================================================

    A writing method takes an ``operation`` id (a uuid, made up if not given): after a lost
    acknowledgement call again with the same id, and it happens once. Two take none, as calling them
    again just does the rest: :meth:`release_expired` and :meth:`prune`.
    """
