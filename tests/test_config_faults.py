"""What a bad pack.yaml is told: each case is a file and the lines its reader sees, all of them and nothing else."""
# ruff: noqa: E501 (a case stands on one line)

from __future__ import annotations

import os
import pickle
import time
from pathlib import Path

import pytest

from wolfpack.config import load
from wolfpack.config.document import MAX_BYTES, MAX_DEPTH, MAX_VALUES
from wolfpack.errors import ConfigError

UNITS = "den: d\nunits:\n  grey: {offers: [cpu], measures: {ram: 4}}\n"
UNIT = "den: d\nunits:\n  grey:\n    "
PACK = f"{UNITS}packs:\n  p:\n    size: [0, 1]\n    "
OFFERED = "grey offers cpu, ram=4"
NAME = "must be a name of letters, digits, '-' and '_', at most 64, that does not begin with '-', not the text"
REFERENCE = "must be written module:function, such as 'packs.computing.job:measure_sources', not the text"
LEDGERS = "sqlite:///file (beside this file), sqlite:////absolute/file, or memory://"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def told(content: str | bytes) -> list[str]:
    """The lines of the error, each without the name of the file."""
    Path("pack.yaml").write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(ConfigError) as caught:
        load("pack.yaml")
    lines = str(caught.value).split("\n")
    assert [] == [line for line in lines if not line.startswith("pack.yaml:")]
    return [line.removeprefix("pack.yaml:") for line in lines]


@pytest.mark.parametrize(
    ("expected", "content"),
    [
        ("1:1: the file is empty; it must describe a den (see docs/pack-yaml.md)", ""),
        ("1:1: the file is empty; it must describe a den (see docs/pack-yaml.md)", "# only a comment\n"),
        ("1:1: the file is empty; it must describe a den (see docs/pack-yaml.md)", "---\n"),
        ("1:1: the file must be a mapping of keys such as 'den', 'units' and 'packs'", "- den\n"),
        ("2:1: the file must be a mapping of keys such as 'den', 'units' and 'packs'", "\ntimber"),
        ("2:1: a tab stands where YAML wants spaces; indent with spaces", "units:\n\tgrey: 1\n"),
        ("1:6: the byte 0xff is not UTF-8; save the file as UTF-8", b"den: \xff"),
        ("2:10: the byte 0xe4 is not UTF-8; save the file as UTF-8", "a: b\nden: gr\xfcn".encode() + b"\xe4"),
        ("2:4: the character U+0007 cannot stand in YAML", "a: b\nc: \a\n"),
        ("1:7: this is not YAML: expected the node content, but found '<stream end>' (while parsing a flow node)", "den: ["),
        ("1:7: this is not YAML: mapping values are not allowed here", "den: a: b"),
        ("2:1: this is not YAML: but found another document (expected a single document in the stream)", "den: a\n--- \n"),
        ("1:6: this is not YAML: found undefined alias 'x'", "den: *x"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_yaml_mapping_is_refused_where_it_goes_wrong(expected: str, content: str | bytes) -> None:
    assert [expected] == told(content)


@pytest.mark.parametrize(
    ("expected", "content"),
    [
        # keys
        (["3:1: grafs: unknown key; did you mean 'graphs'?"], "den: d\nunits: {grey: {}}\ngrafs: x\n"),
        (["4:5: units.grey.natur: unknown key; did you mean 'nature'?"], f"{UNIT}natur: wolf\n"),
        (["1:1: den: this key is missing"], "units: {grey: {}}\n"),
        (["1:1: units: this key is missing"], "den: d\n"),
        (["5:3: packs.p.size: this key is missing"], f"{UNITS}packs:\n  p: {{}}\n"),
        (["4:1: den: this key is given twice, first in line 1"], f"{UNITS}den: e\n"),
        (["5:5: units.grey.lead: this key is given twice, first in line 4"], f"{UNIT}lead: 1\n    lead: 2\n"),
        (["4:5: units.grey.on: YAML reads this key as true or false; put it in quotes"], f"{UNIT}on: 1\n"),
        (["4:5: units.grey: a key must be text, not a list or a mapping"], f"{UNIT}[a]: 1\n"),
        (["4:9: units.grey: '<<' needs a mapping to merge"], f"{UNIT}<<: 5\n"),
        # types
        (["4:12: units.grey.count: must be a whole number, not the text '4'"], f'{UNIT}count: "4"\n'),
        (["4:12: units.grey.count: must be a whole number, not true"], f"{UNIT}count: true\n"),
        (["4:12: units.grey.count: must be a whole number, not the number 1.0"], f"{UNIT}count: 1.0\n"),
        (["4:11: units.grey.count: must be a whole number, not nothing (null)"], f"{UNIT}count:\n"),
        (["4:14: units.grey.grace_s: must be a number, not false"], f"{UNIT}grace_s: no\n"),
        (["4:14: units.grey.grace_s: must be a number, not the text '1e3'"], f"{UNIT}grace_s: 1e3\n"),
        (["4:14: units.grey.grace_s: must be a finite number, not the number inf"], f"{UNIT}grace_s: .inf\n"),
        (["4:21: units.grey.measures.ram: must be a finite number, not the number nan"], f"{UNIT}measures: {{ram: .nan}}\n"),
        (["4:14: units.grey.offers[0]: must be text, not false; put it in quotes if text is meant"], f"{UNIT}offers: [no]\n"),
        (["4:13: units.grey.offers: must be a list, not the text 'cpu'"], f"{UNIT}offers: cpu\n"),
        (["4:15: units.grey.can_lead: must be true or false, not the number 1"], f"{UNIT}can_lead: 1\n"),
        (["4:7: packs: must be a mapping, not nothing (null)"], f"{UNITS}packs:\n"),
        (["3:9: units.grey: must be a mapping, not the number 5"], "den: d\nunits:\n  grey: 5\n"),
        (["1:6: den: YAML reads this as a date; if text is meant, put it in quotes"], "den: 2024-01-01\nunits: {g: {}}\n"),
        (["1:6: den: the YAML tag set has no meaning here"], "den: !!set {a}\nunits: {g: {}}\n"),
        (["1:6: den: YAML reads this as !x; if text is meant, put it in quotes"], "den: !x a\nunits: {g: {}}\n"),
        (["4:12: units.grey.count: YAML cannot read this as a whole number"], f"{UNIT}count: !!int x\n"),
        (["4:11: units.grey.lead: the number is larger than 9223372036854775807"], f"{UNIT}lead: 0x{'f' * 9000}\n"),
        # ranges
        (["4:12: units.grey.count: must be at least 0, not the number -1"], f"{UNIT}count: -1\n"),
        (["4:20: units.grey.sleep_after_s: must be at least 0, not the number -0.5"], f"{UNIT}sleep_after_s: -0.5\n"),
        (["4:17: units.grey.max_loan_s: must be greater than 0, not the number 0"], f"{UNIT}max_loan_s: 0\n"),
        (["4:20: payload_max_bytes: must be greater than 0, not the number 0"], f"{UNITS}payload_max_bytes: 0\n"),
        (["7:21: packs.p.drain_target_s: must be greater than 0, not the number 0"], f"{PACK}drain_target_s: 0\n"),
        (["7:19: packs.p.rate.per_s: must be greater than 0, not the number 0"], f"{PACK}rate: {{per_s: 0}}\n"),
        (["7:11: packs.p.rate: must be a mapping, not the number 5"], f"{PACK}rate: 5\n"),
        (["2:8: units: must not be empty"], "den: d\nunits: {}\n"),
        # spelling
        ([f"1:6: den: {NAME} 'a b'"], "den: a b\nunits: {g: {}}\n"),
        ([f"1:6: den: {NAME} 'a/b'"], "den: a/b\nunits: {g: {}}\n"),
        ([f"1:6: den: {NAME} 'a\\n'"], 'den: "a\\n"\nunits: {g: {}}\n'),
        ([f"3:3: units.'grey wolf': {NAME} 'grey wolf'"], "den: d\nunits:\n  grey wolf: {}\n"),
        (["4:14: units.grey.offers[0]: must be one word without spaces, such as 'cpu', not the text 'a b'"], f"{UNIT}offers: [a b]\n"),
        (["4:13: units.grey.nature: must be 'wolf' or 'werewolf', not the text 'wolve'; did you mean 'wolf'?"], f"{UNIT}nature: wolve\n"),
        (["4:21: election.profile: must be 'ray', 'classic' or 'fast', not the text 'x'"], f"{UNITS}election: {{profile: x}}\n"),
        ([f"4:13: job.task: {REFERENCE} 'a.b.c'; did you mean 'a.b:c'?"], f"{UNITS}job: {{task: a.b.c}}\n"),
        ([f"4:13: job.task: {REFERENCE} 'a:b:c'"], f"{UNITS}job: {{task: 'a:b:c'}}\n"),
        (["4:30: job.options.a-b: must be the name of an argument: letters, digits and '_', not the text 'a-b'"], f"{UNITS}job: {{task: 'a:b', options: {{a-b: 1}}}}\n"),
        (["7:24: packs.p.retry.retry_on[0]: must be the name of an exception type, such as 'ConnectionError', not the text 'a b'"], f"{PACK}retry: {{retry_on: [a b]}}\n"),
        (["6:11: packs.p.size: must be two numbers, fewest and most members, such as [0, 6]; found 1"], f"{UNITS}packs:\n  p:\n    size: [1]\n"),
        (["6:11: packs.p.size: must be two numbers, fewest and most members, such as [0, 6]; found 3"], f"{UNITS}packs:\n  p:\n    size: [1, 2, 3]\n"),
        (["7:18: packs.p.needs.cpu: must be true (a tag) or a least value (a number), not the text 'x'"], f"{PACK}needs: {{cpu: x}}\n"),
        (["7:12: packs.p.needs: must be a list, not the text 'cpu'"], f"{PACK}needs: cpu\n"),
        # ledgers
        ([f"4:9: ledger: PostgreSQL is not in this version, which has SQLite and memory ledgers only; say {LEDGERS}"], f"{UNITS}ledger: postgresql://me@host/db\n"),
        ([f"4:9: ledger: must be {LEDGERS}, not 'sqlite://a.db'"], f"{UNITS}ledger: sqlite://a.db\n"),
        ([f"4:9: ledger: must be {LEDGERS}, not 'redis://x'"], f"{UNITS}ledger: redis://x\n"),
        (["4:9: ledger: must name a file, such as sqlite:///.wolfpack/d.db"], f"{UNITS}ledger: sqlite:///\n"),
        (["4:9: ledger: options after '?' have no meaning here"], f"{UNITS}ledger: sqlite:///a.db?mode=ro\n"),
        (["4:9: ledger: '..' is a folder; name a file in it"], f"{UNITS}ledger: sqlite:///..\n"),
        # fields together
        (["6:11: packs.p.size: the first number (fewest members) is larger than the second (most): [3, 2]"], f"{UNITS}packs:\n  p:\n    size: [3, 2]\n"),
        (["6:11: packs.p.size: asks for at least 2 members, and only 1 units fit (grey)"], f"{UNITS}packs:\n  p:\n    size: [2, 2]\n"),
        ([f"7:12: packs.p.needs: no unit could ever be a member: grey, which comes nearest, lacks tag 'cpus'; did you mean 'cpu'?; {OFFERED}"], f"{PACK}needs: [cpus]\n"),
        ([f"7:12: packs.p.needs: no unit could ever be a member: grey, which comes nearest, lacks tag 'gpu' and ram of at least 8 (has 4); did you mean 'cpu'?; {OFFERED}"], f"{PACK}needs: {{gpu: true, ram: 8}}\n"),
        ([f"7:12: packs.p.needs: no unit could ever be a member: grey, which comes nearest, lacks tag 'ram'; 'ram' is a measure, so ask for a least value of it; {OFFERED}"], f"{PACK}needs: [ram]\n"),
        ([f"7:12: packs.p.needs: no unit could ever be a member: grey, which comes nearest, lacks cpu of at least 2 (has none); 'cpu' is a tag, so say `cpu: true`; {OFFERED}"], f"{PACK}needs: {{cpu: 2}}\n"),
        ([f"7:21: packs.p.retry.on_oom: no unit could take a task after OOM: grey, which comes nearest, lacks ram of at least 8 (has 4); {OFFERED}"], f"{PACK}retry: {{on_oom: {{ram: 8}}}}\n"),
        (["3:34: packs.p.needs: no unit could ever be a member: there are no units at all; g offers a, but its count is 0"], "den: d\nunits: {g: {offers: [a], count: 0}}\npacks: {p: {size: [0, 1], needs: [a]}}\n"),
        (["3:9: packs.p: none of its possible members can lead (can_lead is false: a)"], "den: d\nunits: {a: {can_lead: false, offers: [x]}, b: {}}\npacks: {p: {size: [0, 1], needs: [x]}}\n"),
        (["3:3: units.grey.day_job: a werewolf needs a day_job (module:Class); without one it is a wolf"], f"{UNIT}nature: werewolf\n"),
        (["4:5: units.grey.day_job: a wolf has no day job; say `nature: werewolf`"], f"{UNIT}day_job: 'a:B'\n"),
        (["4:16: units.grey.awake_min: must be at most count, which is 1; found 2"], f"{UNIT}awake_min: 2\n"),
        (["4:17: units.grey.max_loan_s: must be at least min_tenure_s, which is 10; found 5"], f"{UNIT}max_loan_s: 5\n"),
        (["2:23: units.a-0: 'a-0' is also the name of a unit of the kind 'a'"], "den: d\nunits: {a: {}, b: {}, a-0: {}}\n"),
        (["2:27: units.b.count: with this there are 10001 units; a den has at most 10000"], "den: d\nunits: {a: {}, b: {count: 10000}}\n"),
        (["4:21: units.grey.ray.num_gpus: above 1 Ray wants whole GPUs; found 1.5"], f"{UNIT}ray: {{num_gpus: 1.5}}\n"),
        (["4:23: units.grey.ray.resources.CPU: say `ray: {num_cpus: ...}` instead"], f"{UNIT}ray: {{resources: {{CPU: 1}}}}\n"),
        (["4:23: election.silence_s: must be longer than heartbeat_s, which is 0.25; found 0.1"], f"{UNITS}election: {{silence_s: 0.1}}\n"),
        (["4:21: election.lease_s: must be at least two heartbeats of 0.25; found 0.4"], f"{UNITS}election: {{lease_s: 0.4}}\n"),
    ],
)  # fmt: skip
def test_a_fault_is_told_with_its_place_and_what_to_do(expected: list[str], content: str) -> None:
    assert expected == told(content)


def test_all_faults_are_told_at_once_in_the_order_of_the_file() -> None:
    expected = [
        f"1:6: den: {NAME} 'a b'",
        "2:9: ledger: must name a file, such as sqlite:///.wolfpack/den.db",
        "5:5: units.grey.natur: unknown key; did you mean 'nature'?",
        "6:12: units.grey.count: must be a whole number, not the text 'x'",
        "7:11: units.grey.lead: YAML cannot read this as a whole number",
        "9:5: units.silver.nature: this key is given twice, first in line 8",
        "12:11: packs.computing.size: the first number (fewest members) is larger than the second (most): [2, 1]",
        "14:3: packs.testing.size: this key is missing",
        "15:11: election: must be a mapping, not a list",
    ]
    assert expected == told("""den: a b
ledger: sqlite:///
units:
  grey:
    natur: wolf
    count: x
    lead: !!int y
  silver: {nature: werewolf, day_job: 'a:B',
    nature: wolf}
packs:
  computing:
    size: [2, 1]
    needs: [nobody-knows-because-units-are-faulty]
  testing: {}
election: []
""")


@pytest.mark.parametrize(
    ("expected", "unit"),
    [
        ("4:5: units.grey.natur: unknown key; did you mean 'nature'?", "natur: werewolf\n    day_job: 'a:B'\n"),
        ("4:5: units.grey.cuont: unknown key; did you mean 'count'?", "cuont: 5\n    awake_min: 3\n"),
        ("4:5: units.grey.offer: unknown key; did you mean 'offers'?", "offer: [x]\npacks: {p: {size: [0, 1], needs: [x]}}\n"),
        ("4:13: units.grey.offers: must be a list, not the text 'x'", "offers: x\npacks: {p: {size: [0, 1], needs: [x]}}\n"),
        ("4:13: units.grey.nature: must be 'wolf' or 'werewolf', not the number 1", "nature: 1\n    day_job: 'a:B'\n"),
    ],
)  # fmt: skip
def test_a_fault_does_not_draw_others_after_it(expected: str, unit: str) -> None:
    assert [expected] == told(UNIT + unit)


def test_a_fault_never_takes_more_than_its_line() -> None:
    assert [
        r"4:1: 'a\nb': unknown key; known here: den, election, graphs, job, ledger, packs, payload_max_bytes, units"
    ] == (told(f'{UNITS}"a\\nb": 1\n'))


# --- files --------------------------------------------------------------------------------------------------------


def test_a_missing_file_is_told_with_a_near_name() -> None:
    Path("pack.yaml").write_text("")
    with pytest.raises(ConfigError) as caught:
        load("pak.yaml")
    assert "pak.yaml: there is no such file; did you mean 'pack.yaml'?" == str(caught.value)


def test_a_missing_folder_is_told_like_a_missing_file() -> None:
    with pytest.raises(ConfigError) as caught:
        load("nowhere/pack.yaml")
    assert "nowhere/pack.yaml: there is no such file" == str(caught.value)


def test_a_folder_is_no_file() -> None:
    Path("den").mkdir()
    with pytest.raises(ConfigError) as caught:
        load("den")
    assert "den: this is a folder; name the file in it, such as den/pack.yaml" == str(caught.value)


def test_a_pipe_is_not_waited_for() -> None:
    os.mkfifo("pack.yaml")
    with pytest.raises(ConfigError) as caught:
        load("pack.yaml")
    assert "pack.yaml: this is not a regular file" == str(caught.value)


def test_a_file_that_may_not_be_read_is_told_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    Path("pack.yaml").write_text(UNITS)
    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(ConfigError) as caught:
        load("pack.yaml")
    assert "pack.yaml: cannot be read: Permission denied" == str(caught.value)


def test_a_path_with_a_null_byte_is_told_with_the_reason() -> None:
    with pytest.raises(ConfigError, match="cannot be read: embedded null byte"):
        load("a\0b")


def test_a_file_beyond_the_limit_is_refused_by_its_size() -> None:
    Path("pack.yaml").write_bytes(b"#" * (MAX_BYTES + 1))
    with pytest.raises(ConfigError) as caught:
        load("pack.yaml")
    assert "pack.yaml: larger than 256 KiB, which no pack.yaml needs" == str(caught.value)


def test_a_file_at_the_limit_is_read() -> None:
    Path("pack.yaml").write_bytes(UNITS.encode() + b"#" * (MAX_BYTES - len(UNITS)))
    assert "d" == load("pack.yaml").den


@pytest.mark.parametrize("merge", ["[{aliases}]", "{{<<: [{aliases}]}}", "{{x: [{aliases}]}}"])
def test_a_bomb_of_aliases_is_refused_soon(merge: str) -> None:
    levels = ["a0: &a0 {x: 1}"]
    levels += [f"a{n}: &a{n} {merge.format(aliases=', '.join([f'*a{n - 1}'] * 9))}" for n in range(1, 10)]
    began = time.monotonic()
    lines = told("\n".join(levels))
    assert time.monotonic() - began < 5
    assert [f"more than {MAX_VALUES} values, counting what aliases repeat"] == [
        line.split(": ", 1)[1] for line in lines
    ]


def test_an_alias_to_its_own_parent_is_a_fault() -> None:
    assert (
        "4:6: job.options.x: an alias repeats what it stands in"
        == told(f"{UNITS}job: &j {{task: 'a:b', options: {{x: *j}}}}\n")[0]
    )


@pytest.mark.parametrize("deep", ["[" * 20_000, "{a: " * 20_000, "- " * 20_000])
def test_values_nested_without_end_are_refused(deep: str) -> None:
    assert [f"values lie more than {MAX_DEPTH} levels deep"] == [line.split(": ", 1)[1] for line in told(deep)]


def test_the_error_survives_pickling() -> None:
    with pytest.raises(ConfigError) as caught:
        load("nowhere.yaml")
    assert str(caught.value) == str(pickle.loads(pickle.dumps(caught.value)))
