"""`import tutti` gives without PyTorch what the command prints from the same tables, and needs no PyTorch;
`import tutti.torch` needs no compiler of PyTorch."""

import json
import math
import re
import subprocess
import sys

import processes
import pytest
import tutti


def told(*words):
    done = subprocess.run([processes.build() / "bin/tutti", *words], capture_output=True, text=True, check=True,
                          env=processes.environment())
    return done.stdout


def test_neither_torch_nor_numpy_is_imported():
    code = "import sys, tutti, tutti.engine\nprint(sorted({'torch', 'numpy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-B", "-c", code], capture_output=True, text=True, check=True,
                          env=processes.environment())
    assert done.stdout == "[]\n"


@pytest.mark.torch
def test_the_compiler_of_torch_is_not_imported():
    """torch._dynamo takes as long as all the rest of PyTorch."""
    code = "import sys, tutti.torch\nprint('torch' in sys.modules, 'torch._dynamo' in sys.modules)"
    done = subprocess.run([sys.executable, "-B", "-c", code], capture_output=True, text=True, check=True,
                          env=processes.environment())
    assert done.stdout == "True False\n"


def test_the_version_is_that_of_the_headers_and_of_the_command():
    text = (processes.ROOT / "include/tutti/base.h").read_text()
    assert tutti.__version__ == ".".join(re.findall(r"#define TUTTI_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", text))
    assert tutti.__version__ in told("version")


def same_options(options, listed):
    assert [o.name for o in options] == [o["name"] for o in listed]
    for o, said in zip(options, listed):
        assert (o.type, o.default, o.help, list(o.choices)) == \
            (said["type"], said["default"], said["help"], said.get("choices", []))
        for bound, word in ((o.least, "min"), (o.most, "max")):
            assert bound == said[word] or math.isclose(bound, said[word])


def test_methods_are_those_of_the_command():
    listed = json.loads(told("methods", "--json"))
    assert [m.name for m in tutti.methods()] == [said["name"] for said in listed]
    for m, said in zip(tutti.methods(), listed):
        assert (m.title, m.authors, m.year, m.family) == \
            tuple(said[k] for k in ("title", "authors", "year", "family"))
        assert m.axes == {k: v or "" for k, v in said["axes"].items()}
        assert m.defaults == said["defaults"] and list(m.constraints) == said["constraints"]
        assert [{"option": d.option, "value": d.value, "when": d.when} for d in m.conditional_defaults] == \
            said["conditional_defaults"]
        assert m.paper == f"{m.authors}, {m.year}"
        same_options(m.options, said["options"])


def test_every_trait_has_a_name():
    """A bit that has none would be passed over: it is found here, by the enumerators of method.h."""
    text = (processes.ROOT / "include/tutti/method.h").read_text()
    enum = re.sub(r"(?s)/\*.*?\*/", "", text[text.index("enum {  /* traits"):].partition("};")[0])
    names = [name.lower().replace("_", "-") for name, _ in sorted(
        re.findall(r"TUTTI_(\w+) = (\d+)", enum), key=lambda pair: int(pair[1]))]
    from tutti import catalogue
    assert list(catalogue._TRAITS) == names
    assert tutti.method("ddp").traits >= {"replicas-equal", "takes-codec"}
    assert "async" in tutti.method("ad-psgd").traits


def test_unknown_method_is_rejected_with_similar_names():
    with pytest.raises(ValueError, match="^there is no method 'adpsgd'; did you mean 'ad-psgd', "):
        tutti.method("adpsgd")


def test_codecs_are_those_of_the_command():
    listed = json.loads(told("codecs", "--json"))
    assert [(c.name, c.help, c.paper, c.form) for c in tutti.codecs()] == \
        [tuple(said[k] for k in ("name", "help", "paper", "form")) for said in listed]
    for c, said in zip(tutti.codecs(), listed):
        same_options(c.options, said["options"])


def test_options_state_the_condition_under_which_they_apply():
    when = {o.name: o.when for o in next(c for c in tutti.codecs() if c.name == "accordion").options}
    assert when["dense"] == "dry_run=on" and when["eta"] == ""


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_weights_of_a_ring_are_a_third_each_and_its_gap_is_the_formula(n):
    ring = tutti.topology("ring", n)
    w = ring.weights()
    for i in range(n):
        neighbours = {(i - 1) % n, (i + 1) % n} - {i}
        assert ring.row(i).takes.keys() == ring.row(i).gives.keys() == neighbours
        assert all(math.isclose(w[i][j], 1 / (len(neighbours) + 1)) for j in neighbours | {i})
        assert math.isclose(sum(w[i]), 1)
    wanted = 1 if n < 3 else 1 - max(abs(1 + 2 * math.cos(2 * math.pi * k / n)) / 3 for k in range(1, n))
    assert math.isclose(ring.gap, wanted, rel_tol=1e-9)
    assert (ring.size, ring.period) == (n, 1) and ring.has("symmetric") and ring.has("static")


def test_rounds_of_an_exact_graph_multiply_to_the_mean():
    graph = tutti.topology("exponential", 8)
    product = [[float(i == j) for j in range(8)] for i in range(8)]
    for k in range(graph.period):
        w = graph.weights(k)
        product = [[sum(w[i][m] * product[m][j] for m in range(8)) for j in range(8)] for i in range(8)]
    exact = all(math.isclose(v, 1 / 8) for row in product for v in row)
    assert exact == graph.has("exact")


def test_invalid_topology_requests_are_rejected():
    with pytest.raises(ValueError, match="rnig.*did you mean 'ring'"):
        tutti.topology("rnig", 4)
    with pytest.raises(ValueError):
        tutti.topology("ring", 4).require("bipartiet")
    with pytest.raises(ValueError, match="cannot be asked whether it is 'round'"):
        tutti.topology("ring", 4).has("round")
    with pytest.raises(ValueError, match="2048"):
        _ = tutti.topology("ring", 4096).gap
    with pytest.raises(IndexError, match="members 0 to 3, not 4"):
        tutti.topology("ring", 4).row(4)


def test_families_are_those_of_the_command():
    text = told("topology", "--help") + told("topology")
    for family in tutti.topologies():
        assert re.search(rf"(?m)^ *{re.escape(family.name)}\b", text), family.name
