"""Copies of a model whose JSON files differ from it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

Json = dict[str, Any]

ABSENT = object()
"""The value of a setting that is removed from its file."""


def linked(base: Path, target: Path) -> None:
    """Copies the JSON files of a model, and links the others."""
    for file in base.rglob("*"):
        if file.is_file():
            copy = target / file.relative_to(base)
            copy.parent.mkdir(parents=True, exist_ok=True)
            if file.suffix == ".json":
                copy.write_bytes(file.read_bytes())
            else:
                os.link(file, copy)


def change(file: Path, keys: Json) -> None:
    """Sets or removes keys of a JSON file; `a/b` is a key of an object."""
    content = json.loads(file.read_text()) if file.exists() else {}
    for path, value in keys.items():
        *parents, key = path.split("/")
        inner = content
        for parent in parents:
            inner = inner.setdefault(parent, {})
        if value is ABSENT:
            inner.pop(key, None)
        else:
            inner[key] = value
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n")


def described(changes: dict[str, Json]) -> list[Json]:
    """Changes as a report prints them: file, key and value."""
    setting = [
        {"file": file, "key": key, "value": "absent" if value is ABSENT else value}
        for file, keys in changes.items() for key, value in keys.items()
    ]
    return json.loads(json.dumps(setting, default=str))
