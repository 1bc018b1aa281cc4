"""What one account has cannot be reached by another, whatever address it opens and whatever form it sends."""

from harness import expect


def roles_are_apart(browser, network):
    mine = browser.signed_in(network.consumer)
    job = network.ended_job(network.consumer, prompt="a secret")["id"]
    publication = network.publication(network.consumer, "shout-apart")
    mine_key = network.call("POST", "/api-keys", network.consumer, {"name": "not theirs", "scopes": ["read"]})[1]
    account, key = network.account("apart", credits=5)
    other = browser.signed_in(key)
    pages = [f"/console/jobs/{job}", f"/console/jobs/{job}/output", f"/console/publications/{publication}", "/console/admin",
             "/console/admin/accounts", f"/console/admin/accounts/{account}", "/console/admin/audit-log", "/console/admin/fleet",
             "/console/admin/queue", "/console/admin/invitations", "/console/admin/payouts", "/console/admin/cargos",
             "/console/admin/publications", f"/console/admin/publications/{publication}"]
    for path in pages:
        answer = other.goto(path)
        assert answer.status == 404, (path, answer.status)
        assert "a secret" not in other.content() and "Repeats it louder" not in other.content(), path
    own = {"Origin": network.url, "Sec-Fetch-Site": "same-origin"}
    send = other.context.request
    for path in [f"/console/jobs/{job}/stream", f"/console/jobs/{job}/part?at="]:
        assert send.get(path).status == 404, path
    # What belongs to somebody else, and what is for operators.
    island, theirs = f"/console/islands/{network.host}", f"/console/admin/accounts/{account}"
    forms = [f"/console/jobs/{job}/cancel", f"/console/jobs/{job}/delete", f"/console/keys/{mine_key['data']['id']}/revoke",
             f"/console/publications/{publication}/withdraw", f"{island}/pause", f"{island}/drain", f"{island}/resume"]
    forms += [f"/console/admin/{path}" for path in [
        "maintenance/start", "maintenance/end", "notices", "notices/1/remove", "queue/cancel", "accounts", "invitations", "invitations/1/revoke", "payouts",
        "payouts/1/confirm", f"fleet/{network.host}/suspend", "fleet/_/annotate", f"keys/{mine_key['data']['id']}/revoke",
        f"publications/{publication}/approve", f"publications/{publication}/reject", "cargos/sim-chat/disable", "cargos/sim-chat/enable",
    ]]
    forms += [f"{theirs}/{verb}" for verb in ["grants", "deductions", "quotas", "refund", "suspend", "resume", "close"]]
    entered = {"reason": "because", "amount": "1000", "email": "more@example.org", "text": "hello", "job": job, "id": network.host}
    for path in forms:
        assert send.post(path, headers=own, form=entered).status == 404, path
    # An operator is not an owner of what others have.
    assert mine.context.request.post(f"{island}/pause", headers=own).status == 404
    # Nothing of it happened.
    assert network.data("GET", f"/jobs/{job}", network.consumer)["status"] == "completed"
    assert network.data("GET", f"/publications/{publication}", network.consumer)["state"] == "submitted"
    assert network.data("GET", "/account", mine_key["key"])["email"], "the key is not revoked"
    assert network.data("GET", "/account", key)["credits"] == 5
    assert network.data("GET", f"/hosts/{network.host}", key)["status"] == "online"
    expect(other.get_by_role("link", name="Audit log")).to_have_count(0)
    # Of somebody else's Island there is only what everybody sees.
    other.goto(island)
    expect(other.locator("main")).not_to_contain_text("Models on this Island")
    expect(other.get_by_role("button", name="Stop at once")).to_have_count(0)
