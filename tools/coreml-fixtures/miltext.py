"""A program as text, in the spelling of compiled models up to iOS 17 and in the one since."""

from __future__ import annotations

import numpy as np
from coremltools.proto import MIL_pb2

ELEMENTS = {
    1: "bool", 2: "string", 10: "fp16", 11: "fp32", 12: "fp64", 13: "bf16", 21: "int8", 22: "int16", 23: "int32", 24: "int64",
    25: "int4", 31: "uint8", 32: "uint16", 33: "uint32", 34: "uint64", 35: "uint4", 36: "uint2", 37: "uint1", 38: "uint6", 39: "uint3",
}
OPSETS = {"CoreML5": "ios15", "CoreML6": "ios16", "CoreML7": "ios17", "CoreML8": "ios18", "CoreML9": "ios26"}
BYTES = {10: "<f2", 21: "<i1", 31: "<u1", 22: "<i2", 32: "<u2", 33: "<u4"}
BITS = {25: 4, 35: 4, 36: 2, 37: 1, 38: 6, 39: 3}


def program(source: MIL_pb2.Program, new: bool) -> str:
    """The whole text."""
    return Printer(new).program(source)


class Printer:
    """Prints in one of the two spellings."""

    def __init__(self, new: bool):
        self.new = new

    def program(self, source: MIL_pb2.Program) -> str:
        text = self.scalar("string")
        lines = ["program(1.3)" if self.new else "program(1.0)", f'[buildInfo = dict<{text}, {text}>({{{{"made-by", "a test"}}}})]', "{"]
        for name in sorted(source.functions):
            lines += self.function(name, source.functions[name])
        return "\n".join([*lines, "}"])

    def function(self, name: str, function: MIL_pb2.Function) -> list[str]:
        inputs = ", ".join(f"{self.type(given.type)} {given.name}" for given in function.inputs)
        block = function.block_specializations[function.opset]
        lines = [f"    func {name}<{OPSETS[function.opset]}>({inputs}) {{"]
        lines += [f"            {self.operation(operation)};" for operation in block.operations]
        return [*lines, f"        }} -> ({', '.join(block.outputs)});"]

    def operation(self, operation: MIL_pb2.Operation) -> str:
        assert not operation.blocks, "branches and loops are not printed"
        outputs = ", ".join(f"{self.type(output.type)} {output.name}" for output in operation.outputs)
        inputs = ", ".join(f"{name} = {self.argument(operation.inputs[name])}" for name in sorted(operation.inputs))
        names = sorted(operation.attributes, key=lambda name: (name != "name", name))
        notes = ", ".join(f"{name} = {self.value(operation.attributes[name])}" for name in names)
        return f"{outputs} = {operation.type}({inputs})[{notes}]" if outputs else f"{operation.type}({inputs})[{notes}]"

    def argument(self, argument: MIL_pb2.Argument) -> str:
        given = [one.name if one.WhichOneof("binding") == "name" else self.value(one.value) for one in argument.arguments]
        return given[0] if len(given) == 1 else f"({', '.join(given)})"

    def scalar(self, element: str) -> str:
        return element if self.new else f"tensor<{element}, []>"

    def type(self, ty: MIL_pb2.ValueType) -> str:
        kind = ty.WhichOneof("type")
        if kind == "stateType":
            return f"state<{self.type(ty.stateType.wrappedType)}>"
        if kind == "listType":
            return f"list<{self.type(ty.listType.type)}, {ty.listType.length.constant.size}>"
        if kind == "dictionaryType":
            return f"dict<{self.type(ty.dictionaryType.keyType)}, {self.type(ty.dictionaryType.valueType)}>"
        if kind == "tupleType":
            return f"tuple<{', '.join(self.type(inner) for inner in ty.tupleType.types)}>"
        tensor = ty.tensorType
        element = ELEMENTS[tensor.dataType]
        if not tensor.dimensions:
            return self.scalar(element)
        sizes = [str(size.constant.size) if size.WhichOneof("dimension") == "constant" else "?" for size in tensor.dimensions]
        return f"tensor<{element}, [{', '.join(sizes)}]>"

    def value(self, value: MIL_pb2.Value) -> str:
        return f"{self.type(value.type)}({self.content(value)})"

    def content(self, value: MIL_pb2.Value) -> str:
        if value.WhichOneof("value") == "blobFileValue":
            blob = value.blobFileValue
            offset = self.scalar("uint64")
            return f"BLOBFILE(path = {self.scalar('string')}({quoted(blob.fileName)}), offset = {offset}({blob.offset}))"
        here = value.immediateValue
        kind = here.WhichOneof("value")
        if kind in ("list", "tuple"):
            return f"({', '.join(self.content(inner) for inner in getattr(here, kind).values)})"
        if kind == "dictionary":
            pairs = (f"{{{self.content(pair.key)}, {self.content(pair.value)}}}" for pair in here.dictionary.values)
            return f"{{{', '.join(pairs)}}}"
        return nested(elements(value), [size.constant.size for size in value.type.tensorType.dimensions])


def elements(value: MIL_pb2.Value) -> list[str]:
    """The elements of a tensor as they are printed."""
    tensor, kind = value.immediateValue.tensor, value.type.tensorType.dataType
    field = tensor.WhichOneof("value")
    stored = getattr(tensor, field).values if field else []
    if field == "bytes":
        if kind in BITS:
            count = int(np.prod([size.constant.size for size in value.type.tensorType.dimensions], dtype=int))
            return [str(number) for number in unpacked(stored, BITS[kind], kind == 25, count)]
        stored = np.frombuffer(stored, BYTES[kind]).tolist()
    if field == "strings":
        return [quoted(text) for text in stored]
    if field == "bools":
        return [str(flag).lower() for flag in stored]
    return [hexadecimal(number) for number in stored] if kind in (10, 11, 12) else [str(number) for number in stored]


def unpacked(data: bytes, bits: int, signed: bool, count: int) -> list[int]:
    """Small numbers out of their bytes, the lowest bits first."""
    whole = int.from_bytes(data, "little")
    codes = [(whole >> (bits * index)) & ((1 << bits) - 1) for index in range(count)]
    return [code - (1 << bits) if signed and code >> (bits - 1) else code for code in codes]


def hexadecimal(number: float) -> str:
    """A real number without rounding, as compiled models have it."""
    if np.isinf(number) or np.isnan(number):
        return str(number)
    mantissa, exponent = float(number).hex().split("p")
    return f"{mantissa.rstrip('0').rstrip('.') if '.' in mantissa else mantissa}p{exponent}"


def quoted(text: str) -> str:
    """A text between its marks."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def nested(items: list[str], shape: list[int]) -> str:
    """Items in brackets, one pair for each dimension."""
    if not shape:
        return items[0]
    if len(shape) == 1:
        return f"[{', '.join(items)}]"
    step = len(items) // shape[0] if shape[0] else 0
    return f"[{', '.join(nested(items[index * step:(index + 1) * step], shape[1:]) for index in range(shape[0]))}]"
