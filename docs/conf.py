"""The site: `make docs` builds it offline into docs/_build, with warnings as errors.

Sphinx was chosen over MkDocs: it runs doctests, checks links inside the site, reads numpydoc docstrings without another
tool, and its search works on pages opened from disk. MyST lets every page stay Markdown that GitHub renders.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from docs.generated import write_generated_pages
from shoal.version import __version__

project = "Shoal"
author = "The Shoal developers"
release = version = __version__
extensions = ["myst_parser", "numpydoc", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx_copybutton"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["_build", "Thumbs.db"]
html_theme = "furo"
html_title = "Shoal"
html_show_copyright = False  # it is in LICENSE
smartquotes = False  # quotes of code are to be copied
html_static_path = ["pictures", "style"]
html_css_files = ["site.css"]
html_theme_options = {"navigation_with_keys": True}
copybutton_prompt_text = "$ "  # copies the commands of a block and not their output
copybutton_line_continuation_character = "\\"
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence", "deflist"]
suppress_warnings = ["ref.ref"]  # labels of scikit-learn in docstrings that we inherit; MyST still checks our own links
autosummary_generate = True
autosummary_imported_members = True
autodoc_typehints = "none"
autodoc_member_order = "bysource"
numpydoc_class_members_toctree = False
numpydoc_show_class_members = False
numpydoc_xref_param_type = False


def setup(app: object) -> None:
    write_generated_pages(Path(__file__).parent / "generated")
