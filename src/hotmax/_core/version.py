"""The version, which the command line prints before anything else is imported."""

__version__ = "0.1.0"
