"""python/tutti/_abi.py agrees with the headers: generated again it is the same, a C compiler lays structs out as
it does, a C++ compiler sees the arguments it passes, and the library has what it declares. A file that is no
library, or a library of another interface, is refused with an error message."""

import ctypes
import os
import re
import shutil
import subprocess
import sys

import processes
import pytest

from tutti import _abi, _library

INCLUDE = processes.ROOT / "include"
STRUCTS = {name: t for name, t in vars(_abi).items()
           if isinstance(t, type) and issubclass(t, ctypes.Structure) and t is not ctypes.Structure}
NUMBERS = {name: n for name, n in vars(_abi).items() if name.startswith("TUTTI_")}


def text_of_headers():
    return "\n".join((INCLUDE / f"tutti/{h}.h").read_text() for h in installed())


def installed():
    return re.search(r"set\(TUTTI_HEADERS ([^)]*)\)", (processes.ROOT / "cmake/Install.cmake").read_text())[1].split()


def output_of(compiler, name, text, folder):
    """Of a program with this main() and all public headers."""
    if not shutil.which(compiler):
        pytest.skip(f"no {compiler}: tools/setup installs it")
    source, program = folder / name, folder / "program"
    source.write_text("".join(f"#include <tutti/{h}.h>\n" for h in installed()) + text)
    subprocess.run([compiler, "-Wall", "-Werror", f"-I{INCLUDE}", source, "-o", program,
                    *linked()], check=True)
    return subprocess.run([program], check=True, capture_output=True, text=True).stdout.splitlines()


def linked():
    """Headers have inline functions that call others."""
    library = os.environ["TUTTI_LIBRARY"]
    return [library, "-Wl,-rpath," + os.path.dirname(library)]


def test_abi_file_matches_the_headers():
    pytest.importorskip("pycparser", reason="no pycparser here: tools/setup --python installs it")
    done = subprocess.run([sys.executable, "-B", processes.ROOT / "tools/python-abi", "--check"], capture_output=True,
                          text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_structs_and_numbers_are_those_of_a_c_compiler(tmp_path):
    headers, lines, wanted = text_of_headers(), [], []
    for name, t in STRUCTS.items():
        c = f"struct {name}" if re.search(rf"\bstruct {name}\b", headers) else name
        lines.append(f'    printf("{name} %zu\\n", sizeof({c}));')
        wanted.append(f"{name} {ctypes.sizeof(t)}")
        for field, kind in t._fields_:
            lines.append(f'    printf("{name}.{field} %zu %zu\\n", offsetof({c}, {field}), '
                         f"sizeof((({c} *)NULL)->{field}));")
            wanted.append(f"{name}.{field} {getattr(t, field).offset} {ctypes.sizeof(kind)}")
    for name, n in NUMBERS.items():
        lines.append(f'    printf("{name} %lld\\n", (long long){name});')
        wanted.append(f"{name} {n}")
    text = "#include <stddef.h>\n#include <stdio.h>\nint main(void)\n{\n" + "\n".join(lines) + "\n    return 0;\n}\n"
    assert output_of("gcc", "layout.c", text, tmp_path) == wanted
    assert len(STRUCTS) > 30 and len(NUMBERS) > 40


# What a calling convention knows of a type: a pointer, a kind of number with its size, a struct
# with its size.
KIND_OF_CPP = """
#include <cstdio>
#include <string>
#include <type_traits>
template <class T> static std::string kind()
{
    if (std::is_void<T>::value)
        return "v";
    std::string bytes = std::to_string(sizeof(typename std::conditional<std::is_void<T>::value, int, T>::type));
    if (std::is_pointer<T>::value)
        return "p";
    if (std::is_same<T, bool>::value)
        return "b";
    if (std::is_enum<T>::value)
        return "i" + bytes;
    if (std::is_floating_point<T>::value)
        return "f" + bytes;
    if (std::is_integral<T>::value)
        return (std::is_signed<T>::value ? "i" : "u") + bytes;
    return "s" + bytes;
}
template <class R, class... A> static void show(const char *name, R (*)(A...))
{
    std::string all = kind<R>() + "(";
    for (const std::string &k : { std::string(), kind<A>()... })
        all += k.empty() ? k : k + " ";
    printf("%s %s)\\n", name, all.c_str());
}
int main()
{
"""


def kind(t):
    if t is None:
        return "v"
    if t in (ctypes.c_void_p, ctypes.c_char_p) or hasattr(t, "contents") or issubclass(t, ctypes._CFuncPtr):
        return "p"
    if issubclass(t, ctypes.Structure):
        return f"s{ctypes.sizeof(t)}"
    if t is ctypes.c_bool:
        return "b"
    if t in (ctypes.c_float, ctypes.c_double):
        return f"f{ctypes.sizeof(t)}"
    return f"{'u' if t(-1).value > 0 else 'i'}{ctypes.sizeof(t)}"


def test_arguments_and_results_are_those_of_a_cpp_compiler(tmp_path):
    wanted = [f"{name} {kind(result)}({''.join(kind(a) + ' ' for a in arguments)})"
              for name, (result, arguments) in _abi.FUNCTIONS.items()]
    shows = "".join(f'    show("{name}", {name});\n' for name in _abi.FUNCTIONS)
    assert output_of("g++", "arguments.cpp", KIND_OF_CPP + shows + "}\n", tmp_path) == wanted


def test_every_used_function_is_declared_and_exported():
    symbols = subprocess.run(["nm", "-D", "--defined-only", os.environ["TUTTI_LIBRARY"]], check=True,
                             capture_output=True, text=True).stdout
    functions = set(re.findall(r" T (\w+)@", symbols))
    package = "".join(p.read_text() for p in (processes.ROOT / "python/tutti").rglob("*.py") if p.name != "_abi.py")
    called = set(re.findall(r"\b_c\.(tutti_\w+)", package))
    assert len(called) > 80 and called <= set(_abi.FUNCTIONS) <= functions
    for name in _abi.TABLES:
        assert list(_library.table(name))


def refusal(**env):
    code = "import sys\ntry:\n    import tutti.engine\nexcept ImportError as e:\n    sys.exit(str(e))"
    done = subprocess.run([sys.executable, "-B", "-c", code], env=processes.environment(env), capture_output=True,
                          text=True)
    assert done.returncode == 1, done
    return done.stderr.strip()


def library(folder, version, more=""):
    path = folder / "libother.so"
    source = folder / "other.c"
    source.write_text(f'const char *tutti_version(void);\nconst char *tutti_version(void) {{ return "{version}"; }}\n')
    subprocess.run(["cc", "-shared", "-fPIC", source, "-o", path, *more.split()], check=True)
    return path


@pytest.mark.parametrize("version", ["0.1.0", "1.0.0", "0.20.0"])
def test_a_library_of_another_interface_is_refused(tmp_path, version):
    path = library(tmp_path, version)
    assert refusal(TUTTI_LIBRARY=path) == \
        f"tutti cannot use the library '{path}' named by TUTTI_LIBRARY: it is of version {version}, and this package " \
        f"was made for {_abi.VERSION}; install both from one version"


def test_a_library_that_lacks_functions_is_refused(tmp_path):
    assert re.search(r"it is no libtutti of version \S+ \(.*undefined symbol: tutti_\w+\); install both from one "
                     r"version$", refusal(TUTTI_LIBRARY=library(tmp_path, _abi.VERSION)))


def test_a_library_that_is_not_there_is_named(tmp_path):
    path = tmp_path / "none.so"
    assert refusal(TUTTI_LIBRARY=path) == \
        f"tutti cannot use the library '{path}' named by TUTTI_LIBRARY: there is no such file; install tutti again, " \
        "or name one in TUTTI_LIBRARY"


def test_a_missing_dependency_of_the_library_is_named(tmp_path):
    needed = tmp_path / "libneeded.so"
    (tmp_path / "needed.c").write_text("int needed;\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-Wl,-soname,libneeded.so.7", tmp_path / "needed.c", "-o", needed],
                   check=True)
    path = library(tmp_path, _abi.VERSION, f"-Wl,--no-as-needed {needed}")
    assert refusal(TUTTI_LIBRARY=path).endswith(
        ": it needs libneeded.so.7, which is not on this machine; install what has it")
