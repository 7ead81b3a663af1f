"""Tools for the tests of backends and plug-ins. The library itself imports none of them.

===============  ==================================================================================
``conformance``  the contract of a backend as tests: subclass them for your own
``drawing``      trees of providers as text: parse, build in a ledger, draw a ledger
``laws``         a pytest plug-in that reports which test protects which published invariant
``refusals``     ``raises_code``: expect an error by its code
===============  ==================================================================================

All but ``drawing`` need the packages of the extra ``resource_objects[test]``, such as pytest.
"""

from __future__ import annotations
