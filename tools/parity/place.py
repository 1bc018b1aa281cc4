"""Model folders: one export of a network, and copies of it with other settings.

The folders have the form of the fixtures of `runtimes/onnx/tests`, whose generator's helpers are used here.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "onnx-fixtures"))

import common  # noqa: E402
from changes import ABSENT, change, described, linked  # noqa: E402, F401
from common import Json, Repository, Undecided, numbers, outline, rounded  # noqa: E402

Run = Callable[[Json], Json]
LIMIT_BYTES = 40_000_000


class Place:
    """The folder that models are written to, and what could not be made."""

    root: Path
    family = ""
    seed = 0
    sample = 0
    """One model of this number is made; 0 makes all."""
    part = 0
    """Which of them."""
    depth = 0
    """Models that are being made: above 0, those of a setting."""
    failures: list[Json] = []


SETTINGS = 6
"""One setting of this number is in a sample."""


def in_sample(name: str, of: int) -> bool:
    """Whether a sample of one in `of` has a model."""
    return of == 0 or zlib.crc32(f"{Place.part}/{Place.family}/{name}".encode()) % of == 0


def open_place(root: Path, seed: int) -> None:
    """Directs the fixtures' helpers to a folder."""
    Place.root, Place.seed = root, seed
    common.LIMIT_BYTES = LIMIT_BYTES
    root.mkdir(parents=True, exist_ok=True)


def slug(name: str) -> str:
    """A name in the form that the engine's settings have: at most 64 of a-z, 0-9 and `-`, `.`, `_` inside."""
    plain = "".join(letter if letter in "abcdefghijklmnopqrstuvwxyz0123456789-._" else "-" for letter in name.lower()).strip("-._")
    return plain if len(plain) <= 64 else f"{plain[:55].rstrip('-._')}-{zlib.crc32(name.encode()):08x}"


def seeded(name: str) -> str:
    """The name that decides on the weights of a model."""
    return name if Place.seed == 0 else f"{name}@{Place.seed}"


def repository(name: str, task: str, **extra: Any) -> Repository:
    """A new folder below that of the family."""
    common.FIXTURES = Place.root / Place.family
    made = Repository(slug(name), task)
    made.extra = {"family": Place.family, **extra}
    return made


def varied(base: Repository, name: str, changes: dict[str, Json], task: str | None = None) -> Repository:
    """A copy of a repository with changed keys of JSON files; graphs are linked, not copied."""
    made = repository(f"{base.name}--{name}", task or base.task, **{key: value for key, value in base.extra.items() if key != "family"})
    made.extra["setting"] = described(changes)
    linked(base.model, made.model)
    for file, keys in changes.items():
        change(made.model / file, keys)
    return made


def answered(made: Repository, run: Run, inputs: dict[str, Json], tolerance: float, base: Repository | None = None, **more: Any) -> Repository:
    """Writes the cases that the reference answers and that its answers decide."""
    undecided, unanswered, effects = [], {}, {}
    for name, given in inputs.items():
        try:
            output = run(given)
        except Undecided:
            undecided.append(name)
            continue
        except BaseException as error:  # what the reference raises is part of the report, and so are the panics of its Rust parts
            if isinstance(error, KeyboardInterrupt):
                raise
            unanswered[name] = f"{type(error).__name__}: {str(error)[:300]}"
            continue
        own = output.pop("__case__", {})
        made.case(name, given, output, **{"tolerance": tolerance, **more, **own})
        if base is not None:
            before = next((case for case in base.cases if case["name"] == name and case["input"] == given), None)
            effects[name] = None if before is None else effect(before["output"], rounded(output))
    made.extra |= {"undecided": undecided, "unanswered": unanswered, "effects": effects}
    if made.cases:
        made.write()
    else:
        Place.failures.append({"family": Place.family, "model": made.name, "error": f"no case: undecided {undecided}, unanswered {unanswered}"})
        print(f"{made.name}: no case: {undecided} {unanswered}", file=sys.stderr)
    return made


def effect(before: Any, after: Any) -> float:
    """How far two answers are apart: the largest difference of their numbers, or 1 where texts or counts differ."""
    if json.dumps(outline(before)) != json.dumps(outline(after)):
        return 1.0
    pairs = list(zip(numbers(before), numbers(after)))
    return max((abs(left - right) for left, right in pairs), default=0.0)


def attempt(name: str, make: Callable[[], Any], draws: int = 3) -> Any:
    """Makes something with the first draw of weights that decides; a failure is recorded and the next model is made."""
    if Place.sample and Place.depth and not in_sample(name, SETTINGS):
        return None
    drawn = common.Draw.number
    failure = ""
    for number in range(draws):
        # A setting keeps the weights of its model.
        common.Draw.number = drawn if Place.depth else number
        try:
            Place.depth += 1
            return make()
        except Undecided as why:
            failure = f"undecided: {why}"
        except Exception as error:
            failure = f"{type(error).__name__}: {str(error)[:300]}"
            if os.environ.get("PARITY_TRACE"):
                traceback.print_exc()
            break
        finally:
            Place.depth -= 1
    Place.failures.append({"family": Place.family, "model": name, "error": failure})
    print(f"{name}: not made: {failure}", file=sys.stderr, flush=True)
    return None
