"""Each public header, alone, in each language it promises, by each compiler there is, without a
warning; and in memory the languages agree."""
import os, unittest
from package import *

LANGUAGES = (("c", "c99"), ("c", "c11"), ("c++", "c++17"))
INCLUDE = "-I" + os.path.join(SOURCE, "include")

# What C11 knows as atomics and the others do not, and the structs that hold them.
LAYOUT = """
#include <stddef.h>
#include <stdio.h>
#include <tutti/method.h>
struct flag { char before; tutti_flag it; };
struct word { char before; tutti_word it; };
int main(void)
{
    tutti_request r;
    memset_(&r, sizeof r);
    printf("%zu %zu ", sizeof(tutti_flag), sizeof(tutti_word));
    printf("%zu %zu ", offsetof(struct flag, it), offsetof(struct word, it));
    printf("%zu %zu ", sizeof(tutti_request), offsetof(tutti_request, done));
    printf("%zu %zu ", offsetof(tutti_request, posted), offsetof(tutti_request, internal));
    printf("%zu ", sizeof(tutti_transport_ops));
    printf("%zu %zu ", offsetof(tutti_transport_ops, await), offsetof(tutti_transport_ops, simulated));
    printf("%zu %zu %zu ", sizeof(tutti_pass), sizeof(struct tutti_method), sizeof(tutti_group));
    printf("%zu %zu ", sizeof(tutti_engine_options), sizeof(tutti_error));
    printf("%d ", tutti_request_done(&r));
    *(unsigned char *)&r.done = 1;
    printf("%d\\n", tutti_request_done(&r));
    return 0;
}
""".replace("memset_(&r, sizeof r)", "for (size_t i = 0; i < sizeof r; i++) ((unsigned char *)&r)[i] = 0")


class Headers(Case):
    def test_each_header_compiles_alone_in_each_language(self):
        # Twice: a guard that fails shows.
        text = "#include <tutti/%s>\n" * 2 + "int nothing_else;\n"
        sources = [self.write(header.replace("/", "-") + ".c", text % (header, header)) for header in HEADERS]
        for language, standard in LANGUAGES:
            for compiler in compilers(language):
                with self.subTest(standard=standard, compiler=compiler):
                    run(compiler, "-x", language, f"-std={standard}", *STRICT, INCLUDE, "-fsyntax-only", *sources)

    def test_structs_are_the_same_in_memory_in_all_languages(self):
        source, printed = self.write("layout.c", LAYOUT), {}
        for language, standard in LANGUAGES:
            for compiler in compilers(language):
                program = os.path.join(self.folder, "layout")
                run(compiler, "-x", language, f"-std={standard}", *STRICT, INCLUDE, source, "-o", program)
                printed[standard, compiler] = run(program)
        self.assertEqual(len(set(printed.values())), 1, printed)
        self.assertTrue(next(iter(printed.values())).endswith(" 0 1\n"), printed)

    def test_every_header_declares_its_symbols_extern_c(self):
        for header in HEADERS:
            with open(os.path.join(SOURCE, "include/tutti", header)) as f:
                text = f.read()
            if header != "tutti.h":  # which only includes others
                self.assertIn('#ifdef __cplusplus\nextern "C" {\n#endif\n', text, header)


if __name__ == "__main__":
    unittest.main(verbosity=2)
