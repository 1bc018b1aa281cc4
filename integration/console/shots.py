"""Pictures of every page in both themes and two widths: `shots.py FOLDER OUT [NAME...]`, for the network of an `island dev` in FOLDER."""

import os
import sys

from harness import Browser, Network, completed, expect, submit, sync_playwright

PAGES = {
    "home": "/", "chat": "/console/chat", "cargos": "/console/cargos", "cargo": "/console/cargos/tiny-paint", "jobs": "/console/jobs",
    "keys": "/console/keys", "usage": "/console/usage", "ledger": "/console/ledger", "publications": "/console/publications",
    "islands": "/console/islands", "earnings": "/console/earnings", "market": "/console/market", "rate": "/console/market/sim-chat",
    "network": "/console/network", "admin": "/console/admin", "queue": "/console/admin/queue", "fleet": "/console/admin/fleet", "accounts": "/console/admin/accounts",
    "invitations": "/console/admin/invitations", "review": "/console/admin/publications", "switches": "/console/admin/cargos",
    "payouts": "/console/admin/payouts", "audit": "/console/admin/audit-log", "missing": "/console/no-such-page",
}


def ask(page, text):
    page.get_by_label("Message", exact=True).fill(text)
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".turn").last.locator(".reply[aria-busy=true]")).to_have_count(0)


def fill(browser, network):
    """What the pages show. Returns addresses of things that it made."""
    page = browser.signed_in(network.consumer, viewport={"width": 1280, "height": 900})
    for slug, values in [("tiny-paint", {"prompt": "a fox in the snow"}), ("tiny-onnx-text-classification", None), ("tiny-onnx-text-to-speech", None)]:
        job = submit(page, slug, values)
        completed(page)
    painted = submit(page, "tiny-paint", {"prompt": "a lighthouse"}, {"width": "256", "height": "256"})
    completed(page)
    found = submit(page, "tiny-onnx-object-detection")
    completed(page)
    publication = network.publication(network.owner, "shout")
    network.call("POST", "/admin/invitations", network.consumer, {"reason": "friends of the network", "credits": 10, "uses": 5})
    account, _ = network.account("guest", credits=25)
    status, answer = network.call("POST", "/admin/payouts", network.consumer, {"reason": "the first month", "minimum": 0})
    assert status < 300, answer
    payout = answer["data"]["payout"]["id"]
    # One that runs as long as pictures are taken.
    running = network.data("POST", "/jobs", network.consumer, {"workload": "sim-chat", "input": {"prompt": "one two", "max_tokens": 100000}})["id"]
    network.call("POST", "/admin/notices", network.consumer, {"text": "New Islands with GPUs joined this week."})
    network.call("POST", "/api-keys", network.consumer, {"name": "a dashboard", "scopes": ["read"], "spend_cap": 5})
    admin = {"account": f"accounts/{account}", "reviewed": f"publications/{publication}", "payout": f"payouts/{payout}"}
    return {**{name: f"/console/admin/{path}" for name, path in admin.items()}, "running": f"/console/jobs/{running}", "job": f"/console/jobs/{painted}", "table": f"/console/jobs/{found}", "island": f"/console/islands/{network.host}", "sound": f"/console/jobs/{job}"}


def main():
    network, out, only = Network(sys.argv[1]), sys.argv[2], sys.argv[3:]
    os.makedirs(out, exist_ok=True)
    with sync_playwright() as playwright:
        browser = Browser(playwright, network)
        pages = {**PAGES, **fill(browser, network)}
        machine = os.environ.get("ISLAND_PAGE")
        for theme in ["light", "dark"]:
            for width, height in [(1280, 860), (390, 844)]:
                options = {"color_scheme": theme, "viewport": {"width": width, "height": height}}
                page = browser.signed_in(network.consumer, **options)
                owner = browser.signed_in(network.owner, **options)
                visitor = browser.context(**options).new_page()
                page.get_by_label("Compare two").check()
                page.get_by_label("Second model").select_option("sim-chat")
                page.locator("#options > summary").click()
                page.get_by_label("Maximum tokens").fill("48")
                page.locator("#options > summary").click()
                ask(page, "What is Island?")
                page.screenshot(path=f"{out}/chat-{theme}-{width}.png")
                for name, path in {**pages, "visitor": "/", "sign-in": "/console/sign-in"}.items():
                    if name == "chat" or (only and name not in only):
                        continue
                    reader = visitor if name in ("visitor", "sign-in") else owner if name in ("islands", "island", "earnings") else page
                    # A page that follows a job is never idle.
                    reader.goto(path, wait_until="load" if name == "running" else "networkidle")
                    if name == "running":
                        expect(reader.locator("#text")).to_contain_text("two")
                    reader.screenshot(path=f"{out}/{name}-{theme}-{width}.png")
                if machine:
                    visitor.goto(machine, wait_until="load")
                    expect(visitor.locator("#state .badge")).not_to_be_empty()
                    visitor.screenshot(path=f"{out}/machine-{theme}-{width}.png")
        browser.assert_no_faults()
        browser.chromium.close()


if __name__ == "__main__":
    main()
