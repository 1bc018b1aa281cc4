"""OpenAI's own Python client requests images; prints the result as JSON."""

import base64
import json
import struct
import sys
import zlib

import openai


def size(picture: str) -> list[int]:
    """Width and height of a PNG in base64."""
    file = base64.b64decode(picture)
    assert file.startswith(b"\x89PNG\r\n\x1a\n")
    return list(struct.unpack(">II", file[16:24]))


def half_transparent(width: int = 64, height: int = 96) -> bytes:
    """A PNG whose left half is transparent."""
    row = b"\0" + b"\0\0\0\0" * (width // 2) + b"\0\0\0\xff" * (width - width // 2)
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    header = struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(row * height)) + chunk(b"IEND", b"")


def main(url: str, key: str) -> None:
    client = openai.OpenAI(base_url=url, api_key=key, max_retries=0)
    more = {"num_inference_steps": 3, "seed": 7}
    ask = dict(prompt="a fox in the snow", size="64x96", extra_body=more)
    named = client.images.generate(model="tiny-paint", n=2, **ask)
    # The client's own name for a model means the nearest that makes pictures.
    usual = client.images.generate(model="dall-e-3", n=2, quality="hd", style="vivid", response_format="url", **ask)
    events = client.images.generate(model="tiny-paint", stream=True, partial_images=2, **ask)
    streamed = [[event.type, size(event.b64_json), getattr(event, "partial_image_index", None)] for event in events]
    again = client.images.generate(model="tiny-paint", n=2, **ask)
    original = base64.b64decode(named.data[0].b64_json)
    edited = client.images.edit(model="tiny-paint", image=original, prompt="a fox in a hat", extra_body=more)
    part = client.images.edit(image=("a.png", original), mask=("m.png", half_transparent()), prompt="a hat", extra_body=more)
    painted = client.images.edit(model="tiny-paint", image=[original], prompt="a hat", stream=True, extra_body=more)
    painted = [[event.type, size(event.b64_json)] for event in painted]
    refused = []
    for wrong in [{"model": "llm-chat"}, {"size": "huge"}, {"size": "65x64"}, {"background": "transparent"}, {"n": 0}]:
        try:
            client.images.generate(**{"model": "tiny-paint", "prompt": "a fox", **wrong})
        except openai.APIStatusError as error:
            refused.append([error.status_code, error.code])
    try:
        list(client.images.generate(model="tiny-paint", prompt="a fox", size="64x65", stream=True))
    except openai.APIStatusError as error:
        refused.append([error.status_code, error.code])
    print(json.dumps({
        "sizes": [size(one.b64_json) for one in named.data],
        "are_different": named.data[0].b64_json != named.data[1].b64_json,
        "are_the_same_again": [one.b64_json for one in named.data] == [one.b64_json for one in again.data],
        "url_is_the_first": usual.data[0].url == "data:image/png;base64," + named.data[0].b64_json,
        "streamed": streamed,
        "edited": [size(edited.data[0].b64_json), edited.data[0].b64_json != named.data[0].b64_json],
        "part": [part.model, size(part.data[0].b64_json)],
        "painted": painted,
        "refused": refused,
    }))


main(*sys.argv[1:])
