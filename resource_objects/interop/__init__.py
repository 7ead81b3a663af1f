"""The formats of other systems, one subpackage for each: ``nova``.

Documents are read as values of the library, which do not depend on the other system, or rejected.
The module that reads a format lists the errors of the other system in it.
"""
