"""Turns the complaints of pydantic into faults with a place and a sentence, and saves what can still be checked.

A field's place is found by following pydantic's location through the document: parts of it that are no key of the file
(pydantic names the branch of a union, and `[key]`) fall away.

When fields are faulty, the rest of the file is still checked for what fields mean together. So faulty fields are cut
out and the remainder is validated again, until it is valid. Checks that rest on a field that was cut out are silent
(`Document.is_clean`), since its default would accuse the wrong one.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import cache
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from wolfpack.config.document import Document
from wolfpack.config.faults import FieldPath, did_you_mean, shown
from wolfpack.config.models import PATTERN_TEXTS, REFERENCE, DenFile

# A cut can make the mapping around it wrong, and that one the next; no field lies deeper than this.
_CUTS_AT_MOST = 8
# What stands in for the keys that a den cannot do without.
_PLACEHOLDERS: Mapping[str, Any] = {"den": "den", "units": {"unit": {}}}


@cache
def schema() -> dict[str, Any]:
    """The JSON Schema of pack.yaml, with a description of every field."""
    made = DenFile.model_json_schema()
    made["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    _close_names(made)
    return made


def _close_names(part: Any) -> None:
    # Pydantic refuses a key that does not match the pattern of its names, but does not say so in the schema.
    if isinstance(part, dict):
        if "patternProperties" in part:
            part["additionalProperties"] = False
        for inner in part.values():
            _close_names(inner)
    elif isinstance(part, list):
        for inner in part:
            _close_names(inner)


def validate(document: Document) -> DenFile | None:
    """Adds a fault for each wrong field; gives back the den of the right ones, None where nothing is left of it."""
    try:
        return DenFile.model_validate(document.value)
    except ValidationError as error:
        wrong = _add_faults(document, error.errors(include_url=False))
    rest = copy.deepcopy(document.value)
    for _ in range(_CUTS_AT_MOST):
        for path in wrong:
            _cut_out(rest, path)
        try:
            return DenFile.model_validate({**_PLACEHOLDERS, **rest})
        except ValidationError as error:
            # What is wrong only now, such as a pack that lost its size, follows from what was cut out.
            wrong = [_located(document, detail)[0] for detail in error.errors(include_url=False)]
    return None


def _add_faults(document: Document, details: list[ErrorDetails]) -> list[FieldPath]:
    paths = []
    for detail in details:
        path, of_key = _located(document, detail)
        document.add_fault(path, _text_of(path, detail), of_key=of_key)
        paths.append(path)
    return paths


def _located(document: Document, detail: ErrorDetails) -> tuple[FieldPath, bool]:
    """The path of the field, and whether the fault is in its key."""
    is_missing = detail["type"] == "missing"
    path: FieldPath = ()
    for part in detail["loc"][:-1] if is_missing else detail["loc"]:
        if (*path, part) in document.values:
            path = (*path, part)
    if is_missing:
        return (*path, detail["loc"][-1]), True
    return path, detail["type"] == "extra_forbidden" or detail["loc"][-1:] == ("[key]",)


def _cut_out(rest: Any, path: FieldPath) -> None:
    """Removes a field; of a list, the whole list goes; of a missing field, what misses it."""
    parents = [rest]
    for part in path[:-1]:
        inner = parents[-1]
        try:
            parents.append(inner[part])
        except (KeyError, IndexError, TypeError):
            return
    for parent, part in zip(reversed(parents), reversed(path), strict=True):
        if isinstance(parent, dict) and part in parent:
            del parent[part]
            return


def _text_of(path: FieldPath, detail: ErrorDetails) -> str:
    """One sentence: what the field must be, and what was found."""
    value = detail["input"]
    context = detail.get("ctx", {})
    match detail["type"]:
        case "extra_forbidden":
            return "unknown key" + did_you_mean(str(path[-1]), _known_keys(path[:-1]))
        case "missing":
            return "this key is missing"
        case "string_pattern_mismatch":
            return PATTERN_TEXTS[context["pattern"]] + f", not {shown(value)}" + _reference_hint(context, value)
        case "literal_error":
            words = [word.strip("'") for word in str(context["expected"]).replace(" or ", ", ").split(", ")]
            near = did_you_mean(value, words, "") if isinstance(value, str) else ""
            return f"must be {context['expected']}, not {shown(value)}" + (near if near.endswith("?") else "")
        case "too_short" | "too_long" if path[-1:] == ("size",):
            return f"must be two numbers, fewest and most members, such as [0, 6]; found {context['actual_length']}"
        case "too_short":
            return "must not be empty"
        case "need":
            return f"{detail['msg']}, not {shown(value)}"
        case kind if kind in _MUST_BE:
            quotes = "; put it in quotes if text is meant" if kind == "string_type" and value is not None else ""
            return f"must be {_MUST_BE[kind]}, not {shown(value)}{quotes}"
        case kind if kind in _BOUNDS:
            return f"must be {_BOUNDS[kind]} {context[_BOUND_KEYS[kind]]:g}, not {shown(value)}"
        case _:
            return f"{detail['msg']}, not {shown(value)}"


_MUST_BE: Mapping[str, str] = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "string_type": "text",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}
_BOUNDS: Mapping[str, str] = {
    "greater_than": "greater than",
    "greater_than_equal": "at least",
    "less_than": "less than",
    "less_than_equal": "at most",
}
_BOUND_KEYS: Mapping[str, str] = {
    "greater_than": "gt",
    "greater_than_equal": "ge",
    "less_than": "lt",
    "less_than_equal": "le",
}


def _reference_hint(context: Mapping[str, Any], value: Any) -> str:
    if context["pattern"] == REFERENCE and isinstance(value, str) and ":" not in value and "." in value:
        module, _, name = value.rpartition(".")
        return f"; did you mean '{module}:{name}'?"
    return ""


def _known_keys(path: FieldPath) -> list[str]:
    """The keys that the mapping at this path may have."""
    parts = [schema()]
    for step in path:
        parts = [inner for part in parts for inner in _inside(part, step)]
    return sorted({key for part in parts for whole in _resolved(part) for key in whole.get("properties", {})})


def _inside(part: dict[str, Any], step: str | int) -> list[dict[str, Any]]:
    found = []
    for whole in _resolved(part):
        if isinstance(step, str) and step in whole.get("properties", {}):
            found.append(whole["properties"][step])
        else:
            found.extend(whole.get("patternProperties", {}).values())
    return found


def _resolved(part: dict[str, Any]) -> list[dict[str, Any]]:
    """The part itself, with references followed and alternatives spread out."""
    if "$ref" in part:
        return _resolved(schema()["$defs"][part["$ref"].rpartition("/")[2]])
    if "anyOf" in part:
        return [whole for one in part["anyOf"] for whole in _resolved(one)]
    return [part]
