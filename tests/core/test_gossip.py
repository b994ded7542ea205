"""What goes into the next packet: newest and least told first, health before load, bits instead of many deaths."""

from __future__ import annotations

from functools import cache

from wolfpack.core.gossip import News, Queue
from wolfpack.core.items import AlphaRecord, Items, LoadRecord, Record, Writer, read_items
from wolfpack.core.membership_words import Load, Status
from wolfpack.core.packets import Kind, Sender, den_mark, read_packet, write_head, write_sender
from wolfpack.core.view import Base, Member, View

DEAD, ALIVE = Status.DEAD, Status.ALIVE
HEAD = write_head(den_mark("timber"), Kind.GOSSIP, 0, write_sender(Sender("u-0", 1, 0)))


def death(i: int) -> Record:
    return Record(f"grey-{i}", 1, 0, DEAD)


@cache
def base_of(count: int) -> Base:
    return Base(Member(f"grey-{i}", str(i), 1) for i in range(count))


def view_of(count: int) -> View:
    return View(base_of(count))


def packet(news: News, view: View, times: int = 3) -> Items:
    writer = Writer(HEAD)
    news.fill(writer, view, times, times)
    data = writer.done()
    assert len(data) <= 1400
    return read_items(read_packet(data).body)


def die(view: View, news: News, *numbers: int, times: int = 3) -> None:
    for i in numbers:
        view.put(view.get(f"grey-{i}")._replace(status=DEAD))
        news.tell(death(i), view, times)


def test_the_least_told_goes_first_and_of_these_the_newest():
    queue: Queue[str] = Queue()
    told: list[str] = []

    def write_two(item: str) -> bool:
        told.append(item)
        return len(told) % 5 <= 2 and len(told) % 5 > 0  # two fit, then three do not

    for item in "abc":
        queue.put(item, item)
    assert queue.fill(write_two, 2) == 2
    assert told[:2] == ["c", "b"]
    told.clear()
    queue.put("d", "d")
    assert queue.fill(write_two, 2) == 2
    assert told[:2] == ["d", "a"]


def test_each_news_is_told_so_many_times():
    queue: Queue[str] = Queue()
    queue.put("a", "a")
    counts = []
    while queue:
        counts.append(queue.fill(lambda item: True, 4))
    assert counts == [1, 1, 1, 1]


def test_news_of_a_unit_replaces_older_news_of_it():
    view, news = view_of(5), News(bitmaps=True)
    news.tell(Record("grey-1", 1, 0, Status.SUSPECT, "grey-2"), view, 3)
    assert [r.status for r in packet(news, view).records] == [Status.SUSPECT]
    news.tell(Record("grey-1", 1, 1, ALIVE), view, 3)
    for _ in range(3):
        assert [r.status for r in packet(news, view).records] == [ALIVE]
    assert not news


def test_more_than_fits_is_told_in_turns():
    view, news = view_of(400), News(bitmaps=False)
    die(view, news, *range(400), times=1)
    seen: list[str] = []
    while news:
        seen += [r.unit for r in packet(news, view, 1).records]
    assert len(seen) == 400
    assert len(set(seen)) == 400
    assert seen[0] == "grey-399"


def test_health_goes_before_load_even_when_load_is_newer():
    view, news = view_of(400), News(bitmaps=False)
    die(view, news, *range(180), times=1)
    for i in range(200, 400):
        news.loads.put(f"grey-{i}", LoadRecord(f"grey-{i}", 1, Load(seq=1)))
    first, second = packet(news, view, 1), packet(news, view, 1)
    assert len(first.records) == 180
    assert 0 < len(first.loads) < 50
    assert len(second.loads) > 100


def test_many_deaths_become_bits_and_are_told_as_often_as_one():
    view, news = view_of(800), News(bitmaps=True)
    die(view, news, *range(0, 800, 10))
    for _ in range(3):
        items = packet(news, view)
        assert items.records == []
        assert [m.unit for m in view_of(800).newly_dead(0, items.bitmaps[0].bits)][1] == "grey-10"
        assert len(view_of(800).newly_dead(0, items.bitmaps[0].bits)) == 80
    assert not news


def test_a_death_while_bits_are_told_goes_with_them_and_a_refutation_by_record():
    view, news = view_of(800), News(bitmaps=True)
    die(view, news, *range(0, 800, 10))
    packet(news, view)
    die(view, news, 7)
    view.put(Member("grey-10", "10", 1, 1))
    news.tell(Record("grey-10", 1, 1, ALIVE), view, 3)
    items = packet(news, view)
    assert [r.unit for r in items.records] == ["grey-10"]
    dead = [m.unit for m in view_of(800).newly_dead(0, items.bitmaps[0].bits)]
    assert "grey-7" in dead
    assert "grey-10" not in dead


def test_few_deaths_stay_records():
    view, news = view_of(800), News(bitmaps=True)
    die(view, news, 1, 2, 3)
    items = packet(news, view)
    assert len(items.records) == 3
    assert items.bitmaps == []


def test_bits_of_ten_thousand_units_fit_one_packet_and_of_twenty_thousand_are_told_in_turns():
    view, news = view_of(10_000), News(bitmaps=True)
    die(view, news, *range(0, 10_000, 5))
    items = packet(news, view)
    assert sum(len(view_of(10_000).newly_dead(b.start, b.bits)) for b in items.bitmaps) == 2000
    view, news = view_of(20_000), News(bitmaps=True)
    die(view, news, *range(0, 20_000, 5))
    starts = []
    while news:
        starts += [b.start for b in packet(news, view).bitmaps]
    assert sorted(starts) == sorted([512 * i for i in range(5)] * 3)


def test_who_leads_a_pack_is_told_too():
    view, news = view_of(5), News(bitmaps=True)
    news.alphas.put("pack", AlphaRecord("pack", 7, "grey-1", 2))
    assert packet(news, view).alphas == [AlphaRecord("pack", 7, "grey-1", 2)]
