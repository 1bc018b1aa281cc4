"""The families of the committed fixtures with other weights than theirs."""

from __future__ import annotations

import importlib
from collections.abc import Callable

import common
from common import Undecided
from place import Place

GROUPS = (
    "text", "embeddings", "vision", "seq2seq", "speech", "scenes", "captions", "handmade", "decoders", "masks", "zero_ner", "ocr", "sounds", "voices", "settings", "word_times",  # words: ok
)
DRAWS = 12


def fixtures(only: Callable[[str], bool]) -> None:
    """Each generator, from a draw of weights that no fixture has."""
    common.FIXTURES = Place.root / Place.family
    for group in GROUPS:
        for name, make in importlib.import_module(group).FAMILIES.items():
            if not only(name):
                continue
            failure = ""
            for common.Draw.number in range(1000 * (Place.seed + 1), 1000 * (Place.seed + 1) + DRAWS):
                try:
                    make()
                    break
                except (Undecided, AssertionError) as why:
                    failure = f"undecided: {str(why)[:120]}"
                except Exception as error:
                    failure = f"{type(error).__name__}: {str(error)[:200]}"
                    break
            else:
                pass
            if failure and not (common.FIXTURES / name / "cases.json").exists():
                Place.failures.append({"family": Place.family, "model": name, "error": failure})
                print(f"{name}: not made: {failure}", flush=True)


FAMILIES = {"fixtures": fixtures}
