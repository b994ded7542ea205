"""The door for pack.yaml: text and bytes that were spoiled, and YAML put together to hurt."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

from tests.fuzz.fuzzer import spoil_bytes
from wolfpack.config import load
from wolfpack.errors import ConfigError
from wolfpack.model import DenSpec
from wolfpack.plain import card_from_json, card_to_json, pack_from_json, pack_to_json

GOOD = b"""\
den: timber
ledger: sqlite:///.wolfpack/timber.db
graphs: .wolfpack/graphs
payload_max_bytes: 1073741824
units:
  grey: &grey
    count: 4
    offers: [cpu]
    measures: {memory_gb: 4}
    awake_min: 1
    sleep_after_s: 10
    lead: 0
    cost_per_h: 0.5
    ray: {num_cpus: 1, resources: {a: 1}, label_selector: {zone: a}, runtime_env: {env_vars: {A: b}}}
    hands: {isolation: process, concurrency: 1, setup: null, recycle_after: null}
  silver:
    <<: *grey
    nature: werewolf
    count: 2
    offers: [cpu, browser]
    day_job: packs.monitoring.tasks:Watch
    min_tenure_s: 10
    max_loan_s: 600
packs:
  computing:
    size: [0, 6]
    needs: {cpu: true, memory_gb: 2}
    drain_target_s: 2
    rate: {per_s: 5}
    retry: {max_attempts: 3, backoff_s: 0.2, retry_on: [ConnectionError], on_oom: {memory_gb: 4}}
election: {profile: ray, silence_s: 2.5}
job: {task: "packs.computing.job:measure_sources", options: {limit: 3}}
"""
LINES = GOOD.splitlines(keepends=True)
# What means something in YAML, or was meant to.
PIECES = [
    piece.encode("utf-8", "surrogatepass")
    for piece in (
        "&a ", "*a", "*grey", "<<: *grey", "<<: [*grey, *grey]", "<<: 5", "!!python/object:os.system ", "!!int ",
        "!!float ", "!!set ", "!!binary ", "!!timestamp ", "!x ", "%YAML 9.9", "---", "...", "? ",
        "- ", "|", ">", "'", '"',
        "{", "}", "[", "]", ",", ": ", "#", "\t", "\r", "\n", "\x00", "\x07", "\ufeff", "\u202e", "\u2028", "\ud800",
        ".inf", "-.inf", ".nan", "1e999", "-1", "0", "99999999999999999999999", "0x" + "f" * 400, "9" * 5000, "1_000",
        "1:2:3", "0o17", "2024-99-99", "2024-01-01T00:00:00Z", "yes", "null", "~", "''", "[[[[[[[[", "{a: {a: {a: ",
        "den: x\n", "units: {}\n", "packs: {}\n", "count: 10001", "count: 0", "&b [*b]", "x" * 3000, "a: &a [*a, *a]\n",
        "\\U0010FFFF", '"\\UFFFFFFFF"', '"\\ud800"', "=", "../../x", "/dev/stdin", "sqlite:///", "memory://", "°²٣",
    )
]  # fmt: skip


def laughs(width: int, levels: int) -> bytes:
    """A few lines that mean width ** levels values."""
    text = "a0: &a0 [1]\n"
    for level in range(1, levels):
        text += f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * width)}]\n"
    return text.encode()


def merges(levels: int) -> bytes:
    """Mappings that each bring in the one before twice."""
    text = "m0: &m0 {a: 1}\n"
    for level in range(1, levels):
        text += f"m{level}: &m{level}\n  <<: [*m{level - 1}, *m{level - 1}]\n  k{level}: *m{level - 1}\n"
    return text.encode()


class Config:
    """A file is read into a den that can be kept, or every line of the refusal says where it is wrong."""

    name = "pack.yaml"
    refusals = (ConfigError,)

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="wolfpack-fuzz-")
        self._file = Path(self._folder.name, "pack.yaml")

    def make(self, rng: random.Random) -> bytes:
        match rng.randrange(40):
            case 0:
                return rng.choice((laughs(9, rng.choice((4, 9, 30))), merges(rng.choice((3, 12, 25, 400)))))
            case 1 | 2 | 3 | 4:
                return spoil_bytes(rng, GOOD, GOOD)
            case 5 | 6 | 7:
                lines = list(LINES)
                rng.shuffle(lines)
                return b"".join(lines[: rng.randint(1, len(lines))])
            case 8 | 9 | 10:
                at = rng.randrange(len(LINES))
                lines = [*LINES[:at], *LINES[at : at + 3] * rng.choice((2, 50)), *LINES[at:]]
                return b"".join(lines)
            case 11:
                return rng.choice((b"a: ", b"[", b"- ", b"{a: ", b"? ", b"'", b"!!set {", b"&a [")) * rng.choice(
                    (30, 3000, 50_000)
                )
            case number if number < 20:
                value, line = rng.choice(PIECES), rng.randrange(len(LINES))
                key = LINES[line].partition(b":")[0]
                return b"".join([*LINES[:line], key + b": " + value + b"\n", *LINES[line + 1 :]])
            case number if number < 30:  # another number where one stood
                places = [at for at, byte in enumerate(GOOD) if chr(byte).isdigit()]
                at = rng.choice(places)
                return GOOD[:at] + rng.choice((b"0", b"2", b"7", b"-1", b"0.5", b"1e3", b"99999")) + GOOD[at + 1 :]
            case _:
                text = bytearray(GOOD)
                for _ in range(rng.choice((1, 1, 2, 5))):
                    at = rng.randrange(len(text) + 1)
                    text[at : at + rng.choice((0, 0, 1, 5))] = rng.choice(PIECES)
                return bytes(text)

    def attempt(self, given: bytes) -> None:
        self._file.write_bytes(given)
        try:
            spec = load(self._file)
        except ConfigError as exc:
            if not all(line.startswith(f"{self._file}:") for line in str(exc).splitlines()):
                raise AssertionError("a fault without a place") from exc
            raise
        assert isinstance(spec, DenSpec)
        for card in spec.cards[:50]:  # the ledger gives back what it was given
            assert card == card_from_json(card_to_json(card))
        for pack in spec.packs:
            assert pack == pack_from_json(pack_to_json(pack))

    def close(self) -> None:
        self._folder.cleanup()
