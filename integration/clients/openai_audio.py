"""OpenAI's own Python client requests transcripts of a sound file; prints what it got as JSON."""

import json
import pathlib
import sys

import openai


def main(url: str, key: str, file: str, timed: str) -> None:
    client = openai.OpenAI(base_url=url, api_key=key, max_retries=0)
    sound = pathlib.Path(file)

    def transcribe(**options: object) -> object:
        return client.audio.transcriptions.create(file=sound, **options)

    brief = transcribe(model="whisper", language="en", temperature=0)
    verbose = transcribe(model="whisper", language="en", response_format="verbose_json", timestamp_granularities=["segment"])
    words = transcribe(model="wav2vec2", response_format="verbose_json", timestamp_granularities=["word", "segment"])
    both = client.audio.transcriptions.create(
        file=pathlib.Path(timed), model="whisper-timestamped", language="en", response_format="verbose_json",
        timestamp_granularities=["word", "segment"],
    )
    translated = client.audio.translations.create(file=sound, model="whisper-1")
    refused = []
    for options in [
        {"model": "whisper", "response_format": "verbose_json", "timestamp_granularities": ["word"]},
        {"model": "moonshine", "response_format": "srt"},
        {"model": "wav2vec2", "stream": True},
        {"model": "gpt-4o"},
    ]:
        try:
            transcribe(**options)
        except openai.APIStatusError as error:
            refused.append([error.status_code, error.code])
    print(json.dumps({
        "text": brief.text,
        "seconds": brief.usage.seconds,
        "verbose": verbose.model_dump(),
        "words": words.model_dump(),
        "timed": both.model_dump(),
        "translated": translated.text,
        "plain": transcribe(model="whisper", language="en", response_format="text"),
        "srt": transcribe(model="whisper", language="en", response_format="srt"),
        "vtt": transcribe(model="whisper", language="en", response_format="vtt"),
        "refused": refused,
    }))


main(*sys.argv[1:])
