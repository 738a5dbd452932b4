"""Sphinx's settings for the site: the pages as they are, with the links that they have, from the root of the
repository. tools/site/build starts it."""
import glob
import os
import re

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))
project = "Tutti"
author = "Tutti"
with open(os.path.join(ROOT, "include/tutti/base.h"), encoding="utf-8") as header:
    version = ".".join(re.findall(r"(?m)^#define TUTTI_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)$", header.read()))
root_doc = "README"
include_patterns = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/**"]
exclude_patterns = ["build/**", "runs/**", "data/**", "src/**", "tests/**", "bench/**", "python/**"]
extensions = ["myst_parser"]
myst_heading_anchors = 6  # GitHub's anchors, which the pages' links have
html_theme = "furo"
html_title = f"Tutti {version}"
html_show_sphinx = False
html_copy_source = False
html_show_copyright = False
suppress_warnings = ["myst.header"]  # docs/api goes from the page's heading to those of its declarations
nitpicky = True  # what a link leads to has to be there; -W makes it an error
highlight_language = "none"
html_static_path = ["static"]
html_css_files = ["wide.css"]

# The sidebar. A page that is in none of these lists is a warning, so an error.
FIRST = ["TUTORIAL", "INSTALL", "WHICH-METHOD", "PYTORCH", "TORCH-DISTRIBUTED", "LIGHTNING", "ACCELERATE",
         "PYTORCH-MODELS", "COMPARE", "PLAN", "RESULTS", "PERFORMANCE", "MISSED", "LEDGER"]
USE = ["DATA", "PROBLEMS", "CODECS", "TOPOLOGY", "PRECISION", "CLUSTERS", "JOBS", "MPI", "LIMITS",
       "SECURITY", "VERSIONS", "OPTIONS"]
DEEP = ["ARCHITECTURE", "GLOSSARY", "ADD-A-METHOD", "ADD-A-CODEC", "ADD-A-TRANSPORT", "BINDINGS", "TESTING",
        "DEPENDENCIES"]


def listed(root, caption, names):
    rows = "\n".join("/" + name for name in names if os.path.exists(os.path.join(root, name + ".md")))
    return f"\n\n```{{toctree}}\n:hidden:\n:maxdepth: 1\n:caption: {caption}\n\n{rows}\n```\n"


def names_in(root, folder):
    pages = sorted(glob.glob(os.path.join(root, folder, "*.md")))
    return [os.path.relpath(page, root)[:-3] for page in pages if os.path.basename(page) != "README.md"]


def changed(app, docname, source):
    """What a repository's viewer does by itself: a list of the pages, and anchors in HTML. Those are
    made targets here, so that links to them are checked. A link to a public header leads to its page."""
    named, root = set(), app.srcdir

    def label(name):
        """Labels are without case, and of the whole site: TUTTI_SUM is another one than tutti_sum."""
        return name.lower() + ("-constant" if name.startswith("TUTTI_") else "")

    def target(match):
        """A struct and its type may have one name."""
        new = match[1] not in named
        named.add(match[1])
        return f"({label(match[1])})=\n" if new else ""

    text = re.sub(r'<a id="([^"]+)"></a>[ \n]', target, source[0])
    text = re.sub(r"\]\(((?:\.\./)*)include/tutti/(?:method/)?(\w+)\.h\)",
                  lambda match: f"]({match[1][3:] if match[1] else 'docs/'}api/{match[2]}.md)", text)
    text = re.sub(r"(\]\([^)\s]*#)([^)\s]+)(?=\))", lambda match: match[1] + label(match[2]), text)
    if docname == "README":
        text += listed(root, "Begin", [f"docs/{name}" for name in FIRST])
        text += listed(root, "Use", [f"docs/{name}" for name in USE])
        text += listed(root, "Methods", ["docs/methods/README"] + names_in(root, "docs/methods"))
        text += listed(root, "Design", names_in(root, "docs/design"))
        text += listed(root, "Look inside", [f"docs/{name}" for name in DEEP] +
                       ["docs/api/README", "CONTRIBUTING", "CHANGELOG"])
    if docname == "docs/api/README":
        text += listed(root, "The library", names_in(root, "docs/api"))
    source[0] = text


def setup(app):
    app.connect("source-read", changed)
