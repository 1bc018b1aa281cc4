#!/usr/bin/env python3
"""Writes the catalogue entries of `island dev --fixtures`: one small model for each ONNX task and for each kind of Core ML model.

The models are the fixtures of the engines' tests, whose weights are random; their answers show that an engine works, not what a
trained model says. Run it from the root of the project after a fixture was added or changed:

    python3 tools/fixture-cargos/make.py
"""

import base64
import json
import math
import pathlib
import struct

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUT = ROOT / "cargos" / "fixtures"

# The fixture that stands for each task of the ONNX engine, and the category of its entry.
ONNX = {
    "automatic-speech-recognition": ("whisper", "audio"),
    "depth-estimation": ("depth-anything", "vision"),
    "feature-extraction": ("minilm", "text"),
    "fill-mask": ("bert-fill-mask", "text"),
    "image-classification": ("vit", "vision"),
    "image-segmentation": ("segformer", "vision"),
    "image-to-text": ("vit-gpt2", "vision"),
    "object-detection": ("yolos", "vision"),
    "ocr": ("trocr", "vision"),
    "question-answering": ("distilbert-qa", "text"),
    "summarization": ("bart-cnn", "text"),
    "text-classification": ("distilbert-sst2", "text"),
    "text-ranking": ("bert-rank", "text"),
    "text-to-speech": ("mms-tts", "audio"),
    "text2text-generation": ("t5", "text"),
    "token-classification": ("bert-ner", "text"),
    "translation": ("marian-split", "text"),
    "zero-shot-classification": ("bart-mnli", "text"),
}
# The same for Core ML, with the schema of the output.
COREML = {
    "automatic-speech-recognition": ("wav2vec2", "audio"),
    "depth-estimation": ("depth", "vision"),
    "feature-extraction": ("bert-dynamic", "text"),
    "image-classification": ("resnet", "vision"),
    "image-segmentation": ("segformer", "vision"),
    "image-to-image": ("larger", "vision"),
    "text-generation": ("llama", "text"),
}


def tone():
    """A third of a second of a tone, as a wav file: enough input for a model with random weights."""
    samples = [int(8000 * math.sin(2 * math.pi * 440 * n / 16000)) for n in range(5600)]
    data = struct.pack(f"<{len(samples)}h", *samples)
    header = b"RIFF" + struct.pack("<I", 36 + len(data)) + b"WAVEfmt " + struct.pack("<IHHIIHH", 16, 1, 1, 16000, 32000, 2, 16)
    return base64.b64encode(header + b"data" + struct.pack("<I", len(data)) + data).decode()


def picture(engine):
    folder = ROOT / "runtimes" / "onnx" / "tests" / "fixtures"
    if engine == "onnx":
        return base64.b64encode((folder / "vit" / "gray.png").read_bytes()).decode()
    return None


def filled(engine, value):
    """An input with media in the places of file names."""
    filled = dict(value)
    for name, part in value.items():
        if isinstance(part, dict) and "file" in part:
            filled[name] = tone() if name == "audio" else picture(engine)
    return filled


def toml(value):
    """A value in TOML; JSON's text form is valid for text, numbers, truth values and lists of these."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{name} = {toml(part)}" for name, part in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(toml(part) for part in value) + "]"
    return json.dumps(value, ensure_ascii=False)


def entry(engine, task, fixture, category):
    folder = ROOT / "runtimes" / engine / "tests" / "fixtures" / fixture
    cases = json.loads((folder / "cases.json").read_text())
    files = sorted(str(path.relative_to(folder / "model")) for path in (folder / "model").rglob("*") if path.is_file())
    settings = dict(cases.get("engine") or {})
    slug, name = f"tiny-{engine}-{task}", task.replace("-", " ")
    if engine == "onnx":
        case = next(case for case in cases["cases"] if (case.get("task") or cases["task"]) == task)
    else:
        case, settings["task"] = cases["answers"][0], task
    lines = [
        f"# Made by tools/fixture-cargos/make.py from runtimes/{engine}/tests/fixtures/{fixture}.",
        "",
        f'slug = "{slug}"',
        f'name = "Tiny {name} ({"ONNX" if engine == "onnx" else "Core ML"})"',
        f'description = "A model for {name} so small that every machine runs it; its weights are random."',
        f'category = "{category}"',
        f'runtime_type = "{engine}"',
        *([f'onnx_task_type = "{task}"'] if engine == "onnx" else []),
        "price_per_job = 0.001",
        "required_vram_mb = 0",
        "required_ram_mb = 256",
        'licence = "CC0-1.0 OR Apache-2.0 OR MIT"',
        "",
        "[repository]",
        f'url = "file://../runtimes/{engine}/tests/fixtures/{fixture}/model"',
        "files = [",
        *[f"    {json.dumps(file)}," for file in files],
        "]",
        "",
        "[limits]",
        "timeout_s = 120",
        "max_output_bytes = 12582912",
        f"max_tokens = {32 if task == 'text-generation' else 0}",
        "",
        *(["[engine]", *[f"{key} = {toml(value)}" for key, value in settings.items()], ""] if settings else []),
        *SCHEMAS.get((engine, task), []),
        *(MODERATION if (engine, task) == ("onnx", "text-classification") else []),
        "[example]",
        f"input = {toml(filled(engine, case['input']))}",
        "",
    ]
    (OUT / f"{slug}.toml").write_text("\n".join(lines))


# Schemas of Core ML tasks that the catalogue has no entry of, and so no schema for.
SCHEMAS = {
    ("coreml", "feature-extraction"): [
        "[input_schema]",
        'type = "object"',
        "additionalProperties = false",
        'required = ["input"]',
        'properties = { input = { anyOf = [{ type = "string" }, { type = "array", items = { type = "string" } }] } }',
        "",
        "[output_schema]",
        'type = "object"',
        'required = ["embeddings"]',
        'properties = { embeddings = { type = "array", items = { type = "array", items = { type = "number" } } } }',
        "",
    ],
    ("coreml", "image-to-image"): [
        "[input_schema]",
        'type = "object"',
        "additionalProperties = false",
        'required = ["image"]',
        'properties = { image = { type = "string", contentEncoding = "base64", minLength = 1 } }',
        "",
        "[output_schema]",
        'type = "object"',
        'required = ["image"]',
        'properties = { image = { type = "string", contentEncoding = "base64", minLength = 1 } }',
        "",
    ],
    ("coreml", "text-generation"): [
        "[input_schema]",
        'type = "object"',
        "additionalProperties = false",
        'required = ["prompt"]',
        'properties = { prompt = { type = "string", minLength = 1 }, max_tokens = { type = "integer", minimum = 1, maximum = 32 } }',
        "",
        "[output_schema]",
        "",
    ],
}

# The classifier serves `POST /moderations` as well; its labels mean nothing.
MODERATION = ["[engine.moderation]", 'NEGATIVE = "harassment"', 'POSITIVE = "hate"', ""]

for task, (fixture, category) in ONNX.items():
    entry("onnx", task, fixture, category)
for task, (fixture, category) in COREML.items():
    entry("coreml", task, fixture, category)
