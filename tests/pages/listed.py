"""What is known of the pages' commands that are not run as they stand: the one place for it.

Whatever is in none of these tables is run as the page has it (tutti, exports) or fails the test.
"""
import os, re

# Read so before they are run, by regular expressions: fewer steps, samples and schedules, smaller
# networks, and this machine where a page has another.
FEWER = {"steps": 4, "samples": 3000, "checkpoint-every": 4, "eval-every": 3, "epochs": 2}
REPLACED = [
    (r"(--(steps|samples|checkpoint-every|eval-every|epochs) )(\d+)",
     lambda m: m[1] + str(min(int(m[3]), FEWER[m[2]]))),
    (r"(tutti (?:train|compare) [^#]*?--model )mlp(?= )", r"\1'mlp(hidden=64)'"),
    (r"tutti train (-n 8 )?--transport sim --platform",
     r"tutti train --model 'mlp(hidden=64)' \1--transport sim --platform"),
    (r"rows=20000", "rows=1000"),
    (r"vgg\(small\)(' -n 4 --method bytescheduler --steps) \d+", r"vgg(small)\1 2"),
    (r"timeout --signal=KILL \d+", "TUTTI_STREAM=500 killed"), # once there is a checkpoint (commands_test.py)
    (r"(tutti compare --methods \S+)(?=\s|$)(?!\s+--model)", r"\1 --model 'mlp(hidden=64)'"),
    (r"tutti compare --methods", "tutti compare --seeds 2 --methods"),
    (r"(tools/netlab [^#]*--model (?:mlp|'mlp\(hidden=64\)'))", r"\1 --steps 4"),
    (r"(tutti plan --model \w+ -n 4)(?= |$)", r"\1 --methods ddp,powersgd,ad-psgd"),
    (r"--seeds 1\.\.\d+", "--seeds 1..1"),
    (r"mpirun((?: --\S+ [^-]\S*)*) -n 64", r"mpirun\1 -n 2"),
    (r"TUTTI_MEET=a:29500", "TUTTI_MEET=127.0.0.1:$PORT"),
    (r"MASTER_PORT=29500", "MASTER_PORT=$PORT"),
    (r"--meet 192\.168\.7\.1:29500", "--meet 127.0.0.1:$PORT"),
    (r"path=/data\b", "path=disk"),
    (r"--vocab 4096", "--vocab 512"),
]

# Shorter, too: data/ has the first 1024 samples of MNIST, and a report comes every 3 steps.
ENVIRONMENT = {"TUTTI_REPORT_EVERY": "3", "OMP_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1",
               "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
               "HWLOC_COMPONENTS": "-gl"}

# Files that a page takes as there: what is in them, or a block of a page, by its language.
YAML = "model: mlp(hidden=32)\nbatch: 16\nsteps: 6\nreport-every: 2\n"
WORLD = """import sys
from tutti.engine import World
with World() as world:
    print("worker", world.rank, "of", world.size, *sys.argv[1:])
"""
MEASURED = """{"schema": "tutti-measured-1", "batch": 8, "forward_seconds": 0.002,
 "backward_seconds": 0.004, "tensors": [
  {"name": "1.bias", "shape": [8], "dtype": "float32", "ready_seconds": 0.001},
  {"name": "1.weight", "shape": [8, 64], "dtype": "float32", "needed_seconds": 0.001, "ready_seconds": 0.001},
  {"name": "0.weight", "shape": [64, 64], "dtype": "float32", "ready_seconds": 0.004}]}
"""
FILES = {
    "run.yaml": lambda root: YAML,
    "net.json": lambda root: MEASURED,
    "run.json": lambda root: '{"model": "mlp(hidden=32)", "batch": 16, "steps": 6}\n',
    "train.py": lambda root: WORLD,
    "cluster.json": lambda root: re.search(r"(?s)```json\n(.*?)```", text(root, "docs/PLAN.md"))[1],
    "book.txt": lambda root: text(root, "data/moby-dick/moby-dick.txt")[:200000],
    "regression.c": lambda root: text(root, "examples/regression.c"),
    "dynamic.c": lambda root: text(root, "examples/dynamic.c"),
    "cluster.c": lambda root: text(root, "examples/cluster.c"),
}
# What a page takes as made elsewhere.
BEFORE = {
    "docs/OPTIONS.md": ["tutti platform 'cluster(n=8,rate=1Gbps)' > cluster.xml"],
}


def text(root, name):
    with open(os.path.join(root, name), encoding="utf-8") as f:
        return f.read()


# Run where there is time: by make check-long, with the rest of their page, which they may need.
LONG = [
    r"tutti compare .*",
    r"tutti plan (?!memory|stages).*",
    r"(torchrun|mpirun) .*",
    r"build/python/bin/python .*",
    r"tutti run .*examples/pytorch/.*",
    r"tools/netlab .*",
    r"tutti train --model 'vgg\(small\)' .*tune=both.*",
]

# Not run here, and shown elsewhere: (page, command, file, words that must stand in it).
SHOWN = [
    (r"README\.md", r"make (demo|test)", ".ci/run", r"tested dev make test\b|'make demo'"),
    (r"docs/TUTORIAL\.md", r"make setup release", "Makefile", r"(?m)^demo: setup release\b"),
    (r"docs/TUTORIAL\.md", r"python3 -m venv env.*", "tests/python/wheel_test.py", r'"-m", "venv"'),
    (r"CONTRIBUTING\.md", r"make", "Makefile", r"(?m)^test: setup-test dev\b"),
    (r"CONTRIBUTING\.md", r"tools/setup --python", "Makefile", r"tools/setup --python"),
    (r"README\.md|docs/(PYTORCH|TUTORIAL)\.md", r"pip install ('\.\[torch\]'|\.)", "tests/python/wheel_test.py",
     r'"pip", "wheel"'),
    (r"README\.md", r"python3 -m venv v && \. v/bin/activate", "tools/wheel", r"venv v && \. v/bin/activate"),
    (r"README\.md", r"pip install tutti-\*\.whl", "tools/wheel", r"pip install -q --no-index tutti-\*\.whl"),
    (r"docs/DATA\.md", r"tools/speech-data", "tests/cli/speech_test.py", r"tools/speech-data"),
    (r"docs/ADD-A-METHOD\.md", r"make (dev|test)", "Makefile", r"(?m)^test: setup-test dev\b"),
    (r"examples/regression\.c", r"cc .*", "tests/api/CMakeLists.txt", r"foreach\(example regression"),
    (r"examples/(dynamic|codec|transport)\.c", r"cc .*", "tests/api/CMakeLists.txt",
     r"regression dynamic cluster codec transport"),
    (r"docs/BINDINGS\.md|examples/bindings/.*", r".*", "tests/package/bindings_test.py",
     r"def test_rust_program_trains"),
    (r"examples/cluster\.c", r".*", "tests/api/cluster_test.py", r'"train"'),
    (r"docs/PYTORCH\.md|examples/pytorch/preempt\.py", r"(torchrun|tutti run) .*preempt\.py .*",
     "tests/python/preempt_test.py", r"def test_example_prints"),
    (r"docs/COMPARE\.md|examples/pytorch/methods\.py", r"tutti compare .* -- .*methods\.py .*",
     "tests/python/compare_test.py", r"def test_example_compares_methods_by_its_training"),
    (r"docs/OPTIONS\.md", r"tutti compare .* -- .*train\.py .*", "tests/cli/script_test.py",
     r'"ddp", "local-sgd\(period=8,warmup=2\)", odd, "--seeds"'),
    (r"examples/pytorch/.*", r"(torchrun|tutti run) .*", "tests/python/examples_test.py", r"output\(run, EXAMPLES"),
    (r"README\.md|docs/OPTIONS\.md", r"tutti bench (allreduce|step) .*", "tests/cli/bench_test.py",
     r'"bench", "step"|"--with-peers"'),
    (r"docs/TESTING\.md", r"tools/gpu-pack .*|/tmp/pack/run\.sh.*", "tests/python/card_test.py",
     r"def test_pack_runs_where_there_is_nothing_else"),
    (r"docs/OPTIONS\.md", r"tutti run --workers .*train\.py", "tests/python/elastic_test.py",
     r'"run", "--workers", "1:4"'),
    (r"docs/CLUSTERS\.md", r"tutti join .*", "tests/cli/join_test.py", r'"join", out'),
    (r"docs/CLUSTERS\.md", r"tutti leave .*", "tests/cli/join_test.py", r'"leave", out'),
]

# Those that end with another code than 0, as their page says.
ENDS = [
    (r"tools/netlab .*--reset-after .*", 3),
    (r"timeout --signal=KILL .*", 128 + 9),
]

# Not to be run by a test: (page, command, what it would need).
CANNOT = [
    (r"docs/CLUSTERS\.md|docs/PYTORCH\.md", r"srun .*", "Slurm"),
    (r"docs/CLUSTERS\.md", r"tutti train run\.yaml -H 'gpu\[01-16\]:8'", "128 workers"),
    (r"docs/CLUSTERS\.md|docs/PYTORCH\.md", r"torchrun .*--nnodes 2 .*", "a second host, of this name"),
    (r"docs/CLUSTERS\.md", r"mpirun .*--hostfile .*", "hosts of a cluster"),
    (r"docs/MPI\.md", r"mpirun .*(verbs|efa).*", "InfiniBand or EFA"),
    (r"docs/ADD-A-METHOD\.md", r"(ctest|build/dev/bin/tutti) .*my-method.*", "the method that the reader writes"),
    (r"docs/OPTIONS\.md", r"TUTTI_PYTHON=/opt/new/bin/python.*", "two builds of PyTorch"),
]
