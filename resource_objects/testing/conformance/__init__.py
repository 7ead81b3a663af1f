"""The tests every backend passes, also yours.

Subclass :class:`BackendConformance`, name the backend, and override two fixtures::

    from resource_objects.testing.conformance import BackendConformance

    class TestMine(BackendConformance):
        backend_class = MyBackend
        backend_name = "mine"

        @pytest.fixture
        def url(self, tmp_path):
            return f"mine://{tmp_path}/ledger"

        @pytest.fixture
        def another_url(self, tmp_path):
            return f"mine://{tmp_path}/another"

Both name ledgers that are empty and that nobody else uses; ``url`` must not be kept from one test
to the next. What a backend cannot do is said by its capabilities, which are class attributes, never
by its name; see :class:`~resource_objects.testing.conformance.base.Kit`. Tests are marked with the
laws they hold it to: load the plug-in that knows the mark, ``pytest_plugins =
["resource_objects.testing.laws"]``.

Further: :func:`state_machine` compares a backend with a naive model of dicts, by Hypothesis, and
:func:`topology_machine` and :func:`device_machine` a ledger's view of NUMA cells and of devices
with an inventory in memory;
:mod:`resource_objects.testing.kill` lets processes loose on one and kills them at random, where it
is ``multi_process``; and :mod:`resource_objects.testing.checker` reads the tables of a SQL database
apart from the library.
Needs the extra ``resource_objects[test]``.
"""

from __future__ import annotations

import pytest

_PARTS = (
    "base",
    "catalogue",
    "claims",
    "concurrency",
    "definitions",
    "descriptions",
    "device_model",
    "devices",
    "feed",
    "freshness",
    "lists",
    "model",
    "naive",
    "names",
    "numa",
    "numa_model",
    "operations",
    "oracle",
    "orders",
    "races",
    "reshape",
    "shares",
    "units",
)
pytest.register_assert_rewrite(*(f"{__name__}.{part}" for part in _PARTS))

from resource_objects.testing.conformance.catalogue import CatalogueRules  # noqa: E402
from resource_objects.testing.conformance.claims import ClaimRules  # noqa: E402
from resource_objects.testing.conformance.concurrency import ConcurrencyRules  # noqa: E402
from resource_objects.testing.conformance.definitions import DefinitionRules  # noqa: E402
from resource_objects.testing.conformance.descriptions import DescriptionRules  # noqa: E402
from resource_objects.testing.conformance.device_model import device_machine  # noqa: E402
from resource_objects.testing.conformance.devices import DeviceRules  # noqa: E402
from resource_objects.testing.conformance.feed import FeedRules  # noqa: E402
from resource_objects.testing.conformance.freshness import FreshnessRules  # noqa: E402
from resource_objects.testing.conformance.lists import ListRules  # noqa: E402
from resource_objects.testing.conformance.model import state_machine  # noqa: E402
from resource_objects.testing.conformance.names import NameRules  # noqa: E402
from resource_objects.testing.conformance.numa import TopologyRules  # noqa: E402
from resource_objects.testing.conformance.numa_model import topology_machine  # noqa: E402
from resource_objects.testing.conformance.operations import OperationRules  # noqa: E402
from resource_objects.testing.conformance.orders import OrderRules  # noqa: E402
from resource_objects.testing.conformance.races import RaceRules  # noqa: E402
from resource_objects.testing.conformance.reshape import ReshapeRules  # noqa: E402
from resource_objects.testing.conformance.shares import ShareRules  # noqa: E402
from resource_objects.testing.conformance.units import UnitRules  # noqa: E402

__all__ = ["BackendConformance", "device_machine", "state_machine", "topology_machine"]


class BackendConformance(
    DefinitionRules,
    DescriptionRules,
    CatalogueRules,
    ClaimRules,
    OrderRules,
    UnitRules,
    ShareRules,
    TopologyRules,
    DeviceRules,
    ReshapeRules,
    ListRules,
    OperationRules,
    FeedRules,
    FreshnessRules,
    NameRules,
    ConcurrencyRules,
    RaceRules,
):
    """Every rule of the contract, as tests; subclass it (see the module)."""
