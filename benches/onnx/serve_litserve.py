"""Embeddings behind LitServe, which batches what waits: `serve_litserve.py FOLDER PORT WORKERS THREADS BATCH`."""

from __future__ import annotations

import sys
from pathlib import Path

import litserve
from embedder import Embedder, end_with_standard_input


class Embed(litserve.LitAPI):
    """A list of texts in, as many vectors out."""

    def __init__(self, folder: Path, threads: int, batch: int) -> None:
        super().__init__(max_batch_size=batch, batch_timeout=0.001 if batch > 1 else 0.0, api_path="/embed")
        self.folder, self.threads = folder, threads

    def setup(self, device: str) -> None:
        self.embedder = Embedder(self.folder, self.threads)

    def decode_request(self, request: dict) -> str:
        return request["input"]

    def predict(self, texts: list[str] | str) -> list:
        return self.embedder.embed(texts) if isinstance(texts, list) else self.embedder.embed([texts])[0]

    def encode_response(self, output: list[float]) -> dict:
        return {"embedding": output}


def main(folder: str, port: str, workers: str, threads: str, batch: str) -> None:
    end_with_standard_input()
    api = Embed(Path(folder), int(threads), int(batch))
    server = litserve.LitServer(api, accelerator="cpu", devices=1, workers_per_device=int(workers), timeout=60)
    server.run(host="127.0.0.1", port=int(port), num_api_servers=1, log_level="error", generate_client_file=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
