"""What operators do: accounts and their credits, Cargos, Islands, invitations, notices, maintenance."""

import re

from harness import HOSTILE, MANIFEST, eventually, expect, form_of


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
    # The menu counts what is to be looked after.
    count = page.locator('#menu a[href="/console/admin"] .count')
    expect(count).to_contain_text("1")
    visitor = browser.context().new_page()
    visitor.goto("/")
    expect(visitor.locator(".notice.warn")).to_contain_text("a new disk")
    end = page.locator("form", has=page.get_by_role("button", name="End maintenance"))
    end.get_by_label("Reason", exact=False).fill("it runs")
    end.get_by_role("button").click()
    expect(page.locator(".notice.good")).to_contain_text("ended")
    expect(count).to_have_count(0)
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


def an_operator_changes_an_account(browser, network, page, key):
    """Quotas, suspension, a refund and a note, for the account of this key."""
    page.goto("/console/admin/accounts?email=guest%40example.org")
    page.get_by_role("link", name="guest@example.org").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("guest@example.org")

    def quotas():
        return {one["period"]: one for one in network.call("GET", "/account/quotas", key)[1]["data"]["account"]}

    def set_quota(label, value):
        page.locator("details.fold > summary", has_text="Set quotas").click()
        form = form_of(page, "Set quotas")
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
    form = form_of(page, "Refund a job")
    form.get_by_label("Job", exact=False).fill(job)
    form.get_by_label("Reason", exact=False).fill("a wrong answer")
    form.get_by_role("button").click()
    expect(page.locator(".notice.good")).to_contain_text("is returned")
    eventually(lambda: network.call("GET", "/account", key)[1]["data"]["credits"] == 12.5)
    # A suspended person reads the reason, and can sign out.
    guest = browser.signed_in(key)
    page.locator("details.fold > summary", has_text="Suspend").click()
    expect(page.get_by_role("button", name="Resume", exact=True)).to_have_count(0)
    form_of(page, "Suspend").get_by_label("Reason", exact=False).fill("an unpaid invoice")
    form_of(page, "Suspend").get_by_role("button").click()
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
    form_of(page, "Resume").get_by_label("Reason", exact=False).fill("it is paid")
    form_of(page, "Resume").get_by_role("button").click()
    expect(page.locator(".notice.good")).to_contain_text("Resumed")
    # A note of an Island keeps its trust level, and a level keeps the note.
    for level, note in [("high", ""), ("", "in the cellar"), ("normal", "")]:
        page.goto("/console/admin/fleet")
        form = form_of(page, "Annotate an Island")
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


def an_operator_cancels_a_job_of_another_account(browser, network):
    account, key = network.account("busy", credits=10)
    body = {"workload": "sim-chat", "input": {"prompt": "on and on", "max_tokens": 5000}}
    status, answer = network.call("POST", "/jobs", key, body)
    assert status == 201, answer
    job = answer["data"]["id"]
    page = browser.signed_in(network.consumer)
    page.goto("/console/admin/queue")

    def cancel(of):
        form = form_of(page, "Cancel a job")
        form.get_by_label("Job", exact=False).fill(of)
        form.get_by_label("Reason", exact=False).fill("it blocks the network")
        form.get_by_role("button").click()

    cancel("0192f1a0-0000-7000-8000-000000000000")
    expect(page.locator("main .notice.bad")).not_to_be_empty()
    page.goto("/console/admin/queue")
    cancel(job)
    expect(page.locator(".notice.good")).to_contain_text("The job is cancelled")
    ended = network.data("GET", f"/jobs/{job}", key)
    assert (ended["status"], ended["error"]["code"]) == ("cancelled", "cancelled_by_operator"), ended
    page.goto(f"/console/admin/audit-log?account={account}")
    expect(page.locator("tbody tr", has_text="Cancel a job")).to_contain_text("it blocks the network")


def an_operator_corrects_credits_and_closes_an_account(browser, network):
    """What takes something away from an account, and what ends it."""
    account, key = network.account("leaving", credits=10)
    spare = network.call("POST", "/api-keys", key, {"name": "a spare one", "scopes": ["read"]})[1]["key"]
    page = browser.signed_in(network.consumer)
    page.goto(f"/console/admin/accounts/{account}")
    # What is refused is shown with the reason, and with what was entered.
    form, unknown = form_of(page, "Refund a job"), "0192f1a0-0000-7000-8000-000000000000"
    form.get_by_label("Job", exact=False).fill(unknown)
    form.get_by_label("Reason", exact=False).fill("a wrong answer")
    form.get_by_role("button").click()
    expect(page.locator("main .notice.bad")).not_to_be_empty()
    expect(page.get_by_role("heading", level=1)).to_contain_text("leaving-")
    expect(form.get_by_label("Job", exact=False)).to_have_value(unknown)
    expect(form.get_by_label("Reason", exact=False)).to_have_value("a wrong answer")
    expect(form_of(page, "Grant credits").get_by_label("Reason", exact=False)).to_have_value("")
    form = form_of(page, "Deduct credits")
    form.get_by_label("Credits", exact=False).fill("10")
    form.get_by_label("Reason", exact=False).fill("granted twice")
    form.get_by_role("button").click()
    expect(page.locator(".notice.good")).to_contain_text("are deducted")
    assert network.data("GET", "/account", key)["credits"] == 0
    row = page.locator("tbody tr", has_text="a spare one")
    row.locator('[name="reason"]').fill("it was lost")
    row.get_by_role("button", name="Revoke a spare one").click()
    expect(page.locator(".notice.good")).to_contain_text("Revoked")
    assert network.call("GET", "/account", spare)[0] == 401
    assert network.call("GET", "/account", key)[0] == 200
    # Closing has its consequence beside it, and cannot be undone.
    page.locator("details.fold > summary", has_text="close").click()
    close = page.locator("details.confirm", has_text="Close the account")
    close.locator("summary").click()
    expect(close).to_contain_text("never opened again")
    close.locator('[name="reason"]').fill("they requested it")
    close.locator("form button").click()
    expect(page.locator(".notice.good")).to_contain_text("is closed")
    expect(page.locator("main .badge").first).to_have_text("closed")
    expect(page.locator("details.fold > summary", has_text="close")).to_have_count(0)
    assert network.call("GET", "/account", key)[0] in (401, 403)
    page.goto(f"/console/admin/audit-log?account={account}")
    for action in ["Deduct credits", "Revoke a key", "Close an account"]:
        expect(page.locator("tbody tr", has_text=action)).to_have_count(1)


def an_operator_reviews_and_switches_cargos(browser, network):
    publisher, page = browser.signed_in(network.owner), browser.signed_in(network.consumer)
    # A publication that is refused, with the reason.
    refused = network.publication(network.owner, "shout-too-loud")
    page.goto(f"/console/admin/publications/{refused}")
    form = form_of(page, "Reject")
    form.get_by_label("Reason", exact=False).fill("its file is missing")
    form.get_by_role("button").click()
    expect(page.locator(".notice.good")).to_contain_text("Rejected")
    page.goto("/console/admin/publications?state=rejected")
    expect(page.locator("tbody tr", has_text="shout-too-loud")).to_have_count(1)
    publisher.goto("/console/publications")
    row = publisher.locator("tbody tr", has_text="shout-too-loud")
    expect(row.locator(".badge")).to_have_text("rejected")
    expect(row).to_contain_text("its file is missing")
    # One that its publisher withdraws.
    withdrawn = network.publication(network.owner, "shout-no-more")
    publisher.goto(f"/console/publications/{withdrawn}")
    details = publisher.locator("details.confirm", has_text="Withdraw")
    details.locator("summary").click()
    expect(details).to_contain_text("no longer served")
    details.locator("form button").click()
    expect(publisher.locator(".notice.good")).to_contain_text("Withdrawn")
    expect(publisher.locator("tbody tr", has_text="shout-no-more").locator(".badge")).to_have_text("withdrawn")
    # A Cargo that accepts no jobs for a while.
    reader = browser.signed_in(network.owner)

    def switch(verb, done):
        page.goto("/console/admin/cargos?q=wasm-qr")
        row = page.locator("tbody tr", has_text="wasm-qr")
        row.locator('[name="reason"]').fill("a fault in it")
        row.get_by_role("button", name=f"{verb} wasm-qr").click()
        expect(page.locator(".notice.good")).to_contain_text(done)

    def is_disabled():
        reader.goto("/console/cargos/wasm-qr")
        return reader.locator(".notice.warn", has_text="Operators have disabled this Cargo").count() == 1

    def is_refused():
        body = {"workload": "wasm-qr", "input": {"text": "ahoy"}}
        status, answer = network.call("POST", "/jobs", network.consumer, body)
        return status >= 400 and "a fault in it" in answer["error"]["message"]

    switch("Disable", "accepts no jobs")
    eventually(is_disabled)
    eventually(is_refused)
    page.goto("/console/admin/cargos")
    # What accepts no jobs comes first.
    expect(page.locator("tbody tr").first).to_contain_text("wasm-qr")
    switch("Enable", "accepts jobs")
    eventually(lambda: not is_disabled())
    eventually(lambda: not is_refused())


def an_operator_takes_invitations_and_notices_back(browser, network):
    code = network.call("POST", "/admin/invitations", network.consumer, {"reason": "a wrong address", "credits": 1})[1]["code"]
    page = browser.signed_in(network.consumer)
    page.goto("/console/admin/invitations")
    row = page.locator("tbody tr", has_text="a wrong address")
    row.locator('[name="reason"]').fill("sent to somebody else")
    row.get_by_role("button", name="Revoke the invitation a wrong address").click()
    expect(page.locator(".notice.good")).to_contain_text("Revoked")
    visitor = browser.context().new_page()
    visitor.goto("/console/sign-in")
    form = form_of(visitor, "Create an account")
    form.get_by_label("E-mail address", exact=False).fill("somebody@example.org")
    form.get_by_label("Code of the invitation", exact=False).fill(code)
    form.get_by_role("button").click()
    expect(visitor.locator("main .notice.bad")).not_to_be_empty()
    # A notice, whose text is text.
    page.goto("/console/admin")
    form = form_of(page, "Show a notice")
    form.get_by_label("Notice", exact=False).fill("<b>Tonight</b> a disk is replaced.")
    form.get_by_role("button").click()
    expect(page.locator(".notice.good")).to_contain_text("is shown")
    assert any("Tonight" in one["text"] for one in network.data("GET", "/network/notices", network.owner)["notices"])
    row = page.locator("tbody tr", has_text="<b>Tonight</b>")
    row.locator("summary").click()
    expect(row).to_contain_text("no longer see it")
    row.locator("form button").click()
    expect(page.locator(".notice.good")).to_contain_text("is removed")
    expect(page.locator("tbody tr", has_text="Tonight")).to_have_count(0)


def an_operator_finds_dashboards_and_accounts(browser, network):
    page = browser.signed_in(network.consumer)
    grafana = "https://grafana.example.org"
    for path, dashboards in [
        ("", ["island-operator", "island-jobs", "island-owner"]), ("/queue", ["island-jobs"]), ("/fleet", ["island-operator"]),
    ]:
        page.goto(f"/console/admin{path}")
        links = page.locator(f'main a[href^="{grafana}"]').evaluate_all("links => links.map((link) => link.href)")
        assert links == [f"{grafana}/d/{one}" for one in dashboards], (path, links)
    # Lists are filtered by the address of an account as well as by its id.
    account, key = network.account("found", credits=1234567)
    email = network.data("GET", "/account", key)["email"]
    for path in ["audit-log", "fleet", "queue"]:
        page.goto(f"/console/admin/{path}")
        page.get_by_label("Account, id or e-mail address").fill(email)
        page.get_by_role("button", name="Filter").click()
        page.wait_for_url(re.compile(r"[?&]account=[^&]"))
        expect(page.get_by_label("Account, id or e-mail address")).to_have_value(email)
        rows = page.locator("main > .table tbody tr")
        if path == "audit-log":
            expect(rows.first).to_be_visible()
        else:
            expect(rows).to_have_count(0)
    expect(page.get_by_role("heading", level=1)).to_have_text("Queue")
    page.goto("/console/admin/audit-log?account=nobody%40example.org")
    expect(page.locator("tbody tr")).to_have_count(0)
    # Long numbers are grouped, as the reader writes them.
    reader = browser.signed_in(network.consumer, locale="de-DE")
    reader.goto(f"/console/admin/accounts/{account}")
    expect(reader.locator(".tile .value").first).to_have_text("1.234.567")
