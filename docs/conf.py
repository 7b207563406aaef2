"""How the documentation is built: `make docs`."""

import hashlib
import re
import shutil
from pathlib import Path

import hotmax

project = "hotmax"
author = "The hotmax developers"
version = release = hotmax.__version__
copyright = author

# sphinx-mathjax-offline copies MathJax into the site: no page asks for anything elsewhere.
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.mathjax",
    "sphinx-mathjax-offline",
]
exclude_patterns = ["_build"]
# `softmax` in a docstring is a link, if there is something of that name.
default_role = "py:obj"
suppress_warnings = ["ref.python"]  # several results have a `to_json`
html_theme = "furo"
html_title = "hotmax"
html_static_path = ["_static"]
html_css_files = ["guide.css"]
html_copy_source = False


def library_digest(folder):
    """A digest of every file of the library, by name and content."""
    digest = hashlib.sha256()
    for path in sorted(Path(folder).rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            digest.update(f"{path.relative_to(folder).as_posix()}\0".encode())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


# A page whose code fails breaks the build. A page is run again if it has changed, or the library:
# the cache has the digest of the library in its name, and a new name makes Sphinx read all pages.
nb_execution_mode = "cache"
nb_execution_cache_path = str(
    Path(__file__).resolve().parent
    / "_build"
    / "jupyter_cache"
    / library_digest(Path(hotmax.__file__).parent)
)
nb_execution_raise_on_error = True
nb_execution_timeout = 120
nb_merge_streams = True

myst_enable_extensions = ["dollarmath", "amsmath"]
myst_heading_anchors = 3
myst_url_schemes = {
    "http": None,
    "https": None,
    "explorer": "../explorer.html#{{path}}",
}


def remove_old_caches(app):
    """Results of the library as it was before are not needed again."""
    current = Path(app.config.nb_execution_cache_path)
    for path in current.parent.glob("*"):
        if path.name != current.name:
            shutil.rmtree(path)


def write_explorer(app, exception):
    """The explorer beside the pages, with links to those pages of the guide that exist."""
    if exception is None and app.builder.format == "html":
        from hotmax.view.explorer import assemble

        guide = tuple(sorted(path.stem for path in Path(app.srcdir, "guide").glob("[0-9]*.md")))
        text, _ = assemble.page_html(guide=guide, guide_base="guide/")
        Path(app.outdir, "explorer.html").write_text(text, encoding="utf-8")


def as_restructured_text(app, what, name, thing, options, lines):
    """Docstrings are plain text: tables stay as they are, and | and ** mean themselves."""
    found = []
    for line in lines:
        if line.startswith("|"):
            found += ([] if found and found[-1].startswith("    |") else ["::", ""]) + [
                f"    {line}"
            ]
        elif line.lstrip().startswith((">>>", "...")):
            found.append(line)
        else:
            found.append(re.sub(r"(\||\*\*)", lambda m: "".join(f"\\{c}" for c in m[0]), line))
    lines[:] = found


def skip_member(app, what, name, thing, skip, options):
    """What scikit-learn adds to every estimator refers to scikit-learn's own pages."""
    return True if re.fullmatch(r"set_\w+_request", name) else skip


def check_pictures(app, exception):
    """Every picture of the guide that has a description was drawn."""
    from sphinx.errors import ExtensionError

    if exception is None and app.builder.format == "html":
        for path in Path(app.srcdir, "guide").glob("[0-9]*.md"):
            wanted = len(re.findall(r"^ +alt: ", path.read_text(encoding="utf-8"), re.M))
            page = Path(app.outdir, "guide", path.with_suffix(".html").name)
            found = page.read_text(encoding="utf-8").count("<img alt=")
            if found != wanted:
                raise ExtensionError(f"{path.name}: {found} pictures of {wanted} were drawn")


def setup(app):
    app.connect("builder-inited", remove_old_caches)
    app.connect("autodoc-process-docstring", as_restructured_text)
    app.connect("autodoc-skip-member", skip_member)
    app.connect("build-finished", check_pictures)
    app.connect("build-finished", write_explorer)
