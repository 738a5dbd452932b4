"""docs/api agrees with the headers, and is complete."""
import os, re, sys, unittest
from package import *

API = os.path.join(SOURCE, "docs/api")


def text_of(*path):
    with open(os.path.join(*path)) as f:
        return f.read()


class Api(Case):
    def test_pages_are_those_of_the_headers(self):
        made = os.path.join(self.folder, "api")
        run(sys.executable, os.path.join(SOURCE, "tools/api-doc"), made)
        self.assertEqual(sorted(os.listdir(API)), sorted(os.listdir(made)), "docs/api is old: make docs")
        for name in os.listdir(made):
            self.assertTrue(text_of(API, name) == text_of(made, name), f"docs/api/{name} is old: make docs")

    def test_every_function_of_a_header_has_its_place_on_its_page_and_in_the_index(self):
        index, pages = text_of(API, "README.md"), 0
        for header in HEADERS:
            listed = os.path.join(self.folder, "listed.txt")
            source = self.write("one.c", f"#include <tutti/{header}>\n")
            run("gcc", "-std=c11", "-I", SOURCE + "/include", "-aux-info", listed, "-S", "-o", os.devnull, source)
            page = text_of(API, header[:-2] + ".md")
            for name in re.findall(rf"(?m)^/\* \S+/{header}:\S+ \*/ (?:extern|static) .*?\b(tutti_\w+) \(",
                                   text_of(listed)):
                self.assertTrue(f'<a id="{name}"></a>' in page,
                                f"{name} has no place in docs/api/{header[:-2]}.md: make docs")
                self.assertTrue(f"[`{name}`]({header[:-2]}.md#{name})" in index,
                                f"{name} is not in docs/api/README.md: make docs")
                pages += 1
        self.assertGreater(pages, 250)

    def test_links_lead_somewhere(self):
        for page in os.listdir(API):
            for file, anchor in re.findall(r"\]\((\w+\.md)(?:#(\w+))?\)", text_of(API, page)):
                self.assertTrue(os.path.exists(os.path.join(API, file)), (page, file))
                if anchor:
                    self.assertTrue(f'<a id="{anchor}"></a>' in text_of(API, file),
                                    f"{page} leads to {file}#{anchor}, which is not there")


if __name__ == "__main__":
    unittest.main(verbosity=2)
