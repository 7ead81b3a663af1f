"""A plug-in whose library is not installed."""

import a_library_that_is_not_installed

THING = a_library_that_is_not_installed.THING
