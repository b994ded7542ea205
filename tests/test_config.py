"""What a good pack.yaml becomes: every default filled in, every path absolute, one card a unit."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from wolfpack.config import laptop_spec, load, schema
from wolfpack.model import (
    PROFILES,
    Card,
    DenSpec,
    HandsSpec,
    JobSpec,
    Nature,
    Needs,
    Offer,
    PackSpec,
    RetryPolicy,
    Timing,
)
from wolfpack.plain import card_from_json, card_to_json, pack_from_json, pack_to_json

DEFAULT = Path(__file__).parent.parent / "pack.yaml"
LEAST = "den: timber\nunits:\n  grey: {}\n"

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write_pack_yaml(text: str) -> Path:
        file = tmp_path / "pack.yaml"
        file.write_text(text, encoding="utf-8")
        return file

    return write_pack_yaml


def test_the_least_file_gets_every_default_of_the_records(write: Write, tmp_path: Path) -> None:
    expected = DenSpec(
        den="timber",
        ledger=f"sqlite:///{tmp_path}/.wolfpack/timber.db",
        cards=(Card(unit="grey-0", kind="grey"),),
        folder=str(tmp_path),
    )
    assert expected == load(write(LEAST))


def test_every_field_of_a_unit_reaches_its_cards(write: Write) -> None:
    file = write("""
den: timber
units:
  silver:
    nature: werewolf
    count: 2
    offers: [cpu, browser]
    measures: {memory_gb: 4, disk_gb: 1.5}
    awake_min: 1
    sleep_after_s: 20
    lead: -3
    can_lead: false
    cost_per_h: 0.25
    ray:
      num_cpus: 0.5
      num_gpus: 2
      memory: 1000000
      resources: {licence: 1}
      label_selector: {zone: "!a"}
      runtime_env: {env_vars: {A: b}, pip: [x]}
    hands: {isolation: thread, concurrency: 3, setup: "packs.db:connect", recycle_after: 100}
    day_job: packs.monitoring.tasks:Watch
    grace_s: 0
    min_tenure_s: 1
    max_loan_s: 2.5
""")
    expected = Card(
        unit="silver-0",
        kind="silver",
        nature=Nature.WEREWOLF,
        offer=Offer(frozenset({"cpu", "browser"}), (("disk_gb", 1.5), ("memory_gb", 4.0))),
        awake_min=1,
        sleep_after_s=20,
        lead=-3,
        can_lead=False,
        cost_per_h=0.25,
        ray={
            "num_cpus": 0.5,
            "num_gpus": 2,
            "memory": 1000000,
            "resources": {"licence": 1},
            "label_selector": {"zone": "!a"},
            "runtime_env": {"env_vars": {"A": "b"}, "pip": ["x"]},
        },
        hands=HandsSpec(isolation="thread", concurrency=3, setup="packs.db:connect", recycle_after=100),
        day_job="packs.monitoring.tasks:Watch",
        grace_s=0,
        min_tenure_s=1,
        max_loan_s=2.5,
    )
    assert (expected, replace(expected, unit="silver-1")) == load(file).cards


def test_every_field_of_a_pack_reaches_its_record(write: Write) -> None:
    file = write("""
den: timber
units: {grey: {count: 3, offers: [cpu], measures: {memory_gb: 16}}}
packs:
  computing:
    size: [2, 6]
    needs: {cpu: true, memory_gb: 8}
    drain_target_s: 5
    queue_max: 1000
    submit_timeout_s: 3
    rate: {per_s: 2.5}
    priority: -1
    lendable: true
    infeasible: fail
    retry:
      max_attempts: 1
      max_evictions: 0
      backoff_s: 0
      backoff_max_s: 1
      retry_on: [ConnectionError, requests.Timeout]
      never_on: [ValueError]
      on_oom: {memory_gb: 16}
""")
    expected = PackSpec(
        name="computing",
        fewest=2,
        most=6,
        needs=Needs(frozenset({"cpu"}), (("memory_gb", 8.0),)),
        drain_target_s=5,
        queue_max=1000,
        submit_timeout_s=3,
        rate_per_s=2.5,
        priority=-1,
        lendable=True,
        infeasible="fail",
        retry=RetryPolicy(
            max_attempts=1,
            max_evictions=0,
            backoff_s=0,
            backoff_max_s=1,
            retry_on=("ConnectionError", "requests.Timeout"),
            never_on=("ValueError",),
            on_oom=Needs(frozenset(), (("memory_gb", 16.0),)),
        ),
    )
    assert (expected,) == load(file).packs


@pytest.mark.parametrize(
    ("expected", "needs"),
    [
        (Needs(), "[]"),
        (Needs(frozenset({"cpu", "disk"})), "[cpu, disk]"),
        (Needs(frozenset({"cpu"})), "{cpu: true, disk: false}"),
        (Needs(frozenset({"cpu"}), (("ram", 2.0),)), "{cpu: true, ram: 2}"),
    ],
)
def test_needs_are_a_list_of_tags_or_a_mapping(write: Write, expected: Needs, needs: str) -> None:
    units = "units: {u: {offers: [cpu, disk], measures: {ram: 2}}}"
    file = write(f"den: d\n{units}\npacks: {{p: {{size: [0, 1], needs: {needs}}}}}\n")
    assert expected == load(file).packs[0].needs


@pytest.mark.parametrize(
    ("expected", "ledger"),
    [
        ("memory://", "memory://"),
        ("sqlite:////var/lib/timber.db", "sqlite:////var/lib/timber.db"),
        ("sqlite:///{folder}/state/timber.db", "sqlite:///state/timber.db"),
        ("sqlite:///{folder}/.wolfpack/timber.db", "null"),
    ],
)
def test_a_ledger_is_found_beside_its_file(write: Write, tmp_path: Path, expected: str, ledger: str) -> None:
    assert expected.format(folder=tmp_path) == load(write(f"{LEAST}ledger: {ledger}\n")).ledger


@pytest.mark.parametrize(
    ("expected", "graphs"), [("{folder}/out/graphs", "out/graphs"), ("/srv/graphs", "/srv/graphs")]
)
def test_the_graphs_folder_is_found_beside_its_file(write: Write, tmp_path: Path, expected: str, graphs: str) -> None:
    assert expected.format(folder=tmp_path) == load(write(f"{LEAST}graphs: {graphs}\n")).graphs


def test_paths_do_not_depend_on_how_the_file_was_named(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(f"{LEAST}graphs: g\n")
    monkeypatch.chdir(file.parent)
    assert load(file) == load("pack.yaml")


@pytest.mark.parametrize(
    ("expected", "election"),
    [
        (PROFILES["ray"], "{}"),
        (PROFILES["classic"], "{profile: classic}"),
        (replace(PROFILES["fast"], silence_s=0.2, lease_s=1.0), "{profile: fast, silence_s: 0.2, lease_s: 1}"),
        (
            Timing(heartbeat_s=1.0, silence_s=2.0, answer_s=3.0, lease_s=4.0),
            "{heartbeat_s: 1, silence_s: 2, answer_s: 3, lease_s: 4}",
        ),
    ],
)
def test_an_election_is_a_profile_with_times_of_its_own(write: Write, expected: Timing, election: str) -> None:
    assert expected == load(write(f"{LEAST}election: {election}\n")).timing


def test_a_job_keeps_its_options_as_they_are_written(write: Write) -> None:
    job = "job: {task: 'packs.a:run', options: {points: 3, name: x, deep: [1, {a: null}]}}\n"
    expected = JobSpec(task="packs.a:run", options={"points": 3, "name": "x", "deep": [1, {"a": None}]})
    assert expected == load(write(LEAST + job)).job


def test_anchors_and_merges_share_what_two_kinds_have_in_common(write: Write) -> None:
    file = write("""
den: timber
units:
  grey: &common {count: 1, offers: [cpu], lead: 1}
  red: {<<: *common, lead: 2}
  blue: {<<: [{lead: 3}, *common]}
""")
    offer = Offer(frozenset({"cpu"}))
    expected = [("grey-0", offer, 1), ("red-0", offer, 2), ("blue-0", offer, 3)]
    assert expected == [(card.unit, card.offer, card.lead) for card in load(file).cards]


def test_a_kind_of_count_0_has_no_cards(write: Write) -> None:
    assert ["red-0"] == [card.unit for card in load(write("den: d\nunits: {grey: {count: 0}, red: {}}\n")).cards]


def test_a_byte_order_mark_is_no_part_of_the_text(write: Write) -> None:
    assert load(write(LEAST)) == load(write("\ufeff" + LEAST))


def test_names_that_only_look_like_a_unit_of_another_kind_may_stand(write: Write) -> None:
    units = ["grey-0", "grey-1", "grey-2-0", "grey-00-0"]
    file = write("den: d\nunits: {grey: {count: 2}, grey-2: {}, grey-00: {}}\n")
    assert units == [card.unit for card in load(file).cards]


# --- the default den ----------------------------------------------------------------------------------------------


def test_the_default_pack_yaml_is_a_den_of_four_wolves_and_two_werewolves() -> None:
    spec = load(DEFAULT)
    expected = [*(("wolf", f"grey-{n}") for n in range(4)), *(("werewolf", f"silver-{n}") for n in range(2))]
    assert expected == [(card.nature, card.unit) for card in spec.cards]
    assert "packs.computing.job:measure_sources" == (spec.job.task if spec.job else None)


def test_the_default_pack_yaml_shows_or_mentions_every_key() -> None:
    text = DEFAULT.read_text(encoding="utf-8")
    described = schema()
    parts = [described, *described["$defs"].values()]
    keys = {key for part in parts for key in part.get("properties", {})}
    assert set() == {key for key in keys if key not in text}


def test_the_reference_names_every_key() -> None:
    text = (DEFAULT.parent / "docs" / "pack-yaml.md").read_text(encoding="utf-8")
    described = schema()
    parts = [described, *described["$defs"].values()]
    keys = {key for part in parts for key in part.get("properties", {})}
    assert set() == {key for key in keys if f"`{key}`" not in text}


def test_comments_of_the_default_pack_yaml_tell_the_true_defaults(write: Write) -> None:
    whole = yaml.safe_load(DEFAULT.read_text(encoding="utf-8"))
    said = whole["packs"]["computing"]
    least = load(write(f"{LEAST}packs: {{computing: {{size: [0, 6]}}}}\n")).packs[0]
    assert replace(least, needs=Needs.parse(said["needs"])) == load(DEFAULT).packs[0]


# --- schema -------------------------------------------------------------------------------------------------------


def test_the_default_pack_yaml_fits_the_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(schema())
    jsonschema.Draft202012Validator(schema()).validate(yaml.safe_load(DEFAULT.read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    "change",
    [
        {"grafs": "x"},
        {"den": "a b"},
        {"den": None},
        {"units": {}},
        {"units": {"a b": {}}},
        {"units": {"grey": {"count": "4"}}},
        {"packs": {"p": {}}},
        {"packs": {"p": {"size": [1]}}},
        {"packs": {"p": {"size": [0, 1], "needs": "cpu"}}},
        {"election": {"profile": "rai"}},
        {"job": {"task": "a.b.c"}},
    ],
)
def test_the_schema_refuses_what_load_refuses(change: dict[str, Any]) -> None:
    whole = yaml.safe_load(DEFAULT.read_text(encoding="utf-8")) | change
    assert not jsonschema.Draft202012Validator(schema()).is_valid(whole)


def test_the_schema_describes_every_key() -> None:
    described = schema()
    parts = [described, *described["$defs"].values()]
    bare = [key for part in parts for key, field in part.get("properties", {}).items() if "description" not in field]
    assert [] == bare


def test_changing_a_schema_does_not_change_the_next_one() -> None:
    schema().clear()
    assert "properties" in schema()


# --- laptop -------------------------------------------------------------------------------------------------------


@pytest.fixture
def temporary_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_a_laptop_den_has_a_wolf_a_core_and_one_pack(temporary_folders: Path) -> None:
    spec = laptop_spec()
    cores = len(os.sched_getaffinity(0))
    offer = Offer(frozenset({"cpu"}))
    assert (PackSpec(name="pack", fewest=0, most=cores),) == spec.packs
    assert [(Nature.WOLF, offer, {"num_cpus": 1})] * cores == [
        (card.nature, card.offer, card.ray) for card in spec.cards
    ]
    assert cores == len({card.unit for card in spec.cards})


def test_two_laptop_dens_share_neither_name_nor_ledger(temporary_folders: Path) -> None:
    one, two = laptop_spec(), laptop_spec()
    assert one.den != two.den
    assert one.ledger != two.ledger
    assert temporary_folders == Path(one.ledger.removeprefix("sqlite:///")).parent.parent


# --- layers -------------------------------------------------------------------------------------------------------


def test_every_card_and_pack_of_the_default_den_survives_the_ledger() -> None:
    spec = load(DEFAULT)
    assert list(spec.cards) == [card_from_json(card_to_json(card)) for card in spec.cards]
    assert list(spec.packs) == [pack_from_json(pack_to_json(pack)) for pack in spec.packs]


def test_importing_the_configuration_does_not_import_ray() -> None:
    code = "import sys, wolfpack.config; print('ray' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "False" == ran.stdout.strip()
