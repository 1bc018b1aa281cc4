"""Makes graphs smaller without changing what they compute: short inner names and no annotations."""

from __future__ import annotations

from pathlib import Path

import onnx


def shrink(file: Path) -> None:
    """Rewrites a graph with short names for everything but its inputs and outputs."""
    model = onnx.load(file)
    kept = {value.name for value in (*model.graph.input, *model.graph.output)} | {""}
    short: dict[str, str] = {}

    def name(old: str) -> str:
        return old if old in kept else short.setdefault(old, f"v{len(short)}")

    def visit(graph: onnx.GraphProto) -> None:
        del graph.value_info[:]
        graph.doc_string = ""
        for value in (*graph.input, *graph.output, *graph.initializer):
            value.name = name(value.name)
            value.doc_string = ""
        for node in graph.node:
            node.name = node.doc_string = ""
            node.input[:] = [name(old) for old in node.input]
            node.output[:] = [name(old) for old in node.output]
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    visit(attribute.g)
                for inner in attribute.graphs:
                    visit(inner)

    visit(model.graph)
    del model.metadata_props[:]
    onnx.checker.check_model(model)
    onnx.save(model, file)
