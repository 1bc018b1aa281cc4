"""Writes the fixtures of another engine with other weights, or settings of Stable Diffusion:
`make_engine.py OUT coreml|diffusers|diffusers-settings [--seed N] [--draws N] [--only NAME]`.

coremltools runs no models on Linux: the reference is the network of PyTorch, or the arithmetic of numpy, of which a package was converted. That of
Stable Diffusion is `diffusers`. Each engine has its own versions of the libraries, those of its fixtures.
"""

from __future__ import annotations

import argparse
import importlib
import json
import logging
import shutil
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

TOOLS = Path(__file__).resolve().parents[1]
COREML = ("vision", "encoders", "language", "speech", "ops", "compressed", "functions", "recurrent")
DIFFUSERS = ("sd15", "sd15-inpaint", "sd21", "sdxl", "lcm")

Families = dict[str, Callable[[], None]]


def coreml(folder: Path, salt: str) -> Families:
    """The families of Core ML packages."""
    common = importlib.import_module("common")
    common.FIXTURES, common.SALT = folder, salt
    return {name: make for group in COREML for name, make in importlib.import_module(group).FAMILIES.items()}


def diffusers(folder: Path, salt: str) -> Families:
    """The pipelines of Stable Diffusion. Adapters are written beside them."""
    import torch

    torch.set_grad_enabled(False)
    importlib.import_module("diffusers").logging.disable_progress_bar()
    importlib.import_module("weights").SALT = salt
    importlib.import_module("repository").FIXTURES = folder
    folder.mkdir(parents=True, exist_ok=True)
    return {name: importlib.import_module(name.replace("-", "_")).make for name in DIFFUSERS}


ENGINES = {"coreml": coreml, "diffusers": diffusers}
SETTINGS = "diffusers-settings"
"""The grid of `diffusion_tasks`, which has other models than the fixtures."""


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("out", type=Path)
    asked.add_argument("engine", choices=(*ENGINES, SETTINGS))
    asked.add_argument("--seed", type=int, default=0)
    asked.add_argument("--draws", type=int, default=3, help="weights that are tried before a model is not made")
    asked.add_argument("--only", default="", help="models whose name contains this")
    options = asked.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    sys.path.insert(0, str(TOOLS / f"{options.engine.partition('-')[0]}-fixtures"))
    folder = options.out / options.engine
    begin, failures = time.monotonic(), []
    if options.engine == SETTINGS:
        diffusers(folder, "")
        importlib.import_module("diffusion_tasks").families(folder, options.seed, options.only, failures)
        finish(folder, failures, begin)
        return
    families = ENGINES[options.engine](folder, "")
    salted = importlib.import_module("common" if options.engine == "coreml" else "weights")
    for name, make in families.items():
        if options.only not in name:
            continue
        why = ""
        for draw in range(options.draws):
            # No fixture has these.
            salted.SALT = f"@{options.seed}.{draw}"
            why = failure(make)
            if not why:
                break
            shutil.rmtree(folder / name, ignore_errors=True)
        if why:
            failures.append({"family": options.engine, "model": name, "error": why})
            print(f"{name}: not made: {why}", file=sys.stderr, flush=True)
    finish(folder, failures, begin)


def finish(folder: Path, failures: list[dict[str, str]], begin: float) -> None:
    """Writes what was not made."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "not-made.json").write_text(json.dumps(failures, indent=1, ensure_ascii=False) + "\n")
    print(f"{folder.name}: {time.monotonic() - begin:.0f} s, {len(failures)} not made", file=sys.stderr, flush=True)


def failure(make: Callable[[], Any]) -> str:
    """Why a model was not made, or an empty text."""
    try:
        make()
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:300]}"
    return ""


if __name__ == "__main__":
    main()
