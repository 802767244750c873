"""All HTML: one frame, style and content policy; charts, tables and the template of each page."""

from bertsmith.pages.charts import (
    ChartPoint,
    Reference,
    Series,
    interval_chart,
    line_chart,
    pareto_front,
    point_chart,
    reliability,
    scatter,
    short,
    smoothed,
)
from bertsmith.pages.page import page, render
from bertsmith.pages.tables import (
    MarkedPart,
    bar_list,
    class_bars,
    confusion_matrix,
    heat_map,
    highlighted,
    number,
    shade,
    table,
)

__all__ = ["ChartPoint", "MarkedPart", "Reference", "Series", "bar_list", "class_bars"]
__all__ += ["confusion_matrix", "heat_map", "highlighted", "interval_chart", "line_chart"]
__all__ += ["number", "page", "pareto_front", "point_chart", "reliability", "render"]
__all__ += ["scatter", "shade", "short", "smoothed", "table"]
