"""Texts of models, which mark headings, lists, tables and code in Markdown: they are formatted while they arrive, and nothing else comes of them."""

import json

from harness import chat, completed, expect

REPLY = """# A heading

Some **bold** and *slanted* text with `code` in it, see [the pages](https://example.org/pages "a title").

1. first
   - below it
2. second

| name | number |
|------|-------:|
| one  | 1      |
| two  | 2      |

```python
def double(x):
\treturn x * 2  # <b>
```

> A quote.
"""

# What the page of a chat gets in place of a stream: a few characters at a time, and the end once all formats were seen, however slow the machine is.
STREAM = """
const real = window.fetch;
const events = (text) => [...text.match(/[^]{1,3}/g).map((content) => ({type: 'token', content})),
  {type: 'done', usage: {credits_used: 1, total_tokens: 1234567}}];
window.fetch = (address, options) => {
  if (!/\\/stream\\?/.test(address)) return real(address, options);
  const body = new ReadableStream({async start(controller) {
    for (const [at, event] of events(TEXT).entries()) {
      for (let tries = 0; event.type === 'done' && window.seen.size < 5 && tries < 1000; tries += 1) await new Promise((resolve) => setTimeout(resolve, 10));
      controller.enqueue(new TextEncoder().encode(`id: ${at + 1}\\ndata: ${JSON.stringify(event)}\\n\\n`));
      await new Promise((resolve) => setTimeout(resolve, 4));
    }
    controller.close();
  }});
  return Promise.resolve(new Response(body, {headers: {'content-type': 'text/event-stream'}}));
};
window.seen = new Set();
new MutationObserver(() => {
  const text = document.querySelector('.reply[aria-busy=true] .text');
  if (!text) return;
  if (text.children.length > 3) window.first ??= text.firstElementChild;
  for (const one of text.querySelectorAll('h3, strong, ol, table, .code')) window.seen.add(one.localName);
}).observe(document, {subtree: true, childList: true});
"""

# The renderer of the page, and what it makes of a text as a whole, and of one that arrives in pieces.
RENDERER = """async () => {
  const {Markdown} = await import(document.querySelector('script[src$="/chat.js"]').src.replace('chat.js', 'markdown.js'));
  window.rendered = (text, size) => {
    const place = document.createElement('div');
    const prose = new Markdown(place, {copy: 'Copy', copied: 'Copied'});
    for (let at = 0; at < text.length; at += size) {
      prose.add(text.slice(at, at + size));
      prose.show();
    }
    return place;
  };
}"""

# Texts, and their elements without the attributes of links.
FORMATS = [
    ("a **b** *c* `d` ~~e~~ ***f***", "<p>a <strong>b</strong> <em>c</em> <code>d</code> <del>e</del> <em><strong>f</strong></em></p>"),
    ("name_of_a_thing, 7*7 and 8*8, 2**3**4", "<p>name_of_a_thing, 7*7 and 8*8, 2**3**4</p>"),
    ("**never closed and *neither", "<p>**never closed and *neither</p>"),
    ("\\*as it is\\* \\(x\\)", "<p>*as it is* \\(x\\)</p>"),
    ("one\ntwo\n\nthree", "<p>one\ntwo</p><p>three</p>"),
    ("## Two ##\n#no", "<h4>Two</h4><p>#no</p>"),
    ("- a\n- b\n  - c\n\nend", "<ul><li><p>a</p></li><li><p>b</p><ul><li><p>c</p></li></ul></li></ul><p>end</p>"),
    ("3. a\n4. b", '<ol start="3"><li><p>a</p></li><li><p>b</p></li></ol>'),
    ("> a\n> > b", "<blockquote><p>a</p><blockquote><p>b</p></blockquote></blockquote>"),
    ("a\n\n---\n\nb", "<p>a</p><hr><p>b</p>"),
    ("a | b\nno table", "<p>a | b\nno table</p>"),
    ("这是**粗体**文本。", "<p>这是<strong>粗体</strong>文本。</p>"),
]
# Texts that must not lead anywhere, or not where they seem to.
HARMLESS = [
    "[a](javascript:alert(1))", "[a](JaVaScRiPt:alert(1))", "[a](data:text/html,<script>alert(1)</script>)", "[a](/console/keys)",
    "[a](//evil.example)", "[a](https://bank.example@evil.example)", "![a](x.png)", "<javascript:alert(1)>", "[a](vbscript:x)",
]


def replies_are_formatted_while_they_arrive(browser, network):
    page = browser.signed_in(network.consumer, permissions=["clipboard-read", "clipboard-write"])
    page.add_init_script(STREAM.replace("TEXT", json.dumps(REPLY)))
    page.reload()
    chat(page, "anything", tokens="2")
    reply = page.locator(".reply")
    expect(reply.locator(".facts")).to_contain_text("1 credit · ")
    assert not any(digits in reply.locator(".facts").inner_text() for digits in ["1 credits", "1234567"])
    text = reply.locator(".text")
    expect(text.get_by_role("heading", name="A heading")).to_have_count(1)
    expect(text.locator("strong")).to_have_text("bold")
    expect(text.locator("ol > li")).to_have_count(2)
    expect(text.locator("ol ul > li")).to_have_text(["below it"])
    expect(text.locator("tbody tr")).to_have_count(2)
    expect(text.locator("td.right").first).to_have_text("1")
    expect(text.locator("blockquote")).to_have_text("A quote.")
    link = text.get_by_role("link", name="the pages")
    assert link.get_attribute("href") == "https://example.org/pages" and link.get_attribute("rel") == "noopener nofollow"
    expect(text.locator(".code figcaption span")).to_have_text("python")
    before = text.inner_html()
    text.locator(".code").get_by_role("button", name="Copy").click()
    expect(text.locator(".code").get_by_role("button")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == "def double(x):\n\treturn x * 2  # <b>"
    # It was formatted while it arrived, and what had ended did not change any more.
    assert set(page.evaluate("[...window.seen]")) == {"h3", "strong", "ol", "table", "figure"}, page.evaluate("[...window.seen]")
    assert page.evaluate("window.first.isConnected"), "the heading was made once"
    # The conversation comes back as it was.
    page.reload()
    expect(page.locator(".reply .facts")).to_contain_text("1 credit")
    assert page.locator(".reply .text").inner_html() == before


def the_text_of_a_job_is_formatted(browser, network):
    page = browser.signed_in(network.consumer)
    chat(page, "**bold** `code`", tokens="2")
    expect(page.locator(".reply .facts")).to_contain_text("credit")
    expect(page.locator(".reply .text strong")).to_have_text("bold")
    # What a person wrote is shown as it was written.
    expect(page.locator(".written")).to_have_text("**bold** `code`")
    page.locator(".reply").get_by_role("link", name="Job").click()
    completed(page)
    expect(page.locator(".formatted strong")).to_have_text("bold")
    page.get_by_role("button", name="As written").click()
    expect(page.locator(".formatted")).to_be_hidden()
    expect(page.locator("pre[data-prose]")).to_have_text("**bold**0 `code`1")
    page.get_by_role("button", name="Formatted").click()
    expect(page.locator(".formatted")).to_be_visible()
    # And while it runs.
    body = {"workload": "sim-chat", "input": {"prompt": "**at work**", "max_tokens": 100000}}
    job = network.data("POST", "/jobs", network.consumer, body)["id"]
    page.goto(f"/console/jobs/{job}")
    expect(page.locator("#text strong").first).to_be_visible()
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator("#badge")).to_have_text("cancelled")


def formats_are_made_of_text_alone(browser, network):
    page = browser.signed_in(network.consumer)
    page.evaluate(RENDERER)
    for text, html in FORMATS:
        for size in [1, 2, 5, 1000]:
            made = page.evaluate("([text, size]) => rendered(text, size).innerHTML", [text, size])
            assert made == html, (text, size, made)
    whole = page.evaluate("text => rendered(text, 100000).innerHTML", REPLY)
    assert all(page.evaluate("([text, size]) => rendered(text, size).innerHTML", [REPLY, size]) == whole for size in [1, 3, 8])
    for text in HARMLESS:
        assert page.evaluate("text => rendered(text, 100000).querySelectorAll('a, img, script').length", text) == 0, text
        assert page.evaluate("text => rendered(text, 100000).textContent", text) == text
    # A label that names another address is not the label of a link.
    addresses = "text => [...rendered(text, 100000).querySelectorAll('a')].map((one) => [one.textContent, one.href])"
    found = page.evaluate(addresses, "[https://bank.example](https://evil.example/x)")
    assert found == [["https://bank.example", "https://bank.example/"], ["https://evil.example/x", "https://evil.example/x"]], found
    for label in ["www.bank.example", "bank.example/login", "bank.com"]:
        assert page.evaluate(addresses, f"[{label}](https://evil.example/x)") == [["https://evil.example/x", "https://evil.example/x"]], label
    for label, address in [("Node.js", "https://nodejs.org/"), ("README.md", "https://x.example/README.md"), ("bank.com", "https://www.bank.com/"),
                           ("bank.com/a", "https://help.bank.com/a")]:
        assert page.evaluate(addresses, f"[{label}]({address})") == [[label, address]], label
    # The punctuation and the parenthesis around an address are not a part of it.
    found = page.evaluate(addresses, "(https://x.example/a_(b)). https://x.example/c))?!")
    assert found == [["https://x.example/a_(b)", "https://x.example/a_(b)"], ["https://x.example/c", "https://x.example/c"]], found
    # A picture within a link is a link of its own place.
    assert page.evaluate(addresses, "[![a](https://x.example/1.png)](https://x.example/2)") == [["a", "https://x.example/2"]]
    # Pictures of other sites are not loaded.
    assert page.evaluate(addresses, "![a cat](https://cats.example/1.png)") == [["a cat", "https://cats.example/1.png"]]
    # What is in each other without an end, or long without a break, is text.
    nested = [">" * 1000, "- " * 1000, "[" * 1000 + "](https://x.example)" * 10, "*a _b " * 1000, "x" * 300000]
    # Nor does it take a time that grows with its square.
    long = ["~" * 2_000_000 + "`", "![x" * 4000 + "](https://x.example)" * 4000, ("https://x.example/" + ")" * 2000 + " ") * 45]
    for text in nested + long:
        depth = page.evaluate("text => { let [one, depth] = [rendered(text, 1e6), 0]; while (one.firstElementChild) { one = one.firstElementChild; depth += 1; } return depth; }", text)
        assert depth < 40, (text[:20], depth)
