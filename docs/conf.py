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
