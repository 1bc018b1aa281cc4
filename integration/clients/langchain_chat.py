"""LangChain's ChatOpenAI, unchanged: base_url and key come as arguments."""

import sys

import openai
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_openai import ChatOpenAI

base_url, key = sys.argv[1:3]


def model(**settings):
    usual = {"base_url": base_url, "api_key": key, "model": "llm-chat", "temperature": 0, "max_retries": 0}
    return ChatOpenAI(**(usual | settings))


chat = model(max_tokens=16)
messages = [SystemMessage("You are kind."), HumanMessage("Good morning!")]

whole = chat.invoke(messages)
assert isinstance(whole, AIMessage) and whole.content, whole
usage = whole.usage_metadata
assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"], usage

joined = None
for chunk in chat.stream(messages, stream_usage=True):
    joined = chunk if joined is None else joined + chunk
assert joined.content == whole.content, (joined, whole)
assert joined.usage_metadata["total_tokens"] == usage["total_tokens"], joined

replies = chat.batch(["Good morning!", "Good evening!"])
assert len(replies) == 2 and all(reply.content for reply in replies), replies

schema = {
    "title": "mood",
    "type": "object",
    "properties": {"mood": {"enum": ["good", "bad"]}},
    "required": ["mood"],
    "additionalProperties": False,
}
mood = model(max_tokens=32).with_structured_output(schema, method="json_schema").invoke(messages)
assert mood["mood"] in ("good", "bad"), mood

weather = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {
            "type": "object",
            "properties": {"place": {"enum": ["village", "town"]}},
            "required": ["place"],
        },
    },
}
called = model(max_tokens=64).bind_tools([weather], tool_choice="required").invoke("Is it raining in the village?")
assert called.tool_calls[0]["name"] == "weather" and called.tool_calls[0]["args"]["place"], called

for settings, kind in [
    ({"api_key": "ak_wrong"}, openai.AuthenticationError),
    ({"temperature": 3}, openai.UnprocessableEntityError),
]:
    try:
        model(**settings).invoke(messages)
    except kind:
        pass
    else:
        raise AssertionError(f"{settings}: nothing was refused")
print("ok")
