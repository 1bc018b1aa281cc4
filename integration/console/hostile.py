"""What people and models write to do harm: it stays text, and pages stay short."""

import re

from harness import HOSTILE, chat, completed, expect


def as_json(page, slug, text):
    """Submits an input as JSON."""
    page.goto(f"/console/cargos/{slug}")
    page.get_by_text("Input as JSON").click()
    # The field is filled at once: what is typed would be slow.
    page.locator('[name=".json"]').evaluate("(field, text) => { field.value = text; }", text)
    page.locator("form", has=page.locator('[name=".json"]')).get_by_role("button", name="Run").click()
    page.wait_for_url(re.compile(r"/console/jobs/[0-9a-f-]{36}"))


def hostile_text_stays_text(browser, network):
    page = browser.signed_in(network.consumer)
    # Nor do its formats become a part of the page.
    prompt = HOSTILE.replace(" ", "_") + " **a<b>b</b>c** [press](javascript:alert(3)) `<i>`"
    chat(page, prompt, tokens="4")
    expect(page.locator(".reply .facts")).to_contain_text("credit")
    expect(page.locator(".written")).to_contain_text("<script>alert(1)</script>")
    expect(page.locator(".reply .text")).to_contain_text("<script>")
    expect(page.locator(".reply .text strong")).to_have_text("a<b>b</b>c")
    expect(page.locator(".reply .text").locator("a, b, i, script, img")).to_have_count(0)
    page.locator(".reply").get_by_role("link", name="Job").click()
    completed(page)
    expect(page.locator("pre").first).to_contain_text("<script>")
    expect(page.locator(".formatted strong")).to_have_text("a<b>b</b>c")
    assert page.locator("main script, main img[src=x], .formatted a, .formatted b").count() == 0
    # Control characters, which JSON writes as numbers.
    as_json(page, "sim-chat", '{"prompt": "a\\u0000b\\u0007\\u001b[31m\\u0085c", "max_tokens": 2, "delay_ms": 0}')
    completed(page)
    expect(page.locator("pre").first).to_contain_text("[31m")
    assert page.locator("main script").count() == 0


def a_line_of_megabytes_is_shown_in_part(browser, network):
    """While it arrives, and as a result; the whole of it is a file."""
    page = browser.signed_in(network.consumer)
    page.add_init_script(
        "new MutationObserver(() => {"
        " const text = document.querySelector('#job[data-open=true] #text')?.textContent;"
        " if (!text) return;"
        " sessionStorage.longest = Math.max(sessionStorage.longest ?? 0, text.length);"
        " if (text.endsWith('ahoy')) sessionStorage.end = 'seen'; })"
        ".observe(document, {subtree: true, childList: true, characterData: true});"
    )
    # The program waits after each word, so that the page is open when the long one comes.
    length = 5 << 20
    as_json(page, "wasm-echo", '{"text": "land ' + "x" * length + ' ahoy", "delay_ms": 2000}')
    completed(page)
    assert page.evaluate("sessionStorage.end") == "seen", "what comes behind the long line is shown as well"
    assert int(page.evaluate("sessionStorage.longest")) < 200_000, page.evaluate("sessionStorage.longest")
    assert len(page.content()) < 1 << 20, "a page shows a part of it"
    with page.expect_download() as download:
        page.get_by_role("link", name="Download the output").click()
    with open(download.value.path()) as file:
        assert len(file.read()) > length
