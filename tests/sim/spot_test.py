#!/usr/bin/env python3
"""Goal: a run of simulated workers whose hosts are lost and come back, played in epochs (bench/spot.py), keeps the
steps that it should, has the model of a run that nothing disturbs, and is the same every time. Method: small traces,
the steps counted by hand."""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True
sys.path[:0] = [os.path.join(HERE, "../cli"), os.path.join(HERE, "../../bench")]
import spot
from command import scratch_folder

command = sys.argv[1]

# Lines of one time are one change; a killed worker is back before the next one is killed.
assert spot.changes("# x\n1.5 3 down\n1.5 4 down\n2 3 up\n") == [(1.5, {3, 4}, set()), (2.0, set(), {3})]
assert spot.changes(spot.killed(2, 15, 1, 46)) == [(15, {0}, set()), (16, set(), {0}), (30, {1}, set()),
                                                   (31, set(), {1}), (45, {0}, set())]
# A worker joins later than its host is back; not if it is lost or the trace ends before that.
trace = spot.changes("1 0 down\n2 0 up\n2.5 0 down\n5 0 up\n5 1 down\n8 1 up\n9.5 2 down\n9.7 2 up\n")
assert spot.admitted(trace, 1, 10) == [(1, {0}, set()), (5, {1}, set()), (6, set(), {0}), (9, set(), {1}),
                                       (9.5, {2}, set())]
twice = spot.changes("1 0 down\n4 0 up\n4 0 down\n6 0 up\n")
assert spot.admitted(twice, 1, 10) == [(1, {0}, set()), (7, set(), {0})]
assert spot.there(trace, 3, 10) == 3 * 10 - 1 - 2.5 - 3 - (9.7 - 9.5)

spot.WAIT = 59.0
with scratch_folder() as folder:

    def played(name, text, end, way):
        # a worker joins 1 s after its return; all are there 60 s after a loss (of the majority)
        run = spot.Played(command, f"{folder}/{name}", 6, start=0 if way == "come_and_go" else 59)
        return run, getattr(run, way)(spot.changes(text), end)

    # Six workers, 2.02 s a step: 4 steps until 9 s. Five from 10.2 s on, 2.41 s a step: 4 until
    # 21 s, when the lost one has the state again, and the step in flight until 22.3 s. Six from
    # 22.5 s on: 3 until 30 s.
    text = "9 4 down\n20 4 up\n"
    run, ended = played("goes", text, 30, "come_and_go")
    assert (run.made, run.epochs, ended) == (12, 3, 0), (run.made, run.epochs, ended)
    again, _ = played("again", text, 30, "come_and_go")
    undisturbed = spot.Played(command, folder + "/calm", 6)
    models = [one.model(13) for one in (run, again, undisturbed)]
    assert again.made == run.made and models[0] == models[1] == models[2]
    assert spot.Played(command, folder + "/other", 6).model(14) != models[0]

    # A loss before the step in flight ends, at 21.5 s: that step is not made.
    run, _ = played("both", text + "21.5 2 down\n", 30, "come_and_go")
    assert run.made == 4 + 4 + 3, run.made  # five from 22.7 s on

    # A loss of the majority ends the run, and another one begins 61 s later; of half without the
    # first it does not.
    run, ended = played("majority", "9 0 down\n9 1 down\n9 2 down\n9 3 down\n", 80, "come_and_go")
    assert (run.made, ended) == (4 + 1, 1), (run.made, ended)  # two from 70 s on, 6 s a step
    run, ended = played("half", "9 3 down\n9 4 down\n9 5 down\n", 20, "come_and_go")
    assert (run.made, ended) == (4 + 2, 0), (run.made, ended)  # three from 10.2 s on, 4.01 s a step
    run, ended = played("first", "9 0 down\n9 4 down\n9 5 down\n", 20, "come_and_go")
    assert (run.made, ended) == (4, 1), (run.made, ended)
    try:
        played("nobody", "".join(f"9 {k} down\n" for k in range(6)), 20, "come_and_go")
        assert False, "nobody is left"
    except RuntimeError as e:
        assert "nobody is left at 9.0 s" in str(e), e

    # Restarted from checkpoints, 30 steps apart: all of the first 9 s is lost; six from 70 s on,
    # until 200 s, since the lost one is back by then. A loss after more than a minute keeps 30
    # steps, and one while all start begins that again.
    run, restarts = played("restart", text, 200, "restart")
    assert (run.made, restarts) == (64, 1), (run.made, restarts)
    run, restarts = played("later", "75 4 down\n80 4 up\n85 4 down\n", 160, "restart")
    assert (run.made, restarts) == (30 + 5, 2), (run.made, restarts)  # five from 146 s on
    run, restarts = played("twice", "75 4 down\n80 3 down\n", 160, "restart")
    assert (run.made, restarts) == (30 + 6, 2), (run.made, restarts)  # four from 141 s on, 3 s a step
    run, restarts = played("empty", "".join(f"75 {k} down\n" for k in range(6)) + "90 5 up\n", 177, "restart")
    assert (run.made, restarts) == (30 + 2, 1), (run.made, restarts)  # one from 151 s on, 12 s a step
