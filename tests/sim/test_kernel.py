import random

from wolfpack.sim.kernel import Kernel, seed_of, to_us


def test_events_run_in_the_order_of_their_time_and_then_of_their_asking() -> None:
    kernel, seen = Kernel(), []
    kernel.after(0.2, seen.append, "late")
    kernel.after(0.1, seen.append, "first")
    kernel.after(0.1, seen.append, "second")
    kernel.run(1.0)
    assert ["first", "second", "late"] == seen
    assert (1_000_000, 1.0) == (kernel.now_us, kernel.now)


def test_an_event_in_the_past_runs_now_after_what_is_due() -> None:
    kernel, seen = Kernel(), []
    kernel.run(1.0)
    kernel.after(0.0, seen.append, "asked before")
    kernel.at_us(5, seen.append, "of the past")
    kernel.after(-3.0, seen.append, "of less than no delay")
    kernel.run(0.0)
    assert ["asked before", "of the past", "of less than no delay"] == seen
    assert 1.0 == kernel.now


def test_time_is_what_an_event_was_due_at_while_it_runs() -> None:
    kernel, seen = Kernel(), []
    kernel.after(0.25, lambda: seen.append(kernel.now))
    kernel.run(9.0)
    assert [0.25] == seen


def test_what_an_event_asks_for_runs_in_the_same_run_if_it_is_due() -> None:
    kernel, seen = Kernel(), []
    kernel.after(0.5, lambda: kernel.after(0.5, seen.append, "in time"))
    kernel.after(0.5, lambda: kernel.after(0.6, seen.append, "too late"))
    kernel.run(1.0)
    assert ["in time"] == seen


def test_a_run_until_stops_at_the_event_that_makes_it_true() -> None:
    kernel, seen = Kernel(), []
    for no in range(5):
        kernel.after(no, seen.append, no)
    assert kernel.run_until(lambda: len(seen) == 3, 10.0)
    assert ([0, 1, 2], 2.0) == (seen, kernel.now)
    assert not kernel.run_until(lambda: len(seen) == 9, 10.0)
    assert 12.0 == kernel.now


def test_a_delay_is_rounded_to_whole_microseconds() -> None:
    assert [0, 0, 1, 333_333] == [to_us(-1.0), to_us(4e-7), to_us(6e-7), to_us(1 / 3)]


def test_streams_of_different_names_differ_and_those_of_one_name_do_not() -> None:
    kernel = Kernel(7)
    first = kernel.stream("network", "grey-0").random()
    assert first == Kernel(7).stream("network", "grey-0").random()
    others = [("network", "grey-1"), ("births", "grey-0"), ("network",), ("networkgrey-0",)]
    assert first not in [kernel.stream(*names).random() for names in others]
    assert first != Kernel(8).stream("network", "grey-0").random()


def test_seeds_are_the_same_for_ever() -> None:
    assert 73681704747657280731008381279345392467 == seed_of(1, "a", 2)
    assert 0.6531393913175181 == random.Random(seed_of(1, "a", 2)).random()


def test_the_trace_hash_is_of_what_happened_and_when() -> None:
    def run(*lines: tuple[float, str]) -> str:
        kernel = Kernel()
        for at, line in lines:
            kernel.after(at, kernel.mix, line)
        kernel.run(10.0)
        return kernel.trace_hash

    told = run((1.0, "a"), (2.0, "b"))
    assert told == run((1.0, "a"), (2.0, "b"))
    assert len({told, run((1.0, "b"), (2.0, "a")), run((1.0, "a"), (2.5, "b")), run((1.0, "a"))}) == 4


def test_the_trace_hash_does_not_depend_on_how_often_it_is_asked_for() -> None:
    asked, silent = Kernel(), Kernel()
    for no in range(3):
        asked.mix(f"line {no}")
        silent.mix(f"line {no}")
        assert asked.trace_hash
    assert asked.trace_hash == silent.trace_hash
