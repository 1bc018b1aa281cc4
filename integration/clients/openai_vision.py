"""OpenAI's own Python client asks about drawn pictures, and reads the reasoning apart from the answer."""

import sys

from openai import OpenAI, UnprocessableEntityError

from pictures import png

base_url, key = sys.argv[1:3]
client = OpenAI(base_url=base_url, api_key=key, max_retries=0)


def address(color):
    return "data:image/png;base64," + png(color)


def picture(color):
    return {"type": "image_url", "image_url": {"url": address(color), "detail": "auto"}}


def ask(content, **more):
    messages = [{"role": "user", "content": content}]
    return client.chat.completions.create(model="tiny-vision", messages=messages, temperature=0, **more)


question = {"type": "text", "text": "What color is it?"}
red, blue = (220, 30, 30), (30, 40, 220)
for color, name in [(red, "red"), (blue, "blue")]:
    assert ask([picture(color), question]).choices[0].message.content == f"It is {name}."
both = ask([picture(red), picture(blue), {"type": "text", "text": "Describe the pictures."}])
assert both.choices[0].message.content == "A red circle and a blue circle.", both
assert both.usage.prompt_tokens > 72, "36 tokens for each picture"

# Reasoning is apart, whole and streamed, with each of the settings that clients send.
thought = ask([picture(red), question], reasoning_effort="high")
message = thought.choices[0].message
assert (message.reasoning_content, message.content) == ("The picture shows a red circle.", "It is red."), message
assert 0 < thought.usage.completion_tokens_details.reasoning_tokens < thought.usage.completion_tokens
reasoning, text = "", ""
for chunk in ask([picture(red), question], stream=True, extra_body={"chat_template_kwargs": {"enable_thinking": True}}):
    for choice in chunk.choices:
        reasoning += getattr(choice.delta, "reasoning_content", None) or ""
        text += choice.delta.content or ""
assert (reasoning, text) == ("The picture shows a red circle.", "It is red."), (reasoning, text)
silent = ask([picture(red), question], reasoning_effort="none").choices[0].message
assert silent.content == "It is red." and getattr(silent, "reasoning_content", None) is None, silent
short = ask("What is two and three?", extra_body={"reasoning": {"max_tokens": 2}}).choices[0].message
assert short.content == "Five." and short.reasoning_content, short

# A model that takes no pictures, an address that is not fetched, and a file that is not a picture.
for model, url in [("llm-chat", address(red)), ("tiny-vision", "https://example.org/a.png")]:
    try:
        part = {"type": "image_url", "image_url": {"url": url}}
        client.chat.completions.create(model=model, messages=[{"role": "user", "content": [part]}])
    except UnprocessableEntityError as error:
        assert error.code == "validation_error", error
    else:
        raise AssertionError("it was not refused")
try:
    ask([{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}, question])
except UnprocessableEntityError as error:
    assert error.code == "invalid_input", error
else:
    raise AssertionError("it was not refused")

print("ok")
