"""OpenAI's own Python client: files, batches, and events of webhooks, whose signatures it checks."""

import http.server
import io
import json
import queue
import sys
import threading
import time
import urllib.request

from openai import InvalidWebhookSignatureError, NotFoundError, OpenAI, UnprocessableEntityError

base_url, key = sys.argv[1:3]
client = OpenAI(base_url=base_url, api_key=key, max_retries=0)
events = queue.Queue()


class Receiver(http.server.BaseHTTPRequestHandler):
    """Keeps what is posted to it."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        events.put((body, dict(self.headers.items())))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass


def line(name, max_tokens=8):
    body = {"model": "llm-chat", "messages": [{"role": "user", "content": name}], "max_tokens": max_tokens}
    return json.dumps({"custom_id": name, "method": "POST", "url": "/v1/chat/completions", "body": body}) + "\n"


def upload(text):
    return client.files.create(file=("night.jsonl", io.BytesIO(text.encode())), purpose="batch")


def begin(file, **more):
    return client.batches.create(
        input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h", **more
    )


def ended(batch):
    for _ in range(120):
        batch = client.batches.retrieve(batch.id)
        if batch.status in ("completed", "failed", "expired", "cancelled"):
            return batch
        time.sleep(1)
    raise AssertionError(batch)


# Events are sent to a server of this script.
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
threading.Thread(target=server.serve_forever, daemon=True).start()
body = json.dumps({
    "url": f"http://127.0.0.1:{server.server_port}/", "events": ["batch.completed", "batch.cancelled", "batch.failed"]
}).encode()
headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
with urllib.request.urlopen(urllib.request.Request(f"{base_url}/webhooks", body, headers)) as answer:
    secret = json.load(answer)["secret"]

# A file is stored, and read as it was.
text = "".join(line(name) for name in ("one", "two", "three"))
file = upload(text)
assert (file.object, file.purpose, file.bytes, file.filename) == ("file", "batch", len(text), "night.jsonl"), file
assert client.files.retrieve(file.id) == file
assert client.files.content(file.id).text == text
assert [found.id for found in client.files.list(purpose="batch")] == [file.id]

# A batch runs its lines, and reports its progress.
batch = begin(file, metadata={"night": "first"}, extra_body={"max_credits": 5})
assert (batch.object, batch.status, batch.metadata) == ("batch", "validating", {"night": "first"}), batch
batch = ended(batch)
assert batch.status == "completed" and batch.errors is None and batch.error_file_id is None, batch
assert (batch.request_counts.total, batch.request_counts.completed, batch.request_counts.failed) == (3, 3, 0)
assert batch.created_at <= batch.in_progress_at <= batch.finalizing_at <= batch.completed_at < batch.expires_at
results = [json.loads(result) for result in client.files.content(batch.output_file_id).text.splitlines()]
assert [result["custom_id"] for result in results] == ["one", "two", "three"], results
for result in results:
    assert result["error"] is None and result["response"]["status_code"] == 200, result
    assert result["response"]["body"]["choices"][0]["message"]["content"], result
assert [found.id for found in client.batches.list(limit=1)] == [batch.id]

# The client checks the signature of the event, and reads it.
payload, headers = events.get(timeout=30)
event = client.webhooks.unwrap(payload, headers, secret=secret)
assert (event.type, event.data.id) == ("batch.completed", batch.id), event
try:
    client.webhooks.unwrap(payload.replace(b"completed", b"cancelled"), headers, secret=secret)
    raise AssertionError("a changed event was accepted")
except InvalidWebhookSignatureError:
    pass

# Faults of a file are reported by line.
faulty = ended(begin(upload(line("one") + "no JSON\n")))
assert faulty.status == "failed" and faulty.errors.data[0].line == 2, faulty
assert client.webhooks.unwrap(*events.get(timeout=30), secret=secret).type == "batch.failed"

# A batch that is cancelled ends; one that has ended stays as it is.
many = upload("".join(line(str(number), max_tokens=64) for number in range(400)))
cancelled = client.batches.cancel(begin(many).id)
assert cancelled.status == "cancelling", cancelled
cancelled = ended(cancelled)
assert cancelled.status == "cancelled" and cancelled.cancelled_at >= cancelled.cancelling_at, cancelled
try:
    client.batches.cancel(batch.id)
    raise AssertionError("an ended batch was cancelled")
except UnprocessableEntityError as error:
    assert error.code == "batch_already_final", error

assert client.files.delete(file.id).deleted
try:
    client.files.retrieve(file.id)
    raise AssertionError("a deleted file was found")
except NotFoundError as error:
    assert error.code == "file_not_found", error
print("ok")
