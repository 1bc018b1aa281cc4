"""OpenAI's own Python client has texts spoken."""

import base64
import io
import json
import sys
import wave

from openai import BadRequestError, NotFoundError, OpenAI, UnprocessableEntityError

base_url, key = sys.argv[1:3]
client = OpenAI(base_url=base_url, api_key=key, max_retries=0)
VOICE = "tiny-onnx-text-to-speech"


def samples(file):
    with wave.open(io.BytesIO(file)) as sound:
        assert (sound.getnchannels(), sound.getsampwidth()) == (1, 2), sound.getparams()
        return sound.getframerate(), sound.readframes(sound.getnframes())


# Each format, by OpenAI's own name of a model and of a voice.
formats = {"mp3": (b"\xff", "audio/mpeg"), "opus": (b"OggS", "audio/ogg"), "wav": (b"RIFF", "audio/wav"), "pcm": (b"", "audio/pcm")}
lengths = {}
for name, (begin, media) in formats.items():
    spoken = client.audio.speech.create(model="tts-1", voice="alloy", input="The sea is calm.", response_format=name)
    assert spoken.response.headers["content-type"] == media, spoken.response.headers
    assert spoken.content.startswith(begin), (name, spoken.content[:8])
    lengths[name] = len(spoken.content)
rate, sound = samples(client.audio.speech.create(model=VOICE, voice="alloy", input="The sea is calm.", response_format="wav").content)
assert rate == 16_000 and len(sound) > 3_000, (rate, len(sound))
assert lengths["wav"] == 44 + len(sound), "the same text gives the same sound"
assert abs(lengths["pcm"] - len(sound) * 24_000 / rate) < 64, lengths
assert lengths["mp3"] < lengths["wav"] and lengths["opus"] < lengths["mp3"] * 2, lengths

# A long text arrives in parts, as bytes and as events.
text = "The sea is calm. The boat is red. " * 12
parts = []
with client.audio.speech.with_streaming_response.create(model=VOICE, voice="nova", input=text, response_format="pcm") as answer:
    parts.extend(part for part in answer.iter_bytes())
assert len(parts) > 1 and len(b"".join(parts)) > 5 * lengths["pcm"], [len(part) for part in parts]
with client.audio.speech.with_streaming_response.create(
    model=VOICE, voice="nova", input=text, response_format="pcm", stream_format="sse"
) as answer:
    events = [json.loads(line[6:]) for line in answer.iter_lines() if line.startswith("data: {")]
assert events[-1]["type"] == "speech.audio.done", events[-1]
assert b"".join(base64.b64decode(event["audio"]) for event in events[:-1]) == b"".join(parts)

for fields, kind in [
    ({"model": "llm-chat"}, NotFoundError),
    ({"voice": "nobody"}, UnprocessableEntityError),
    ({"response_format": "aac"}, (BadRequestError, UnprocessableEntityError)),
]:
    try:
        client.audio.speech.create(**{"model": VOICE, "voice": "alloy", "input": "Hm.", **fields})
    except kind as error:
        assert error.body["message"], error
    else:
        raise AssertionError(f"{fields} was accepted")
print("ok")
