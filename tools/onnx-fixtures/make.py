"""Writes the fixtures named on the command line, or all of them."""

from __future__ import annotations

import logging
import sys
import warnings

import transformers

import embeddings
import text
from common import until_decided

FAMILIES = {**text.FAMILIES, **embeddings.FAMILIES}


def main() -> None:
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    transformers.logging.set_verbosity_error()
    names = sys.argv[1:] or list(FAMILIES)
    unknown = [name for name in names if name not in FAMILIES]
    if unknown:
        sys.exit(f"no such family: {', '.join(unknown)}; there are {', '.join(FAMILIES)}")
    for name in names:
        until_decided(FAMILIES[name])


if __name__ == "__main__":
    main()
