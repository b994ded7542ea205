"""pack.yaml: one file describes a den, and every fault of it is told at once, with its place.

    read_document   document.py   YAML to plain values, with the place of each key and value
    validate        fields.py     each field by itself, by the pydantic models of models.py
    den_spec        spec.py       fields together; the DenSpec that the rest of Wolf Pack knows

Each step adds faults to the document; only at the end are they raised, as one `ConfigError`. This package is the only
one that imports pydantic and yaml, so that units and hands, which get plain records, stay light.
"""

from __future__ import annotations

import copy
import os
import tempfile
import uuid
from pathlib import Path
from typing import Any

from wolfpack.config.document import read_document
from wolfpack.config.faults import config_error
from wolfpack.config.fields import schema as _schema
from wolfpack.config.fields import validate
from wolfpack.config.settings import changed, pack_from_settings, retry_from_settings
from wolfpack.config.spec import den_spec
from wolfpack.model import Card, DenSpec, Offer, PackSpec

__all__ = ["changed", "laptop_spec", "load", "pack_from_settings", "retry_from_settings", "schema"]


def load(path: str | os.PathLike[str]) -> DenSpec:
    """Reads a pack.yaml into a den with every default filled in and every path made absolute.

    Raises:
        ConfigError: one line for each fault of the file: `file:line:column: field: what is wrong`.
    """
    document = read_document(path)
    den = validate(document)
    spec = den_spec(document, den) if den else None
    if document.faults or spec is None:
        raise config_error(document.file, document.faults)
    return spec


def laptop_spec() -> DenSpec:
    """A den for this machine without a file: a wolf a core and one pack, in a new temporary folder.

    The name of the den is new each time, so two of them never meet in one Ray. Its folder is the working directory,
    from where scripts import their own modules.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    offer = Offer(frozenset({"cpu"}))
    return DenSpec(
        den=f"laptop-{uuid.uuid4().hex[:8]}",
        ledger=f"sqlite:///{Path(tempfile.mkdtemp(prefix='wolfpack-')).absolute() / 'ledger.db'}",
        cards=tuple(
            Card(unit=f"wolf-{number}", kind="wolf", offer=offer, ray={"num_cpus": 1}) for number in range(cores)
        ),
        packs=(PackSpec(name="pack", fewest=0, most=cores),),
        folder=str(Path.cwd()),
    )


def schema() -> dict[str, Any]:
    """The JSON Schema of pack.yaml, for editors and other checkers; the caller may change it."""
    return copy.deepcopy(_schema())
