"""For those who write a backend of their own. Nothing here is imported by the rest.

===============  ==================================================================================
``conformance``  the rules every backend keeps, as tests: subclass them for your own
``laws``         a plug-in of pytest that says which test proves which published law
===============  ==================================================================================

They need what the extra ``resource_objects[test]`` installs, such as pytest and Hypothesis.
"""

from __future__ import annotations
