"""Embeddings behind mosec, which batches what waits: `serve_mosec.py FOLDER PORT WORKERS THREADS BATCH`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from embedder import Embedder, end_with_standard_input
from mosec import Server, Worker


class Embed(Worker):
    """A list of requests in, as many answers out."""

    def __init__(self) -> None:
        super().__init__()
        self.embedder = Embedder(Path(os.environ["FOLDER"]), int(os.environ["THREADS"]))

    def forward(self, data: list[dict] | dict) -> list[dict] | dict:
        asked = data if isinstance(data, list) else [data]
        answers = [{"embedding": vector} for vector in self.embedder.embed([one["input"] for one in asked])]
        return answers if isinstance(data, list) else answers[0]

    def serialize(self, data: dict) -> bytes:
        # Its own way indents, which json does slowly.
        return json.dumps(data).encode()


def main(folder: str, port: str, workers: str, threads: str, batch: str) -> None:
    # Workers are processes that see the environment alone; the server reads the command line itself.
    del sys.argv[1:]
    os.environ |= {"FOLDER": folder, "THREADS": threads, "MOSEC_ADDRESS": "127.0.0.1", "MOSEC_PORT": port}
    os.environ |= {"MOSEC_TIMEOUT": "60000", "MOSEC_LOG_LEVEL": "error"}
    end_with_standard_input()
    server = Server()
    server.append_worker(Embed, num=int(workers), max_batch_size=int(batch), max_wait_time=1, route="/embed")
    server.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
