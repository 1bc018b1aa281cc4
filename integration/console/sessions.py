"""Signing in and out, keys, and what other sites and wrong addresses get."""

import re
from urllib.parse import urlsplit

from harness import ELSEWHERE, HOSTILE, chat, expect


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
    # A link to this page chooses no text of it.
    other = browser.context().new_page()
    other.goto("/console/sign-in?failed=nonsense-7421")
    expect(other.locator("main .notice.bad")).to_contain_text("did not succeed")
    assert "nonsense-7421" not in other.content()
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
    # A copy of the cookie is worthless once the session has ended, and a conversation does not stay in the browser.
    page.get_by_label("Message", exact=True).fill("a secret")
    assert page.evaluate("Object.values(sessionStorage).join()").count("a secret") == 1
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url(network.url + "/")
    assert page.evaluate("sessionStorage.length") == 0
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
    expect(page.locator(".reply .facts")).to_contain_text("credit")
    page.locator(".reply .copy-reply").click()
    expect(page.locator("#status")).to_have_text("Copied")
    page.goto("/console/cargos/wasm-hash")
    page.get_by_text("The example as a call").click()
    page.locator("figure.copy", has_text="island jobs submit --workload wasm-hash").get_by_role("button").click()
    expect(page.locator("figure.copy", has_text="island jobs submit").get_by_role("status")).to_have_text("Copied")
    expect(page.locator("figure.copy").first).to_contain_text(f"API_URL='{url}/api/v1'")


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
    # Who may not sign in gets no session, the reason, and other ways to the page that required the sign-in.
    for email, reason in [("eve@elsewhere.example", "may not sign in"), ("unverified@example.org", "has not verified")]:
        refused = provider(email)
        refused.wait_for_url(re.compile(r"/console/sign-in\?failed=[a-z_]+$"))
        expect(refused.locator("main .notice.bad")).to_contain_text(reason)
        beside = refused.context.new_page()
        beside.goto("/console/keys")
        expect(beside.get_by_role("heading", level=1)).to_have_text("Sign in")
        refused.get_by_label("API key", exact=False).first.fill(network.consumer)
        refused.get_by_role("button", name="Sign in").click()
        refused.wait_for_url("**/console/keys")
    # A confirmation that another browser began is worth nothing here.
    stolen = browser.context().new_page()
    stolen.goto("/console/sign-in/provider/end?code=" + "a" * 32)
    expect(stolen.locator("main .notice.bad")).to_be_visible()
    stolen.goto("/console/keys")
    expect(stolen.get_by_role("heading", level=1)).to_have_text("Sign in")


def a_session_needs_encryption(browser, network):
    """The session of a network with a public address is for TLS: at another address the browser drops it, and the page states that."""
    page = browser.context(base_url=f"http://{ELSEWHERE}:{urlsplit(network.url).port}").new_page()
    page.goto("/console/keys")
    notice = page.locator("main .notice.warn")
    expect(notice).to_contain_text("has no TLS")

    def sign_in():
        page.get_by_label("API key", exact=False).first.fill(network.consumer)
        page.get_by_role("button", name="Sign in").click()

    # The page that is opened then leads back here.
    with page.expect_response(lambda answer: answer.url.endswith("/console/keys")):
        sign_in()
    page.wait_for_url("**/console/sign-in?next=%2Fconsole%2Fkeys")
    expect(notice).to_contain_text("has no TLS")
    page.locator("main").get_by_role("link", name=network.url).click()
    page.wait_for_url(f"{network.url}/console/sign-in")
    expect(notice).to_have_count(0)
    sign_in()
    page.wait_for_url(f"{network.url}/console/chat")
