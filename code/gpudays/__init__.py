"""gpudays: the course's package, what the pages import. Names are loaded when they are first used."""

from importlib import import_module

__version__ = "0.1.0"

# Where each public name lives. Loading on first use keeps `import gpudays` in milliseconds.
_HOMES = {
    "compile": "compiler",
    "CompileError": "compiler",
    "KernelNotFound": "compiler",
    "Program": "compiler",
    "trace": "tracing",
    "trace_accesses": "microscope",
    "Access": "ptx.model",
    "Finding": "ptx.model",
    "LaunchError": "ptx.model",
    "UnsupportedInstruction": "ptx.model",
}


def __getattr__(name: str):
    if name in _HOMES:
        return getattr(import_module(f"gpudays.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'gpudays' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
