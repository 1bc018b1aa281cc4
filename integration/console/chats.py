"""Chats: replies that stream, and go on through reloads and restarts."""

import base64
import os
import re
import signal

from harness import RED, chat, completed, expect


def a_newcomer_gets_a_streaming_reply_with_one_click(browser, network):
    page = browser.signed_in(network.consumer)
    page.evaluate(
        "window.seen = new Set(); new MutationObserver(() => {"
        " const text = document.querySelector('.reply[aria-busy=true] .text')?.textContent;"
        " if (text) window.seen.add(text); })"
        ".observe(document, {subtree: true, childList: true, characterData: true});"
    )
    page.get_by_role("button", name="What is Island?").click()
    reply = page.locator(".reply")
    expect(reply.locator(".facts")).to_contain_text("credit")
    assert page.evaluate("window.seen.size") > 1, "the reply is seen while it grows"
    assert len(reply.locator(".text").inner_text()) > 10
    # The reply is a job like any other.
    reply.get_by_role("link", name="Job").click()
    completed(page)
    expect(page.get_by_text("What is Island?").first).to_be_visible()


def a_reply_goes_on_through_a_reload(browser, network):
    page = browser.signed_in(network.consumer)
    chat(page, "one two three", tokens="150")
    expect(page.locator(".reply .text")).to_contain_text("three")
    page.get_by_label("Message", exact=True).fill("a draft")
    page.reload()
    expect(page.locator(".reply .facts")).to_contain_text("credit")
    # So do the model, the options and what was not sent yet.
    expect(page.locator("#model")).to_have_value("sim-chat")
    expect(page.locator("#max-tokens")).to_have_value("150")
    expect(page.get_by_label("Message", exact=True)).to_have_value("a draft")
    # A reply is as high as its text: nothing of it is beyond an edge.
    expect(page.locator(".reply .text")).to_have_css("max-height", "none")
    # The words of the prompt in turn, each with its number: none is missing and none is there twice.
    text = page.locator(".reply .text").inner_text()
    numbers = [int(number) for number in re.findall(r"\d+", text)]
    assert numbers == list(range(numbers[0], numbers[0] + 150)), text


def a_reply_goes_on_through_a_restart_of_the_coordinator(browser, network):
    page = browser.signed_in(network.consumer)
    chat(page, "four five six", tokens="300")
    expect(page.locator(".reply .text")).to_contain_text("six")
    before = network.pid("coordinator")
    os.kill(before, signal.SIGKILL)
    expect(page.locator(".reply .facts")).to_contain_text("credit")
    assert network.pid("coordinator") != before
    text = page.locator(".reply .text").inner_text()
    numbers = [int(number) for number in re.findall(r"\d+", text)]
    assert numbers == list(range(numbers[0], numbers[0] + 300)), text
    # The session outlives the coordinator as well.
    page.goto("/console/jobs")
    expect(page.get_by_role("heading", level=1)).to_have_text("Jobs")


def a_reply_is_stopped_edited_and_tried_again(browser, network):
    page = browser.signed_in(network.consumer)
    chat(page, "seven eight", tokens="5000")
    expect(page.locator(".reply .text")).to_contain_text("eight")
    page.get_by_role("button", name="Stop").click()
    expect(page.locator(".reply .facts")).to_contain_text("stopped")
    # The button that stopped it is gone: the focus is where one writes.
    expect(page.get_by_label("Message", exact=True)).to_be_focused()
    page.get_by_label("Maximum tokens").fill("4")
    page.get_by_role("button", name="Try again").click()
    expect(page.locator(".reply .facts")).to_contain_text("credit")
    message = page.get_by_label("Message", exact=True)
    page.evaluate("window.first = document.querySelector('.turn')")
    message.fill("nine ten")
    message.press("Enter")
    expect(page.locator(".reply .facts").nth(1)).to_contain_text("credit")
    assert page.evaluate("window.first.isConnected"), "what was shown is not made again"
    # An earlier turn is not run again, because those behind it would be lost.
    expect(page.get_by_role("button", name="Try again")).to_have_count(1)
    page.get_by_role("button", name="Edit").first.click()
    expect(message).to_have_value("seven eight")
    expect(page.locator(".turn")).to_have_count(2)
    page.get_by_role("button", name="Cancel", exact=True).click()
    expect(message).to_have_value("")
    expect(page.locator(".turn")).to_have_count(2)
    # Sent, the message takes the place of the turn and of those behind it.
    page.get_by_role("button", name="Edit").first.click()
    message.fill("eleven")
    message.press("Enter")
    expect(page.locator(".reply .facts")).to_contain_text("credit")
    expect(page.locator(".written")).to_have_text(["eleven"])
    # A conversation that a new one replaced comes back.
    page.get_by_role("button", name="New chat").click()
    expect(page.locator(".turn")).to_have_count(0)
    page.get_by_role("button", name="Restore the last conversation").click()
    expect(page.locator(".written")).to_have_text(["eleven"])


def a_turn_without_a_reply_is_not_sent_again(browser, network):
    """Templates of models refuse two messages of a person in a row."""
    page = browser.signed_in(network.consumer)
    sent = []
    page.on("request", lambda request: sent.append(request.post_data_json) if request.method == "POST" and request.url.endswith("/console/jobs") else None)
    refused = {"error": {"message": "refused by the story", "code": "validation_error"}}
    page.route("**/console/jobs", lambda route: route.fulfill(status=422, json=refused), times=1)
    chat(page, "lost", tokens="4")
    expect(page.locator(".reply.failed .facts")).to_contain_text("refused by the story")
    # The second request is answered after one whose connection is lost, with the same key.
    page.route("**/console/jobs", lambda route: route.abort(), times=1)
    message = page.get_by_label("Message", exact=True)
    message.fill("kept")
    message.press("Enter")
    expect(page.locator(".reply .facts").nth(1)).to_contain_text("credit")
    assert [one["input"]["messages"] for one in sent[1:]] == [[{"role": "user", "content": "kept"}]] * 2, sent


def two_models_are_compared(browser, network):
    page = browser.signed_in(network.consumer)
    page.get_by_label("Compare two").check()
    page.get_by_label("Second model").select_option("sim-chat")
    page.locator("#options > summary").click()
    page.get_by_label("Maximum tokens").fill("24")
    page.get_by_label("Message", exact=True).fill("What is Island?")
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".reply")).to_have_count(2)
    for at in range(2):
        expect(page.locator(".reply .facts").nth(at)).to_contain_text("credit")
    texts = page.locator(".reply .text").all_inner_texts()
    # The scripted one counts.
    assert re.search(r"\d", texts[1]) and texts[0] and texts[0] != texts[1], texts


def pictures_and_reasoning(browser, network):
    page = browser.signed_in(network.consumer)
    page.goto("/console/chat?model=tiny-vision")
    page.locator("#files").set_input_files(RED)
    expect(page.locator("#composer #pictures img")).to_have_count(1)
    page.locator("#options > summary").click()
    page.get_by_label("Temperature").fill("0")
    page.get_by_label("Message", exact=True).fill("What color is it?")
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".reply .text")).to_contain_text("red")
    page.get_by_role("button", name="New chat").click()
    page.locator("#effort").select_option("medium")
    page.get_by_label("Message", exact=True).fill("What is one and one?")
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".reply .text")).to_have_text("Two.")
    # Folded until somebody wants it.
    assert not page.locator(".reply .thoughts").is_visible()
    page.locator(".reply .reasoning summary").click()
    expect(page.locator(".reply .thoughts")).to_contain_text("One and one make two.")


# A picture on the clipboard, in the form in which a browser offers it.
PASTE = """([content]) => {
  const bytes = Uint8Array.from(atob(content), (char) => char.charCodeAt(0));
  const clipboardData = new DataTransfer();
  clipboardData.items.add(new File([bytes], 'red.png', {type: 'image/png'}));
  const event = new ClipboardEvent('paste', {clipboardData, bubbles: true, cancelable: true});
  document.getElementById('text').dispatchEvent(event);
}"""


def pictures_are_pasted_and_removed(browser, network):
    with open(RED, "rb") as file:
        content = base64.b64encode(file.read()).decode()
    page = browser.signed_in(network.consumer)
    # A model that takes none gets none.
    page.get_by_label("Model, and credits", exact=False).select_option("sim-chat")
    page.evaluate(PASTE, [content])
    page.get_by_label("Model, and credits", exact=False).select_option("tiny-vision")
    pictures = page.locator("#composer #pictures img")
    expect(pictures).to_have_count(0)
    page.evaluate(PASTE, [content])
    expect(pictures).to_have_count(1)
    page.get_by_role("button", name="Remove picture 1").click()
    expect(pictures).to_have_count(0)
    expect(page.get_by_label("Message", exact=True)).to_be_focused()
