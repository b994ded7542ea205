"""Schedules, and the reader of the log behind `trace`."""

import pytest

from packs.computing.load import SwfJob, arrivals_of, burst, parse_swf, quantiles, read_log, steady, trace


def test_a_burst_is_all_at_once():
    assert [0.0, 0.0, 0.0] == burst(3)


def test_a_steady_load_is_evenly_spread_and_starts_at_once():
    assert [0.0, 15.0, 30.0, 45.0] == steady(4, seconds=60)


def test_nothing_to_schedule_is_an_empty_schedule():
    assert [[], [], []] == [burst(0), steady(0), trace(0)]


def test_the_log_has_all_its_jobs():
    assert 18_239 == len(read_log())


def test_the_first_job_of_the_log_is_read_field_by_field():
    assert SwfJob(number=1, submit_s=0, run_s=1451, processors=128) == read_log()[0]


def test_day_67_has_620_jobs():
    assert 620 == len(arrivals_of(read_log(), 67))


def test_arrivals_are_seconds_since_midnight_of_their_day():
    jobs = [SwfJob(n, submit_s, 1, 1) for n, submit_s in enumerate([86_399, 172_799, 86_400, 172_800])]
    assert [0, 86_399] == arrivals_of(jobs, 1)


def test_a_trace_of_as_many_tasks_as_jobs_is_the_day_itself_compressed():
    assert [at / 1440 for at in arrivals_of(read_log(), 67)] == pytest.approx(trace(620, seconds=60, day=67))


@pytest.mark.parametrize("n", [1, 2, 100, 1790])
def test_a_trace_has_one_offset_a_task_in_rising_order_within_the_time(n):
    offsets = trace(n, seconds=60)
    assert (n, True, True) == (len(offsets), offsets == sorted(offsets), 0 <= offsets[0] and offsets[-1] < 60)


def test_a_trace_keeps_the_shape_of_the_day_whatever_the_number_of_tasks():
    def share_before_noon(offsets):
        return sum(at < 30 for at in offsets) / len(offsets)

    assert share_before_noon(trace(620)) == pytest.approx(share_before_noon(trace(5000)), abs=0.005)


def test_a_day_without_jobs_is_refused_by_name():
    with pytest.raises(ValueError, match="no jobs on day 4000"):
        trace(5, day=4000)


@pytest.mark.parametrize(("n", "expected"), [(1, [20]), (2, [10, 40]), (3, [10, 20, 40]), (5, [10, 15, 20, 30, 40])])
def test_quantiles_interpolate_between_neighbours(n, expected):
    assert expected == quantiles([10, 20, 40], n)


def test_comments_and_empty_lines_of_a_log_are_passed_over():
    lines = ["; MaxNodes: 128", "", "  7 100 -1 20 4 -1"]
    assert [SwfJob(7, 100, 20, 4)] == list(parse_swf(lines))


@pytest.mark.parametrize("line", ["1 2 3", "1 soon -1 20 4"])
def test_a_line_that_is_no_job_is_named(line):
    with pytest.raises(ValueError, match="line 2 of the log"):
        list(parse_swf(["; fine", line]))
