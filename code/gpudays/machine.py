"""Machine room: what this machine allows a page, and why, in one line."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from gpudays import gpu, nvrtc, profiler, profiles
from gpudays.course.steps import Day
from gpudays.profiler import Permission

MIB = 2**20
# L2 of cards whose figures are shipped or published, where the export does not tell. T4: NVIDIA, "Turing GPU
# Architecture" white paper, table of TU104-based cards (4096 KB). H200: cudaDeviceProp::l2CacheSize on one.
L2_BYTES = {"Tesla T4": 4 * MIB, "NVIDIA H200": 60 * MIB}


@dataclass(frozen=True)
class Machine:
    """One machine, and the figures that travel with the course.

    Attributes:
        card: the GPU, or None.
        why_no_card: why there is none, "" if there is.
        counters: whether hardware counters can be read, and why not.
        shipped, published: figures of the course's own GPU host, and of others.
    """

    card: gpu.Device | None
    why_no_card: str
    counters: Permission
    shipped_figures: profiles.Figures
    published_figures: profiles.Figures

    @property
    def shipped(self) -> pd.DataFrame:
        """The shipped figures as a measurements table, perhaps empty."""
        return self.shipped_figures.table

    @property
    def published(self) -> pd.DataFrame:
        """The published figures as a measurements table, perhaps empty."""
        return self.published_figures.table

    @property
    def card_name(self) -> str:
        """The card whose figures the page shows: this machine's, or the shipped one; "" if there is neither."""
        return self.card.name if self.card else self.shipped_figures.card

    @property
    def l2_bytes(self) -> int:
        """Its L2, 0 where not known."""
        if self.card:
            return self.card.l2_bytes
        told = (self.shipped_figures.machine or {}).get("l2_bytes")
        return int(told or L2_BYTES.get(self.card_name, 0))

    @property
    def published_card(self) -> str:
        """The card of the published figures, "" if there are none."""
        return self.published_figures.card

    @property
    def published_l2_bytes(self) -> int:
        """Its L2, 0 where not known."""
        return L2_BYTES.get(self.published_card, 0)

    @property
    def line(self) -> str:
        """What this machine allows, and why: compiler, answers, times, counters."""
        compiler = "NVRTC {}.{}".format(*nvrtc.version())
        rest = self.shipped_figures.origin
        if self.card is None:
            return (
                f"No GPU ({self.why_no_card}): {compiler} compiles, the tracer checks the answers and counts what "
                f"addresses decide. Times and the other counters: {rest}."
            )
        live = f"{self.card}: compiled by {compiler}, answers and times are live"
        if self.counters.allowed:
            return f"{live}; {self.counters.line}."
        return f"{live}; {self.counters.line} ({rest}.)"


def look(day: Day) -> Machine:
    """Find out.

    Raises:
        profiles.ProfileError: a shipped file is damaged; names it and the line.
    """
    return Machine(
        gpu.device(),
        gpu.why_no_gpu(),
        profiler.counters_allowed(),
        profiles.shipped(day.profiles),
        profiles.published(day.profiles),
    )
