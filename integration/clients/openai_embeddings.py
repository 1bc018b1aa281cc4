"""OpenAI's own Python client requests embeddings; prints the result as JSON."""

import json
import sys

import openai

TEXTS = ["The ship lies in Hamburg.", "Das Wetter ist schön"]


def main(url: str, key: str) -> None:
    client = openai.OpenAI(base_url=url, api_key=key, max_retries=0)
    # By default, this client requests base64 and decodes it.
    packed = client.embeddings.create(model="minilm", input=TEXTS)
    short = client.embeddings.create(model="minilm", input=TEXTS[0], encoding_format="float", dimensions=8)
    refused = []
    for model, text in [("distilbert-sst2", "no embedder"), ("gpt-4", "no such model"), ("minilm", [[1, 2]])]:
        try:
            client.embeddings.create(model=model, input=text)
        except openai.APIStatusError as error:
            refused.append([error.status_code, error.code])
    print(json.dumps({
        "texts": TEXTS,
        "packed": [one.embedding for one in packed.data],
        "model": packed.model,
        "tokens": packed.usage.total_tokens,
        "short": short.data[0].embedding,
        "refused": refused,
    }))


main(*sys.argv[1:])
