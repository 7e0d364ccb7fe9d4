"""The command line's door: ``python -m gpudays``."""

from gpudays.cli import app

app()
