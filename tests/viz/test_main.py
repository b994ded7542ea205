"""`python -m viz`, and the pictures of the documentation."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import viz
from tests.viz.story import Story
from viz.__main__ import main, read_events, write_events
from wolfpack import events as ev

DOCS = Path(viz.__file__).parents[1] / "docs"


def words(path: Path) -> list[str]:
    root = ET.fromstring(path.read_bytes())
    return ["".join(node.itertext()).strip() for node in root.iter("{http://www.w3.org/2000/svg}text")]


def test_events_come_back_from_their_file_as_they_were(tmp_path):
    story = Story()
    story.pack("computing", *story.cards("grey", 2, offers=("cpu", "gpu"))).crown("computing", 1, "grey-1")
    write_events(story.events, tmp_path / "events.jsonl")
    assert story.events == read_events(tmp_path / "events.jsonl")


def test_a_file_of_events_becomes_one_picture_a_change(tmp_path, capsys):
    write_events(Story().crown("computing", 1, "grey-1").events, tmp_path / "events.jsonl")
    assert 0 == main([str(tmp_path / "events.jsonl"), str(tmp_path / "out")])
    assert f"{tmp_path / 'out' / '00000002-computing-term1.svg'}\n" == capsys.readouterr().out


def test_without_arguments_the_usage_is_told(capsys):
    assert 2 == main([])
    assert "EVENTS FOLDER" in capsys.readouterr().err


def test_the_pictures_of_the_documentation_are_those_of_its_events(tmp_path):
    made = viz.render_since(read_events(DOCS / "pictures" / "events.jsonl"), tmp_path, suffixes=[".svg"])
    kept = sorted((DOCS / "pictures").glob("*.svg"))
    assert [path.name for path in made] == [path.name for path in kept]
    assert [words(path) for path in made] == [words(path) for path in kept]


def test_the_page_shows_only_pictures_that_are_there():
    page = (DOCS / "graphs.md").read_text()
    shown = [part.split(")")[0] for part in page.split("](")[1:]]
    assert len(shown) == 2
    assert all((DOCS / name).is_file() for name in shown)


def test_the_events_of_the_documentation_are_all_of_kinds_we_know():
    events = [item.event for item in read_events(DOCS / "pictures" / "events.jsonl")]
    assert [] == [event for event in events if isinstance(event, ev.UnknownEvent)]
