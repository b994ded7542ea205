"""Pictures as they happen, and made up later."""

from __future__ import annotations

import logging
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.viz.story import Story
from viz import GraphRecorder, render_now, render_since
from wolfpack import events as ev


@pytest.fixture
def story() -> Story:
    """Crowned at event 4, deposed at 5, and crowned again at 6."""
    story = Story().tell(ev.UnitRegistered(unit="grey-1", kind="grey", nature="wolf", offers=("cpu",)))
    story.tell(ev.PackCreated(pack="computing", fewest=0, most=3)).crown("computing", 1, "grey-1")
    return story.depose("computing", 1, "grey-1").crown("computing", 2, "grey-2", "grey-1")


def told(recorder: GraphRecorder, story: Story) -> GraphRecorder:
    for recorded in story.events:
        recorder(recorded)
    return recorder


def test_each_change_of_leadership_gives_a_picture_named_by_event_pack_and_term(story, tmp_path):
    recorder = told(GraphRecorder(tmp_path / "graphs", "timber", suffixes=[".svg"]), story)
    expected = ["00000004-computing-term1.svg", "00000005-computing-term1.svg", "00000006-computing-term2.svg"]
    assert expected == [path.name for path in recorder.paths]
    assert expected == sorted(path.name for path in (tmp_path / "graphs").iterdir())


def test_a_picture_is_written_as_svg_and_as_png(story, tmp_path):
    del story.events[4:]
    told(GraphRecorder(tmp_path, "timber"), story)
    assert ["00000004-computing-term1.png", "00000004-computing-term1.svg"] == sorted(
        p.name for p in tmp_path.iterdir()
    )


def test_a_picture_shows_the_den_as_it_was_at_its_event(story, tmp_path):
    recorder = told(GraphRecorder(tmp_path, "timber", suffixes=[".svg"]), story)
    shown = ["".join(ET.fromstring(path.read_bytes()).itertext()) for path in recorder.paths]
    assert ["term 1, alpha grey-1", "term 1 ended, no alpha", "term 2, alpha grey-2"] == [
        next(
            part for part in ("term 1, alpha grey-1", "term 1 ended, no alpha", "term 2, alpha grey-2") if part in text
        )
        for text in shown
    ]


def test_events_that_come_again_are_not_drawn_again(story, tmp_path):
    recorder = told(told(GraphRecorder(tmp_path, "timber", suffixes=[".svg"]), story), story)
    assert 3 == len(recorder.paths)


def test_events_up_to_since_are_taken_in_but_not_drawn(story, tmp_path):
    recorder = told(GraphRecorder(tmp_path, "timber", since=5, suffixes=[".svg"]), story)
    assert ["00000006-computing-term2.svg"] == [path.name for path in recorder.paths]
    assert "grey-1 follows" not in recorder.paths[0].read_text()
    assert "grey-2 follows grey-1" in recorder.paths[0].read_text()


def test_a_folder_that_cannot_be_used_is_logged_and_the_events_go_on(story, tmp_path, caplog):
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    with caplog.at_level(logging.WARNING, "wolfpack.viz"):
        recorder = told(GraphRecorder(blocked, "timber"), story)
    assert ([], 6) == (recorder.paths, recorder.view.number)
    assert [4, 5, 6] == [record.event_number for record in caplog.records if record.name == "wolfpack.viz"]


def test_pictures_come_again_once_the_folder_is_mended(story, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    recorder = GraphRecorder(blocked, "timber", suffixes=[".svg"])
    for recorded in story.events[:5]:
        recorder(recorded)
    blocked.unlink()
    recorder(story.events[5])
    assert ["00000006-computing-term2.svg"] == [path.name for path in recorder.paths]


def test_a_disk_that_is_full_is_logged_and_not_raised(story, tmp_path, caplog, monkeypatch):
    def full(*args: object, **kwargs: object) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("viz.draw.render", full)
    told(GraphRecorder(tmp_path, "timber"), story)
    assert "No space left on device" in caplog.text


def test_a_pack_with_signs_of_a_path_in_its_name_stays_in_the_folder(tmp_path):
    recorder = told(GraphRecorder(tmp_path, suffixes=[".svg"]), Story().crown("../a/b", 1, "grey-0"))
    assert [tmp_path / "00000002-.._a_b-term1.svg"] == recorder.paths


def test_render_since_makes_up_only_what_is_missing(story, tmp_path):
    first = told(GraphRecorder(tmp_path, "timber", suffixes=[".svg"]), story).paths
    lost = first[1].read_bytes()
    first[1].unlink()
    assert [first[1]] == render_since(story.events, tmp_path, suffixes=[".svg"])
    assert lost == first[1].read_bytes()


def test_render_since_leaves_out_what_is_older(story, tmp_path):
    assert ["00000006-computing-term2.svg"] == [
        path.name for path in render_since(story.events, tmp_path, 5, suffixes=[".svg"])
    ]


def test_render_now_draws_the_present_state_with_the_time_given(story, tmp_path):
    path = render_now(story.events, tmp_path / "now.svg", at=0.0)
    assert "timber - computing: term 2, alpha grey-2 - 00:00:00 UTC" in path.read_text()
