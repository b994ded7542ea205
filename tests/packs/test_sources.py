"""Which files are measured, and the table that comes out."""

import csv
import os

import pytest

from packs.computing.sources import COLUMNS, find_sources, worst_functions, write_table


def test_files_come_sorted_by_their_relative_path(tmp_path):
    for name in ("b.py", "a/z.py", "a.py", "readme.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert ["a.py", "a/z.py", "b.py"] == find_sources(tmp_path).paths


def test_a_limit_takes_the_first_files(tmp_path):
    for name in ("c.py", "a.py", "b.py"):
        (tmp_path / name).touch()
    assert ["a.py", "b.py"] == find_sources(tmp_path, 2).paths


def test_without_a_folder_it_is_the_standard_library_without_packages_of_others():
    paths = find_sources().paths
    assert (True, False) == ("ast.py" in paths, any("site-packages" in path for path in paths))


def test_a_folder_of_ones_own_is_taken_as_it_is(tmp_path):
    (tmp_path / "site-packages").mkdir()
    (tmp_path / "site-packages" / "a.py").touch()
    assert ["site-packages/a.py"] == find_sources(tmp_path).paths


def test_a_pipe_is_no_source_because_its_reader_would_wait_for_ever(tmp_path):
    os.mkfifo(tmp_path / "pipe.py")
    assert [] == find_sources(tmp_path).paths


def test_a_dangling_link_stays_in_the_list_so_that_its_row_can_say_so(tmp_path):
    (tmp_path / "gone.py").symlink_to(tmp_path / "nowhere")
    assert ["gone.py"] == find_sources(tmp_path).paths


def test_a_folder_that_is_none_is_refused_by_name(tmp_path):
    with pytest.raises(NotADirectoryError, match="nowhere"):
        find_sources(tmp_path / "nowhere")


def test_the_table_reads_back_as_it_was_written(tmp_path):
    odd = 'a,"b"\nc.py'
    out = write_table(tmp_path / "new" / "t.csv", [{"path": odd, "bytes": 3, "worst": [[7, "f", 2], [1, "g", 9]]}])
    with open(out, newline="", encoding="utf-8") as file:
        (row,) = csv.DictReader(file)
    assert (odd, "3", "f", "2", "7") == (
        row["path"], row["bytes"], row["worst_function"], row["worst_line"], row["worst_complexity"],
    )  # fmt: skip


def test_the_table_opens_with_its_columns(tmp_path):
    out = write_table(tmp_path / "t.csv", [])
    assert ",".join(COLUMNS) + "\n" == out.read_text()


def test_a_table_that_cannot_be_finished_leaves_the_old_one_and_no_scraps(tmp_path):
    def rows():
        yield {"path": "a.py"}
        raise RuntimeError("no more")

    (tmp_path / "t.csv").write_text("old")
    with pytest.raises(RuntimeError):
        write_table(tmp_path / "t.csv", rows())
    assert (["t.csv"], "old") == (os.listdir(tmp_path), (tmp_path / "t.csv").read_text())


def test_a_reader_of_the_old_table_reads_it_to_its_end(tmp_path):
    (tmp_path / "t.csv").write_text("old")
    with open(tmp_path / "t.csv") as reader:
        write_table(tmp_path / "t.csv", [{"path": "a.py"}])
        assert "old" == reader.read()


def test_the_worst_functions_of_all_files_come_worst_first_and_ties_by_path():
    rows = [
        {"path": "b.py", "worst": [[9, "x", 1], [5, "y", 2]]},
        {"path": "a.py", "worst": [[5, "z", 3]]},
        {"path": "c.py"},
    ]
    assert [("b.py", "x"), ("a.py", "z"), ("b.py", "y")] == [
        (item["path"], item["function"]) for item in worst_functions(rows)
    ]


def test_no_more_than_ten_worst_functions():
    assert 10 == len(worst_functions([{"path": "a.py", "worst": [[n, "f", n] for n in range(30)]}]))
