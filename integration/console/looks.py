"""How pages look and read: days and times, for whom they are accessible, how small they are."""

import re
import sys
from datetime import datetime

from harness import MANIFEST, chat, completed, expect, form_of, serious, submit


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
    # Times are those of the reader.
    page = browser.signed_in(network.consumer, **zone)
    page.goto(f"/console/jobs/{network.ended_job(network.consumer)['id']}")
    time = page.locator("#timeline time").first
    there = "{dateStyle: 'medium', timeStyle: 'short', timeZone: 'America/New_York'}"
    shown = time.evaluate(f"time => new Intl.DateTimeFormat('en-US', {there}).format(new Date(time.dateTime))")
    expect(time).to_have_text(shown)
    # A statement of another month, and its file.
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


def addresses(network):
    """Pages of all kinds, also of things that have to be there first."""
    job = network.ended_job(network.consumer)["id"]
    publication = network.publication(network.consumer, "shout-for-all")
    account, _ = network.account("accessible", credits=1)
    network.call("POST", "/admin/invitations", network.consumer, {"reason": "for a page"})
    network.call("POST", "/admin/notices", network.consumer, {"text": "A notice for a page."})
    payouts = network.call("POST", "/admin/payouts", network.consumer, {"reason": "for a page", "minimum": 0})[1]
    payout = payouts.get("data", {}).get("payout", {}).get("id", "none")
    pages = ["chat", "cargos", "cargos/tiny-paint", "cargos/tiny-onnx-automatic-speech-recognition", "jobs",
             f"jobs/{job}", "jobs/no-such-job", "no-such-page", "keys", "usage?days=90", "ledger", "islands", f"islands/{network.host}",
             "market", "market/sim-chat", "network", "publications", f"publications/{publication}", "earnings"]
    admin = ["", "/accounts", f"/accounts/{account}", "/queue", "/fleet", "/cargos", "/audit-log", "/invitations", "/publications",
             f"/publications/{publication}", "/payouts", f"/payouts/{payout}"]
    # Lists that a filter leaves nothing of.
    pages += ["jobs?status=timeout", "cargos?q=no-such-cargo"]
    admin += ["/fleet?q=no-such-island", "/audit-log?account=nobody%40example.org", "/publications?state=replaced"]
    return ["/", *(f"/console/{path}" for path in pages), *(f"/console/admin{path}" for path in admin)]


def results(page, network):
    """Addresses of jobs whose results are a picture, a sound, and a table, and of one that failed."""
    jobs = []
    for slug, values in [("tiny-paint", {"prompt": "a fox"}), ("tiny-onnx-text-to-speech", None), ("tiny-onnx-object-detection", None)]:
        jobs.append(submit(page, slug, values))
        completed(page)
    body = {"workload": "sim-chat", "input": {"prompt": "x", "fail_after": 1, "delay_ms": 0}}
    jobs.append(network.data("POST", "/jobs", network.consumer, body)["id"])
    page.goto(f"/console/jobs/{jobs[-1]}")
    expect(page.locator("#badge")).to_have_text("failed")
    return [f"/console/jobs/{job}" for job in jobs]


def wrong_forms(page, network, check):
    """Forms that come back with a mistake, and pages whose content is there once."""
    page.goto("/console/islands")
    page.get_by_label("Code of the Island", exact=False).fill("AAA-AAA")
    page.get_by_role("button", name="Pair").click()
    expect(page.locator("main .notice.bad")).not_to_be_empty()
    check(page)
    page.goto("/console/publications")
    page.get_by_label("Manifest", exact=False).fill(MANIFEST[:40])
    page.get_by_role("button", name="Submit for review").click()
    expect(page.locator("main .notice.bad")).not_to_be_empty()
    check(page)
    page.goto("/console/admin/invitations")
    form = form_of(page, "Create an invitation")
    form.get_by_label("Reason", exact=False).fill("for a page")
    form.get_by_role("button").click()
    expect(page.locator("figure.copy pre")).not_to_be_empty()
    check(page)
    page.goto("/console/admin/accounts")
    form = form_of(page, "Create an account")
    # An address that has an account.
    form.get_by_label("E-mail address", exact=False).fill(network.data("GET", "/account", network.consumer)["email"])
    form.get_by_role("button").click()
    expect(page.locator("main .notice.bad")).not_to_be_empty()
    check(page)
    # A consequence that is shown, and parts that are opened.
    page.goto("/console/keys")
    page.locator("details.confirm summary").first.click()
    check(page)
    page.goto("/console/cargos/wasm-hash")
    for summary in page.locator("main details > summary").all():
        summary.click()
    check(page)
    # The menu, which a phone shows on demand.
    if page.viewport_size["width"] < 900:
        page.get_by_role("button", name="Menu").click()
        expect(page.locator("#menu")).to_be_visible()
        check(page)


def visits(browser, network, look, check):
    """What somebody sees who is not signed in, whose session has ended, or whose account is suspended."""
    visitor = browser.context(**look).new_page()
    for path in ["/", "/console/sign-in?failed=expired", "/console/cargos/sim-chat", "/console/sign-in/link?code=none"]:
        visitor.goto(path)
        check(visitor)
    visitor.get_by_label("API key", exact=False).first.fill("ak_000000000000000000000000000000000000")
    visitor.get_by_role("button", name="Sign in").click()
    expect(visitor.locator("main .notice.bad")).to_contain_text("unknown or revoked")
    check(visitor)
    account, key = network.account("seen")
    page = browser.signed_in(key, **look)
    page.goto("/console/keys")
    page.context.clear_cookies()
    page.locator("section.panel form").get_by_label("Name", exact=False).fill("too late")
    page.get_by_role("button", name="Create a key").click()
    expect(page.locator("main .notice.warn")).to_contain_text("Your session has ended")
    check(page)
    suspended = browser.signed_in(key, **look)
    network.data("POST", f"/admin/accounts/{account}/suspend", network.consumer, {"reason": "for a page"})
    suspended.goto("/console/jobs")
    expect(suspended.locator("main .notice.bad")).to_contain_text("for a page")
    check(suspended)


# A reply with all formats, and one that failed.
REPLY = "# Heading\n\n**a** *b* `c` [d](https://example.org)\n\n- e\n\n> f\n\n|g|h|\n|-|-|\n|1|2|\n\n```sh\n" + "ls " * 80 + "\n```\n"
TURNS = [
    {"text": "a question", "pictures": [], "replies": [{"name": "A model", "text": REPLY, "reasoning": "r", "ended": True, "credits": 1, "key": "k"}]},
    {"text": "another one", "pictures": [], "replies": [{"name": "A model", "text": "", "reasoning": "", "ended": True, "failed": True, "note": "refused", "key": "l"}]},
]


def pages_are_accessible(browser, network, axe):
    """axe finds nothing serious, in both themes and on a phone, in every page and its states, and the keyboard reaches everything."""
    found, pages, jobs = [], addresses(network), results(browser.signed_in(network.consumer), network)
    for scheme, width in [("light", 1280), ("dark", 360)]:
        look = {"color_scheme": scheme, "viewport": {"width": width, "height": 800}}
        page, owner = browser.signed_in(network.consumer, **look), browser.signed_in(network.owner, **look)

        def check(page):
            found.extend(serious(page, axe))
            overflow = page.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert overflow <= 0, (scheme, page.url, overflow)

        for path in pages + jobs:
            page.goto(path)
            check(page)
        for path in ["/console/islands", f"/console/islands/{network.host}", "/console/earnings"]:
            owner.goto(path)
            check(owner)
        visits(browser, network, look, check)
        wrong_forms(page, network, check)
        # A conversation, a form with a mistake, a key that was just made, a job that runs.
        page.goto("/console/chat")
        chat(page, "one two three", tokens="12")
        expect(page.locator(".reply .facts")).to_contain_text("credit")
        check(page)
        kept = f"island-chat-{page.locator('#chat').get_attribute('data-account')}"
        page.goto("/console/network")
        page.evaluate("([key, turns]) => sessionStorage.setItem(key, JSON.stringify(turns))", [kept, TURNS])
        page.goto("/console/chat")
        expect(page.locator(".reply.failed")).to_have_count(1)
        page.locator(".reasoning summary").first.click()
        page.locator("#options > summary").click()
        page.get_by_label("Compare two").check()
        check(page)
        page.goto("/console/cargos/tiny-paint")
        page.locator("section.panel form details.fold > summary").click()
        width_field = page.locator('section.panel [name="width"]')
        width_field.evaluate("field => { field.removeAttribute('min'); field.removeAttribute('max'); }")
        width_field.fill("65")
        page.locator("section.panel form").get_by_role("button", name="Run", exact=True).click()
        expect(page.locator("label.wrong .error")).not_to_be_empty()
        check(page)
        page.goto("/console/keys")
        form = form_of(page, "Create a key")
        form.get_by_label("Name", exact=False).fill(f"for a page in {scheme}")
        form.get_by_role("button").click()
        expect(page.locator("figure.copy pre")).to_contain_text("ak_")
        check(page)
        body = {"workload": "sim-chat", "input": {"prompt": "still running", "max_tokens": 100000}}
        job = network.data("POST", "/jobs", network.consumer, body)["id"]
        page.goto(f"/console/jobs/{job}")
        expect(page.locator("#text")).to_contain_text("running")
        # How far its model was loaded is past.
        expect(page.locator("#progress")).to_be_hidden()
        check(page)
        page.get_by_role("button", name="Cancel").click()
        expect(page.locator("#badge")).to_have_text("cancelled")
        check(page)
    assert not found, found
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
    """Bytes that a browser without a cache receives, as they are transferred."""
    consumer = ["/", "/console/chat", "/console/cargos", "/console/market", "/console/market/sim-chat", "/console/jobs", "/console/usage",
                "/console/usage?days=90&cargo=&key="]
    owner = ["/console/earnings", "/console/islands", f"/console/islands/{network.host}"]
    for key, paths in [(network.consumer, consumer), (network.owner, owner)]:
        page = browser.signed_in(key)
        for path in paths:
            fresh = browser.context(storage_state=page.context.storage_state()).new_page()
            answers = []
            fresh.on("response", lambda answer: answers.append(answer))
            fresh.goto(path, wait_until="networkidle")
            sent = {answer.url: answer.request.sizes()["responseBodySize"] for answer in answers}
            whole = sum(len(answer.body()) for answer in answers)
            total = sum(sent.values())
            assert 5_000 < total < 100_000, (path, sent)
            # Pages and scripts are compressed.
            packed = [answer.url for answer in answers if answer.headers.get("content-encoding") == "gzip"]
            assert total < whole and any(re.search(r"\.js$", url) for url in packed) and answers[0].url in packed, (path, packed)
            fresh.context.close()
            print(f"first view of {path}: {total} bytes of {whole} in {len(sent)} requests", file=sys.stderr)
