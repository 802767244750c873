"""What all HTML pages share: frame, style, content policy, charts."""

from bertsmith.pages.charts import Reference, Series, line_chart, short
from bertsmith.pages.page import page

__all__ = ["Reference", "Series", "line_chart", "page", "short"]
