"""The version of the library: one place, read by the packaging and the command."""

__version__ = "0.1.0"
