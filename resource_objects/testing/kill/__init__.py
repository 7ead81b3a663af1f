"""Never over, never lost: writers on few hot providers, killed at random, and a judge of the rest.

:func:`storm` starts processes that claim, release, move, swap, shrink, grow and reshape on the same
few providers, by number, by name, by NUMA topology and by device; kills some of them at random
moments; cuts connections, if it is told how; and then has a process of its own compare what is kept
with what the writers were told::

    from resource_objects.testing import kill

    def test_nothing_is_lost(tmp_path):
        report = kill.storm(MyBackend, f"mine://{tmp_path}/ledger", tmp_path)
        assert not report.problems, report

It serves every backend of the conformance kit that is ``multi_process``.

==================  ===============================================================================
``storm``           starts, kills, cuts, and asks the judge
``writers``         what a writer does, over and over
``located``         what a writer of amounts does that say where they are
``topologies``      what a writer of NUMA topologies does
``devices``         what a writer of devices does
``diary``           what it writes down before and after, in a file that survives it
``evidence``        what is kept: through a backend, or by plain SQL
``judge``           whether the one explains the other
==================  ===============================================================================
"""

from __future__ import annotations

from resource_objects.testing.kill.evidence import Evidence, through_backend, through_sql
from resource_objects.testing.kill.storm import Report, cut_connections, storm

__all__ = ["Evidence", "Report", "cut_connections", "storm", "through_backend", "through_sql"]
