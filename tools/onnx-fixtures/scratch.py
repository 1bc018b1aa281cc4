"""The folder for files that are made on the way and not kept."""

import os
import tempfile
from pathlib import Path

SCRATCH = Path(os.environ.get("ONNX_FIXTURES_SCRATCH") or tempfile.mkdtemp(prefix="onnx-fixtures-"))
SCRATCH.mkdir(parents=True, exist_ok=True)


def folder(name: str) -> Path:
    """A fresh place below the scratch folder."""
    path = SCRATCH / name
    path.mkdir(parents=True, exist_ok=True)
    return path
