"""The day job of a werewolf, and the small tasks beside it."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from packs.monitoring.tasks import Watch, disk_free, memory_free, probe_http


@pytest.fixture
def server():
    """A web server on this machine: /missing is 404, all else three bytes."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(404 if self.path == "/missing" else 200)
            self.end_headers()
            self.wfile.write(b"abc")

        def log_message(self, *args):
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{http.server_port}"
        http.shutdown()
        thread.join()


def test_a_step_says_when_the_next_is_due():
    assert 2.5 == Watch(every_s=2.5).step()


def test_a_step_adds_one_numbered_sample_of_disk_memory_and_load():
    watch = Watch()
    watch.step()
    (sample,) = watch.checkpoint()["history"]
    assert 1 == sample["number"]
    assert {
        "number", "at", "disk_free_bytes", "disk_total_bytes", "memory_free_bytes", "memory_total_bytes", "load_1min",
    } == set(sample)  # fmt: skip
    assert 0 < sample["memory_free_bytes"] <= sample["memory_total_bytes"]


def test_the_history_is_bounded_and_keeps_the_newest():
    watch = Watch(keep=3)
    for _ in range(5):
        watch.step()
    assert [3, 4, 5] == [sample["number"] for sample in watch.checkpoint()["history"]]


def test_a_checkpoint_is_plain_data():
    watch = Watch()
    watch.step()
    state = watch.checkpoint()
    assert state == json.loads(json.dumps(state))


def test_another_life_goes_on_from_the_checkpoint():
    first, second = Watch(keep=2), Watch(keep=2)
    first.step()
    first.step()
    second.restore(first.checkpoint())
    second.step()
    assert [2, 3] == [sample["number"] for sample in second.checkpoint()["history"]]


def test_a_checkpoint_does_not_change_when_the_watch_goes_on():
    watch = Watch()
    watch.step()
    state = watch.checkpoint()
    watch.step()
    assert 1 == len(state["history"])


@pytest.mark.parametrize("state", [None, {}])
def test_without_a_checkpoint_it_starts_afresh(state):
    watch = Watch()
    watch.step()
    watch.restore(state)
    assert {"number": 0, "history": []} == watch.checkpoint()


def test_memory_comes_from_what_the_kernel_calls_available(tmp_path):
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:    16 kB\nMemFree:      1 kB\nMemAvailable: 4 kB\nHugePages_Total:   0\n")
    assert {"free_bytes": 4096, "total_bytes": 16384} == memory_free(str(meminfo))


@pytest.mark.parametrize("content", [None, "MemTotal: 16 kB\n", "nonsense\n"])
def test_memory_has_another_source_where_the_kernel_tells_nothing(tmp_path, content):
    meminfo = tmp_path / "meminfo"
    if content is not None:
        meminfo.write_text(content)
    assert memory_free()["total_bytes"] == pytest.approx(memory_free(str(meminfo))["total_bytes"], rel=0.01)


def test_the_disk_of_a_path_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        disk_free(str(tmp_path / "nowhere"))


@pytest.mark.parametrize(("page", "status"), [("/", 200), ("/missing", 404)])
def test_a_probe_reports_any_answer(server, page, status):
    answer = probe_http(server + page)
    assert (server + page, status, 3) == (answer["url"], answer["status"], answer["bytes"])


def test_a_probe_without_an_answer_raises():
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as closed:
        port = closed.server_port
    with pytest.raises(OSError, match="refused"):
        probe_http(f"http://127.0.0.1:{port}/", timeout_s=1)


def test_only_web_addresses_are_probed():
    with pytest.raises(ValueError, match="only http and https"):
        probe_http("file:///etc/hostname")
