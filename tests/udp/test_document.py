"""What docs/membership.md shows of packets, suspicion and the command is what the code does."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any, cast

import pytest

from tests.ray.support import ROOT
from wolfpack.core.items import LoadRecord, Record, Writer
from wolfpack.core.membership_words import Load, Status
from wolfpack.core.packets import Kind, Sender, den_mark, write_head, write_sender
from wolfpack.core.suspicion import suspicion_max_s, suspicion_min_s
from wolfpack.model import PROFILES
from wolfpack.udp.__main__ import obey

DOCUMENT = (ROOT / "docs" / "membership.md").read_text(encoding="utf-8")


def test_the_packet_that_is_shown_is_the_one_the_codec_writes():
    head = write_head(den_mark("demo"), Kind.PING, 7, write_sender(Sender("grey-17", 3, 0)))
    writer = Writer(head)
    writer.record(Record("grey-4", 2, 0, Status.SUSPECT, "grey-17"))
    writer.record(Record("grey-9", 5, 1, Status.DEAD))
    writer.load(LoadRecord("grey-17", 3, Load(12, 2, 1, 4, 90)))
    shown = re.search(r"```text\n(.*?)```", DOCUMENT, re.DOTALL)
    assert shown
    assert bytes.fromhex(shown[1]) == writer.done()
    assert f"{len(writer.done())} bytes, {len(head)} of them for the ping itself" in DOCUMENT


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("[1]\n", "Not an order: [1]: an order is an object"),
        ("{}\n", "Not an order: {}: an order is an object"),
        ('{"do": "load", "lease": 1}\n', "a load has no lease; it has budgets, capacity"),
        ('{"do": "lead"}\n', "There is no order 'lead'"),
        ("no JSON\n", "Not an order: no JSON: Expecting value"),
    ],
)
def test_what_is_no_order_is_told_in_a_sentence(line: str, told: str):
    class Said:
        def say(self, what: str, **fields: str) -> None:
            assert "error" == what
            assert told in fields["text"]
            assert "\\n" not in fields["text"]
            said.append(what)

    said: list[str] = []
    assert obey(cast(Any, None), cast(Any, Said()), line)
    assert ["error"] == said


@pytest.mark.parametrize("profile", PROFILES)
def test_the_times_of_suspects_are_those_of_the_formulas(profile: str):
    timing = PROFILES[profile]
    small, large = ((suspicion_min_s(timing, n), suspicion_max_s(timing, n)) for n in (5, 1000))
    row = (
        f"| `{profile}` | {timing.probe_s} / {timing.ack_s} | {timing.gossip_s} | {small[0]:g} / {small[1]:g} s, "
        f"{large[0]:g} / {large[1]:g} s | {timing.sync_s:g} |"
    )
    assert row in DOCUMENT


def test_every_counter_of_the_code_is_in_the_table_once():
    sources = [*(ROOT / "wolfpack" / "udp").glob("*.py"), *(ROOT / "wolfpack" / "core").glob("*.py")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    counted = set(re.findall(r'counters\["(\w+)"\]', text)) | set(re.findall(r'_Refused\("(\w+)"\)', text))
    table = DOCUMENT[DOCUMENT.index("| counter | counts |") :]
    named = Counter(
        name for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)
    )
    assert set() == counted - set(named)
    assert {1} == set(named.values())
