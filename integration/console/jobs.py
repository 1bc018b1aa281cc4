"""Jobs while they wait and run, and lists of jobs."""

import os
import subprocess
from contextlib import contextmanager
from datetime import datetime

from harness import completed, eventually, expect, submit


# A machine whose clock is hours behind, and what its page showed of the first output while the job ran.
WRONG_CLOCK = """
const now = Date.now;
Date.now = () => now() - 5 * 3600e3;
new MutationObserver(() => {
    const time = document.querySelector('#job[data-open=true] li[data-step=first] time');
    if (time) sessionStorage.first = time.dateTime;
}).observe(document, {subtree: true, childList: true, attributes: true});
"""


@contextmanager
def paused(browser, network, agent):
    """While this lasts, the Island takes no jobs."""
    island = ["--state-dir", os.path.join(network.folder, "island-1")]
    subprocess.run([agent, "pause", *island], check=True, stdout=subprocess.DEVNULL)
    owner = browser.signed_in(network.owner)

    def is_paused():
        owner.goto("/console/islands")
        return owner.locator(".card .badge").inner_text() == "paused"

    try:
        eventually(is_paused)
        yield
    finally:
        subprocess.run([agent, "resume", *island], check=True, stdout=subprocess.DEVNULL)


def a_waiting_job_explains_itself_and_is_cancelled(browser, network, agent):
    with paused(browser, network, agent):
        waits_and_is_cancelled(browser, network)


def waits_and_is_cancelled(browser, network):
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
    # The open queue shows who no longer waits.
    job = page.url.rsplit("/", 1)[1]
    queue = browser.signed_in(network.consumer)
    queue.goto("/console/admin/queue?cargo=sim-chat")
    expect(queue.locator("#queue").get_by_role("link", name=job)).to_have_count(1)
    operator.goto("/console/admin/fleet?status=paused")
    expect(operator.locator("tbody tr")).to_have_count(1)
    operator.goto("/console/admin/fleet?status=online")
    expect(operator.locator("tbody tr")).to_have_count(0)
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator("#badge")).to_have_text("cancelled")
    expect(queue.locator("#queue").get_by_role("link", name=job)).to_have_count(0)
    delete = page.locator("details.confirm")
    delete.locator("summary").click()
    expect(delete).to_contain_text("cannot be undone")
    delete.locator("form button").click()
    expect(page.locator(".notice.good")).to_contain_text("deleted")


def an_open_list_shows_a_new_job(browser, network):
    page = browser.signed_in(network.consumer)
    page.goto("/console/jobs")
    # Names of Cargos are suggested to who filters the list.
    expect(page.locator('#cargo-values option[value="sim-chat"]')).to_have_count(1)
    first = page.locator("#jobs tbody tr").first.get_by_role("link")
    before = first.get_attribute("href")
    first.focus()
    body = {"workload": "sim-chat", "input": {"prompt": "new", "max_tokens": 2, "delay_ms": 0}}
    job = network.call("POST", "/jobs", network.consumer, body)[1]["data"]["id"]
    expect(page.locator("#jobs tbody tr").first.get_by_role("link")).to_have_attribute("href", f"/console/jobs/{job}")
    assert before != f"/console/jobs/{job}"
    # What is focused is the same job in another row.
    assert page.evaluate("document.activeElement.getAttribute('href')") == before


def an_open_list_meets_the_end_of_its_session(browser, network):
    page = browser.signed_in(network.consumer)
    page.goto("/console/jobs")
    requests = []
    page.on("request", lambda request: requests.append(request.url) if "/console/jobs" in request.url else None)
    page.context.clear_cookies()
    expect(page.locator("main .notice.warn")).to_contain_text("The session has ended")
    expect(page.locator("main .notice.warn").get_by_role("link")).to_have_attribute("href", "/console/sign-in?next=%2Fconsole%2Fjobs")
    assert len(requests) == 1, requests


def steps(page):
    """The steps of the timeline that the coordinator knows, with their times."""
    lines = page.locator("#timeline li[data-step]")
    return dict(lines.evaluate_all("lines => lines.map(line => [line.dataset.step, line.querySelector('time').dateTime])"))


def an_ended_job_keeps_its_timeline(browser, network):
    page = browser.signed_in(network.consumer)
    job = submit(page, "sim-chat", extra={"prompt": "one two", "max_tokens": "4", "delay_ms": "0"})
    completed(page)
    record = network.data("GET", f"/jobs/{job}", network.consumer)
    names = {"accepted": "created_at", "placed": "placed_at", "started": "started_at", "first": "first_output_at", "ended": "completed_at"}
    page.goto(f"/console/jobs/{job}")
    assert steps(page) == {step: record[name] for step, name in names.items()}, (steps(page), record)
    # Every step but the first has the time since the one before.
    expect(page.locator("#timeline li small", has_text="after ")).to_have_count(len(names) - 1)
    # What came whole has no first output.
    job = submit(page, "wasm-hash", {"text": "abc"})
    completed(page)
    page.goto(f"/console/jobs/{job}")
    assert "first" not in steps(page) and "ended" in steps(page), steps(page)


def steps_have_the_time_of_the_network(browser, network, agent):
    with paused(browser, network, agent):
        page = browser.signed_in(network.consumer)
        page.add_init_script(WRONG_CLOCK)
        job = submit(page, "sim-chat", extra={"prompt": "one two", "max_tokens": "4", "delay_ms": "0"})
        expect(page.locator("#waiting")).to_be_visible()
        # What arrives together with the connection is taken for what happened before.
        page.wait_for_timeout(2000)
    completed(page)
    seen = datetime.fromisoformat(page.evaluate("sessionStorage.first").replace("Z", "+00:00"))
    true = datetime.fromisoformat(network.data("GET", f"/jobs/{job}", network.consumer)["first_output_at"].replace("Z", "+00:00"))
    assert abs((seen - true).total_seconds()) < 3600, (seen, true)
