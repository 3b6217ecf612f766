"""One self-contained HTML page per run. It works offline, on phones, in dark mode, on paper and with screen readers."""

from __future__ import annotations

from shoal.report.finetune.page import finetune_page, write_finetune_page
from shoal.report.plan.page import plan_page, write_plan_page
from shoal.report.search.page import search_page, write_search_page
from shoal.report.why import why_page, write_why_page

__all__ = [
    "finetune_page",
    "plan_page",
    "search_page",
    "why_page",
    "write_finetune_page",
    "write_plan_page",
    "write_search_page",
    "write_why_page",
]
