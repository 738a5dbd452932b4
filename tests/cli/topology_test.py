"""`tutti topology`: the list, a graph of each kind, one from a file, what is refused."""
import os, unittest
from command import *


class Topology(Case):
    def test_topology_lists_graphs_and_shows_one(self):
        listed = tutti("topology")
        self.assertEqual(listed.returncode, 0)
        for name in ("ring", "complete", "exponential", "one-peer-exponential", "grid", "torus", "star", "random",
                     "hypercube", "bipartite-exp", "one-peer-hypercube", "random-matching", "random-ring", "ring-based",
                     "double-ring", "base", "hyper-hypercube", "matcha", "file"):
            self.assertRegex(listed.stdout, r"(?m)^  %s " % name)
        self.assertIn("weights=auto: ", listed.stdout)
        self.assertIn("lazy=false: ", listed.stdout)
        self.assertIn("base=ring: ", listed.stdout)
        done = tutti("topology", "ring", "-n", 8)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("degree:      at most 2\nmessages:    16 a round in all, 2 a member\nproperties:  "
                      "static symmetric regular doubly-stochastic bipartite connected\ngap:         0.19526:"
                      " a round shrinks the distance from the mean by 0.80474\nto 1 %:      "
                      "11 rounds for the squared distance from the mean; 22 messages a member\n", done.stdout)
        rows = [line.split() for line in done.stdout.splitlines() if line.startswith("   ")]
        self.assertEqual(len(rows), 8)
        self.assertEqual(rows[0], ["0", "0.3333", "0.3333", ".", ".", ".", ".", ".", "0.3333"])
        self.assertEqual(len(tutti("topology", "ring", "-n", 17).stdout.splitlines()), 7)  # no matrix

    def test_varying_and_slowly_mixing_graphs_are_described(self):
        exact = tutti("topology", "one-peer-exponential", "-n", 8).stdout
        self.assertIn("gap:         1: the exact mean after a period\nto 1 %:      3 rounds ", exact)
        self.assertEqual(exact.count("\nround "), 3)
        together = exact.split("all 3 rounds together\n")[1].splitlines()
        self.assertEqual([line.split()[1:] for line in together], [["0.1250"] * 8] * 8)
        self.assertIn("not exact: a period ends at the mean only for a power of two",
                      tutti("topology", "one-peer-exponential", "-n", 6).stdout)
        self.assertIn("gap:         1: the exact mean after a period", tutti("topology", "base", "-n", 11).stdout)
        self.assertIn("mixes slowly", tutti("topology", "ring", "-n", 64).stdout)

    def test_drawn_graphs_show_their_expectation_and_their_first_rounds(self):
        # lambda_2(E[W^T W]) and the rounds to a hundredth, at n = 8, 16, 32, 64
        for n, factor, rounds in ((8, "0.23810", 4), (16, "0.28889", 4), (32, "0.31183", 4), (64, "0.32275", 5)):
            out = tutti("topology", "random-ring", "-n", n).stdout
            self.assertIn("period:      none: each round is newly drawn\n", out)
            self.assertIn("a round shrinks the squared distance from the mean by %s on average\nto 1 %%:      "
                          "%d rounds " % (factor, rounds), out)
            self.assertEqual(out.count("\nround "), 3 if n <= 16 else 0)
        self.assertIn("by 0.46667 on average", tutti("topology", "random-matching", "-n", 16).stdout)
        self.assertIn("messages:    8 a round in all, 1 a member\n",
                      tutti("topology", "matcha(ring,0.5)", "-n", 8).stdout)
        self.assertEqual(tutti("topology", "random-ring(seed=3)", "-n", 9).stdout,
                         tutti("topology", "random-ring(seed=3)", "-n", 9).stdout)

    def test_large_graphs_are_measured_too(self):
        done = tutti("topology", "random(6)", "-n", 1024)
        self.assertEqual(done.returncode, 0)
        self.assertRegex(done.stdout, r"(?m)^gap:         0\.[2-4]\d+: a round")
        self.assertIn("gap:         not computed above 2048 members", tutti("topology", "ring", "-n", 4096).stdout)

    def test_graph_files_and_push_sum_graphs_are_shown(self):
        path = os.path.join(self.folder, "g.txt")
        with open(path, "w") as f:
            f.write("tutti-graph 4\n0 -- 1 0.5\n2 -- 3 0.5\nround\n0 -- 2 0.5\n1 -- 3 0.5\n")
        self.assertIn("gap:         1: the exact mean after a period",
                      tutti("topology", "file(%s)" % path, "-n", 4).stdout)
        self.refused("g.txt:1: the graph has 4 members and the run 5; one of them must change", "topology",
                     "file(%s)" % path, "-n", 5)
        with open(path, "w") as f:
            f.write("tutti-graph 3\n0 -> 1\n0 -> 2\n1 -> 2\n2 -> 0\n")
        shown = tutti("topology", "file(%s)" % path, "-n", 3)
        self.assertEqual(shown.returncode, 0)
        self.assertIn("properties:  static column-stochastic connected\ngap:         none: ", shown.stdout)
        self.assertIn("is not doubly stochastic: in round 0 the weights that member 0 gives to all (row 0) sum to "
                      "0.833333333 instead of 1", shown.stdout)

    def test_invalid_graph_arguments_are_rejected(self):
        self.refused("graph 'hypercube' cannot have 12 members; their number must be a power of two: 8 or 16",
                     "topology", "hypercube", "-n", 12)
        self.refused("there is no graph 'rign'; did you mean 'ring'?", "topology", "rign")
        self.refused("'n' is 0; it must be from 1 to 65536", "topology", "ring", "-n", 0)
        self.refused("-n needs a number of members", "topology", "ring", "-n")
        self.refused("there is no option '--size'", "topology", "--size")
        self.refused("it takes one graph, not 'ring' and 'star'", "topology", "ring", "star")


if __name__ == "__main__":
    unittest.main(verbosity=2)
