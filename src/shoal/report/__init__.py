"""One self-contained HTML page per run: it works offline, by mail, on a phone, in the dark and by ear."""

from __future__ import annotations

from shoal.report.finetune.page import finetune_page, write_finetune_page
from shoal.report.search.page import search_page, write_search_page

__all__ = ["finetune_page", "search_page", "write_finetune_page", "write_search_page"]
