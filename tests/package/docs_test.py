"""Goal: what the pages show is what there is. Pictures are those of their sources, and the code of docs/ADD-A-METHOD.md
is that of examples/dynamic.c, which is built and run."""
import os, re, subprocess, sys, unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def text_of(*path):
    with open(os.path.join(ROOT, *path)) as f:
        return f.read()


class Pages(unittest.TestCase):
    def test_pictures_are_up_to_date_with_their_sources(self):
        for tool in ("tools/rooms", "tools/readme-picture"):
            words = [sys.executable, "-B", os.path.join(ROOT, tool), "--check"]
            done = subprocess.run(words, capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_every_module_is_in_the_picture(self):
        rooms = re.search(r"foreach\(room ([^)]*)\)", text_of("src/CMakeLists.txt"))[1].split()
        for room in rooms:
            self.assertIn(f">{os.path.basename(room)}</text>", text_of("docs/rooms.svg"))

    def test_code_of_the_page_is_that_of_the_example(self):
        page, example = text_of("docs/ADD-A-METHOD.md"), text_of("examples/dynamic.c")
        blocks = re.findall(r"(?s)```c\n(.*?)```", page.split("## Which hook")[0])
        self.assertEqual(len(blocks), 5)
        for block in blocks:
            self.assertIn(block, example)


if __name__ == "__main__":
    unittest.main(verbosity=2)
