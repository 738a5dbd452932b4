"""`make site`: all pages are in it, each link leads somewhere, a broken one is refused, it asks nothing
of a network, and it can be read and searched in a browser, wide and narrow, light and dark."""
import html.parser, json, os, re, shutil, subprocess, sys, unittest, urllib.parse

sys.path[:0] = [os.path.join(os.path.dirname(__file__), "../cli")]
import commands
from command import *

ROOT = commands.ROOT
SPHINX = os.environ.get("SPHINX") or os.path.join(ROOT, "build/sphinx/bin/python")
MADE = os.path.join(os.environ["TUTTI_BUILD"], "docs")  # by the build
BROWSER = shutil.which("chromium")
THERE = shutil.which(SPHINX) and subprocess.run([SPHINX, "-c", "import sphinx, myst_parser, furo"]).returncode == 0


class Page(html.parser.HTMLParser):
    def __init__(self, path):
        super().__init__()
        self.ids, self.links, self.loaded = set(), [], []
        self.feed(read(path).decode())

    def handle_starttag(self, tag, attributes):
        a = dict(attributes)
        self.ids |= {a[k] for k in ("id", "name") if a.get(k)}
        if "href" in a:
            (self.loaded if tag == "link" and a.get("rel") in ("stylesheet", "icon") else self.links).append(a["href"])
        if "src" in a:
            self.loaded.append(a["src"])


@unittest.skipUnless(THERE, "skipped: no Sphinx to make the site with: tools/setup --site installs it")
class Site(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = scratch()
        cls.site = os.path.join(cls.folder, "site")
        cls.made = subprocess.run([os.path.join(ROOT, "tools/site/make"), cls.site], capture_output=True, text=True,
                                  env=dict(os.environ, SPHINX=SPHINX, PAGES=MADE))

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder, ignore_errors=True)

    def setUp(self):
        self.assertEqual((self.made.returncode, self.made.stderr), (0, ""))

    def test_site_has_all_pages_and_no_broken_links(self):
        pages = {}
        for folder, _, names in os.walk(self.site):
            for name in names:
                if name.endswith(".html"):
                    path = os.path.join(folder, name)
                    pages[path] = Page(path)
        tracked = subprocess.run(["git", "ls-files", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/*.md"],
                                 cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
        tracked += ["docs/" + os.path.relpath(os.path.join(folder, name), MADE)
                    for folder, _, names in os.walk(MADE) for name in names]
        self.assertLessEqual({"docs/" + name for name in ("OPTIONS.md", "RESULTS.md", "MISSED.md", "LEDGER.md",
                                                        "api/README.md")}, set(tracked))
        self.assertLessEqual({os.path.join(self.site, name[:-3] + ".html") for name in tracked}, set(pages))
        count = 0
        for path, page in pages.items():
            for link in page.links + page.loaded:
                at = urllib.parse.urlsplit(link)
                if at.scheme in ("http", "https", "mailto", "data"):
                    self.assertNotIn(link, page.loaded, "%s asks for it" % path)
                    continue
                to = os.path.normpath(os.path.join(os.path.dirname(path), urllib.parse.unquote(at.path))) \
                    if at.path else path
                self.assertTrue(os.path.exists(to), "%s links to %s" % (path, link))
                if at.fragment and to in pages:
                    self.assertIn(urllib.parse.unquote(at.fragment), pages[to].ids | {"", "top"},
                                  "%s links to %s" % (path, link))
                count += 1
        self.assertGreater(count, 10000)

    def test_a_link_that_leads_nowhere_and_a_page_in_no_list_are_refused(self):
        tree = os.path.join(self.folder, "tree")
        shutil.copytree(os.path.join(ROOT, "tools/site"), os.path.join(tree, "tools/site"))
        os.makedirs(os.path.join(tree, "include/tutti"))
        os.makedirs(os.path.join(tree, "docs"))
        os.makedirs(os.path.join(tree, "made"))
        shutil.copy(os.path.join(ROOT, "include/tutti/base.h"), os.path.join(tree, "include/tutti"))

        def made(text, **pages):
            for name, of in {"README": "# Tutti\n\n" + text + "\n", **pages}.items():
                with open(os.path.join(tree, ("" if name == "README" else "docs/") + name + ".md"), "w") as f:
                    f.write(of)
            done = subprocess.run([os.path.join(tree, "tools/site/make"), "out"], capture_output=True, text=True,
                                  env=dict(os.environ, SPHINX=SPHINX, PAGES="made"))
            return done.returncode, done.stderr

        self.assertEqual(made("[a](docs/DATA.md#a-part)", DATA="# Data\n\n## A part\n\nText.\n"), (0, ""))
        for link, sentence in (("docs/NONE" + ".md", "docs/NONE"), ("docs/DATA.md#no-part", "no-part"),
                               ("#nothing", "nothing")):
            code, said = made("[a](%s)" % link)
            self.assertNotEqual(code, 0)
            self.assertRegex(said, r"README\.md:3: WARNING: .*" + sentence)
        code, said = made("Text.", STRAY="# A page\n")
        self.assertNotEqual(code, 0)
        self.assertRegex(said, r"docs/STRAY\S+: WARNING")

    def dom(self, url, width, dark):
        done = subprocess.run([BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom",
                               "--hide-scrollbars",
                               "--virtual-time-budget=5000", "--user-data-dir=" + os.path.join(self.folder, "browser"),
                               "--blink-settings=preferredColorScheme=%d" % (0 if dark else 1),
                               "--window-size=%d,900" % width, "file://" + url],
                              capture_output=True, text=True, timeout=120, env=clean_environment())
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    @unittest.skipUnless(BROWSER, "skipped: no chromium to look at the site with: tools/setup --ci installs it")
    def test_site_is_readable_wide_and_narrow_light_and_dark(self):
        for name in ("index", "docs/PERFORMANCE", "docs/OPTIONS", "docs/methods/byteps"):
            looked = os.path.join(self.site, name + "-looked.html")
            with open(looked, "w") as f:
                f.write(read(os.path.join(self.site, name + ".html")).decode().replace(
                    "</body>", "<script>addEventListener('load',()=>{const e=document.documentElement;"
                    "e.dataset.seen=JSON.stringify([innerWidth,e.scrollWidth,getComputedStyle(document.body).color,"
                    "document.querySelector('article').clientWidth,"
                    "[...document.querySelectorAll('article img[src$=\".svg\"]')].map(i=>getComputedStyle(i).filter),"
                    "[...document.querySelectorAll('article pre')].filter(p=>p.scrollWidth>p.clientWidth).length])})"
                    "</script></body>"))
            for width in (1280, 390):
                for dark in (False, True):
                    found = re.search(r'data-seen="(.*?)"', self.dom(looked, width, dark))
                    inner, most, ink, article, pictures, cut = json.loads(found[1].replace("&quot;", '"'))
                    self.assertEqual({picture != "none" for picture in pictures} <= {dark}, True, (name, pictures))
                    self.assertEqual(cut, 0, "a command whose end is out of sight")
                    self.assertLessEqual(most, inner, (name, width))
                    self.assertGreater(article, 300)
                    self.assertEqual(int(re.findall(r"\d+", ink)[0]) > 128, dark, (name, ink))
            os.remove(looked)

    @unittest.skipUnless(BROWSER, "skipped: no chromium to search the site with: tools/setup --ci installs it")
    def test_site_search_works_without_a_server(self):
        found = self.dom(os.path.join(self.site, "search.html") + "?q=checkpoint-on-signal", 1280, False)
        self.assertIn('href="docs/CLUSTERS.html', found.split('id="search-results"')[1])


if __name__ == "__main__":
    unittest.main(verbosity=2)
