"""gpudays: the course's package, what the pages import."""

__version__ = "0.1.0"
