"""The pages of the headers (tools/api-doc) are complete, and their links lead somewhere."""
import os, re, sys, unittest
from package import *


def text_of(*path):
    with open(os.path.join(*path)) as f:
        return f.read()


class Api(Case):
    def setUp(self):
        super().setUp()
        self.api = os.path.join(self.folder, "api")
        run(sys.executable, os.path.join(SOURCE, "tools/api-doc"), self.api)

    def test_every_function_has_an_anchor_and_an_index_entry(self):
        index, pages = text_of(self.api, "README.md"), 0
        for header in HEADERS:
            listed = os.path.join(self.folder, "listed.txt")
            source = self.write("one.c", f"#include <tutti/{header}>\n")
            run("gcc", "-std=c11", "-I", SOURCE + "/include", "-aux-info", listed, "-S", "-o", os.devnull, source)
            name_of_page = os.path.basename(header)[:-2] + ".md"
            page = text_of(self.api, name_of_page)
            for name in re.findall(rf"(?m)^/\* \S+/{header}:\S+ \*/ (?:extern|static) .*?\b(tutti_\w+) \(",
                                   text_of(listed)):
                self.assertTrue(f'<a id="{name}"></a>' in page,
                                f"{name} has no place in {name_of_page}")
                self.assertTrue(f"[`{name}`]({name_of_page}#{name})" in index,
                                f"{name} is not in the index")
                pages += 1
        self.assertGreater(pages, 250)

    def test_links_lead_somewhere(self):
        for page in os.listdir(self.api):
            for file, anchor in re.findall(r"\]\((\w+\.md)(?:#(\w+))?\)", text_of(self.api, page)):
                self.assertTrue(os.path.exists(os.path.join(self.api, file)), (page, file))
                if anchor:
                    self.assertTrue(f'<a id="{anchor}"></a>' in text_of(self.api, file),
                                    f"{page} leads to {file}#{anchor}, which is not there")


if __name__ == "__main__":
    unittest.main(verbosity=2)
