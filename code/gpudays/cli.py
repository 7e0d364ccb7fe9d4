"""The command line's hall: one app, ``gpudays``, whose commands live in the ``cli_*`` modules beside it.

A new module ``cli_NAME.py`` with an ``app`` adds its commands by being there.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

import typer

import gpudays

app = typer.Typer(
    name="gpudays",
    help="100 Days of GPU: pages, tracer, profiles and checks.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"gpudays {gpudays.__version__}")
        raise typer.Exit


@app.callback()
def main(version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="say it")) -> None:
    """100 Days of GPU: pages, tracer, profiles and checks."""


for _module in sorted(module.name for module in iter_modules(gpudays.__path__) if module.name.startswith("cli_")):
    app.add_typer(import_module(f"gpudays.{_module}").app)
