"""How the documentation is built: `make docs`."""

import hotmax

project = "hotmax"
author = "The hotmax developers"
version = release = hotmax.__version__
copyright = author

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.mathjax"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "hotmax"

# A page whose code fails breaks the build; pages that have not changed are not run again.
nb_execution_mode = "cache"
nb_execution_raise_on_error = True
nb_execution_timeout = 120
nb_merge_streams = True
myst_enable_extensions = ["dollarmath", "amsmath"]


def write_explorer(app, exception):
    """The explorer beside the pages, with links to those pages of the guide that exist."""
    if exception is None and app.builder.format == "html":
        from pathlib import Path

        from hotmax.view.explorer import assemble

        guide = tuple(sorted(path.stem for path in Path(app.srcdir, "guide").glob("*.md")))
        text, _ = assemble.page(guide=guide, guide_base="guide/")
        Path(app.outdir, "explorer.html").write_text(text, encoding="utf-8")


def setup(app):
    app.connect("build-finished", write_explorer)
