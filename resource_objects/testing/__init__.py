"""Tools for the tests of backends and plug-ins. The library itself imports none of them.

===============  ==================================================================================
``conformance``  the contract of a backend as tests: subclass them for your own
``laws``         a pytest plug-in that reports which test protects which published invariant
``refusals``     ``raises_code``: expect an error by its code
===============  ==================================================================================

They need what the extra ``resource_objects[test]`` installs, such as pytest and Hypothesis.
"""

from __future__ import annotations
