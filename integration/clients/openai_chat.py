"""The official OpenAI client for Python, unchanged: base_url and key come as arguments."""

import json
import sys

from openai import AuthenticationError, NotFoundError, OpenAI, RateLimitError, UnprocessableEntityError

base_url, key = sys.argv[1:3]
client = OpenAI(base_url=base_url, api_key=key, max_retries=0)
messages = [
    {"role": "system", "content": "You are kind."},
    {"role": "user", "content": "Good morning!"},
]


def refused(kind, status, code, ask):
    """The error that `ask` ends with: its class, status and code are what the client's users match on."""
    try:
        ask()
    except kind as error:
        assert (error.status_code, error.code) == (status, code), error
        return error
    raise AssertionError(f"{code}: nothing was refused")


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
assert usage == whole.usage, (usage, whole.usage)

# Content in parts, and a newer name of max_tokens.
parts = [{"role": "user", "content": [{"type": "text", "text": "Good morning!"}]}]
short = client.chat.completions.create(model="llm-chat", messages=parts, max_completion_tokens=2, seed=7, top_p=0.9)
assert short.usage.completion_tokens <= 2 and short.choices[0].finish_reason == "length"

# A reply that is held to a schema.
schema = {
    "type": "object",
    "properties": {"mood": {"enum": ["good", "bad"]}},
    "required": ["mood"],
    "additionalProperties": False,
}
held = client.chat.completions.create(
    model="llm-chat",
    messages=messages,
    max_tokens=32,
    response_format={"type": "json_schema", "json_schema": {"name": "mood", "schema": schema}},
)
assert json.loads(held.choices[0].message.content)["mood"] in ("good", "bad"), held

# A reply that must be a call, whole and streamed, and the answer to it.
tools = [{"type": "function", "function": {"name": "weather", "parameters": schema}}]
ask = {"model": "llm-chat", "messages": messages, "max_tokens": 64, "tools": tools, "tool_choice": "required"}
called = client.chat.completions.create(**ask)
call = called.choices[0].message.tool_calls[0]
assert called.choices[0].finish_reason == "tool_calls" and called.choices[0].message.content is None
assert call.function.name == "weather" and json.loads(call.function.arguments)["mood"] in ("good", "bad"), called
choices = [choice for chunk in client.chat.completions.create(stream=True, **ask) for choice in chunk.choices]
streamed = [call for choice in choices for call in choice.delta.tool_calls or []]
assert streamed[0].id and streamed[0].function.name == "weather" and {call.index for call in streamed} == {0}
assert len(streamed) > 1, "the arguments arrive as they are written"
assert json.loads("".join(call.function.arguments for call in streamed))["mood"] in ("good", "bad")
assert choices[-1].finish_reason == "tool_calls"
after = [*messages, called.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": "21 degrees"}]
answered = client.chat.completions.create(model="llm-chat", messages=after, max_tokens=8, tools=tools)
assert answered.usage.completion_tokens > 0

# Unknown names are not an error.
named = client.chat.completions.create(model="no-such-model", messages=messages, max_tokens=4)
assert named.model != "no-such-model"

models = [model.id for model in client.models.list()]
assert "llm-chat" in models, models
assert client.models.retrieve("llm-chat").object == "model"

wrong = OpenAI(base_url=base_url, api_key="ak_wrong", max_retries=0)
refused(AuthenticationError, 401, "invalid_api_key", lambda: wrong.models.list())
refused(NotFoundError, 404, "workload_not_found", lambda: client.models.retrieve("no-such-model"))
refused(NotFoundError, 404, "workload_not_found", lambda: client.embeddings.create(model="any", input="text"))
error = refused(
    UnprocessableEntityError,
    422,
    "validation_error",
    lambda: client.chat.completions.create(model="llm-chat", messages=messages, temperature=3),
)
assert error.param == "temperature", error
error = refused(RateLimitError, 429, "rate_limited", lambda: [client.models.list() for _ in range(200)])
assert int(error.response.headers["retry-after"]) >= 1
print("ok")
