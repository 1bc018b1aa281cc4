"""What the stories of the console share: a browser that fails on every violation of the content policy, and the network's API."""

import json
import os
import re
import urllib.error
import urllib.request

from playwright.sync_api import expect, sync_playwright

# Generous: a debug build on a busy machine is slow. Nothing waits this long unless it fails.
expect.set_options(timeout=60_000)


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
        assert not self.faults, self.faults
        self.faults.clear()


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


def completed(page):
    """Waits until the page of a job shows that it completed."""
    expect(page.locator("#badge")).to_have_text("completed")


__all__ = ["ELSEWHERE", "Browser", "Network", "completed", "expect", "submit", "sync_playwright"]
