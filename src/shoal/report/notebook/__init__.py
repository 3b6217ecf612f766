"""Small cards of HTML for notebooks, in the style of the reports: light and dark, without JavaScript, all escaped."""

from __future__ import annotations

from shoal.report.notebook.cards import card_of

__all__ = ["card_of"]
