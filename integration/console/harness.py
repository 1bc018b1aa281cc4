"""What the stories of the console share: a browser that fails on every violation of the content policy, and the network's API."""

import itertools
import json
import os
import re
import time
import urllib.error
import urllib.request

from playwright.sync_api import expect, sync_playwright

# Generous: a debug build on a busy machine is slow. Nothing waits this long unless it fails.
expect.set_options(timeout=60_000)


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
# A name for this machine that browsers take for another one, to which they have no TLS.
ELSEWHERE = "island.test"


class Network:
    """A running network, as `dev.json` and `accounts.json` describe it."""

    def __init__(self, folder):
        self.folder = folder
        info = json.load(open(os.path.join(folder, "dev.json")))
        accounts = json.load(open(os.path.join(folder, "accounts.json")))
        self.url = info["api_url"]
        self.host = info["host_id"]
        self.consumer = accounts["consumer_key"]
        self.owner = accounts["owner_key"]
        # The page of its Island on this machine.
        self.local_page = os.environ.get("ISLAND_PAGE")
        self.numbers = itertools.count(1)

    def call(self, method, path, key=None, body=None, prefix="/api/v1"):
        """The status and the JSON of an answer."""
        request = urllib.request.Request(self.url + prefix + path, method=method)
        if key:
            request.add_header("Authorization", f"Bearer {key}")
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read() or b"null")

    def link(self, key):
        """An address that signs a browser in, once."""
        status, answer = self.call("POST", "/console/links", key, prefix="")
        assert status == 200, answer
        return f"{self.url}/console/sign-in/link?code={answer['code']}"

    def data(self, method, path, key, body=None):
        """What the API answers, which must be a success, without its envelope."""
        status, answer = self.call(method, path, key, body)
        assert status < 300, (method, path, status, answer)
        return answer["data"]

    def account(self, name, credits=0):
        """A new account: its id and a key."""
        body = {"email": f"{name}-{next(self.numbers)}@example.org", "credits": credits}
        status, answer = self.call("POST", "/admin/accounts", self.consumer, body)
        assert status < 300, answer
        return answer["data"]["id"], answer["key"]

    def ended_job(self, key, workload="sim-chat", **values):
        """The record of a job that has completed."""
        body = {"workload": workload, "input": {"prompt": "one two", "max_tokens": 2, "delay_ms": 0, **values}}
        job = self.data("POST", "/jobs", key, body)["id"]
        eventually(lambda: self.data("GET", f"/jobs/{job}", key)["status"] == "completed")
        return self.data("GET", f"/jobs/{job}", key)

    def publication(self, key, slug, name="Shout"):
        """The id of a Cargo that this account has submitted for review."""
        return self.data("POST", "/publications", key, {"manifest": MANIFEST.format(slug=slug, name=name)})["id"]

    def pid(self, part):
        return int(open(os.path.join(self.folder, "pids", f"{part}.pid")).readline())


class Browser:
    """Chromium. What a page may not do by its content policy, and errors of its scripts, are failures."""

    def __init__(self, playwright, network):
        # Tests may run as root, for whom Chromium has no sandbox of its own.
        self.chromium = playwright.chromium.launch(
            executable_path=os.environ.get("CHROMIUM", "/usr/bin/chromium"),
            args=["--no-sandbox", "--no-proxy-server", f"--host-resolver-rules=MAP {ELSEWHERE} 127.0.0.1"],
        )
        self.network = network
        self.faults = []

    def context(self, **options):
        context = self.chromium.new_context(**{"base_url": self.network.url, **options})
        context.set_default_timeout(60_000)
        context.on("page", self._watch)
        # Events arrive in the page, also for what a worker or a style did.
        context.add_init_script(
            "addEventListener('securitypolicyviolation', (event) =>"
            " console.error('policy: ' + event.violatedDirective + ' ' + event.blockedURI));"
        )
        return context

    def _watch(self, page):
        page.on("pageerror", lambda error: self.faults.append(f"{page.url}: {error}"))
        page.on("console", lambda message: self._note(page, message))
        page.on("dialog", lambda dialog: (self.faults.append(f"{page.url}: a dialog: {dialog.message}"), dialog.dismiss()))

    def _note(self, page, message):
        text = message.text
        # A lost connection, and a status that a story provokes, are reported as errors too.
        is_network = "Failed to load resource" in text or "net::ERR_" in text
        # Without TLS, browsers ignore this header, with an error.
        is_network |= "Cross-Origin-Opener-Policy header has been ignored" in text
        if message.type == "error" and not is_network:
            self.faults.append(f"{page.url}: {text}")

    def signed_in(self, key, **options):
        """A page of a browser that is signed in by a link."""
        page = self.context(**options).new_page()
        page.goto(self.network.link(key).replace(self.network.url, options.get("base_url", self.network.url)))
        page.wait_for_url("**/console/chat")
        return page

    def assert_no_faults(self):
        # Those of one story are not those of the next.
        faults, self.faults = self.faults, []
        assert not faults, faults

    def close_pages(self):
        """Closes what a story has opened: open pages follow jobs and read lists again."""
        for context in self.chromium.contexts:
            context.close()


def submit(page, slug, values=None, extra=None):
    """Fills the form of a Cargo and submits it; returns the job's id."""
    page.goto(f"/console/cargos/{slug}")
    form = page.locator("section.panel form")
    if extra:
        form.locator("details.fold > summary").click()
    for name, value in {**(values or {}), **(extra or {})}.items():
        field = form.locator(f'[name="{name}"]')
        if field.evaluate("element => element.tagName") == "SELECT":
            field.select_option(value)
        elif field.get_attribute("type") == "file":
            field.set_input_files(value)
        else:
            field.fill(value)
    form.get_by_role("button", name="Run", exact=True).click()
    page.wait_for_url(re.compile(r"/console/jobs/[0-9a-f-]{36}"))
    return page.url.rsplit("/", 1)[1].split("?")[0]


def chat(page, text, model="sim-chat", tokens="40"):
    """Sends a message in the open chat."""
    page.get_by_label("Model, and credits", exact=False).select_option(model)
    page.locator("#options > summary").click()
    page.get_by_label("Maximum tokens").fill(tokens)
    page.get_by_label("Message", exact=True).fill(text)
    page.get_by_label("Message", exact=True).press("Enter")


def form_of(page, button):
    """The form that this button sends."""
    return page.locator("form", has=page.get_by_role("button", name=button, exact=True))


def confirmed(page, text):
    """Opens what cannot be undone, reads its consequence and goes on."""
    details = page.locator("details.confirm", has_text=text)
    details.locator("summary").click()
    details.locator("form button").click()


def eventually(holds):
    for _ in range(300):
        if holds():
            return
        time.sleep(0.1)
    raise AssertionError(f"never: {holds}")


def serious(page, axe):
    """What axe finds in a page that is serious. The policy of the page forbids further scripts; what a debugger evaluates is not one."""
    page.evaluate(axe)
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        (page.url, page.viewport_size["width"], one["id"], one["nodes"][0]["html"][:200])
        for one in found["violations"] if one["impact"] in ("serious", "critical")
    ]


def completed(page):
    """Waits until the page of a job shows that it completed."""
    expect(page.locator("#badge")).to_have_text("completed")


__all__ = [
    "ELSEWHERE", "HOSTILE", "MANIFEST", "RED", "Browser", "Network", "chat", "completed", "confirmed", "eventually", "expect", "form_of",
    "serious", "submit", "sync_playwright",
]
