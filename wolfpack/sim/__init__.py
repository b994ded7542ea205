"""The simulator: the real core on virtual time, with faults, from one seed. No Ray, no asyncio, no wall clock.

- `kernel.Kernel`: one heap of events in microseconds, streams of chance by name, a hash of what happened.
- `network.Network`, `network.Weather`: loss, doubling, delay, clogs and partitions between named ends.
- A den: `den_run.run_den(units=, seconds=, seed=, menu=, profile=, crash=, loss=) -> DenResult` draws a plan and plays
  it; `plan.draw_plan`, `den_run.play(plan)` do one or the other. `faults.MENUS` names what can go wrong.
- Many: `sweep.sweep(seeds=, seconds=, menu=, units=, profile=, jobs=) -> SweepResult`; its `findings` are shrunk
  (`shrink.shrink`) and told (`story.tell`).
- Files: `replay.save(path, plan)`, `replay.load(path) -> DenPlan`, `replay.replay(path) -> DenResult`.
- A herd of thousands of units, for membership and succession: `herd`.

Worlds of one's own: `den.World`. For users of the library the same is found in `wolfpack.testing`.
"""
