"""Writes the models of the grid: `make.py OUT [--seed N] [--family F...] [--sample N --part N] [--only TEXT]`."""

from __future__ import annotations

import argparse
import importlib
import json
import logging
import sys
import time
import warnings
from pathlib import Path

import torch
import transformers

import place

MODULES = ("text_tasks", "generation_tasks", "image_tasks", "speech_tasks", "precision_tasks", "fixture_tasks")


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("out", type=Path)
    asked.add_argument("--seed", type=int, default=0, help="decides on the weights; 0 and others are different models")
    asked.add_argument("--family", nargs="*", default=[], help="families whose name contains one of these")
    asked.add_argument("--only", default="", help="models whose name contains this")
    asked.add_argument("--sample", type=int, default=0, help="one model of this number, and a part of its settings")
    asked.add_argument("--part", type=int, default=0, help="which models a sample has")
    options = asked.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    place.open_place(options.out, options.seed)
    place.Place.sample, place.Place.part = options.sample, options.part
    chosen = lambda name: options.only in name and place.in_sample(name, options.sample)
    families = {name: make for module in MODULES for name, make in importlib.import_module(module).FAMILIES.items()}
    for family, make in families.items():
        if options.family and not any(part in family for part in options.family):
            continue
        place.Place.family = family
        begin, already = time.monotonic(), len(place.Place.failures)
        make(chosen)
        failed = len(place.Place.failures) - already
        print(f"{family}: {time.monotonic() - begin:.0f} s, {failed} not made", file=sys.stderr, flush=True)
        (options.out / family).mkdir(exist_ok=True)
        (options.out / family / "not-made.json").write_text(json.dumps(place.Place.failures[already:], indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
