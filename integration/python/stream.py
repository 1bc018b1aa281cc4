"""The official OpenAI client, unchanged, against a running network: base_url and key come as arguments."""

import json
import sys

from openai import AuthenticationError, NotFoundError, OpenAI, UnprocessableEntityError

base_url, key = sys.argv[1:3]
client = OpenAI(base_url=base_url, api_key=key, max_retries=0)
messages = [
    {"role": "system", "content": "You are kind."},
    {"role": "user", "content": "Good morning!"},
]

whole = client.chat.completions.create(model="llm-chat", messages=messages, max_tokens=16, temperature=0)
assert whole.object == "chat.completion" and whole.choices[0].message.role == "assistant"
assert whole.choices[0].finish_reason in ("stop", "length")
assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens

text, roles, reasons, usage = "", [], [], None
stream = client.chat.completions.create(
    model="llm-chat",
    messages=messages,
    max_tokens=16,
    temperature=0,
    stream=True,
    stream_options={"include_usage": True},
)
for chunk in stream:
    assert chunk.object == "chat.completion.chunk"
    usage = chunk.usage or usage
    for choice in chunk.choices:
        roles.append(choice.delta.role)
        text += choice.delta.content or ""
        reasons.append(choice.finish_reason)
assert roles[0] == "assistant" and reasons[-1] in ("stop", "length"), (roles, reasons)
assert text == whole.choices[0].message.content, (text, whole)
assert usage is not None and usage.completion_tokens > 0

named = client.chat.completions.create(model="no-such-model", messages=messages, max_tokens=4)
assert named.model != "no-such-model"

assert "llm-chat" in [model.id for model in client.models.list()]
assert client.models.retrieve("llm-chat").object == "model"

# The shipped model is far too small to write JSON by itself: what fits was held to the form.
schema = {
    "type": "object",
    "properties": {"answer": {"enum": ["yes", "no"]}},
    "required": ["answer"],
    "additionalProperties": False,
}
formed = client.chat.completions.create(
    model="llm-chat",
    messages=messages,
    max_tokens=64,
    response_format={"type": "json_schema", "json_schema": {"name": "reply", "schema": schema, "strict": True}},
)
assert json.loads(formed.choices[0].message.content)["answer"] in ("yes", "no"), formed

tools = [{"type": "function", "function": {"name": "weather", "parameters": schema}}]
called = client.chat.completions.create(
    model="llm-chat", messages=messages, max_tokens=64, tools=tools, tool_choice="required"
)
call = called.choices[0].message.tool_calls[0]
assert called.choices[0].finish_reason == "tool_calls" and called.choices[0].message.content is None
assert call.function.name == "weather" and json.loads(call.function.arguments)["answer"] in ("yes", "no"), called

pieces = client.chat.completions.create(
    model="llm-chat", messages=messages, max_tokens=64, tools=tools, tool_choice="required", stream=True
)
choices = [choice for chunk in pieces for choice in chunk.choices]
streamed = [call for choice in choices for call in choice.delta.tool_calls or []]
assert streamed[0].index == 0 and json.loads(streamed[0].function.arguments)["answer"] in ("yes", "no")
assert choices[-1].finish_reason == "tool_calls"

after = messages + [
    called.choices[0].message,
    {"role": "tool", "tool_call_id": call.id, "content": "21 degrees"},
]
answered = client.chat.completions.create(model="llm-chat", messages=after, max_tokens=8, tools=tools)
assert answered.usage.completion_tokens > 0

for wrong in ({"n": 2}, {"max_tokens": 0}, {"temperature": 9}):
    try:
        client.chat.completions.create(model="llm-chat", messages=messages, **wrong)
    except UnprocessableEntityError as error:
        assert error.code == "validation_error" and error.param in wrong, error
    else:
        raise AssertionError(f"{wrong} was accepted")

try:
    client.embeddings.create(model="any", input="text")
except NotFoundError as error:
    assert "embeddings" in error.message
else:
    raise AssertionError("embeddings came from nowhere")

try:
    OpenAI(base_url=base_url, api_key="ak_wrong", max_retries=0).chat.completions.create(model="x", messages=messages)
except AuthenticationError as error:
    assert error.status_code == 401
else:
    raise AssertionError("a wrong key was accepted")
print("ok")
