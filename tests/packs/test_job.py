"""The job as a whole, on a pack of threads."""

import csv
import itertools
import os
import threading
from concurrent.futures import Future

import pytest

import wolfpack
from packs.computing import job
from packs.computing.job import measure_sources
from packs.computing.story import Kill
from tests.packs.fake import FakeDen, FakePack, unit


@pytest.fixture
def den():
    with FakeDen() as den:
        yield den


@pytest.fixture
def folder(tmp_path):
    """Twelve small files: one is no Python, one cannot be read."""
    root = tmp_path / "src"
    (root / "sub").mkdir(parents=True)
    for number in range(9):
        (root / f"m{number}.py").write_text("def f(a):\n" + "    if a: pass\n" * number + "    return a\n")
    (root / "sub" / "deep.py").write_text("x = 1\n")
    (root / "bad.py").write_text("def f(:\n")
    (root / "gone.py").symlink_to(root / "nowhere")
    return root


def rows_of(path):
    with open(path, newline="", encoding="utf-8") as file:
        return {row["path"]: row for row in csv.DictReader(file)}


def test_there_is_one_row_a_file_sorted_by_path(den, folder, tmp_path):
    measure_sources(den.pack(), input=folder, out=tmp_path / "t.csv")
    assert ["bad.py", "gone.py", *(f"m{n}.py" for n in range(9)), "sub/deep.py"] == list(rows_of(tmp_path / "t.csv"))


def test_a_file_that_is_no_python_is_done_with_an_error(den, folder, tmp_path):
    measure_sources(den.pack(), input=folder, out=tmp_path / "t.csv")
    row = rows_of(tmp_path / "t.csv")["bad.py"]
    assert ("", "SyntaxError: invalid syntax (line 1)") == (row["cause"], row["error"])


def test_a_file_that_cannot_be_read_is_a_dead_task_with_a_row(den, folder, tmp_path):
    summary = measure_sources(den.pack(), input=folder, out=tmp_path / "t.csv")
    row = rows_of(tmp_path / "t.csv")["gone.py"]
    assert (1, "FAULT", "FileNotFoundError: No such file or directory") == (summary["dead"], row["cause"], row["error"])


def test_the_summary_counts_this_run(den, folder, tmp_path):
    summary = measure_sources(den.pack(), input=folder, out=tmp_path / "t.csv")
    assert {"files": 12, "submitted": 12, "done": 11, "dead": 1, "cancelled": 0, "conservation": True} == {
        name: summary[name] for name in ("files", "submitted", "done", "dead", "cancelled", "conservation")
    }


def test_the_summary_has_the_worst_functions(den, folder, tmp_path):
    summary = measure_sources(den.pack(), input=folder, out=tmp_path / "t.csv")
    assert {"complexity": 9, "path": "m8.py", "function": "f", "line": 1} == summary["worst"][0]


def test_two_runs_write_the_same_bytes(den, folder, tmp_path):
    for name in ("one.csv", "two.csv"):
        measure_sources(den.pack(), input=folder, out=tmp_path / name)
    assert (tmp_path / "one.csv").read_bytes() == (tmp_path / "two.csv").read_bytes()


def test_a_second_run_does_its_work_again(den, folder, tmp_path):
    for _ in range(2):
        measure_sources(den.pack(), input=folder, out=tmp_path / "t.csv")
    assert 24 == len(den.by_key)


def test_a_resumed_run_finds_its_own_tasks(den, folder, tmp_path):
    first = measure_sources(den.pack(), input=folder, limit=5, out=tmp_path / "t.csv")
    second = measure_sources(den.pack(), input=folder, resume=first["run"], out=tmp_path / "t.csv")
    assert (first["run"], 12, 12) == (second["run"], second["submitted"], len(den.by_key))


def test_keys_are_the_run_and_the_relative_path(den, folder, tmp_path):
    measure_sources(den.pack(), input=folder, resume="R7", limit=1, out=tmp_path / "t.csv")
    assert ["R7:bad.py"] == list(den.by_key)


def test_the_runs_id_is_printed_first_and_keeps_out_of_the_way_of_json(den, folder, tmp_path, capsys):
    measure_sources(den.pack(), input=folder, resume="R7", out=tmp_path / "t.csv", json=True)
    out, err = capsys.readouterr()
    assert ("", f"run R7: resumes, 12 files of {folder}\n") == (out, err)


def test_a_name_that_is_no_utf8_gets_its_row(den, tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / os.fsdecode(b"caf\xe9.py")).write_text("a = 1\n")
    measure_sources(den.pack(), input=tmp_path / "src", out=tmp_path / "t.csv")
    assert [r"caf\xe9.py"] == list(rows_of(tmp_path / "t.csv"))


def test_progress_ends_with_everything_settled(den, folder, tmp_path):
    seen = []
    measure_sources(den.pack(), input=folder, out=tmp_path / "t.csv", _progress=lambda *state: seen.append(state))
    assert (12, 12, "12 submitted, 11 done, 1 dead") == seen[-1]


def test_tasks_are_submitted_when_they_fall_due(den, folder, tmp_path, monkeypatch):
    monkeypatch.setitem(job.SCHEDULES, "steady", lambda n: [0.05 * index for index in range(n)])
    summary = measure_sources(den.pack(), input=folder, limit=3, load="steady", out=tmp_path / "t.csv")
    assert 0.1 <= summary["seconds"]


class SettledPack(FakePack):
    """A pack whose tasks all end in one prepared way."""

    def __init__(self, den, end):
        super().__init__(den)
        self.end = end

    def options(self, **options):
        return self

    def submit(self, fn, *args, **kwargs):
        future = Future()
        self.end(future)
        return future


@pytest.mark.parametrize(
    ("end", "cause", "error", "counted"),
    [
        (
            lambda f: f.set_exception(wolfpack.TaskCrashed("hands of grey-2 died", "CRASH")),
            "CRASH",
            "TaskCrashed",
            "dead",
        ),
        (lambda f: f.set_exception(wolfpack.TaskTimeout("too long", "TIMEOUT")), "TIMEOUT", "TaskTimeout", "dead"),
        (lambda f: f.set_exception(KeyError("x")), "FAULT", "KeyError: 'x'", "dead"),
        (lambda f: f.cancel(), "CANCELLED", "", "cancelled"),
    ],
)
def test_every_end_of_a_task_is_a_row_with_its_cause(den, folder, tmp_path, end, cause, error, counted):
    summary = measure_sources(SettledPack(den, end), input=folder, limit=1, out=tmp_path / "t.csv")
    row = rows_of(tmp_path / "t.csv")["bad.py"]
    assert (cause, error, 1) == (row["cause"], row["error"], summary[counted])


def test_trouble_of_the_den_is_raised_and_no_finding(den, folder, tmp_path):
    trouble = SettledPack(den, lambda f: f.set_exception(wolfpack.DenUnreachable("no answer")))
    with pytest.raises(wolfpack.DenUnreachable):
        measure_sources(trouble, input=folder, out=tmp_path / "t.csv")


def test_ctrl_c_is_the_callers_to_handle(den, folder, tmp_path):
    def interrupted(*state):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure_sources(den.pack(), input=folder, out=tmp_path / "t.csv", _progress=interrupted)


def test_alphas_begin_with_the_one_that_led_at_the_start(den, folder, tmp_path):
    den.crown("grey-1")
    summary = measure_sources(den.pack(), input=folder, out=tmp_path / "t.csv")
    assert [{"pack": "computing", "term": 1, "unit": "grey-1", "at_s": 0.0}] == summary["alphas"]


def test_units_are_those_of_this_pack(den, folder, tmp_path):
    den.units_now = [unit("grey-1"), unit("grey-2"), unit("grey-3", pack="other")]
    summary = measure_sources(den.pack(), input=folder, out=tmp_path / "t.csv")
    assert (2, pytest.approx(2 * summary["seconds"], abs=0.01)) == (
        summary["units"]["peak"], summary["units"]["unit_seconds"],
    )  # fmt: skip


def test_the_alpha_is_killed_once_when_the_fraction_is_settled_and_the_failover_is_measured(
    den, folder, tmp_path, monkeypatch
):
    """The next alpha hands out the rest, so the files after the kill wait for its first lease."""
    settled_at_kill = []
    next_alpha, looked_again = threading.Event(), threading.Event()
    den.crown("grey-2")
    den.units_now = [unit("grey-2", role="alpha")]

    class Pack(FakePack):
        def options(self, **options):
            return Pack(den, options)

        def submit(self, fn, path, root):
            def held(path, root):
                assert path < "m4" or (looked_again if path.startswith("sub") else next_alpha).wait(10)
                return fn(path, root)

            return super().submit(held, path, root)

    def kill(pack):
        settled_at_kill.append(sum(future.done() for future in den.by_key.values()))
        at = den.recorded[-1].at + 10
        den.publish(
            wolfpack.AlphaDeposed(pack="computing", term=1, unit="grey-2", boot=1, reason="grey-2 vanished: it died"),
            at=at + 0.25,
        )
        den.crown("grey-1")
        den.publish(wolfpack.FirstLease(pack="computing", term=2, unit="grey-1"), at=at + 0.5)
        next_alpha.set()
        return Kill("grey-2", 1, 4711, at)

    looks = itertools.count()

    def progress(done, total, text):
        if next_alpha.is_set() and next(looks) == 3:
            looked_again.set()

    monkeypatch.setattr(job, "signal_alpha", kill)
    monkeypatch.setattr(job, "LOOK_EVERY_S", 0.001)
    summary = measure_sources(Pack(den), input=folder, kill_alpha_at=0.5, out=tmp_path / "t.csv", _progress=progress)
    assert ([6], ["grey-2"], [0.5], [1, 2]) == (
        settled_at_kill,
        [killed["unit"] for killed in summary["killed"]],
        summary["failovers_s"],
        [alpha["term"] for alpha in summary["alphas"]],
    )


def test_an_alpha_that_could_not_be_killed_is_said_so(den, folder, tmp_path):
    den.units_now = [unit("grey-2", pid=os.getpid(), node="here", role="alpha")]
    summary = measure_sources(den.pack(), input=folder, kill_alpha_at=0.01, out=tmp_path / "t.csv")
    (note,) = summary["notes"]
    assert ([], True) == (summary["killed"], note.startswith("The alpha was not killed: process"))


def test_a_picture_of_the_run_is_drawn_and_new_ones_are_named(den, folder, tmp_path):
    pictures = tmp_path / "graphs"
    pictures.mkdir()
    (pictures / "old.svg").touch()
    summary = measure_sources(den.pack(), input=folder, graphs=pictures, resume="R7", out=tmp_path / "t.csv")
    assert [str(pictures / "run-R7.svg")] == summary["graphs"]


def test_a_picture_that_cannot_be_drawn_is_a_note_beside_the_results(den, folder, tmp_path):
    def graph(path):
        raise RuntimeError("no painter")

    den.graph = graph
    summary = measure_sources(den.pack(), input=folder, graphs=tmp_path / "g", out=tmp_path / "t.csv")
    assert (11, True) == (summary["done"], "no painter" in summary["notes"][0])


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"load": "tidal"}, "burst, steady, trace"),
        ({"limit": 0}, "at least 1"),
        ({"kill_alpha_at": 1.0}, "below 1"),
        ({"kill_alpha_at": 0}, "above 0"),
    ],
)
def test_an_option_without_sense_is_refused_before_any_work(den, folder, options, text):
    with pytest.raises(wolfpack.CallerError, match=text):
        measure_sources(den.pack(), input=folder, **options)
    assert {} == den.by_key


def test_a_folder_without_python_is_refused(den, tmp_path):
    with pytest.raises(wolfpack.CallerError, match="no Python files"):
        measure_sources(den.pack(), input=tmp_path)


def test_options_may_come_as_text_from_a_command_line(den, folder, tmp_path):
    assert 3 == measure_sources(den.pack(), input=str(folder), limit="3", out=str(tmp_path / "t.csv"))["files"]
