"""`wolfpack chaos` as a command: how it is ended, and what it refuses before a den is opened."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.cli.support import call
from wolfpack.cli.chaos import _ended_in_order


@pytest.mark.parametrize("raised", [128 + signal.SIGTERM, signal.SIGTERM])
def test_the_exit_code_after_SIGTERM_is_143_though_Ray_puts_a_handler_of_its_own_in_place(raised: int) -> None:
    with pytest.raises(SystemExit) as ended, _ended_in_order():
        raise SystemExit(raised)
    assert 143 == ended.value.code


def test_a_folder_for_pictures_that_cannot_be_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = call("chaos", str(Path(__file__).parents[2] / "pack.yaml"), "--graphs", str(tmp_path / "file"))
    assert 2 == result.exit_code
    assert "No pictures can be written to" in result.output
