import pytest

from wolfpack.sim.kernel import Kernel
from wolfpack.sim.network import RETRANSMIT_S, Network, Weather

MANY = 2000


def network(**weather: object) -> Network:
    return Network(Kernel(5), Weather(**weather))  # type: ignore[arg-type]


def arrivals(net: Network, number: int = MANY, source: str = "a", target: str = "b") -> list[tuple[float, int]]:
    """Sends numbered messages 10 ms apart; returns when each arrived, in that order."""
    seen: list[tuple[float, int]] = []
    for no in range(number):
        net.kernel.after(0.01 * no, net.send, source, target, lambda no=no: seen.append((net.kernel.now, no)))
    net.kernel.run(0.01 * number + 60.0)
    return seen


def test_in_good_weather_each_message_arrives_once_within_the_delay() -> None:
    seen = arrivals(network(delay_s=(0.001, 0.002)))
    assert list(range(MANY)) == [no for _, no in seen]
    assert all(0.001 <= at - 0.01 * no <= 0.0021 for at, no in seen)


@pytest.mark.parametrize("lost", [0.1, 0.5])
def test_a_part_of_the_messages_is_lost(lost: float) -> None:
    net = network(lost=lost)
    arrived = len(arrivals(net))
    assert (MANY, MANY - arrived) == (net.sent, net.lost)
    assert abs(net.lost / MANY - lost) < 0.05


def test_a_part_of_the_messages_arrives_twice() -> None:
    net = network(doubled=0.2)
    seen = [no for _, no in arrivals(net)]
    assert (MANY, MANY + net.doubled) == (len(set(seen)), len(seen))
    assert abs(net.doubled / MANY - 0.2) < 0.05


def test_late_messages_are_overtaken() -> None:
    seen = [no for _, no in arrivals(network(late=0.2, late_s=0.3))]
    assert seen != sorted(seen)
    assert MANY == len(seen)


def test_the_exponential_delay_has_its_mean() -> None:
    seen = arrivals(network(delay_s=(0.0, 0.0), exponential_s=0.05))
    delays = [at - 0.01 * no for at, no in seen]
    assert abs(sum(delays) / MANY - 0.05) < 0.005
    assert max(delays) > 0.2


def test_a_connection_retransmits_what_is_lost_and_is_never_doubled() -> None:
    net = network(lost=0.3, doubled=1.0, delay_s=(0.001, 0.001))
    delays = [net.stream_us("a", "b") for _ in range(MANY)]
    once = sum(1 for us in delays if us == 1000 + RETRANSMIT_S * 1e6)
    assert abs(delays.count(1000) / MANY - 0.7) < 0.05
    assert abs(once / MANY - 0.21) < 0.04
    assert delays.count(None) < 10  # six times lost


def heard(net: Network, *ends: str) -> set[str]:
    """Who hears whom, as `a>b`."""
    return {
        f"{a}>{b}" for a in ends for b in ends if a != b and not net.severed(a, b) and net.stream_us(a, b) is not None
    }


@pytest.mark.parametrize(
    ("a", "b", "one_way", "lost"),
    [
        ("a", "bc", False, "a>b a>c b>a c>a"),  # symmetric
        ("a", "bc", True, "a>b a>c"),
        ("b", None, False, "b>a b>c a>b c>b"),  # isolate one
        ("b", None, True, "b>a b>c"),
        ("a", "b", False, "a>b b>a"),  # c is a bridge
    ],
)
def test_a_cut_severs_exactly_its_paths(a: str, b: str | None, one_way: bool, lost: str) -> None:
    net = network()
    whole = heard(net, "a", "b", "c")
    cut = net.cut(a, b, one_way=one_way)
    assert set(lost.split()) == whole - heard(net, "a", "b", "c")
    net.heal(cut)
    assert whole == heard(net, "a", "b", "c")


def test_what_was_on_its_way_when_a_cut_came_still_arrives() -> None:
    net, seen = network(delay_s=(1.0, 1.0)), []
    net.send("a", "b", seen.append, "before")
    net.cut("a")
    net.send("a", "b", seen.append, "after")
    net.kernel.run(2.0)
    assert (["before"], 1) == (seen, net.lost)


def test_a_clog_holds_messages_of_its_path_and_lets_all_go_at_its_end() -> None:
    net, seen = network(delay_s=(0.001, 0.001)), []
    net.clog("a", "b", 2.0)
    net.send("a", "b", lambda: seen.append(("held", net.kernel.now)))
    net.send("b", "a", lambda: seen.append(("back", net.kernel.now)))
    net.kernel.run(1.0)
    net.send("a", "b", lambda: seen.append(("held too", net.kernel.now)))
    assert 1_001_000 == net.stream_us("a", "b")
    net.kernel.run(5.0)
    assert [("back", 0.001), ("held", 2.001), ("held too", 2.001)] == seen
    assert 1000 == net.stream_us("a", "b")


def test_a_clog_of_all_that_one_end_sends() -> None:
    net = network(delay_s=(0.001, 0.001))
    net.clog("a", None, 2.0)
    assert [2_001_000, 2_001_000, 1000] == [
        net.stream_us("a", "b"), net.stream_us("a", "c"), net.stream_us("b", "a")
    ]  # fmt: skip
    net.heal()
    assert 1000 == net.stream_us("a", "b")


def test_one_end_that_sends_more_moves_no_other_ends_luck() -> None:
    def fate_of_b(chatter: int) -> list[float]:
        net = network(lost=0.3, exponential_s=0.1)
        seen: list[float] = []
        for _ in range(chatter):
            net.send("a", "c", lambda: None)
        for _ in range(50):
            net.send("b", "c", lambda: seen.append(net.kernel.now))
        net.kernel.run(60.0)
        return sorted(seen)

    assert fate_of_b(0) == fate_of_b(7)
