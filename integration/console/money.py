"""What was used and what it cost: usage, the ledger, statements, the market."""

import re

from harness import completed, eventually, expect

# Where the middle of a plot's bars is, as a part of its canvas: from the pixels that have the color of the first series.
MIDDLE_OF_BARS = """canvas => {
  const probe = document.createElement('canvas').getContext('2d');
  probe.fillStyle = getComputedStyle(document.documentElement).getPropertyValue('--plot-0').trim();
  probe.fillRect(0, 0, 1, 1);
  const [red, green, blue] = probe.getImageData(0, 0, 1, 1).data;
  const { data, width } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  const columns = [];
  for (let at = 0; at < data.length; at += 4) {
    if (data[at] === red && data[at + 1] === green && data[at + 2] === blue) columns.push((at / 4) % width);
  }
  if (columns.length === 0) return null;
  return (Math.min(...new Set(columns)) + Math.max(...new Set(columns))) / 2 / width;
}"""


def written(credits):
    """Credits as pages write them."""
    return f"{credits:.6f}".rstrip("0").rstrip(".")


def tile(page, label):
    """The value of a tile."""
    name = page.locator(".label", has_text=re.compile(f"^{re.escape(label)}$"))
    return page.locator(".tile", has=name).locator(".value").inner_text()


def panel(page, title):
    return page.locator("section.panel", has=page.get_by_role("heading", name=title, exact=True))


def usage_has_the_numbers_of_a_job(browser, network):
    """A key that ran one job has used what that job did."""
    created = network.call("POST", "/api-keys", network.consumer, {"name": "a meter", "scopes": ["read", "write"]})[1]
    usage = network.ended_job(created["key"], prompt="one two three", max_tokens=5)["usage"]
    page = browser.signed_in(network.consumer)

    def is_counted():
        page.goto(f"/console/usage?key={created['data']['id']}")
        return tile(page, "Jobs") == "1"

    eventually(is_counted)
    cost = written(usage["credits_used"])
    assert usage["credits_used"] > 0 and tile(page, "Credits spent") == cost, tile(page, "Credits spent")
    assert tile(page, "Tokens read") == str(usage["prompt_tokens"])
    assert tile(page, "Tokens written") == str(usage["completion_tokens"])
    for title, name in [("By Cargo", "sim-chat"), ("By key", "a meter")]:
        rows = panel(page, title).locator("tbody tr")
        expect(rows).to_have_count(1)
        cells = rows.locator("td").all_inner_texts()
        assert cells[0] == name and cost in cells, cells
    # The plot is drawn from a table, whose last day is today.
    plot = page.locator("figure.plot", has_text="Credits by day and Cargo")
    expect(plot.locator("canvas")).to_have_count(1)
    plot.locator("summary").click()
    expect(plot.locator("tbody tr").last.locator("td").last).to_have_text(cost)
    # The form has what was chosen.
    expect(page.locator('[name="key"]')).to_have_value(created["data"]["id"])


def the_ledger_has_every_movement_of_a_job(browser, network):
    job = network.ended_job(network.consumer)["id"]
    entries = [one for one in network.data("GET", "/account/ledger?limit=50", network.consumer) if one.get("job_id") == job]
    assert len(entries) >= 2, entries
    page = browser.signed_in(network.consumer)
    page.goto("/console/ledger")
    rows = panel(page, "Entries").locator("tbody tr", has=page.locator(f'a[href="/console/jobs/{job}"]'))
    expect(rows).to_have_count(len(entries))
    for at, entry in enumerate(entries):
        cells = rows.nth(at).locator("td").all_inner_texts()
        assert cells[-1] == written(entry["amount"]), (cells, entry)
        # Words of the API are not for people.
        assert entry["kind"] not in cells and cells[1], (cells, entry)
    # The statement of this month, and its file.
    heading = page.get_by_role("heading", name=re.compile(r"^Statement of \d{4}-\d{2}$"))
    expect(page.locator("section.panel", has=heading)).to_contain_text("spent on jobs")
    with page.expect_download() as download:
        page.get_by_role("link", name=re.compile("^Download the entries of ")).click()
    with open(download.value.path()) as file:
        head, *lines = file.read().splitlines()
    assert head == "time,kind,credits,job,cargo,island,device"
    assert any(job in line and "sim-chat" in line for line in lines), lines[:5]
    rows.first.get_by_role("link", name="Job").click()
    completed(page)


def the_market_shows_prices_by_hour(browser, network):
    network.ended_job(network.consumer)
    # Everybody reads it.
    page = browser.context().new_page()

    def has_hours():
        page.goto("/console/market/sim-chat")
        return page.locator("figure.plot").count() == 2

    eventually(has_hours)
    expect(page.get_by_role("heading", level=1)).to_have_text("sim-chat")
    expect(page.locator("figure.plot canvas")).to_have_count(2)
    volume = page.locator("figure.plot", has_text="Jobs by hour")
    if volume.locator("tbody tr").count() == 1:
        # A single hour is drawn in the middle of a day, not at the edge of years.
        assert 0.4 < volume.locator("canvas").evaluate(MIDDLE_OF_BARS) < 0.7, volume.inner_text()
    volume.locator("summary").click()
    assert int(volume.locator("tbody tr").last.locator("td").last.inner_text()) >= 1
    page.get_by_role("link", name="About this Cargo").click()
    page.wait_for_url("**/console/cargos/sim-chat")
    assert page.goto("/console/market/no-such-cargo").status == 404
