"""Tables of what agreed, differed and was refused, and how to repeat a difference."""

from __future__ import annotations

import json
import tomllib
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from textwrap import shorten
from typing import Any

Json = dict[str, Any]
KNOWN = Path(__file__).with_name("known.toml")
VERDICTS = ("agreed", "refused", "differed")


@dataclass
class Findings:
    """The verdicts of a run, with what the generator wrote beside the models."""

    models: dict[str, Json]
    verdicts: list[Json]
    not_made: dict[str, list[Json]]
    known: list[Json] = field(default_factory=lambda: tomllib.loads(KNOWN.read_text()).get("known", []))

    @staticmethod
    def of(out: Path, verdicts: list[Json]) -> Findings:
        names = {verdict["model"] for verdict in verdicts}
        models = {name: outline(out / name) for name in names}
        not_made = {file.parent.name: json.loads(file.read_text()) for file in out.glob("*/not-made.json")}
        return Findings(models, verdicts, {family: failures for family, failures in not_made.items() if any(name.startswith(f"{family}/") for name in names)})

    def families(self) -> list[str]:
        return sorted({name.split("/")[0] for name in self.models} | set(self.not_made))

    def reason(self, verdict: Json) -> Json | None:
        """The entry of `known.toml` that explains a difference."""
        at = f"{verdict['model']}/{verdict['case']}"
        return next((entry for entry in self.known if any(fnmatch(at, pattern) for pattern in entry["cases"])), None)

    def unknown(self) -> list[Json]:
        return [verdict for verdict in self.verdicts if verdict["verdict"] == "differed" and self.reason(verdict) is None]

    def table(self) -> str:
        """One row for each family."""
        rows = ["| family | models | cases | agreed | refused | differed | explained | undecided | reference fails | not made | largest difference |", "| --- |" + " ---: |" * 10]
        total: Counter[str] = Counter()
        for family in self.families():
            verdicts = [verdict for verdict in self.verdicts if verdict["model"].startswith(f"{family}/")]
            models = [model for name, model in self.models.items() if name.startswith(f"{family}/")]
            count = Counter(verdict["verdict"] for verdict in verdicts)
            count["explained"] = sum(verdict["verdict"] == "differed" and self.reason(verdict) is not None for verdict in verdicts)
            count["models"], count["cases"] = len(models), len(verdicts)
            count["undecided"] = sum(len(model.get("undecided", [])) for model in models)
            count["unanswered"] = sum(len(model.get("unanswered", {})) for model in models)
            count["not made"] = len(self.not_made.get(family, []))
            largest = max((verdict["largest"] for verdict in verdicts if verdict["verdict"] == "agreed"), default=0.0)
            total.update(count)
            rows.append(row(family, count, f"{largest:.1e}"))
        return "\n".join([*rows, row("all", total, "")])

    def lines(self, verdicts: list[Json]) -> list[str]:
        """A difference of each model, with the case and the setting that show it."""
        first: dict[str, list[Json]] = defaultdict(list)
        for verdict in verdicts:
            first[verdict["model"]].append(verdict)
        lines = []
        for model, found in sorted(first.items()):
            case = next((case for case in self.models[model]["cases"] if case["name"] == found[0]["case"]), {})
            setting = ", ".join(f"{part['file']}: {part['key']} = {json.dumps(part['value'], ensure_ascii=False)[:60]}" for part in self.models[model].get("setting", [])[:2])
            shown = json.dumps(case.get("input"), ensure_ascii=False)[:120]
            lines.append(f"{model} ({len(found)} of {len(self.models[model]['cases'])}; {setting or 'as exported'}): {found[0]['case']} {shown}: {found[0]['why'][0] if found[0]['why'] else ''}")
        return lines

    def refusals(self) -> list[str]:
        """Each message of a refusal, with the number of cases and one of them."""
        groups: dict[str, list[Json]] = defaultdict(list)
        for verdict in self.verdicts:
            if verdict["verdict"] == "refused":
                groups[shorten(verdict["why"][0], 220)].append(verdict)
        ordered = sorted(groups.items(), key=lambda group: -len(group[1]))
        return [f"| {escaped(message)} | {len(found)} | `{found[0]['model']}` |" for message, found in ordered]

    def missing(self) -> list[str]:
        """Each reason why a model was not made, with the number of models and one of them."""
        groups: dict[str, list[str]] = defaultdict(list)
        for family, failures in self.not_made.items():
            for failure in failures:
                why = failure["error"].partition("unanswered {")[2] or failure["error"]
                groups[shorten(why.partition(": ")[2] or why, 110)].append(f"{family}/{failure['model']}")
        ordered = sorted(groups.items(), key=lambda group: -len(group[1]))
        return [f"| {escaped(why)} | {len(models)} | `{models[0]}` |" for why, models in ordered]

    def weak(self) -> list[Json]:
        """Settings whose every case agreed although the setting changed less than ten times the tolerance: they prove nothing."""
        return [model for model in self.models.values() if model.get("setting") and model.get("effects") and not any((change or 0) > 10 * model.get("tolerance", 1e-4) for change in model["effects"].values())]

    def document(self, seed: int) -> str:
        """The report in Markdown."""
        settings = [model for model in self.models.values() if model.get("effects")]
        explained = [verdict for verdict in self.verdicts if verdict["verdict"] == "differed" and self.reason(verdict)]
        parts = [self.table(), "", f"Settings that were varied: {len(settings)}; of these, {len(settings) - len(self.weak())} change an answer by more than ten times the tolerance.", "", "## Differences", ""]
        parts += [f"- {escaped(line)}" for line in self.lines(self.unknown())] or ["None."]
        parts += ["", "## Differences with a reason", "", "| reason | cases | such as |", "| --- | ---: | --- |"]
        for entry in sorted(self.known, key=lambda entry: not entry.get("open", False)):
            found = [verdict for verdict in explained if self.reason(verdict) is entry]
            if found:
                parts.append(f"| {'**open**: ' if entry.get('open') else ''}{escaped(entry['reason'])} | {len(found)} | `{found[0]['model']}/{found[0]['case']}` |")
        parts += ["", "## Refusals", "", "| message | cases | such as |", "| --- | ---: | --- |", *self.refusals()]
        parts += ["", "## Not made", "", "Settings with which the reference itself fails, networks that its exporter does not write, and draws that decide nothing.", ""]
        parts += ["| why | models | such as |", "| --- | ---: | --- |", *self.missing()]
        return "\n".join(parts) + f"\n\nSeed {seed}.\n"


def outline(model: Path) -> Json:
    """What the generator wrote beside a model. That of Stable Diffusion writes other files, whose calls are the cases."""
    file = model / "cases.json"
    if file.exists():
        return json.loads(file.read_text())
    written = json.loads((model / "golden/cases.json").read_text())
    beside = {name: written[name] for name in ("setting", "effects", "unanswered", "tolerance") if name in written}
    return {"cases": [{"name": call["name"], "input": call} for call in written.get("pipelines", [])], **beside}


def row(name: str, count: Counter[str], largest: str) -> str:
    keys = ("models", "cases", *VERDICTS, "explained", "undecided", "unanswered", "not made")
    return f"| {name} | " + " | ".join(str(count[key]) for key in keys) + f" | {largest} |"


def escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")
