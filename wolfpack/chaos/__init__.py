"""Chaos: kills and freezes the processes of a real den while it works, and proves what became of the work.

    plan.py     which fault is given at which share of the work: drawn from a seed, before anything starts
    task.py     the checked task: its result is a function of its key, and each start leaves a line in a file
    work.py     keeps such tasks in flight, and notes how each one ended
    proof.py    is this process the den's? Read from /proc, or refused with a reason
    strike.py   finds a target, proves it, and only then sends the signal; whatever was frozen is thawed
    judge.py    what the client saw, what the ledger holds and what really ran, against each other
    run.py      all of it together: `run_chaos(spec, options)`

The den is one of its own: units and packs as in pack.yaml, but with a Ray namespace and a ledger made for this run, so
that a den that is at work is not touched. What is shown afterwards is read from that ledger's file, after the den has
ended, and from the file in which the tasks wrote their starts: no component is asked whether it did well.
"""
