"""Compares chat templates as transformers renders them with the renderer of the engines: `templates.py ENGINE TEMPLATES... [--only TEXT] [--table FILE]`.

`ENGINE` is the example `chat_template` of `runtimes/template`, `TEMPLATES` are folders or archives (`.tar.gz`) with files `*.jinja`. With `--table`, the
conversations and the texts of transformers are written to a file, with which a test of the crate compares its own.
"""

from __future__ import annotations

import argparse
import copy
import datetime
import difflib
import json
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path
from typing import Any

from transformers.utils import chat_template_utils

Json = dict[str, Any]
NOW = 1_795_210_800
BOS, EOS = "<s>", "</s>"
# The conversations of the committed table.
TABLE = ("single", "turns", "spaces", "tools-system", "calls", "steps-thinking-on")
KNOWN = Path(__file__).with_name("known-templates.toml")


class Clock(datetime.datetime):
    """The time of the renderings, which both sides must have."""

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> datetime.datetime:
        return cls.fromtimestamp(NOW, datetime.UTC)


def function(name: str, description: str, properties: Json, **others: Any) -> Json:
    parameters = {"type": "object", "properties": properties, "required": list(properties)[:1]}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters | others}}


def call(number: int, name: str, arguments: Json) -> Json:
    # Nine letters and digits, because Mistral's templates refuse others.
    return {"id": f"call{number:05}", "type": "function", "function": {"name": name, "arguments": arguments}}


def calls(*made: Json, content: str = "", **others: Any) -> Json:
    return {"role": "assistant", "content": content, "tool_calls": list(made), **others}


def result(number: int, name: str, content: str) -> Json:
    return {"role": "tool", "content": content, "tool_call_id": f"call{number:05}", "name": name}


def say(role: str, content: str, **others: Any) -> Json:
    return {"role": role, "content": content, **others}


WEATHER = function(
    "get_weather",
    "Current weather of a place, e.g. <Zürich> & \"Genève\"",
    {
        "place": {"type": "string", "description": "Name's place"},
        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "description": "Unit"},
        "days": {"type": "integer", "minimum": 1, "default": 3, "description": "Days"},
    },
)
NESTED = function(
    "book",
    "Books a trip",
    {
        "zone": {"type": "object", "description": "Where", "properties": {"b": {"type": "number", "description": "B"}, "a": {"type": "boolean", "description": "A"}}, "required": ["b"]},
        "alpha": {"type": "array", "description": "List", "items": {"type": "object", "properties": {"y": {"type": "string"}, "x": {"type": "string"}}}},
        "mixed": {"type": ["string", "null"], "description": "Either", "nullable": True},
        "share": {"type": "number", "default": 0.5, "description": "Part"},
    },
    additionalProperties=False,
)
PLAIN = {"type": "function", "function": {"name": "now", "description": "The time", "parameters": {"type": "object", "properties": {}}}}
SYSTEM, USER, ANSWER, AGAIN = say("system", "You are brief."), say("user", "Hi <b>there</b> & ünïcode 日本語 😀 'x' \"y\""), say("assistant", "Hello!"), say("user", "  And now?\n")
ASK = call(1, "get_weather", {"place": "Zürich <&> 'x'", "days": 2, "unit": "celsius"})
BOOK = call(2, "book", {"zone": {"b": 1.5, "a": True}, "alpha": [{"y": "q", "x": None}], "share": 1.0})
FOUND = result(1, "get_weather", '{"temperature": 21.5, "sky": "blue <&> ü"}')
BOOKED = result(2, "book", "done")
THOUGHT = {"reasoning_content": "Hm, let me see."}


def conversations() -> dict[str, Json]:
    """The conversations, by name: messages, tools and how to reason."""
    several = [SYSTEM, USER, ANSWER, AGAIN]
    called = [USER, calls(ASK), FOUND]
    both = [SYSTEM, USER, calls(ASK, BOOK, content="I will see."), FOUND, BOOKED]
    reasoned = [USER, say("assistant", "Hello!", **THOUGHT), AGAIN]
    steps = [USER, calls(ASK, **THOUGHT), FOUND, calls(BOOK, **THOUGHT), BOOKED]
    cases = {
        "single": {"messages": [USER]},
        "system": {"messages": [SYSTEM, USER]},
        "turns": {"messages": several},
        "empty-system": {"messages": [say("system", ""), USER]},
        "spaces": {"messages": [say("system", "  S \n"), say("user", "\n U  "), say("assistant", " A \n"), AGAIN]},
        "tools": {"messages": [USER], "tools": [WEATHER]},
        "tools-system": {"messages": [SYSTEM, USER], "tools": [WEATHER, NESTED, PLAIN]},
        "tools-turns": {"messages": several, "tools": [NESTED]},
        "no-tools": {"messages": [USER], "tools": []},
        "call": {"messages": called, "tools": [WEATHER]},
        "call-undeclared": {"messages": called},
        "calls": {"messages": both, "tools": [WEATHER, NESTED]},
        "call-answered": {"messages": [*called, say("assistant", "It is 21.5 °C."), AGAIN], "tools": [WEATHER]},
        "steps": {"messages": steps, "tools": [WEATHER, NESTED]},
        "reasoned": {"messages": reasoned},
        "reasoned-tools": {"messages": reasoned, "tools": [WEATHER]},
    }
    for name, thinking in {"on": {"enable_thinking": True}, "off": {"enable_thinking": False}, "high": {"enable_thinking": True, "reasoning_effort": "high"}}.items():
        for base in ("system", "tools-system", "reasoned", "steps"):
            cases[f"{base}-thinking-{name}"] = cases[base] | thinking
    return cases


def templates(places: list[Path]) -> dict[str, str]:
    """The templates of folders and archives, by name."""
    found = {}
    for place in places:
        if place.is_dir():
            found |= {file.stem: file.read_text() for file in sorted(place.rglob("*.jinja"))}
            continue
        with tarfile.open(place) as archive:
            for member in archive:
                if member.name.endswith(".jinja") and "/templates/" in member.name:
                    found[Path(member.name).stem] = archive.extractfile(member).read().decode()
    return found


def is_in_words(template: str, case: Json) -> bool:
    """Whether the engine describes functions or calls in texts, because the template does not know them."""
    called = any(message["role"] == "tool" or "tool_calls" in message for message in case["messages"])
    return ("tools" not in template and bool(case.get("tools"))) or (called and "tool_calls" not in template and "tools" not in template)


def reference(template: str, case: Json) -> tuple[str | None, str]:
    """What transformers renders, and why it does not; arguments of calls are texts for templates that take no objects."""
    variables = {"bos_token": BOS, "eos_token": EOS}
    if "enable_thinking" in case:
        # The same setting has two names.
        variables |= {"enable_thinking": case["enable_thinking"], "thinking": case["enable_thinking"]}
    variables |= {name: case[name] for name in ("reasoning_effort",) if name in case}
    why = ""
    messages = messages_of(case)
    if "['tool_responses']" in template and "tool_call_id" not in template:
        messages = with_responses(messages)
    for prepared in (messages, with_texts(messages)):
        try:
            texts, _ = chat_template_utils.render_jinja_template([prepared], tools=case.get("tools") or None, chat_template=template, add_generation_prompt=True, **variables)
            return texts[0], ""
        except Exception as error:  # noqa: BLE001 - a template may fail in any way
            why = why or f"{type(error).__name__}: {error}"
    return None, why


def messages_of(case: Json) -> list[Json]:
    """Messages as the engine passes them: the reasoning has two names, because templates know either."""
    return [ordered(message) for message in case["messages"]]


def with_responses(messages: list[Json]) -> list[Json]:
    """Results in the messages that called, as the first templates of Gemma 4 have them."""
    folded: list[Json] = []
    for message in messages:
        if message["role"] == "tool" and "tool_calls" in folded[-1]:
            try:
                response = json.loads(message["content"])
            except ValueError:
                response = message["content"]
            folded[-1].setdefault("tool_responses", []).append({"name": message["name"], "response": response})
        else:
            folded.append(message)
    return folded


def ordered(message: Json) -> Json:
    passed = {"role": message["role"], "content": message["content"]}
    passed |= {name: message[name] for name in ("tool_calls",) if name in message}
    if "reasoning_content" in message:
        passed |= {"reasoning_content": message["reasoning_content"], "thinking": message["reasoning_content"]}
    return passed | {name: message[name] for name in ("tool_call_id", "name") if name in message}


def with_texts(messages: list[Json]) -> list[Json]:
    messages = copy.deepcopy(messages)
    for message in messages:
        for made in message.get("tool_calls", []):
            made["function"]["arguments"] = json.dumps(made["function"]["arguments"], ensure_ascii=False)
    return messages


def rendered(engine: Path, cases: list[Json]) -> list[Json]:
    lines = "".join(json.dumps(case) + "\n" for case in cases)
    answers = subprocess.run([engine], input=lines, capture_output=True, text=True, check=True).stdout
    return [json.loads(line) for line in answers.splitlines()]


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("engine", type=Path)
    asked.add_argument("templates", type=Path, nargs="+")
    asked.add_argument("--only", default="", help="templates whose name contains this")
    asked.add_argument("--table", type=Path, help="writes the texts of transformers")
    options = asked.parse_args()
    chat_template_utils.datetime = Clock
    known = tomllib.loads(KNOWN.read_text())["difference"]
    found = {name: source for name, source in templates(options.templates).items() if options.only in name}
    if not found:
        sys.exit("templates: no template was found")
    expected, cases, words = [], [], 0
    for name, source in found.items():
        for title, case in conversations().items():
            if is_in_words(source, case):
                words += 1
                continue
            cases.append({"name": f"{name}/{title}", "template": source, "bos": BOS, "eos": EOS, "now": NOW} | case)
            expected.append(reference(source, case))
    if options.table:
        table = [case | {"text": text} for case, (text, _) in zip(cases, expected, strict=True) if text is not None and case["name"].split("/")[1] in TABLE]
        options.table.write_text(json.dumps(compact(table), indent=1, ensure_ascii=False) + "\n")
    equal, refused, ours, excused, different = 0, 0, 0, 0, 0
    for case, (text, why), answer in zip(cases, expected, rendered(options.engine, cases), strict=True):
        if text is None:
            refused += 1
            if options.only:
                print(f"refused by transformers: {case['name']}: {why}\n  {'rendered' if 'text' in answer else answer['error']}")
        elif answer.get("text") == text:
            equal += 1
        elif any(case["name"].startswith(entry["case"]) for entry in known):
            excused += 1
        else:
            different += 1
            print(f"differs: {case['name']}: {answer.get('error') or ''}")
            if "text" in answer:
                print("\n".join(list(difflib.unified_diff(text.splitlines(), answer["text"].splitlines(), "transformers", "engine", lineterm="", n=1))[:12]))
    print(f"{len(found)} templates, {len(cases)} renderings: {equal} equal, {different} different, {excused} different for a known reason, {refused} refused by transformers; {words} with functions in words were left out")
    if different:
        sys.exit(1)


def compact(table: list[Json]) -> Json:
    """Templates once, and the renderings of each."""
    sources: Json = {}
    for entry in table:
        name, title = entry.pop("name").split("/")
        template = sources.setdefault(name, {"template": entry["template"], "cases": []})
        template["cases"].append({"name": title} | {key: value for key, value in entry.items() if key not in ("template", "bos", "eos", "now")})
    return sources


if __name__ == "__main__":
    main()
