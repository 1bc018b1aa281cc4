"""Runs the engines on the models of a folder and writes what agreed: `compare.py OUT ENGINES [--report FILE] [--strict]`.

`ENGINES` is the folder of the programs `onnx_parity`, `coreml_parity` and `diffusers_parity`. `OUT/verdicts.jsonl` has a line for each case.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TextIO

import report

Json = dict[str, Any]


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("out", type=Path)
    asked.add_argument("engines", type=Path, nargs="?", help="without it, the verdicts of the last run are read")
    asked.add_argument("--report", type=Path, help="writes the tables in Markdown")
    asked.add_argument("--family", nargs="*", default=[], help="families whose name contains one of these")
    asked.add_argument("--strict", action="store_true", help="fails if a case differs that known.toml lacks")
    asked.add_argument("--seed", type=int, default=0)
    options = asked.parse_args()
    begin = time.monotonic()
    file = options.out / "verdicts.jsonl"
    if options.engines:
        found = [*options.out.glob("*/*/cases.json"), *(file.parent for file in options.out.glob("*/*/golden/cases.json"))]
        folders = sorted(file.parent for file in found)
        with file.open("w") as lines:
            for engine, chosen in by_engine(folder for folder in folders if wanted(folder, options.family)).items():
                run(options.engines / f"{engine}_parity", chosen, lines)
    verdicts = [verdict for verdict in map(json.loads, file.read_text().splitlines()) if "verdict" in verdict]
    for verdict in verdicts:
        verdict["model"] = "/".join(Path(verdict["model"]).parts[-2:])
    if not verdicts:
        sys.exit("parity: there are no models")
    found = report.Findings.of(options.out, verdicts)
    print(found.table())
    print(f"{len(found.models)} models, {len(verdicts)} cases, {time.monotonic() - begin:.0f} s in the engines")
    if options.report:
        options.report.write_text(found.document(options.seed))
    unknown = found.unknown()
    for line in found.lines(unknown):
        print(f"differs: {line}")
    if options.strict and unknown:
        sys.exit(f"parity: {len(unknown)} cases differ and are not in tools/parity/known.toml; repeat with the same seed: {options.seed}")


OTHERS = ("coreml", "diffusers")
"""Families that another engine than that of ONNX serves."""


def by_engine(folders: Iterable[Path]) -> dict[str, list[Path]]:
    found: dict[str, list[Path]] = {}
    for folder in folders:
        engine = folder.parent.name.partition("-")[0]
        found.setdefault(engine if engine in OTHERS else "onnx", []).append(folder)
    return found


def wanted(folder: Path, families: list[str]) -> bool:
    return not families or any(part in folder.parent.name for part in families)


def run(engine: Path, folders: list[Path], lines: TextIO) -> None:
    """Writes the verdicts of an engine; a model that ends the process differs, and the others go on."""
    waiting = [str(folder) for folder in folders]
    while waiting:
        worker = subprocess.run([engine], input="\n".join(waiting) + "\n", stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
        begun = None
        for line in worker.stdout.splitlines():
            lines.write(line + "\n")
            entry = json.loads(line)
            begun = begun if "verdict" in entry else entry["model"]
        if worker.returncode == 0:
            return
        if begun is None:
            sys.exit(f"parity: {engine}: {worker.stderr[-2000:]}")
        reasons = [text for text in worker.stderr.splitlines() if text.strip() and not text.startswith("note")]
        why = f"the process ended: {reasons[-1][:300] if reasons else f'status {worker.returncode}'}"
        lines.write(json.dumps({"model": begun, "case": "-", "verdict": "differed", "largest": 0.0, "why": [why]}) + "\n")
        waiting = waiting[waiting.index(begun) + 1 :]


if __name__ == "__main__":
    main()
