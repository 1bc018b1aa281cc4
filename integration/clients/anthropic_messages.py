"""The official Anthropic client for Python, unchanged: base_url and key come as arguments."""

import json
import sys

import anthropic

from pictures import png

api_url, key = sys.argv[1:3]
# This client adds /v1 itself, and has no parameters for sampling any more.
client = anthropic.Anthropic(base_url=api_url.removesuffix("/v1"), api_key=key, max_retries=0)
messages = [{"role": "user", "content": "Good morning!"}]
greedy = {"temperature": 0}

whole = client.messages.create(model="llm-chat", max_tokens=16, extra_body=greedy, system="You are kind.", messages=messages)
assert (whole.type, whole.role, whole.content[0].type) == ("message", "assistant", "text"), whole
assert whole.stop_reason in ("end_turn", "max_tokens") and whole.usage.output_tokens > 0, whole
with client.messages.stream(model="llm-chat", max_tokens=16, extra_body=greedy, system="You are kind.", messages=messages) as stream:
    text = "".join(stream.text_stream)
    streamed = stream.get_final_message()
assert text == whole.content[0].text == streamed.content[0].text, (text, whole)
assert (streamed.stop_reason, streamed.usage.output_tokens) == (whole.stop_reason, whole.usage.output_tokens), streamed

stop = text[4:9]
cut = client.messages.create(
    model="llm-chat", max_tokens=16, extra_body=greedy, system="You are kind.", messages=messages, stop_sequences=["never written", stop]
)
assert (cut.stop_reason, cut.stop_sequence) == ("stop_sequence", stop), (cut, text)
assert cut.content[0].text == text[: text.find(stop)], (cut, text)

counted = client.messages.count_tokens(model="llm-chat", system="You are kind.", messages=messages)
assert counted.input_tokens == whole.usage.input_tokens, (counted, whole.usage)

# A reply of a given form.
schema = {"type": "object", "properties": {"mood": {"enum": ["good", "bad"]}}, "required": ["mood"], "additionalProperties": False}
held = client.messages.create(
    model="llm-chat", max_tokens=32, extra_body=greedy, messages=messages,
    output_config={"effort": "low", "format": {"type": "json_schema", "schema": schema}},
)
assert json.loads(held.content[0].text)["mood"] in ("good", "bad"), held

# Pictures and reasoning.
picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": png((30, 40, 220))}}
seen = [{"role": "user", "content": [picture, {"type": "text", "text": "What color is it?"}]}]
answer = client.messages.create(model="tiny-vision", max_tokens=100, extra_body=greedy, messages=seen)
assert [block.type for block in answer.content] == ["text"] and answer.content[0].text == "It is blue.", answer
counted = client.messages.count_tokens(model="tiny-vision", messages=seen)
assert counted.input_tokens == answer.usage.input_tokens > 36, "with the tokens of the picture"
thinking = {"type": "enabled", "budget_tokens": 1024}
thought = client.messages.create(model="tiny-vision", max_tokens=2000, messages=seen, thinking=thinking, extra_body=greedy)
assert [block.type for block in thought.content] == ["thinking", "text"], thought
assert thought.content[0].thinking == "The picture shows a blue circle.", thought
with client.messages.stream(model="tiny-vision", max_tokens=2000, messages=seen, thinking=thinking, extra_body=greedy) as stream:
    kinds = [event.type for event in stream]
    final = stream.get_final_message()
assert [block.type for block in final.content] == ["thinking", "text"] and "thinking" in kinds, (final, kinds)

# Functions: a call, and its result.
tools = [{
    "name": "weather",
    "description": "The weather at a place.",
    "input_schema": {"type": "object", "properties": {"place": {"enum": ["village", "town"]}}, "required": ["place"]},
}]
asked = [{"role": "user", "content": "Is it raining in the village?"}]
call = client.messages.create(model="llm-chat", max_tokens=64, messages=asked, tools=tools, tool_choice={"type": "any"})
use = call.content[-1]
assert call.stop_reason == "tool_use" and use.name == "weather" and use.input["place"] in ("village", "town"), call
result = {"type": "tool_result", "tool_use_id": use.id, "content": "It rains."}
told = asked + [{"role": "assistant", "content": call.content}, {"role": "user", "content": [result]}]
after = client.messages.create(model="llm-chat", max_tokens=16, messages=told, tools=tools, tool_choice={"type": "none"})
assert after.content[0].type == "text", after
with client.messages.stream(model="llm-chat", max_tokens=64, messages=asked, tools=tools, tool_choice={"type": "any"}) as stream:
    parts = [event.partial_json for event in stream if event.type == "input_json"]
    final = stream.get_final_message()
assert len(parts) > 1 and json.loads("".join(parts)) == final.content[-1].input, parts
assert final.content[-1].type == "tool_use" and final.content[-1].input["place"] in ("village", "town"), final

# Errors are the classes and types that the client's users match on.
for kind, type_, wrong in [
    (anthropic.UnprocessableEntityError, "invalid_request_error", {"messages": []}),
    (anthropic.UnprocessableEntityError, "invalid_request_error", {"messages": seen}),
]:
    try:
        client.messages.create(**{"model": "llm-chat", "max_tokens": 5, **wrong})
    except kind as error:
        assert error.body["type"] == "error" and error.body["error"]["type"] == type_, error.body
    else:
        raise AssertionError("it was not refused")
try:
    anthropic.Anthropic(base_url=api_url.removesuffix("/v1"), api_key="ak_wrong", max_retries=0).messages.create(
        model="llm-chat", max_tokens=5, messages=messages)
except anthropic.AuthenticationError as error:
    assert error.body["error"]["type"] == "authentication_error", error.body
else:
    raise AssertionError("it was not refused")

print("ok")
