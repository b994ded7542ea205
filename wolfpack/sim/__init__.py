"""The simulator: the real core on virtual time, with faults, from one seed. No Ray, no asyncio, no wall clock.

- `kernel.Kernel`: one heap of events in microseconds, streams of chance by name, a hash of what happened.
- `network.Network`, `network.Weather`: loss, doubling, delay, clogs and partitions between named ends.
- `den.run_den(units=, seconds=, seed=, menu=, profile=, crash=, loss=) -> DenResult`: one den with faults, checked.
- `sweep.sweep(seeds=, seconds=, menu=, units=, profile=, jobs=) -> SweepResult`: many of them, side by side.
- `replay.save(path, plan)`, `replay.load(path) -> DenPlan`, `replay.replay(path) -> DenResult`: a run in a JSON file.

Worlds of one's own: `den.World`. For users of the library the same is found in `wolfpack.testing`.
"""
