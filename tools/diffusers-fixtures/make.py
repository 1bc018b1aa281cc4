"""Writes the fixtures named on the command line, or all of them."""

from __future__ import annotations

import importlib
import logging
import sys
import warnings

import diffusers
import torch
import transformers

NAMES = ("sd15", "sd15-inpaint", "sd21", "sdxl", "lcm", "schedulers")


def main() -> None:
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    diffusers.logging.disable_progress_bar()
    torch.set_grad_enabled(False)
    names = sys.argv[1:] or list(NAMES)
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        sys.exit(f"no such fixture: {', '.join(unknown)}; there are {', '.join(NAMES)}")
    for name in names:
        importlib.import_module(name.replace("-", "_")).make()
        print(name, flush=True)


if __name__ == "__main__":
    main()
