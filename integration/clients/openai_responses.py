"""OpenAI's own Python client: stored responses, streams of events, functions, several replies, probabilities and completions of texts."""

import json
import sys
import time

from openai import BadRequestError, NotFoundError, OpenAI, UnprocessableEntityError

from pictures import png

base_url, key = sys.argv[1:3]
client = OpenAI(base_url=base_url, api_key=key, max_retries=0)
MODEL = "tiny-vision"


def create(input, **more):
    return client.responses.create(model=MODEL, input=input, temperature=0, **more)


# A response, read again, and continued.
first = create("What is one and one?", reasoning={"effort": "none"}, metadata={"topic": "sums"})
assert first.output_text == "Two." and first.status == "completed", first
assert first.usage.total_tokens == first.usage.input_tokens + first.usage.output_tokens > 0
none = {"effort": "none"}
counted = client.responses.input_tokens.count(model=MODEL, input="What is one and one?", reasoning=none)
assert counted.input_tokens == first.usage.input_tokens > 0, counted
longer = client.responses.input_tokens.count(model=MODEL, input="And?", previous_response_id=first.id, reasoning=none)
assert longer.input_tokens > counted.input_tokens, longer
again = client.responses.retrieve(first.id)
assert again == first, (again, first)
assert again.metadata == {"topic": "sums"}
items = client.responses.input_items.list(first.id).data
assert items[0].content[0].text == "What is one and one?", items
several = create(
    [
        {"role": "user", "content": [{"type": "input_text", "text": "What is one and one?"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Two."}]},
        {"role": "user", "content": [{"type": "input_text", "text": "And now?"}]},
    ],
    max_output_tokens=1,
    reasoning={"effort": "none"},
)
for order, expected in (("asc", ["What is one and one?", "Two.", "And now?"]), ("desc", ["And now?", "Two.", "What is one and one?"])):
    # The client reads page after page.
    texts = [item.content[0].text for item in client.responses.input_items.list(several.id, limit=1, order=order)]
    assert texts == expected, (order, texts)
second = create("What is one and one?", previous_response_id=first.id, reasoning={"effort": "none"})
assert second.previous_response_id == first.id
assert second.usage.input_tokens > first.usage.input_tokens + 8, "the earlier turn is read, too"

# Reasoning and pictures.
url = "data:image/png;base64," + png((220, 30, 30))
seen = create(
    [{"role": "user", "content": [
        {"type": "input_image", "image_url": url, "detail": "auto"},
        {"type": "input_text", "text": "What color is it?"},
    ]}],
    reasoning={"effort": "high"},
)
kinds = [item.type for item in seen.output]
assert kinds == ["reasoning", "message"], seen.output
assert seen.output[0].content[0].text == "The picture shows a red circle."
assert seen.output_text == "It is red."
assert seen.usage.output_tokens_details.reasoning_tokens > 0
assert create("What is one and one?", reasoning={"effort": "max"}).output_text == "Two."

# The events of a stream, and what the client makes of them.
names, text, reasoning = [], "", ""
with client.responses.stream(model=MODEL, input="What is one and one?", temperature=0, reasoning={"effort": "high"}) as stream:
    for event in stream:
        names.append(event.type)
        if event.type == "response.output_text.delta":
            text += event.delta
        if event.type == "response.reasoning_text.delta":
            reasoning += event.delta
    final = stream.get_final_response()
assert (text, reasoning) == ("Two.", "One and one make two."), (text, reasoning)
assert final.output_text == "Two." and final.status == "completed", final
assert names[:2] == ["response.created", "response.in_progress"] and names[-1] == "response.completed", names
assert client.responses.retrieve(final.id).output_text == "Two."

# A limit is an incomplete response.
cut = create("What is one and one?", max_output_tokens=1, reasoning={"effort": "none"})
assert cut.status == "incomplete" and cut.incomplete_details.reason == "max_output_tokens", cut

# A function that the reply must call.
tool = {
    "type": "function",
    "name": "weather",
    "parameters": {"type": "object", "properties": {"unit": {"enum": ["c", "f"]}}, "required": ["unit"], "additionalProperties": False},
    "strict": True,
}
called = client.responses.create(
    model="llm-chat", input="How warm is it?", tools=[tool], tool_choice="required", temperature=0, max_output_tokens=60
)
call = called.output[-1]
assert call.type == "function_call" and call.name == "weather", called.output
assert json.loads(call.arguments)["unit"] in ("c", "f"), call
events = list(client.responses.create(
    model="llm-chat", input="How warm is it?", tools=[tool], tool_choice="required", temperature=0, max_output_tokens=60, stream=True
))
deltas = [event.delta for event in events if event.type == "response.function_call_arguments.delta"]
done = next(event for event in events if event.type == "response.function_call_arguments.done")
assert len(deltas) > 1 and "".join(deltas) == done.arguments == call.arguments, events
assert events[-1].response.output[-1].arguments == call.arguments
answered = client.responses.create(
    model="llm-chat",
    previous_response_id=called.id,
    input=[{"type": "function_call_output", "call_id": call.call_id, "output": "20 degrees"}],
    max_output_tokens=8,
)
assert answered.status in ("completed", "incomplete"), answered

# A format.
formatted = client.responses.create(
    model="llm-chat",
    input="Which one?",
    text={"format": {"type": "json_schema", "name": "choice", "schema": {
        "type": "object", "properties": {"one": {"enum": ["a", "b"]}}, "required": ["one"], "additionalProperties": False,
    }}},
    max_output_tokens=40,
    temperature=0,
)
assert json.loads(formatted.output_text)["one"] in ("a", "b"), formatted.output_text

# In the background.
begun = create("What is one and one?", background=True, reasoning={"effort": "none"})
while (now := client.responses.retrieve(begun.id)).status in ("queued", "in_progress"):
    time.sleep(0.05)
assert now.output_text == "Two.", now
assert client.responses.cancel(begun.id).status == "completed", "it has ended"

# Deleted, not stored, and refused.
client.responses.delete(first.id)
for gone in (first.id, create("What is one and one?", store=False).id, "resp_x"):
    try:
        client.responses.retrieve(gone)
    except NotFoundError as error:
        assert error.code == "not_found", error
    else:
        raise AssertionError(f"{gone} was found")
search = [{"type": "web_search"}]
assert create("What is one and one?", tools=search).output_text, "a tool that is not a function is skipped"
for wrong in ({"tools": search, "tool_choice": {"type": "web_search"}}, {"previous_response_id": first.id}):
    try:
        create("What?", **wrong)
    except (BadRequestError, UnprocessableEntityError) as error:
        assert error.code == "validation_error" and error.param, error
    else:
        raise AssertionError(f"{wrong} was accepted")

# Several replies, and probabilities.
chat = client.chat.completions.create(
    model="llm-chat",
    messages=[{"role": "user", "content": "Write a story."}],
    n=3,
    seed=1,
    temperature=1.2,
    max_tokens=12,
    logprobs=True,
    top_logprobs=2,
)
assert [choice.index for choice in chat.choices] == [0, 1, 2]
assert len({choice.message.content for choice in chat.choices}) > 1, chat.choices
for choice in chat.choices:
    tokens = choice.logprobs.content
    assert "".join(token.token for token in tokens) == choice.message.content, choice
    assert all(token.logprob <= 0 and len(token.top_logprobs) == 2 for token in tokens), tokens
assert chat.usage.completion_tokens <= 36
streamed = {0: "", 1: ""}
for chunk in client.chat.completions.create(
    model="llm-chat", messages=[{"role": "user", "content": "Write a story."}], n=2, seed=1, max_tokens=8, stream=True
):
    for choice in chunk.choices:
        streamed[choice.index] += choice.delta.content or ""
assert all(streamed.values()), streamed

# A text goes on, and its tokens have probabilities.
completed = client.completions.create(model="llm-chat", prompt="Once upon a time", max_tokens=6, temperature=0, echo=True, logprobs=1)
choice = completed.choices[0]
assert choice.text.startswith("Once upon a time") and len(choice.logprobs.tokens) == 6, choice
pieces = client.completions.create(model="llm-chat", prompt="Once upon a time", max_tokens=6, temperature=0, stream=True)
assert "Once upon a time" + "".join(piece.choices[0].text for piece in pieces if piece.choices) == choice.text
try:
    client.completions.create(model="llm-chat", prompt="a", suffix="b", max_tokens=2)
except (BadRequestError, UnprocessableEntityError) as error:
    assert error.code == "invalid_input", error
else:
    raise AssertionError("a model without tokens for gaps filled one")

# What aggregators read.
model = client.models.retrieve("tiny-vision")
assert model.input_modalities == ["text", "image"] and model.context_length > 0, model
print("ok")
