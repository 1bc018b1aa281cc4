"""OpenAI's own Python client asks whether texts are unwanted."""

import sys

from openai import NotFoundError, OpenAI

base_url, key = sys.argv[1:3]
client = OpenAI(base_url=base_url, api_key=key, max_retries=0)

# A text, several, and the parts of a message; the models of OpenAI mean the one that is here.
one = client.moderations.create(input="The film was good.")
assert one.model == "tiny-onnx-text-classification" and len(one.results) == 1, one
verdict = one.results[0]
scores = verdict.category_scores
assert abs(scores.harassment + scores.hate - 1) < 1e-3, scores
assert verdict.flagged and verdict.categories.hate == (scores.hate >= 0.5), verdict
assert verdict.categories.self_harm is None, "no label of the model means it"
assert verdict.category_applied_input_types.hate == ["text"], verdict
several = client.moderations.create(input=["The film was good.", "It was bad."], model="omni-moderation-latest")
assert len(several.results) == 2 and several.results[0].category_scores == scores, several
parts = client.moderations.create(input=[{"type": "text", "text": "The film was good."}])
assert parts.results[0].category_scores == scores, parts

# A text of any length is judged whole.
long = client.moderations.create(input="The film was good. " * 200)
assert len(long.results) == 1 and long.results[0].category_scores.hate > 0, long
try:
    client.moderations.create(input="x", model="llm-chat")
except NotFoundError as error:
    assert error.code == "workload_not_found", error
else:
    raise AssertionError("a language model moderated")
print("ok")
