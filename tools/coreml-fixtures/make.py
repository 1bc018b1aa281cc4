"""Writes the fixtures named on the command line, or all of them."""

from __future__ import annotations

import importlib
import logging
import sys
import traceback
import warnings
from collections.abc import Callable

GROUPS = ("vision", "encoders", "language", "speech", "ops", "compressed", "functions", "recurrent")


def main() -> None:
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    families: dict[str, Callable[[], None]] = {}
    for group in GROUPS:
        families |= importlib.import_module(group).FAMILIES
    names = sys.argv[1:] or list(families)
    unknown = [name for name in names if name not in families]
    if unknown:
        sys.exit(f"no such fixture: {', '.join(unknown)}; there are {', '.join(families)}")
    failed = []
    for name in names:
        try:
            families[name]()
        except Exception:
            traceback.print_exc()
            failed.append(name)
    if failed:
        sys.exit(f"not made: {', '.join(failed)}")


if __name__ == "__main__":
    main()
