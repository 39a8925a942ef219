"""The version of this collbench."""

__version__ = "0.1.0"
