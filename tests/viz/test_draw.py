"""Files that people look at."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
import threading
import xml.etree.ElementTree as ET
from pathlib import Path

import matplotlib as mpl
import networkx as nx
import pytest

import viz
from tests.viz.story import Story
from viz import Category, leadership_graph
from viz.draw import render
from viz.key import LOOKS
from wolfpack import events as ev


@pytest.fixture
def graph() -> nx.DiGraph:
    story = Story()
    units = [*story.cards("grey", 3), *story.cards("silver", 2, nature="werewolf", offers=("cpu", "browser"))]
    story.pack("computing", *units[:4]).crown("computing", 2, "grey-1").lose("grey-1", "computing")
    return leadership_graph(story.depose("computing", 2, "grey-1").crown("computing", 3, "grey-2", "grey-1").events)


def texts(path: Path) -> list[str]:
    root = ET.fromstring(path.read_bytes())
    return ["".join(node.itertext()).strip() for node in root.iter("{http://www.w3.org/2000/svg}text")]


def ids(path: Path) -> set[str]:
    return {node.get("id", "") for node in ET.fromstring(path.read_bytes()).iter()}


def png_size(path: Path) -> tuple[int, int]:
    content = path.read_bytes()
    assert b"\x89PNG\r\n\x1a\n" == content[:8]
    width, height = struct.unpack(">II", content[16:24])
    return width, height


def test_the_title_of_an_svg_tells_den_pack_term_alpha_and_time(graph, tmp_path):
    assert "timber - computing: term 3, alpha grey-2 - 14:03:40 UTC" in texts(render(graph, tmp_path / "a.svg"))


def test_every_unit_is_in_the_svg_by_name_and_as_a_marker(graph, tmp_path):
    path = render(graph, tmp_path / "a.svg")
    assert set(graph) <= set(texts(path))
    assert {f"unit-{unit}" for unit in graph} <= ids(path)


def test_the_key_explains_what_is_shown_and_nothing_else(graph, tmp_path):
    shown = texts(render(graph, tmp_path / "a.svg"))
    assert {"alpha", "wolf", "werewolf", "asleep", "lost", "leads", "is followed by"} <= set(shown)
    assert "quarantined" not in shown


def test_names_with_signs_of_xml_and_maths_are_shown_as_they_are(tmp_path):
    story = Story().pack("m$a_x$", "<b>&").crown("m$a_x$", 1, "<b>&")
    shown = texts(render(leadership_graph(story.events), tmp_path / "a.svg"))
    assert "<b>&" in shown
    assert any(text.startswith("m$a_x$ - term 1") for text in shown)


def test_a_name_too_long_for_its_label_is_whole_in_the_markers_id(tmp_path):
    name = "monitoring-werewolf-with-a-very-long-name-17"
    story = Story().pack("computing", name)
    assert f"unit-{name}" in ids(render(leadership_graph(story.events), tmp_path / "a.svg"))


def test_a_png_has_the_size_that_was_asked_for(graph, tmp_path):
    assert (880, 660) == png_size(render(graph, tmp_path / "a.png", size=(8, 6)))


@pytest.mark.parametrize("size", [(2, 1.5), (4, 3), (5, 12), (20, 4)])
def test_a_picture_of_any_size_keeps_its_title_on_the_sheet(graph, tmp_path, size):
    path = render(graph, tmp_path / "a.svg", size=size)
    whole = " ".join(texts(path))
    assert "term 3" in whole
    assert "UTC" in whole


def test_a_large_den_gets_a_sheet_on_which_its_labels_keep_their_font(tmp_path):
    story = Story()
    story.pack("computing", *story.cards("grey", 150)).crown("computing", 1, "grey-149")
    path = render(leadership_graph(story.events), tmp_path / "a.svg")
    label = next(
        node
        for node in ET.fromstring(path.read_bytes()).iter("{http://www.w3.org/2000/svg}text")
        if "".join(node.itertext()).strip() == "grey-77"
    )
    assert "8px" in label.get("style", "")


def test_the_same_events_give_the_same_bytes_of_svg(graph, tmp_path):
    one, other = render(graph, tmp_path / "a.svg"), render(graph.copy(), tmp_path / "b.svg")
    assert one.read_bytes() == other.read_bytes()


def test_a_style_of_the_host_program_neither_changes_the_picture_nor_is_changed(graph, tmp_path):
    plain = render(graph, tmp_path / "a.svg").read_bytes()
    with mpl.rc_context(
        {"svg.fonttype": "path", "font.sans-serif": ["Times"], "lines.linewidth": 9.0, "axes.facecolor": "red"}
    ):
        styled = render(graph, tmp_path / "b.svg").read_bytes()
        assert "path" == mpl.rcParams["svg.fonttype"]
    assert plain == styled


def test_three_threads_that_render_at_once_all_get_the_same_picture(graph, tmp_path):
    start = threading.Barrier(3)

    def work(index: int) -> None:
        start.wait(10)
        render(graph, tmp_path / f"{index}.svg")

    threads = [threading.Thread(target=work, args=(index,)) for index in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert 1 == len({path.read_bytes() for path in tmp_path.iterdir()})
    assert 3 == len(list(tmp_path.iterdir()))


def test_a_picture_that_cannot_be_drawn_leaves_the_old_one_and_no_rubbish(graph, tmp_path):
    path = render(graph, tmp_path / "a.svg")
    before = path.read_bytes()
    del graph.graph["packs"]
    with pytest.raises(KeyError):
        render(graph, path)
    assert ([path], before) == (list(tmp_path.iterdir()), path.read_bytes())


def test_another_ending_is_refused_by_name(graph, tmp_path):
    with pytest.raises(ValueError, match=r"a\.gif"):
        render(graph, tmp_path / "a.gif")


def test_a_size_of_nothing_is_refused(graph, tmp_path):
    with pytest.raises(ValueError, match="inches"):
        render(graph, tmp_path / "a.svg", size=(0, 3))


def test_an_empty_den_can_be_drawn(tmp_path):
    assert "no packs yet" in texts(render(leadership_graph([]), tmp_path / "a.svg"))


def test_every_category_has_a_shape_and_a_colour_of_its_own():
    assert set(Category) == set(LOOKS)
    assert len(Category) == len({look.marker for look in LOOKS.values()})
    assert len(Category) == len({look.fill for look in LOOKS.values()})


def test_every_category_can_be_drawn_and_is_in_the_key(tmp_path):
    story = Story()
    units = [*story.cards("grey", 8), *story.cards("silver", 1, nature="werewolf")]
    story.pack("computing", *units[:2]).crown("computing", 1, units[0]).pack("monitoring", units[2])
    story.wake(units[3], units[8]).tell(ev.UnitWaking(unit=units[4], boot=1, pack=None, reason="work"))
    story.tell(ev.UnitQuarantined(unit=units[5], reason="fails fast")).lose(units[6], None)
    shown = leadership_graph(story.events)
    assert set(Category) == {category for _, category in shown.nodes(data="category")}
    assert {look.meaning for look in LOOKS.values()} <= set(texts(render(shown, tmp_path / "a.svg")))


def test_importing_viz_brings_in_neither_matplotlib_nor_ray():
    code = "import sys, viz; print(sorted({'matplotlib', 'ray'} & set(sys.modules)))"
    root = Path(viz.__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root)
    assert "[]" == done.stdout.strip()


def test_viz_imports_only_the_public_words_of_wolfpack():
    found = {
        module
        for path in Path(viz.__file__).parent.glob("*.py")
        for module in re.findall(r"^\s*(?:from|import) (wolfpack[\w.]*)(?: import events.*)?", path.read_text(), re.M)
    }
    assert {"wolfpack", "wolfpack.events"} == found
