"""Stories of people in the console of a real network: `stories.py FOLDER AGENT`, the folder of an `island dev` and the agent's program.

Prints `ok` when all of them ended well.
"""

import hashlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from datetime import datetime
from urllib.parse import urlsplit

from harness import ELSEWHERE, Browser, Network, completed, expect, submit, sync_playwright

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'>&{{7*7}}\u202e\u200b"
RED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "red.png")
MANIFEST = """slug = "{slug}"
name = "{name}"
description = "Repeats it louder."
category = "utility"
runtime_type = "wasm"
price_per_job = 0.001
required_vram_mb = 0
required_ram_mb = 64
model_url = "https://example.org/shout.wasm"
model_hash = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
model_size_bytes = 120000
[input_schema]
type = "object"
required = ["text"]
properties = {{ text = {{ type = "string", maxLength = 10000 }} }}
[output_schema]
type = "object"
[example]
input = {{ text = "land ahoy" }}
"""


def a_visitor_reads_public_pages(browser, network):
    page = browser.context().new_page()
    page.goto("/")
    expect(page.get_by_role("heading", level=1)).to_contain_text("machines of a network")
    for path, title in [("/console/cargos", "Cargos"), ("/console/market", "Market"), ("/console/network", "Network state")]:
        page.goto(path)
        expect(page.get_by_role("heading", level=1)).to_have_text(title)
    page.goto("/console/cargos/llm-chat")
    expect(page.get_by_role("link", name="Sign in to run it")).to_be_visible()
    # Everything else leads to the sign-in page, and back from there.
    page.goto("/console/keys")
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")
    page.get_by_label("API key", exact=False).first.fill("ak_000000000000000000000000000000000000")
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator("main .notice.bad")).to_contain_text("unknown or revoked")
    # A wrong key does not lose the way.
    page.get_by_label("API key", exact=False).first.fill(network.consumer)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url("**/console/keys")


def a_session_is_kept_from_scripts_and_ends(browser, network):
    link = network.link(network.consumer)
    context = browser.context()
    page = context.new_page()
    page.goto(link)
    page.wait_for_url("**/console/chat")
    cookies = context.cookies()
    assert [(cookie["httpOnly"], cookie["sameSite"]) for cookie in cookies] == [(True, "Strict")], cookies
    assert network.consumer not in str(cookies), "the cookie is not the key"
    assert page.evaluate("document.cookie") == "", "no script can read it"
    assert network.consumer not in page.content()
    # The link is used up.
    other = browser.context().new_page()
    other.goto(link)
    expect(other.locator("main .notice.bad")).to_contain_text("was used")
    # A copy of the cookie is worthless once the session has ended.
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url(network.url + "/")
    context.add_cookies(cookies)
    page.goto("/console/keys")
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")
    assert context.cookies() == [], "a session that has ended is forgotten"


def a_form_meets_the_end_of_its_session(browser, network):
    page = browser.signed_in(network.consumer)
    page.goto("/console/keys?from=here")
    page.locator("section.panel form").get_by_label("Name", exact=False).fill("too late")
    page.context.clear_cookies()
    page.get_by_role("button", name="Create a key").click()
    expect(page.locator("main .notice.warn")).to_contain_text("Your session has ended")
    # A page with a style and a way back.
    expect(page.locator("header.top")).to_be_visible()
    page.locator("main").get_by_role("link", name="Sign in").click()
    page.get_by_label("API key", exact=False).first.fill(network.consumer)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url("**/console/keys?from=here")


def another_site_changes_nothing(browser, network):
    page = browser.signed_in(network.consumer)
    cookie = page.context.cookies()[0]
    send = page.context.request
    headers = {"Cookie": f"{cookie['name']}={cookie['value']}"}
    form = {"name": "from another site", "scopes": "read"}
    for bad in [{}, {"Origin": "https://evil.example.org"}, {"Origin": network.url, "Sec-Fetch-Site": "cross-site"}]:
        answer = send.post("/console/keys", headers={**headers, **bad}, form=form)
        assert answer.status == 403, (bad, answer.status)
    own = {**headers, "Origin": network.url, "Sec-Fetch-Site": "same-origin"}
    assert send.post("/console/keys", headers=own, form=form).status == 200
    policy = page.goto("/console/keys").headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'"), policy
    assert "unsafe" not in policy
    # A refused person gets a page.
    answer = send.post("/console/keys", headers=headers, form=form)
    assert "text/html" in answer.headers["content-type"] and "not come from a page" in answer.text(), answer.text()


def the_console_works_without_encryption(browser, network):
    """At an address without TLS that is not this machine, browsers have neither `randomUUID` nor a clipboard."""
    url = f"http://{ELSEWHERE}:{urlsplit(network.url).port}"
    page = browser.signed_in(network.consumer, base_url=url)
    assert page.evaluate("isSecureContext") is False
    chat(page, "four five", tokens="4")
    expect(page.locator(".reply .facts")).to_contain_text("credits")
    page.locator(".reply .copy-reply").click()
    expect(page.locator("#status")).to_have_text("Copied")
    page.goto("/console/cargos/wasm-hash")
    page.get_by_text("The example as a call").click()
    page.locator("figure.copy", has_text="island jobs submit --workload wasm-hash").get_by_role("button").click()
    expect(page.locator("figure.copy", has_text="island jobs submit").get_by_role("status")).to_have_text("Copied")
    expect(page.locator("figure.copy").first).to_contain_text(f"API_URL='{url}/api/v1'")


def a_newcomer_gets_a_streaming_reply_with_one_click(browser, network):
    page = browser.signed_in(network.consumer)
    page.get_by_role("button", name="What is Island?").click()
    reply = page.locator(".reply")
    expect(reply.locator(".facts")).to_contain_text("credits")
    assert len(reply.locator(".text").inner_text()) > 10
    # The reply is a job like any other.
    reply.get_by_role("link", name="Job").click()
    completed(page)
    expect(page.get_by_text("What is Island?").first).to_be_visible()


def chat(page, text, model="sim-chat", tokens="40"):
    page.get_by_label("Model, and credits", exact=False).select_option(model)
    page.locator("#options > summary").click()
    page.get_by_label("Maximum tokens").fill(tokens)
    page.get_by_label("Message", exact=True).fill(text)
    page.get_by_label("Message", exact=True).press("Enter")


def a_reply_goes_on_through_a_reload(browser, network):
    page = browser.signed_in(network.consumer)
    chat(page, "one two three", tokens="150")
    expect(page.locator(".reply .text")).to_contain_text("three")
    page.get_by_label("Message", exact=True).fill("a draft")
    page.reload()
    expect(page.locator(".reply .facts")).to_contain_text("credits")
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
    expect(page.locator(".reply .facts")).to_contain_text("credits")
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
    page.get_by_label("Maximum tokens").fill("4")
    page.get_by_role("button", name="Try again").click()
    expect(page.locator(".reply .facts")).to_contain_text("credits")
    message = page.get_by_label("Message", exact=True)
    message.fill("nine ten")
    message.press("Enter")
    expect(page.locator(".reply .facts").nth(1)).to_contain_text("credits")
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
    expect(page.locator(".reply .facts")).to_contain_text("credits")
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
    expect(page.locator(".reply .facts").nth(1)).to_contain_text("credits")
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
        expect(page.locator(".reply .facts").nth(at)).to_contain_text("credits")
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


def every_kind_of_cargo_runs_from_its_form(browser, network):
    page = browser.signed_in(network.consumer)
    # A picture.
    submit(page, "tiny-paint", {"prompt": "a fox in the snow", "seed": "7"})
    completed(page)
    image = page.locator("figure.media img")
    expect(image).to_have_count(1)
    image.evaluate("image => image.decode()")
    assert image.evaluate("image => image.naturalWidth") == 64
    assert image.get_attribute("alt") == "Picture 1"
    with page.expect_download() as download:
        page.locator("figure.media a").click()
    assert download.value.suggested_filename.endswith("-1.png"), download.value.suggested_filename
    # Sound.
    submit(page, "tiny-onnx-text-to-speech", {"text": "The sea is calm."})
    completed(page)
    sound = page.locator("figure.media audio")
    expect(sound).to_have_count(1)
    sound.evaluate("audio => audio.readyState > 0 || new Promise((done, fail) => { audio.onloadedmetadata = done; audio.onerror = () => fail('no sound'); audio.load(); })")
    assert sound.evaluate("audio => audio.duration") > 0
    # A file in, here the example's.
    submit(page, "tiny-onnx-image-classification")
    completed(page)
    expect(page.locator("table")).not_to_have_count(0)
    # A program.
    submit(page, "wasm-hash", {"text": "abc"})
    completed(page)
    expect(page.locator("main")).to_contain_text("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")
    # A mistake is shown at its field, with what was entered.
    page.goto("/console/cargos/tiny-paint")
    page.locator("section.panel form details.fold > summary").click()
    page.locator('section.panel [name="prompt"]').fill("kept")
    width = page.locator('section.panel [name="width"]')
    width.evaluate("field => { field.removeAttribute('min'); field.removeAttribute('max'); }")
    width.fill("65")
    page.locator("section.panel form").get_by_role("button", name="Run", exact=True).click()
    expect(page.locator("label.wrong .error")).to_contain_text("multiple of 8")
    expect(page.locator('section.panel [name="prompt"]')).to_have_value("kept")
    # A file is lost by a refusal, and the example does not take its place.
    page.goto("/console/cargos/tiny-onnx-automatic-speech-recognition")
    form = page.locator("section.panel form", has=page.locator("input[type=file]")).first
    form.locator("input[type=file]").first.set_input_files(RED)
    form.locator("details.fold > summary").click()
    priority = form.locator('[name=".priority"]')
    priority.evaluate("field => field.removeAttribute('max')")
    priority.fill("101")
    form.get_by_role("button", name="Run", exact=True).click()
    expect(page.locator("label.wrong .error")).to_contain_text("Choose the file again")
    assert not page.locator('[name$=".example"]').is_checked(), "the example would be run in its place"
    # A file of one's own.
    page.goto("/console/cargos/wasm-hash")
    form = page.locator("section.panel form", has=page.locator("input[type=file]")).first
    form.locator('[name$="text"]').first.fill("")
    form.locator("input[type=file]").first.set_input_files(RED)
    form.get_by_role("button", name="Run", exact=True).click()
    completed(page)
    with open(RED, "rb") as file:
        expect(page.locator("main")).to_contain_text(hashlib.sha256(file.read()).hexdigest())
    # The whole input as JSON.
    page.goto("/console/cargos/sim-chat")
    page.get_by_text("Input as JSON").click()
    page.locator('[name=".json"]').fill('{"prompt": "as JSON", "max_tokens": 2, "delay_ms": 0}')
    page.locator("form", has=page.locator('[name=".json"]')).get_by_role("button", name="Run").click()
    completed(page)


def calls_of_a_page_work(browser, network, agent):
    """What the page of a Cargo offers for programs is copied into a shell."""
    page = browser.signed_in(network.consumer)
    page.goto("/console/cargos/wasm-hash")
    variables, curl, python, island = page.locator("figure.copy pre").all_text_contents()
    variables = variables.replace("ak_…", network.consumer)
    environment = {**os.environ, "PATH": os.path.dirname(agent) + os.pathsep + os.environ["PATH"]}
    for command in [curl.replace("curl ", "curl --silent --fail ", 1), island]:
        script = f"{variables}\n{command}"
        result = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True)
        assert result.returncode == 0 and result.stdout, (command, result)
    compile(python, "the call in Python", "exec")


def a_picture_is_seen_while_it_is_painted(browser, network):
    page = browser.signed_in(network.consumer)
    page.add_init_script(
        "window.seen = new Set(); new MutationObserver(() => {"
        " for (const image of document.querySelectorAll('#pictures img.preview')) window.seen.add(image.src);"
        " if (window.seen.size) sessionStorage.seen = window.seen.size; })"
        ".observe(document, {subtree: true, childList: true, attributes: true});"
    )
    # Previews need not be requested: the form does.
    submit(page, "tiny-paint", {"prompt": "a lighthouse"}, {"width": "256", "height": "256", "num_inference_steps": "12"})
    completed(page)
    assert int(page.evaluate("sessionStorage.seen ?? 0")) >= 1, "no preview was shown"


def a_waiting_job_explains_itself_and_is_cancelled(browser, network, agent):
    island = ["--state-dir", os.path.join(network.folder, "island-1")]
    subprocess.run([agent, "pause", *island], check=True, stdout=subprocess.DEVNULL)
    try:
        waits_and_is_cancelled(browser, network)
    finally:
        subprocess.run([agent, "resume", *island], check=True, stdout=subprocess.DEVNULL)


def waits_and_is_cancelled(browser, network):
    owner = browser.signed_in(network.owner)

    def is_paused():
        owner.goto("/console/islands")
        return owner.locator(".card .badge").inner_text() == "paused"

    eventually(is_paused)
    page = browser.signed_in(network.consumer)
    submit(page, "sim-chat", extra={"prompt": "later"})
    expect(page.locator("#waiting")).to_be_visible()
    expect(page.locator("#waiting")).not_to_be_empty()
    # The script shows a state with the words and the color of the server.
    expect(page.locator("#timeline li", has_text="waiting")).to_have_count(1)
    expect(page.locator("#badge")).to_have_text("waiting")
    expect(page.locator("#badge")).to_have_class("badge warn")
    # What is sent again to a page that is opened later has no time of that page.
    page.reload()
    expect(page.locator("#timeline li", has_text="waiting")).to_have_count(1)
    expect(page.locator("#timeline li", has_text="waiting").locator("time")).to_have_count(0)
    # An operator finds it by its reason.
    operator = browser.signed_in(network.consumer)
    operator.goto("/console/admin/queue")
    operator.get_by_role("link", name="draining", exact=True).click()
    expect(operator.locator("main")).to_contain_text("1 Island takes no new jobs")
    operator.goto("/console/admin/fleet?status=paused")
    expect(operator.locator("tbody tr")).to_have_count(1)
    operator.goto("/console/admin/fleet?status=online")
    expect(operator.locator("tbody tr")).to_have_count(0)
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator("#badge")).to_have_text("cancelled")
    delete = page.locator("details.confirm")
    delete.locator("summary").click()
    expect(delete).to_contain_text("cannot be undone")
    delete.locator("form button").click()
    expect(page.locator(".notice.good")).to_contain_text("deleted")


def an_open_list_shows_a_new_job(browser, network):
    page = browser.signed_in(network.consumer)
    page.goto("/console/jobs")
    before = page.locator("#jobs tbody tr").first.get_by_role("link").get_attribute("href")
    body = {"workload": "sim-chat", "input": {"prompt": "new", "max_tokens": 2, "delay_ms": 0}}
    job = network.call("POST", "/jobs", network.consumer, body)[1]["data"]["id"]
    expect(page.locator("#jobs tbody tr").first.get_by_role("link")).to_have_attribute("href", f"/console/jobs/{job}")
    assert before != f"/console/jobs/{job}"


def keys_are_made_and_revoked(browser, network):
    page = browser.signed_in(network.consumer)
    page.goto("/console/keys")
    form = page.locator("section.panel form")
    form.get_by_label("Name", exact=False).fill(HOSTILE[:60])
    form.get_by_label("Scopes").select_option("read")
    form.get_by_label("Spending cap", exact=False).fill("5")
    form.get_by_role("button", name="Create a key").click()
    secret = page.locator("figure.copy pre").inner_text()
    assert secret.startswith("ak_")
    assert network.call("GET", "/account", secret)[0] == 200
    assert network.call("POST", "/jobs", secret, {"workload": "sim-chat", "input": {"prompt": "x"}})[0] == 403
    # Its session reads, and changes nothing.
    reader = browser.signed_in(secret)
    reader.goto("/console/jobs")
    expect(reader.get_by_role("heading", level=1)).to_have_text("Jobs")
    expect(reader.locator(".notice", has_text="reads only")).to_be_visible()
    # Shown once.
    page.goto("/console/keys")
    assert secret not in page.content()
    row = page.locator("#keys tbody tr", has_text="onerror")
    expect(row).to_have_count(1)
    row.locator("summary").click()
    row.locator("form button").click()
    expect(page.locator(".notice.good")).to_contain_text("Revoked")
    # It is shown once: the address does not keep it.
    page.wait_for_url("**/console/keys")
    assert network.call("GET", "/account", secret)[0] == 401
    reader.goto("/console/jobs")
    expect(reader.get_by_role("heading", level=1)).to_have_text("Sign in")


def an_owner_pairs_an_island(browser, network, agent):
    page = browser.signed_in(network.owner)
    page.goto("/console/islands")
    expect(page.locator(".card")).to_have_count(1)
    page.locator(".card a.title").click()
    expect(page.locator("main")).to_contain_text("Models on this Island")
    page.goto("/console/islands")
    page.get_by_label("Code of the Island", exact=False).fill("AAA-AAA")
    page.get_by_role("button", name="Pair").click()
    expect(page.locator(".notice.bad")).not_to_be_empty()
    with tempfile.TemporaryDirectory(prefix="isl") as state:
        command = [agent, "enroll", "--state-dir", state, "--api-url", network.url]
        enrolling = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            line = next(line for line in enrolling.stdout if "island hosts pair" in line)
            page.goto("/console/islands")
            page.get_by_label("Code of the Island", exact=False).fill(line.split()[-1].lower())
            page.get_by_role("button", name="Pair").click()
            expect(page.locator(".notice.good")).to_contain_text("belongs to this account")
            enrolling.communicate()
            assert enrolling.returncode == 0, enrolling.returncode
        finally:
            enrolling.kill()
        page.goto("/console/islands")
        expect(page.locator(".card")).to_have_count(2)
        # An owner sees when an Island does not answer.
        expect(page.locator(".notice", has_text="offline")).to_have_count(1)
        leave = [agent, "leave", "--state-dir", state, "--api-url", network.url]
        subprocess.run(leave, check=True, stdout=subprocess.DEVNULL)
    page.goto("/console/earnings")
    expect(page.get_by_role("heading", level=1)).to_have_text("Earnings")
    # What this Island earned in the other stories.
    expect(page.locator("figure.plot canvas")).to_have_count(1)


def an_owner_pauses_an_island_remotely(browser, network, agent):
    page = browser.signed_in(network.owner)
    state = os.path.join(network.folder, "island-1")

    def command(verb):
        return subprocess.run([agent, verb, "--state-dir", state], check=True, stdout=subprocess.PIPE, text=True).stdout

    def shows(text):
        def holds():
            page.reload()
            return text in page.locator("main").inner_text()

        eventually(holds)

    page.goto(f"/console/islands/{network.host}")
    expect(page.locator("main")).to_contain_text("No order applies")
    stop = page.locator("details.confirm", has_text="Stop at once")
    stop.locator("summary").click()
    stop.locator("form button").click()
    expect(page.locator(".notice.good")).to_contain_text("The Island is paused")
    shows("Paused from here")
    assert "ordered remotely" in command("status")
    page.get_by_role("button", name=re.compile("^Work again ")).click()
    expect(page.locator(".notice.good")).to_contain_text("are ended")
    shows("No order applies")
    # A pause on the machine is shown, and is not ended from here.
    command("pause")
    shows("by a command on the machine itself")
    # A reload must not meet the answer of the form.
    with page.expect_navigation():
        page.get_by_role("button", name=re.compile("^Work again ")).click()
    shows("by a command on the machine itself")
    assert command("resume") == "working\n"
    shows("No order applies")


def an_operator_runs_the_network(browser, network):
    page = browser.signed_in(network.consumer)
    # A publication with hostile names is reviewed, and approved.
    page.goto("/console/publications")
    page.get_by_label("Manifest", exact=False).fill("slug = 7")
    page.get_by_role("button", name="Submit for review").click()
    expect(page.locator(".notice.bad")).to_contain_text("manifest")
    name = HOSTILE.replace('"', "'").replace("\u202e", "").replace("\u200b", "")[:60]
    page.get_by_label("Manifest", exact=False).fill(MANIFEST.format(slug="shout-from-a-page", name=name))
    page.get_by_role("button", name="Submit for review").click()
    expect(page.locator(".notice.good")).to_contain_text("Submitted")
    page.goto("/console/admin/publications")
    page.get_by_role("link", name="shout-from-a-page").click()
    page.locator("form", has=page.get_by_role("button", name="Approve")).get_by_label("Reason", exact=False).fill("looks right")
    page.get_by_role("button", name="Approve").click()
    expect(page.locator(".notice.good")).to_contain_text("Approved")
    def is_served():
        page.goto("/console/cargos?q=shout-from-a-page")
        return page.locator(".card").count() == 1
    eventually(is_served)
    expect(page.locator(".card .title")).to_contain_text("<script>")
    # An account with credits.
    page.goto("/console/admin/accounts")
    form = page.locator("section.panel form")
    form.get_by_label("E-mail address", exact=False).fill("guest@example.org")
    form.get_by_role("button", name="Create an account").click()
    guest = page.locator("figure.copy pre").inner_text()
    page.get_by_role("link", name="guest@example.org").click()
    grant = page.locator("form", has=page.get_by_role("button", name="Grant credits"))
    grant.get_by_label("Credits", exact=False).fill("12.5")
    grant.get_by_label("Reason", exact=False).fill(HOSTILE)
    grant.get_by_role("button").click()
    expect(page.locator(".notice.good")).to_contain_text("granted")
    assert network.call("GET", "/account", guest)[1]["data"]["credits"] == 12.5
    page.goto("/console/admin/audit-log")
    expect(page.locator("tbody tr").first).to_contain_text("onerror")
    an_operator_changes_an_account(browser, network, page, guest)
    # Maintenance.
    page.goto("/console/admin")
    start = page.locator("form", has=page.get_by_role("button", name="Start maintenance"))
    start.get_by_label("Reason", exact=False).fill("a new disk")
    start.get_by_role("button").click()
    visitor = browser.context().new_page()
    visitor.goto("/")
    expect(visitor.locator(".notice.warn")).to_contain_text("a new disk")
    end = page.locator("form", has=page.get_by_role("button", name="End maintenance"))
    end.get_by_label("Reason", exact=False).fill("it runs")
    end.get_by_role("button").click()
    expect(page.locator(".notice.good")).to_contain_text("ended")
    # An invitation creates an account in the browser.
    page.goto("/console/admin/invitations")
    form = page.locator("section.panel form")
    form.get_by_label("Reason", exact=False).fill("a friend")
    form.get_by_label("Credits", exact=False).fill("3")
    form.get_by_role("button", name="Create an invitation").click()
    code = page.locator("figure.copy pre").inner_text()
    page = browser.context().new_page()
    page.goto("/console/sign-in")
    form = page.locator("form", has=page.get_by_role("button", name="Create an account"))
    form.get_by_label("E-mail address", exact=False).fill("friend@example.org")
    form.get_by_label("Code of the invitation", exact=False).fill(code)
    form.get_by_role("button").click()
    expect(page.locator("figure.copy pre")).to_contain_text("ak_")
    page.get_by_role("link", name="Go to the chat").click()
    page.wait_for_url("**/console/chat")
    return guest


def an_operator_changes_an_account(browser, network, page, key):
    """Quotas, suspension, a refund and a note, for the account of this key."""
    page.goto("/console/admin/accounts?email=guest%40example.org")
    page.get_by_role("link", name="guest@example.org").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("guest@example.org")

    def quotas():
        return {one["period"]: one for one in network.call("GET", "/account/quotas", key)[1]["data"]["account"]}

    def form_of(button):
        return page.locator("form", has=page.get_by_role("button", name=button, exact=True))

    def set_quota(label, value):
        page.locator("details.fold > summary", has_text="Set quotas").click()
        form = form_of("Set quotas")
        form.get_by_label(label, exact=False).fill(value)
        form.get_by_label("Reason", exact=False).fill("a trial")
        form.get_by_role("button").click()
        expect(page.locator(".notice.good")).to_contain_text("quotas are set")

    set_quota("Tokens in a month", "1000000")
    set_quota("Requests in a day", "500")
    # Setting one keeps the others.
    assert quotas()["month"]["tokens"]["max"] == 1000000 and quotas()["day"]["requests"]["max"] == 500, quotas()
    # A refund of what a job was charged.
    body = {"workload": "sim-chat", "input": {"prompt": "dear", "max_tokens": 2, "delay_ms": 0}}
    job = network.call("POST", "/jobs", key, body)[1]["data"]["id"]
    eventually(lambda: network.call("GET", f"/jobs/{job}", key)[1]["data"]["status"] == "completed")
    form = form_of("Refund a job")
    form.get_by_label("Job", exact=False).fill(job)
    form.get_by_label("Reason", exact=False).fill("a wrong answer")
    form.get_by_role("button").click()
    expect(page.locator(".notice.good")).to_contain_text("is returned")
    eventually(lambda: network.call("GET", "/account", key)[1]["data"]["credits"] == 12.5)
    # A suspended person reads the reason, and can sign out.
    guest = browser.signed_in(key)
    page.locator("details.fold > summary", has_text="Suspend").click()
    expect(page.get_by_role("button", name="Resume", exact=True)).to_have_count(0)
    form_of("Suspend").get_by_label("Reason", exact=False).fill("an unpaid invoice")
    form_of("Suspend").get_by_role("button").click()
    expect(page.locator(".notice.good")).to_contain_text("Suspended")
    expect(page.locator("main .badge.bad")).to_have_text("suspended")
    guest.goto("/console/jobs")
    expect(guest.locator("main .notice.bad")).to_contain_text("an unpaid invoice")
    guest.goto("/")
    expect(guest.get_by_role("heading", level=1)).to_contain_text("machines of a network")
    guest.goto("/console/jobs")
    guest.locator("main").get_by_role("button", name="Sign out").click()
    guest.wait_for_url(network.url + "/")
    assert guest.context.cookies() == []
    page.locator("details.fold > summary", has_text="Suspend").click()
    form_of("Resume").get_by_label("Reason", exact=False).fill("it is paid")
    form_of("Resume").get_by_role("button").click()
    expect(page.locator(".notice.good")).to_contain_text("Resumed")
    # A note of an Island keeps its trust level, and a level keeps the note.
    for level, note in [("high", ""), ("", "in the cellar"), ("normal", "")]:
        page.goto("/console/admin/fleet")
        form = form_of("Annotate an Island")
        form.get_by_label("Trust").select_option(level)
        form.get_by_label("Note", exact=False).first.fill(note)
        form.get_by_label("Reason", exact=False).fill("it is known")
        form.get_by_role("button").click()
        expect(page.locator(".notice.good")).to_contain_text("stored")
        if note:
            expect(page.locator("tbody tr").first).to_contain_text("high")
    expect(page.locator("tbody tr").first).to_contain_text("in the cellar")
    # The parts that a coordinator needs are apart.
    page.goto("/console/admin")
    for part in ["Database", "Fabric"]:
        expect(page.locator(".tile", has_text=part).locator(".badge.good")).to_have_count(1)


def days_are_those_of_the_network(browser, network):
    """Usage is counted by days of UTC, which a reader in New York sees as the same days."""
    zone = {"timezone_id": "America/New_York", "locale": "en-US"}
    for key, path in [(network.consumer, "/console/usage"), (network.owner, "/console/earnings")]:
        page = browser.signed_in(key, **zone)
        page.goto(path)
        days = page.locator("figure.plot").first.locator("time")
        expect(days).to_have_count(14)
        last = days.last.get_attribute("datetime")
        shown = datetime.strptime(last, "%Y-%m-%d").strftime("%b %-d, %Y")
        expect(days.last).to_have_text(shown)
        # The plot names the day under the pointer likewise.
        over = page.locator("figure.plot").first.locator(".u-over")
        box = over.bounding_box()
        over.hover(position={"x": box["width"] - 3, "y": box["height"] / 2})
        expect(page.locator("figure.plot").first.locator(".u-legend .u-value").first).to_have_text(shown)
    # A statement of another month, and its file.
    page = browser.signed_in(network.consumer)
    page.goto("/console/ledger")
    month = page.locator('[name="month"] option').nth(1).get_attribute("value")
    page.locator('[name="month"]').select_option(month)
    page.get_by_role("button", name="Show", exact=True).click()
    expect(page.get_by_role("heading", name=f"Statement of {month}")).to_be_visible()
    link = page.get_by_role("link", name=f"Download the entries of {month}")
    assert f"from={month}-01T" in link.get_attribute("href") and "until=" in link.get_attribute("href")
    with page.expect_download() as download:
        link.click()
    # Nothing had happened in a network that did not exist.
    assert open(download.value.path()).read().strip() == "time,kind,credits,job,cargo,island,device"


def an_open_list_meets_the_end_of_its_session(browser, network):
    page = browser.signed_in(network.consumer)
    page.goto("/console/jobs")
    requests = []
    page.on("request", lambda request: requests.append(request.url) if "/console/jobs" in request.url else None)
    page.context.clear_cookies()
    expect(page.locator("main .notice.warn")).to_contain_text("The session has ended")
    expect(page.locator("main .notice.warn").get_by_role("link")).to_have_attribute("href", "/console/sign-in?next=%2Fconsole%2Fjobs")
    assert len(requests) == 1, requests


def roles_are_apart(browser, network, guest):
    """What one account has cannot be reached by another, whatever address it opens."""
    mine = browser.signed_in(network.consumer)
    job = submit(mine, "sim-chat", extra={"prompt": "a secret", "max_tokens": "2", "delay_ms": "0"})
    completed(mine)
    mine.goto("/console/publications")
    publication = mine.locator("tbody a").first.get_attribute("href")
    other = browser.signed_in(guest)
    for path in [f"/console/jobs/{job}", f"/console/jobs/{job}/output", publication, "/console/admin",
                 "/console/admin/accounts", "/console/admin/audit-log", "/console/admin/publications"]:
        answer = other.goto(path)
        assert answer.status == 404, (path, answer.status)
        assert "a secret" not in other.content(), path
    own = {"Origin": network.url, "Sec-Fetch-Site": "same-origin"}
    send = other.context.request
    assert send.get(f"/console/jobs/{job}/stream").status == 404
    for path in [f"/console/jobs/{job}/cancel", f"/console/jobs/{job}/delete", "/console/admin/maintenance/start"]:
        assert send.post(path, headers=own, form={"reason": "because"}).status == 404, path
    expect(other.get_by_role("link", name="Audit log")).to_have_count(0)
    # Of somebody else's Island there is only what everybody sees.
    other.goto(f"/console/islands/{network.host}")
    expect(other.locator("main")).not_to_contain_text("Models on this Island")


def hostile_text_stays_text(browser, network):
    page = browser.signed_in(network.consumer)
    prompt = HOSTILE.replace(" ", "_")
    chat(page, prompt, tokens="3")
    expect(page.locator(".reply .facts")).to_contain_text("credits")
    expect(page.locator(".written")).to_contain_text("<script>alert(1)</script>")
    expect(page.locator(".reply .text")).to_contain_text("<script>")
    page.locator(".reply").get_by_role("link", name="Job").click()
    completed(page)
    expect(page.locator("pre").first).to_contain_text("<script>")
    assert page.locator("main script, main img[src=x]").count() == 0
    # A line of some megabytes, in and out.
    long = "x" * (5 << 20)
    page.goto("/console/cargos/wasm-echo")
    page.get_by_text("Input as JSON").click()
    page.locator('[name=".json"]').evaluate("(field, text) => { field.value = JSON.stringify({text}); }", long)
    page.locator("form", has=page.locator('[name=".json"]')).get_by_role("button", name="Run").click()
    page.wait_for_url(re.compile(r"/console/jobs/[0-9a-f-]{36}"))
    expect(page.locator("#badge")).to_have_text(re.compile("completed|failed"))
    assert len(page.content()) < 1 << 20, "a page shows a part of it"
    # Control characters.
    page.goto("/console/cargos/sim-chat")
    page.get_by_text("Input as JSON").click()
    page.locator('[name=".json"]').fill('{"prompt": "a\\u0000b\\u001b[31m", "max_tokens": 2, "delay_ms": 0}')
    page.locator("form", has=page.locator('[name=".json"]')).get_by_role("button", name="Run").click()
    expect(page.locator("#badge, main .notice.bad").first).to_be_visible()


def pages_are_accessible(browser, network, axe):
    """axe finds nothing serious, in both themes and on a phone, and the keyboard reaches everything."""
    serious = []
    pages = ["/", "/console/sign-in", "/console/chat", "/console/cargos", "/console/cargos/tiny-paint", "/console/jobs",
             "/console/keys", "/console/usage", "/console/ledger", "/console/islands", f"/console/islands/{network.host}",
             "/console/market", "/console/network", "/console/publications", "/console/earnings", "/console/admin",
             "/console/admin/accounts", "/console/admin/queue", "/console/admin/fleet", "/console/admin/cargos", "/console/admin/audit-log"]
    for scheme, width in [("light", 1280), ("dark", 360)]:
        page = browser.signed_in(network.consumer, color_scheme=scheme, viewport={"width": width, "height": 800})
        for path in pages:
            page.goto(path)
            # The policy of the page forbids further scripts; what a debugger evaluates is not one.
            page.evaluate(axe)
            found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
            serious += [
                (scheme, path, one["id"], one["nodes"][0]["html"][:200])
                for one in found["violations"] if one["impact"] in ("serious", "critical")
            ]
            overflow = page.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert overflow <= 0, (scheme, path, overflow)
    assert not serious, serious
    page = browser.signed_in(network.consumer)
    page.keyboard.press("Shift+Tab")
    page.goto("/console/cargos?q=sim-chat")
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    page.keyboard.press("Enter")
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.classList.contains('title')"):
            break
    page.keyboard.press("Enter")
    page.wait_for_url("**/console/cargos/sim-chat")


def the_first_view_is_small(browser, network):
    """Bytes of everything that a browser without a cache receives."""
    page = browser.signed_in(network.consumer)
    for path in ["/", "/console/chat", "/console/cargos", "/console/market", "/console/jobs"]:
        fresh = browser.context(storage_state=page.context.storage_state()).new_page()
        answers = []
        fresh.on("response", lambda answer: answers.append(answer))
        fresh.goto(path, wait_until="networkidle")
        sizes = {answer.url: len(answer.body()) for answer in answers}
        total = sum(sizes.values())
        assert 10_000 < total < 100_000, (path, sizes)
        print(f"first view of {path}: {total} bytes in {len(sizes)} requests", file=sys.stderr)


def a_person_signs_in_with_a_provider(browser, network):
    def provider(email, path="/console/keys"):
        """A page of a browser whose person has named this address at the provider."""
        context = browser.context()
        # The provider's pages request a font, which a machine without a network waits for.
        context.route(re.compile(r"^https://"), lambda route: route.abort())
        page = context.new_page()
        page.goto(path)
        page.get_by_role("button", name="Go to the sign-in page").click()
        page.wait_for_url("**/interaction/**")
        page.locator('[name="login"]').fill(email)
        page.locator('[name="password"]').fill("any")
        page.get_by_role("button", name="Sign-in").click()
        page.get_by_role("button", name="Continue").click()
        return page

    page = provider("ada@example.org")
    # The provider leads back to the page that required the sign-in.
    page.wait_for_url("**/console/keys")
    expect(page.locator(".account .email")).to_have_text("ada@example.org")
    expect(page.locator(".account .credits")).to_contain_text("2")
    page.goto("/console/keys")
    keys = page.locator("main tbody tr")
    expect(keys).to_have_count(1)
    # In another browser the same person has the same account; each sign-in has its own key.
    other = provider("ada@example.org", "/console/usage")
    other.wait_for_url("**/console/usage")
    other.goto("/console/keys")
    expect(other.locator("main tbody tr")).to_have_count(2)
    # Signing out ends this session only.
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url(re.compile(r"/$"))
    page.goto("/console/keys")
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")
    other.goto("/console/keys")
    expect(other.locator(".account .email")).to_have_text("ada@example.org")
    # Who may not sign in gets no session, and the reason.
    for email, reason in [("eve@elsewhere.example", "may not sign in"), ("unverified@example.org", "has not verified")]:
        refused = provider(email)
        refused.wait_for_url("**/login/callback?**")
        expect(refused.locator("body")).to_contain_text(reason)
        refused.goto("/console/keys")
        expect(refused.get_by_role("heading", level=1)).to_have_text("Sign in")
    # A confirmation that another browser began is worth nothing here.
    stolen = browser.context().new_page()
    stolen.goto("/console/sign-in/provider/end?code=" + "a" * 32)
    expect(stolen.locator("main .notice.bad")).to_be_visible()
    stolen.goto("/console/keys")
    expect(stolen.get_by_role("heading", level=1)).to_have_text("Sign in")


def eventually(holds):
    for _ in range(300):
        if holds():
            return
        time.sleep(0.1)
    raise AssertionError(f"never: {holds}")


def main():
    network, agent, axe = Network(sys.argv[1]), sys.argv[2], open(sys.argv[3]).read()
    only = sys.argv[4:]
    with sync_playwright() as playwright:
        browser = Browser(playwright, network)
        guest = None
        stories = [
            a_visitor_reads_public_pages,
            a_session_is_kept_from_scripts_and_ends,
            a_form_meets_the_end_of_its_session,
            another_site_changes_nothing,
            the_console_works_without_encryption,
            a_newcomer_gets_a_streaming_reply_with_one_click,
            a_reply_goes_on_through_a_reload,
            a_reply_goes_on_through_a_restart_of_the_coordinator,
            a_reply_is_stopped_edited_and_tried_again,
            a_turn_without_a_reply_is_not_sent_again,
            two_models_are_compared,
            pictures_and_reasoning,
            every_kind_of_cargo_runs_from_its_form,
            calls_of_a_page_work,
            a_picture_is_seen_while_it_is_painted,
            a_waiting_job_explains_itself_and_is_cancelled,
            an_open_list_shows_a_new_job,
            an_open_list_meets_the_end_of_its_session,
            keys_are_made_and_revoked,
            an_operator_runs_the_network,
            days_are_those_of_the_network,
            roles_are_apart,
            an_owner_pairs_an_island,
            an_owner_pauses_an_island_remotely,
            hostile_text_stays_text,
            pages_are_accessible,
            the_first_view_is_small,
        ]
        with_agent = (
            calls_of_a_page_work,
            a_waiting_job_explains_itself_and_is_cancelled,
            an_owner_pairs_an_island,
            an_owner_pauses_an_island_remotely,
        )
        more = {**dict.fromkeys(with_agent, lambda: (agent,)), pages_are_accessible: lambda: (axe,), roles_are_apart: lambda: (guest,)}
        # Stories that need a network of their own run only by their names.
        apart = [a_person_signs_in_with_a_provider]
        failed = []
        for story in stories + [story for story in apart if story.__name__ in only]:
            if only and story.__name__ not in only:
                continue
            begun = time.monotonic()
            try:
                result = story(browser, network, *more.get(story, tuple)())
                guest = result or guest
                browser.assert_no_faults()
            except Exception:  # One run shows all stories that fail.
                traceback.print_exc()
                failed.append(story.__name__)
            print(f"{story.__name__}: {time.monotonic() - begun:.1f} s", file=sys.stderr)
        browser.chromium.close()
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")
    print("ok")


if __name__ == "__main__":
    main()
