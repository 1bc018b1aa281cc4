"""The official OpenAI client, unchanged, against a running network: base_url and key come as arguments."""

import sys

from openai import AuthenticationError, OpenAI

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

try:
    OpenAI(base_url=base_url, api_key="ak_wrong", max_retries=0).chat.completions.create(model="x", messages=messages)
except AuthenticationError as error:
    assert error.status_code == 401
else:
    raise AssertionError("a wrong key was accepted")
print("ok")
