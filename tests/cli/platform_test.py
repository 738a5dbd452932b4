"""Platforms read back with an XML parser: hosts, routes between all of them, and that a route costs
what the spec gives."""
import itertools, os, unittest
import xml.etree.ElementTree as ElementTree
from command import *


def number(text, unit):
    assert text.endswith(unit), text
    return float(text[:-len(unit)])


class Platform(Case):
    def platform(self, spec):
        done = tutti("platform", spec)
        self.assertEqual(done.returncode, 0, done.stderr)
        zone = ElementTree.fromstring(done.stdout).find("zone")
        self.links = {l.get("id"): (number(l.get("bandwidth"), "Gbps") * 1e9 if l.get("id") == "loopback"
                                    else number(l.get("bandwidth"), "bps"), number(l.get("latency"), "s"))
                      for l in zone.findall("link")}
        self.assertEqual(len(self.links), len(zone.findall("link")))
        for l in zone.findall("link"):
            self.assertEqual(l.get("sharing_policy"), "FATPIPE" if l.get("id") == "loopback" else "SHARED")
        self.hosts = {h.get("id"): number(h.get("speed"), "f") for h in zone.findall("host")}
        points = set(self.hosts) | {r.get("id") for r in zone.findall("router")}
        self.routes = {}
        for r in zone.findall("route"):
            way = [c.get("id") for c in r.findall("link_ctn")]
            self.assertEqual(r.get("symmetrical"), "NO")
            self.assertTrue(r.get("src") in points and r.get("dst") in points and all(w in self.links for w in way))
            self.assertNotIn(r.get("dst"), self.routes.setdefault(r.get("src"), {}))
            self.routes[r.get("src")][r.get("dst")] = way
        self.assertEqual(sorted(self.hosts), list(self.hosts), "names sort as the hosts stand")
        return zone

    def way(self, a, b):
        """Links of the shortest way, as the zone's routing finds it; a way and back share none."""
        seen, front = {a: []}, [a]
        while front:
            at = front.pop(0)
            for to, links in self.routes[at].items():
                if to not in seen:
                    seen[to] = seen[at] + links
                    front.append(to)
        return seen[b]

    def cost(self, a, b):
        ways = [self.links[l] for l in self.way(a, b)]
        return min(rate for rate, _ in ways), sum(latency for _, latency in ways)

    def all_costs(self):
        for h in self.hosts:
            self.assertEqual(self.routes[h][h], ["loopback"])
        return {(a, b): self.cost(a, b) for a, b in itertools.permutations(self.hosts, 2)}

    def assertCost(self, cost, rate, latency):
        self.assertAlmostEqual(cost[0] / rate, 1, delta=1e-9)
        self.assertAlmostEqual(cost[1] / latency, 1, delta=1e-9)

    def test_every_pair_of_a_cluster_has_the_rate_and_latency_of_the_spec(self):
        for n in (1, 2, 11):
            self.platform(f"cluster(n={n},rate=25Gbps,latency=3us,speed=2Tf)")
            self.assertEqual(list(self.hosts.values()), [2e12] * n)
            costs = self.all_costs()
            self.assertEqual(len(costs), n * (n - 1))
            for (a, b), cost in costs.items():
                self.assertCost(cost, 25e9, 3e-6)
                self.assertFalse(set(self.way(a, b)) & set(self.way(b, a)))

    def test_two_levels_have_two_costs(self):
        self.platform(
            "two-level(machines=3,per_machine=4,rate=10Gbps,latency=50us,inner_rate=100Gbps,inner_latency=2us)")
        self.assertEqual(len(self.hosts), 12)
        for (a, b), cost in self.all_costs().items():
            if int(a[1:]) // 4 == int(b[1:]) // 4:
                self.assertCost(cost, 100e9, 2e-6)
            else:
                self.assertCost(cost, 10e9, 50e-6)
        self.assertEqual(self.way("w00", "w04")[1], self.way("w03", "w08")[1], "hosts of a machine share its link")

    def test_data_centres_are_far_apart(self):
        self.platform("wan")
        self.assertEqual(len(self.hosts), 16)
        self.assertCost(self.cost("w00", "w15"), 100e6, 50e-3)
        self.assertCost(self.cost("w00", "w03"), 10e9, 5e-6)

    def test_one_straggler_is_slower_by_the_factor(self):
        self.platform("straggler(n=5,factor=4,worker=3,speed=8Gf)")
        self.assertEqual(list(self.hosts.values()), [8e9, 8e9, 8e9, 2e9, 8e9])
        for cost in self.all_costs().values():
            self.assertCost(cost, 10e9, 50e-6)

    def test_random_stragglers_are_slow_for_their_share_of_the_periods(self):
        zone = self.platform("random-stragglers(n=40,factor=4,share=0.25,period=20ms)")
        traces = {t.get("id"): t for t in zone.findall("trace")}
        connected = {c.get("element"): c for c in zone.findall("trace_connect")}
        self.assertEqual(set(connected), set(self.hosts))
        slow, drawn = 0, set()
        for host, c in connected.items():
            trace = traces[c.get("trace")]
            self.assertEqual((c.get("kind"), c.get("trace")), ("SPEED", host + "_speed"))
            events = [tuple(map(float, line.split())) for line in trace.text.split("\n") if line.strip()]
            self.assertAlmostEqual(float(trace.get("periodicity")), 64 * 0.02)
            for k, (at, speed) in enumerate(events):
                self.assertAlmostEqual(at, k * 0.02)
                self.assertIn(speed, (1, 0.25))
            self.assertEqual(len(events), 64)
            slow += sum(speed == 0.25 for _, speed in events)
            drawn.add(trace.text)
        self.assertEqual(len(drawn), 40)
        self.assertTrue(0.22 < slow / (40 * 64) < 0.28, slow)

    def test_edge_platform_varies_within_its_bounds(self):
        self.platform(
            "edge(n=40,slow_rate=1Mbps,rate=100Mbps,slow_latency=80ms,latency=4ms,slow_speed=1Gf,speed=100Gf)")
        costs = self.all_costs()
        self.assertGreater(len(set(self.hosts.values())), 30)
        self.assertTrue(all(1e9 <= s <= 100e9 for s in self.hosts.values()))
        self.assertTrue(min(self.hosts.values()) < 3e9 and max(self.hosts.values()) > 30e9)
        self.assertTrue(all(1e6 <= rate <= 100e6 and 4e-3 <= latency <= 80e-3 for rate, latency in costs.values()))

    def test_help_lists_platforms_and_unknown_ones_are_rejected(self):
        page = tutti("platform", "--help").stdout
        for name in ("cluster", "two-level", "straggler", "random-stragglers", "wan", "edge"):
            self.assertRegex(page, rf"(?m)^{name}: ")
        self.refused("there is no platform 'custer'; did you mean 'cluster'?", "platform", "custer")
        self.refused("latency is '5'; write a number with ns, us, ms or s", "platform", "cluster(latency=5)")
        self.refused("it takes one spec, not 0 arguments", "platform")


if __name__ == "__main__":
    unittest.main(verbosity=2)
