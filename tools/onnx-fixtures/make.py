"""Writes the fixtures named on the command line, or all of them."""

from __future__ import annotations

import importlib
import logging
import sys
import warnings
from collections.abc import Callable

import transformers

from common import until_decided

GROUPS = ("text", "embeddings", "vision", "seq2seq", "speech", "scenes", "captions", "sounds", "handmade")


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
    for name in names:
        until_decided(families[name])


if __name__ == "__main__":
    main()
