"""Records as JSON and back again, without loss: how cards, packs and retry policies stand in the ledger's rows.

`x_to_plain` gives dictionaries, lists, strings and numbers (to be part of a larger JSON text), `x_to_json` a whole text
with sorted keys, so equal records give equal texts. Reading back checks the shape: a field nobody knows, or a text that
is no such record, is a ValueError. A field that the text lacks gets the default of the record, so a ledger written
before a field existed can still be read.

The only free-form part is `Card.ray`. What JSON would quietly change there (tuples, keys that are no strings, objects)
is refused on the way in, since a card that comes back different would wake another unit than the one that slept.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeVar

from wolfpack.model import Card, HandsSpec, Nature, Needs, Offer, PackSpec, RetryPolicy

_Record = TypeVar("_Record", Card, HandsSpec, PackSpec, RetryPolicy)


def needs_to_plain(needs: Needs) -> dict[str, Any]:
    """Tags and minimums apart, so that a tag and a measure of the same name both survive."""
    return {"tags": sorted(needs.tags), "minimums": [list(pair) for pair in needs.minimums]}


def needs_from_plain(plain: Mapping[str, Any]) -> Needs:
    return Needs(_tags(plain["tags"]), _pairs(plain["minimums"]))


def offer_to_plain(offer: Offer) -> dict[str, Any]:
    return {"tags": sorted(offer.tags), "measures": [list(pair) for pair in offer.measures]}


def offer_from_plain(plain: Mapping[str, Any]) -> Offer:
    return Offer(_tags(plain["tags"]), _pairs(plain["measures"]))


def retry_to_plain(retry: RetryPolicy) -> dict[str, Any]:
    return _fields_of(retry) | {
        "retry_on": list(retry.retry_on),
        "never_on": list(retry.never_on),
        "on_oom": needs_to_plain(retry.on_oom),
    }


def retry_from_plain(plain: Mapping[str, Any]) -> RetryPolicy:
    """The opposite of `retry_to_plain`.

    Raises:
        ValueError: this is not a retry policy; the text says why.
    """
    policy = _build(
        RetryPolicy,
        plain,
        {"retry_on": tuple, "never_on": tuple, "on_oom": needs_from_plain},
    )
    numbers = (policy.max_attempts, policy.max_evictions, policy.backoff_s, policy.backoff_max_s)
    if not all(type(number) in (int, float) and number == number for number in numbers):
        raise ValueError(f"this is not a RetryPolicy: its budgets and pauses must be numbers, not {numbers!r:.120}")
    return policy


def card_to_json(card: Card) -> str:
    """The whole card as one JSON text.

    Raises:
        TypeError: the `ray` options hold something that JSON cannot give back as it was.
    """
    return json.dumps(
        _fields_of(card)
        | {
            "nature": card.nature.value,
            "offer": offer_to_plain(card.offer),
            "ray": _same_in_json(card.ray, "ray"),
            "hands": _fields_of(card.hands),
        },
        sort_keys=True,
    )


def card_from_json(text: str) -> Card:
    """The opposite of `card_to_json`.

    Raises:
        ValueError: this is not a card; the text says why.
    """
    return _build(
        Card,
        _json_of(text),
        {"nature": Nature, "offer": offer_from_plain, "hands": lambda plain: _build(HandsSpec, plain, {})},
    )


def pack_to_json(pack: PackSpec) -> str:
    """The whole pack as one JSON text."""
    return json.dumps(
        _fields_of(pack) | {"needs": needs_to_plain(pack.needs), "retry": retry_to_plain(pack.retry)},
        sort_keys=True,
    )


def pack_from_json(text: str) -> PackSpec:
    """The opposite of `pack_to_json`.

    Raises:
        ValueError: this is not a pack; the text says why.
    """
    return _build(PackSpec, _json_of(text), {"needs": needs_from_plain, "retry": retry_from_plain})


def _json_of(text: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("this JSON lies too many levels deep") from error


def _fields_of(record: Any) -> dict[str, Any]:
    return {one.name: getattr(record, one.name) for one in fields(record)}


def _tags(plain: Sequence[Any]) -> frozenset[str]:
    if not isinstance(plain, list) or not all(isinstance(tag, str) for tag in plain):
        raise ValueError(f"tags are a list of texts, not {plain!r:.80}")
    return frozenset(plain)


def _pairs(plain: Sequence[Sequence[Any]]) -> tuple[tuple[str, float], ...]:
    pairs = tuple((name, value) for name, value in plain)
    if not all(isinstance(name, str) and type(value) in (int, float) and value == value for name, value in pairs):
        raise ValueError(f"measures are pairs of a name and a number, not {plain!r:.80}")
    return pairs


def _build(record: type[_Record], plain: Any, readers: Mapping[str, Any]) -> _Record:
    try:
        return record(**{name: readers[name](value) if name in readers else value for name, value in plain.items()})
    except (AttributeError, KeyError, TypeError, OverflowError) as error:
        raise ValueError(f"this is not a {record.__name__}: {error}") from error


def _same_in_json(value: Any, path: str) -> Any:
    """The value in types that JSON gives back unchanged; mappings become dictionaries, at any depth."""
    if isinstance(value, Mapping):
        for key in value:
            if type(key) is not str:
                raise TypeError(f"{path}: the key {key!r} must be a string")
        return {key: _same_in_json(part, f"{path}.{key}") for key, part in value.items()}
    if isinstance(value, list):
        return [_same_in_json(part, f"{path}[{place}]") for place, part in enumerate(value)]
    if value is None or type(value) in (str, int, float, bool):
        return value
    raise TypeError(f"{path}: {value!r} cannot be written to the ledger; use text, numbers, lists and mappings")
