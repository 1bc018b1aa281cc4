"""What owners do with their Islands, in the console and on the page of the machine itself."""

import os
import re
import subprocess
import tempfile
from contextlib import contextmanager

from harness import eventually, expect, serious


@contextmanager
def paired(network, agent, page):
    """The id of an Island that is paired in this page and never runs; at the end it leaves."""
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
        try:
            yield re.search(r"/console/islands/([0-9a-f-]+)", page.url)[1]
        finally:
            leave = [agent, "leave", "--state-dir", state, "--api-url", network.url]
            subprocess.run(leave, check=True, stdout=subprocess.DEVNULL)


def shows(page, text):
    """Loads the page again until it has this text."""

    def holds():
        page.reload()
        return text in page.locator("main").inner_text()

    eventually(holds)


def alerts(page):
    """The number of alerts beside the Islands in the menu."""
    count = page.locator('#menu a[href="/console/islands"] .count')
    return int(re.match(r"\d+", count.inner_text())[0]) if count.count() else 0


def an_owner_pairs_an_island(browser, network, agent):
    page = browser.signed_in(network.owner)
    page.goto("/console/islands")
    expect(page.locator(".card")).to_have_count(1)
    page.locator(".card a.title").click()
    expect(page.locator("main")).to_contain_text("Models on this Island")
    expect(page.locator("main")).to_contain_text("What one change would have earned more yesterday")
    expect(page.locator("main")).to_contain_text("Refused jobs")
    page.goto("/console/islands")
    page.get_by_label("Code of the Island", exact=False).fill("AAA-AAA")
    page.get_by_role("button", name="Pair").click()
    # The code stays where it was entered.
    expect(page.locator(".notice.bad")).not_to_be_empty()
    expect(page.get_by_label("Code of the Island", exact=False)).to_have_value("AAA-AAA")
    before = alerts(page)
    with paired(network, agent, page):
        # No order reaches an Island that is offline.
        expect(page.locator("main")).to_contain_text("The Island is offline, so no order reaches it.")
        expect(page.get_by_role("button", name=re.compile("^(Stop at once|Finish the jobs)"))).to_have_count(0)
        page.goto("/console/islands")
        expect(page.locator(".card")).to_have_count(2)
        # An owner sees when an Island does not answer.
        expect(page.locator(".notice", has_text="offline")).to_have_count(1)
        # The menu of every page counts it.
        page.goto("/console/chat")
        assert alerts(page) == before + 1, (before, alerts(page))
    page.goto("/console/earnings")
    expect(page.get_by_role("heading", level=1)).to_have_text("Earnings")
    # What this Island earned in the other stories.
    expect(page.locator("figure.plot canvas")).to_have_count(2)
    expect(page.locator("figure.plot", has_text="Credits by day and device").locator("thead")).to_contain_text("cpu")


def an_operator_suspends_an_island(browser, network, agent):
    page, operator = browser.signed_in(network.owner), browser.signed_in(network.consumer)
    with paired(network, agent, page) as island:
        row = operator.locator("tbody tr", has=operator.locator(f'a[href="/console/islands/{island}"]'))

        def change(verb, reason, done):
            operator.goto("/console/admin/fleet")
            row.locator('[name="reason"]').fill(reason)
            row.get_by_role("button", name=re.compile(f"^{verb} ")).click()
            expect(operator.locator(".notice.good")).to_contain_text(done)

        change("Suspend", "it returned wrong results", "Suspended")
        expect(row).to_contain_text("suspended: it returned wrong results")
        change("Resume", "it was repaired", "Resumed")
        expect(row.locator(".badge.bad")).to_have_text("offline")


def an_owner_pauses_an_island_remotely(browser, network, agent):
    page = browser.signed_in(network.owner)
    state = os.path.join(network.folder, "island-1")

    def command(verb):
        return subprocess.run([agent, verb, "--state-dir", state], check=True, stdout=subprocess.PIPE, text=True).stdout

    page.goto(f"/console/islands/{network.host}")
    expect(page.locator("main")).to_contain_text("No order applies")
    stop = page.locator("details.confirm", has_text="Stop at once")
    stop.locator("summary").click()
    stop.locator("form button").click()
    expect(page.locator(".notice.good")).to_contain_text("The Island is paused")
    shows(page, "Paused from here")
    assert "ordered remotely" in command("status")
    page.get_by_role("button", name=re.compile("^Work again ")).click()
    expect(page.locator(".notice.good")).to_contain_text("are ended")
    shows(page, "No order applies")
    # A pause on the machine is shown, and is not ended from here.
    command("pause")
    shows(page, "by a command on the machine itself")
    # A reload must not meet the answer of the form.
    with page.expect_navigation():
        page.get_by_role("button", name=re.compile("^Work again ")).click()
    shows(page, "by a command on the machine itself")
    assert command("resume") == "working\n"
    shows(page, "No order applies")


def an_owner_drains_an_island_remotely(browser, network):
    page = browser.signed_in(network.owner)
    body = {"workload": "sim-chat", "input": {"prompt": "to the end", "max_tokens": 60, "delay_ms": 50}}
    job = network.data("POST", "/jobs", network.consumer, body)["id"]

    def status():
        return network.data("GET", f"/jobs/{job}", network.consumer)["status"]

    eventually(lambda: status() == "running")
    page.goto(f"/console/islands/{network.host}")
    page.get_by_role("button", name=re.compile("^Finish the jobs, then stop ")).click()
    expect(page.locator(".notice.good")).to_contain_text("finishes its jobs and gets no new ones")
    shows(page, "Draining by an order from here. Running jobs finish, new ones do not arrive.")
    # There is nothing left to drain, and it can still be stopped at once.
    expect(page.get_by_role("button", name=re.compile("^Finish the jobs"))).to_have_count(0)
    expect(page.locator("details.confirm", has_text="Stop at once")).to_have_count(1)
    eventually(lambda: status() == "completed")
    page.get_by_role("button", name=re.compile("^Work again ")).click()
    expect(page.locator(".notice.good")).to_contain_text("are ended")
    shows(page, "No order applies")
    eventually(lambda: network.data("GET", f"/hosts/{network.host}", network.owner)["status"] == "online")


def an_open_page_of_an_island_shows_its_jobs(browser, network):
    page = browser.signed_in(network.owner)
    page.goto(f"/console/islands/{network.host}")
    jobs = page.locator("#now section.panel", has=page.get_by_role("heading", name="Jobs now", exact=True))
    expect(jobs).to_contain_text("No job at this moment.")
    body = {"workload": "sim-chat", "input": {"prompt": "at work", "max_tokens": 100000}}
    job = network.data("POST", "/jobs", network.consumer, body)["id"]
    expect(jobs).to_contain_text("sim-chat")
    network.data("DELETE", f"/jobs/{job}", network.consumer)
    expect(jobs).to_contain_text("No job at this moment.")


def the_page_of_a_machine_shows_its_work(browser, network, axe):
    """The page that the agent itself serves, with the same style, plots and content policy."""
    found = []
    for scheme, width in [("light", 1280), ("dark", 360)]:
        page = browser.context(base_url=network.local_page, color_scheme=scheme, viewport={"width": width, "height": 800}).new_page()
        policy = page.goto("/").headers["content-security-policy"]
        assert policy.startswith("default-src 'none'") and "unsafe" not in policy, policy
        expect(page.locator("#state .badge")).not_to_be_empty()
        # What changes is shown without a reload.
        jobs = page.locator("#work section.panel", has=page.get_by_role("heading", name="Jobs", exact=True))
        body = {"workload": "sim-chat", "input": {"prompt": "at work", "max_tokens": 100000}}
        job = network.data("POST", "/jobs", network.consumer, body)["id"]
        expect(jobs).to_contain_text("sim-chat")
        found += serious(page, axe)
        network.data("DELETE", f"/jobs/{job}", network.consumer)
        expect(jobs).to_contain_text("No job runs.")
        found += serious(page, axe)
        overflow = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert overflow <= 0, (scheme, overflow)
        # The agent answered all the time.
        assert page.locator("#away").is_hidden()
    assert not found, found
