"""Writes the fixtures named on the command line, or all of them."""

from __future__ import annotations

import importlib
import logging
import sys
import traceback
import warnings
from collections.abc import Callable

import transformers

from common import until_decided

GROUPS = (
    "text", "embeddings", "vision", "seq2seq", "speech", "scenes", "captions", "sounds", "handmade", "decoders", "masks",
    "zero_ner", "ocr", "decoding", "voices", "supertonic_voices", "quantised", "settings", "word_times",  # words: ok
)


def main() -> None:
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    transformers.logging.set_verbosity_error()
    families: dict[str, Callable[[], None]] = {}
    for group in GROUPS:
        families |= importlib.import_module(group).FAMILIES
    names = sys.argv[1:] or list(families)
    unknown = [name for name in names if name not in families]
    if unknown:
        sys.exit(f"no such family: {', '.join(unknown)}; there are {', '.join(families)}")
    failed = [name for name in names if not made(name, families[name])]
    if failed:
        sys.exit(f"not made: {', '.join(failed)}")


def made(name: str, make: Callable[[], None]) -> bool:
    """Makes one family and returns whether that succeeded."""
    try:
        until_decided(make)
    except Exception:
        traceback.print_exc()
        print(f"{name}: failed", file=sys.stderr)
        return False
    return True


if __name__ == "__main__":
    main()
