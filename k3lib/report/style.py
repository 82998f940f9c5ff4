"""One look for every figure: the same colour and hatch for the same thing, readable in print."""

from __future__ import annotations

from k3lib.spec.vocabulary import Phase

# seaborn's "colorblind" palette, by hand so that a phase never changes its colour, and a hatch for black and white.
PHASE_COLOURS: dict[Phase, str] = {
    Phase.CONTAINER: "#949494",
    Phase.CONFIG: "#56b4e9",
    Phase.INIT: "#0173b2",
    Phase.WEIGHTS: "#de8f05",
    Phase.MEMORY: "#029e73",
    Phase.SERVING: "#cc78bc",
}
PHASE_HATCHES: dict[Phase, str] = {
    Phase.CONTAINER: "",
    Phase.CONFIG: "..",
    Phase.INIT: "//",
    Phase.WEIGHTS: "",
    Phase.MEMORY: "\\\\",
    Phase.SERVING: "xx",
}
FAILURE_COLOUR = "#a3211b"


def set_style() -> None:
    """Apply the look to everything drawn afterwards."""
    import seaborn  # half a second to import: only when something is drawn

    seaborn.set_theme(
        context="notebook",
        style="whitegrid",
        font="DejaVu Sans",
        rc={"axes.spines.top": False, "axes.spines.right": False, "axes.titlelocation": "left", "hatch.linewidth": 0.4},
    )
