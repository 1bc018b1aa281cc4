"""Checks that exported decoders, with and without a cache, agree with the library's decoder."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from common import Arrays, Repository, Session, close

HEAD, WHOLE = 5, 6


def check_decoders(repository: Repository, model: Any, inputs: dict[str, torch.Tensor]) -> None:
    """Compares the scores of six tokens: five at once, and one more on top of the cache."""
    decoder = getattr(model, "decoder", model)
    size = getattr(decoder.config, "vocab_size", None) or model.config.vocab_size
    tokens = torch.randint(3, size, (1, WHOLE), generator=torch.Generator().manual_seed(9))
    with torch.no_grad():
        wanted = model(**inputs, decoder_input_ids=tokens).logits.numpy()
    encoder = repository.session("onnx/encoder_model.onnx")
    given = {name: value.numpy() for name, value in inputs.items()}
    given = {name: value.astype(np.int64) if value.dtype == np.int32 else value for name, value in given.items()}
    states = encoder(given)["last_hidden_state"]
    mask = np.ones(states.shape[:2], np.int64)
    shared = {"encoder_hidden_states": states, "encoder_attention_mask": mask}
    first, later = decoders(repository)
    found = first({**shared, "input_ids": tokens[:, :HEAD].numpy(), "use_cache_branch": np.array([False])})
    close(found["logits"], wanted[:, :HEAD])
    step = {**shared, "input_ids": tokens[:, HEAD:].numpy(), "use_cache_branch": np.array([True]), **caches(found)}
    close(later(step)["logits"], wanted[:, HEAD:])


def decoders(repository: Repository) -> tuple[Session, Session]:
    """The graphs of the first and of the later steps, which are one where they were merged."""
    if (repository.model / "onnx/decoder_model_merged.onnx").exists():
        merged = repository.session("onnx/decoder_model_merged.onnx")
        return merged, merged
    return repository.session("onnx/decoder_model.onnx"), repository.session("onnx/decoder_with_past_model.onnx")


def caches(found: Arrays) -> Arrays:
    """What one step leaves, by the names under which the next one takes it."""
    return {
        name.replace("present", "past_key_values"): value for name, value in found.items() if name.startswith("present")
    }
