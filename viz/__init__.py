"""Pictures of a den: who led which pack, when, and with whom.

Everything here is made from the den's events alone, in the order of their numbers, and never needs Ray:

    events --fold--> DenView --graph_of--> networkx.DiGraph --lay_out--> Layout --render--> SVG, PNG
    (ledger)         (state)               (graph)             (layout)            (draw)

The same events give the same graph, the same places and the same bytes of SVG. matplotlib is imported only when a
picture is drawn.
"""

from viz.graph import Category, graph_of, leadership_graph
from viz.layout import Layout, lay_out
from viz.recorder import GraphRecorder, render_now, render_since
from viz.state import DenView, PackView, Reign, UnitView, fold

__all__ = [
    "Category",
    "DenView",
    "GraphRecorder",
    "Layout",
    "PackView",
    "Reign",
    "UnitView",
    "fold",
    "graph_of",
    "lay_out",
    "leadership_graph",
    "render",
    "render_now",
    "render_since",
]


def __getattr__(name: str) -> object:
    if name == "render":  # draws with matplotlib, which takes most of a second to import
        from viz.draw import render

        return render
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
