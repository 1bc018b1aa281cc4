"""SpeechT5: text to a spectrogram step by step, then to samples, in both layouts of its decoder."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Iterator

import numpy as np
import sentencepiece
import torch
import transformers as tf
from optimum.exporters.onnx import onnx_export_from_model
from optimum.onnx import merge_decoders
from sentencepiece import sentencepiece_model_pb2
from transformers.models.speecht5.number_normalizer import EnglishNumberNormalizer

import vocab
from common import Json, Repository, close, demand, randomise
from scratch import folder
from shrink import shrink

RATE = 16_000
# The exporter's dropout keeps what a random number above this lets through: everything, by the published graph's own nodes.
ALL = -1e-9
TEXTS = [
    "The sea is calm.", "  Spaces   here and  there ", "Where, o where?! (There.)", "ﬁne tea № ½", "tab\tand\u00a0no-break",
    "smile 🙂🙂 and 🙂 again", "中文 and Ωmega", "schön, schö\u0308n, cafe\u0301", "▁bar", "a", " ", "1912 and 7",
]
NUMBERS = [
    "It costs $3.50 or 1,912 pounds.", "0", "0.5", "-5 and -$5", "5.00 is 5", "12,345,678", "1000000", "100", "110 and 111", "50%",
    "5.50% and 5.00%", "50%x", "3rd 12rd", "3.145", "a-5", "10-5", "£20", "€1,000.25", "¥5 ₹7 ₩9", "999999999999", "1_000",
    "2026-11-22", "10:30", "v2.0", "1.", ".5", "x 5   y", "007", "1001", "$-5", "20", "15%.", "(42)", "3.1",
]


def characters(name: str, own_rules: bool) -> Path:
    """A SentencePiece model of single characters, with the ids that SpeechT5 has for its special tokens."""
    options: Json = {"bos_id": 0, "pad_id": 1, "eos_id": 2, "unk_id": 3, "pad_piece": "<pad>"}
    if own_rules:
        trained = vocab.sentencepiece_model(name, size=81, kind="char", **options)
    else:
        trained = folder(name) / "trained.model"
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(vocab.CORPUS * 3), model_prefix=str(trained.with_suffix("")), vocab_size=81, model_type="char",
            character_coverage=1.0, normalization_rule_name="identity", num_threads=1, minloglevel=2, hard_vocab_limit=False,
            **options,
        )
    # Without where it was trained.
    model = sentencepiece_model_pb2.ModelProto.FromString(trained.read_bytes())
    for field in ("input", "model_prefix"):
        model.trainer_spec.ClearField(field)
    model.normalizer_spec.ClearField("normalization_rule_tsv")
    file = folder(name) / "spm_char.model"
    file.write_bytes(model.SerializeToString(deterministic=True))
    return file


def plain_tokenizer(file: Path) -> Json:
    """The tokenizer.json of the published conversion: a list of characters, without a kind and without rules."""
    names = [name for name, _score in vocab.pieces(file)]
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [
            {"id": index, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
            for index, content in enumerate(names[:4])
        ],
        "normalizer": {"type": "Precompiled", "precompiled_charsmap": None},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "WhitespaceSplit"}, {"type": "Metaspace", "replacement": "▁", "add_prefix_space": True},
            {"type": "Split", "pattern": {"Regex": ""}, "behavior": "Isolated", "invert": False},
        ]},
        "decoder": {"type": "Metaspace", "replacement": "▁", "add_prefix_space": True},
        "model": {"unk_id": 2, "vocab": {name: index for index, name in enumerate(names)}},
    }


def voice(name: str) -> tuple[Any, Any]:
    """A SpeechT5 and its vocoder, small but for what the published ones fix: 80 pitches, 512 numbers of a speaker."""
    config = tf.SpeechT5Config(
        vocab_size=81, hidden_size=16, encoder_layers=1, decoder_layers=2, encoder_attention_heads=2, decoder_attention_heads=2,
        encoder_ffn_dim=32, decoder_ffn_dim=32, speech_decoder_prenet_units=16, speech_decoder_postnet_units=8,
        encoder_max_relative_position=16, max_speech_positions=160, max_text_positions=96, num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=4, conv_dim=[8] * 7, speech_decoder_prenet_dropout=ALL,
    )
    model = randomise(tf.SpeechT5ForTextToSpeech(config), name, gain=1.5)
    # Generated frames and speaker weigh alike, however many numbers there are of each.
    joined = model.speecht5.decoder.prenet.speaker_embeds_layer.weight.data
    joined[:, :16] *= 33**0.5
    joined[:, 16:] *= 10
    model.speecht5.encoder.prenet.encode_positions.alpha.data.fill_(0.7)
    model.speecht5.decoder.prenet.encode_positions.alpha.data.fill_(1.0)
    model.speecht5.decoder.prenet._consistent_dropout = lambda states, _share: states
    sounds = tf.SpeechT5HifiGanConfig(upsample_initial_channel=16, resblock_kernel_sizes=[3], resblock_dilation_sizes=[[1, 3]])
    vocoder = randomise(tf.SpeechT5HifiGan(sounds), f"{name}-vocoder", gain=1.2)
    return model, vocoder


def export(name: str, model: Any, vocoder: Any) -> Path:
    """Writes every graph to a scratch folder with optimum, and the merged decoder beside its halves."""
    target = folder(f"{name}-graphs")
    shutil.rmtree(target)
    vocoder.save_pretrained(folder(f"{name}-vocoder"))
    options = {"vocoder": str(folder(f"{name}-vocoder"))}
    # The exporter leaves its own forward behind.
    onnx_export_from_model(copy.deepcopy(model), target, task="text-to-audio", do_validation=False, model_kwargs=options)
    merge_decoders(
        target / "decoder_model.onnx", target / "decoder_with_past_model.onnx",
        save_path=target / "decoder_model_merged.onnx", strict=False,
    )
    return target


def put(repository: Repository, graphs: Path, places: dict[str, str]) -> None:
    """Copies graphs to their places in the repository, made smaller."""
    for stem, place in places.items():
        file = repository.model / place
        file.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(graphs / f"{stem}.onnx", file)
        shrink(file)


@contextmanager
def unrefined(model: Any) -> Iterator[list[np.ndarray]]:
    """Keeps the spectrograms that are given to the postnet, which is a part of the vocoder's graph."""
    kept: list[np.ndarray] = []
    inner = model.speech_decoder_postnet.postnet

    def postnet(spectrogram: torch.Tensor) -> torch.Tensor:
        kept.append(spectrogram[0].detach().numpy().copy())
        return inner(spectrogram)

    model.speech_decoder_postnet.postnet = postnet
    try:
        yield kept
    finally:
        del model.speech_decoder_postnet.postnet


def stops(model: Any, runs: list[tuple[torch.Tensor, torch.Tensor]], first: int, last: int) -> None:
    """Fits the head that ends a text, so that each run ends within these steps, and never by a hair."""
    head = model.speech_decoder_postnet.prob_out
    paths = []
    for ids, speaker in runs:
        states: list[torch.Tensor] = []
        hook = head.register_forward_pre_hook(lambda _module, given: states.append(given[0].detach()[0]))
        model.generate_speech(ids, speaker, threshold=9.0, maxlenratio=2 * (last + 1) / ids.shape[1])
        hook.remove()
        paths.append(torch.stack(states))
    wanted = [first + 1 + 2 * index for index in range(len(runs))]
    ramps = [torch.arange(len(path)) + 1.0 - end for path, end in zip(paths, wanted)]
    states, ramp = torch.cat(paths), torch.cat(ramps).clamp(-4, 4)
    states = torch.cat([states, torch.ones(len(states), 1)], 1)
    fit = torch.linalg.solve(states.T @ states + 1e-3 * torch.eye(states.shape[1]), states.T @ ramp)
    # Few digits, so that another machine's rounding makes the same graph.
    fit = torch.round(fit, decimals=2)
    head.weight.data[0], head.bias.data[0] = fit[:-1], fit[-1] - 0.4
    head.weight.data[1], head.bias.data[1] = 0.1 * fit[:-1], torch.tensor(-2.0)
    ends = []
    for path in paths:
        totals = torch.sigmoid(head(path)).sum(-1).detach()
        reached = (totals >= 0.5).nonzero()
        demand(len(reached) > 0, f"no end within {last} steps")
        ends.append(int(reached[0]) + 1)
        demand(float((totals[: ends[-1]] - 0.5).abs().min()) > 0.03, "an end by a hair")
    demand(first <= min(ends) and len(set(ends)) > 2, f"ends at the steps {ends}")
    print(f"ends at the steps {ends}")


def speak(repository: Repository, model: Any, vocoder: Any, tokenizer: Any, speaker: np.ndarray, cases: dict[str, Json], **bounds: float) -> None:
    """Cases of speech: the ids, the spectrogram before the postnet and the samples are the library's."""
    encoder = next(repository.model.rglob("encoder_model.onnx"))
    for name, given in cases.items():
        ids = tokenizer(given["text"], return_tensors="pt").input_ids
        own = torch.tensor([given.get("speaker_embeddings", speaker.tolist())], dtype=torch.float32)
        with unrefined(model) as kept, torch.no_grad():
            samples = model.generate_speech(ids, own, vocoder=vocoder, **bounds).numpy()
        demand(0.03 < samples.std() < 0.6, f"dull: {samples.std()}")
        raw = repository.session(str(encoder.relative_to(repository.model)))({"input_ids": ids.numpy()})
        with torch.no_grad():
            close(raw["encoder_outputs"], model.speecht5.encoder(ids).last_hidden_state.numpy())
        arrays = {"input_ids": ids.numpy(), "spectrogram": kept[-1]}
        output = {
            "audio": {"file": repository.store(f"{name}.speech", samples)}, "sample_rate": RATE,
            "seconds": round(len(samples) / RATE, 3),
        }
        repository.case(name, given, output, 1e-3, tensors=arrays, raw={"encoder_outputs": raw["encoder_outputs"]})


def readings(repository: Repository, tokenizer: Any, texts: list[str]) -> None:
    """What the library reads in texts, and how it spells numbers, for tests without a model."""
    spell = EnglishNumberNormalizer()
    read = [{"text": text, "ids": tokenizer(text, normalize=False).input_ids} for text in texts]
    numbers = [{"text": text, "spelt": spell(text)} for text in NUMBERS]
    file = repository.root / "readings.json"
    file.write_text(json.dumps({"texts": read, "numbers": numbers}, indent=1, ensure_ascii=False) + "\n")


def speaker(seed: int) -> np.ndarray:
    """The numbers of a made-up speaker, with few digits."""
    return np.round(np.random.default_rng(seed).standard_normal(512) * 2, 2).astype(np.float32)


def merged() -> None:
    name = "speecht5"
    repository = Repository(name, "text-to-speech")
    tokenizer = tf.SpeechT5Tokenizer(str(characters(name, own_rules=True)), normalize=True, model_max_length=96)
    model, vocoder = voice(name)
    first, other = speaker(1), speaker(2)
    cases: dict[str, Json] = {
        "plain": {"text": "The sea is calm."},
        "numbers": {"text": "It was $3.50 in 1,912?"},
        "unknown": {"text": "Où, № ½ boats? 🙂🙂"},
        "other-speaker": {"text": "The sea is calm.", "speaker_embeddings": [round(float(number), 2) for number in other]},
    }
    runs = [
        (tokenizer(given["text"], return_tensors="pt").input_ids, torch.tensor([given.get("speaker_embeddings", first.tolist())]))
        for given in cases.values()
    ]
    stops(model, runs, 5, 14)
    places = {stem: f"onnx/{stem}.onnx" for stem in ("encoder_model", "decoder_model_merged", "decoder_postnet_and_vocoder")}
    put(repository, export(name, model, vocoder), places)
    model.config.speech_decoder_prenet_dropout = 0.0
    repository.save(model.config, model.generation_config)
    tokenizer.save_pretrained(repository.model)
    first.tofile(repository.model / "speaker_embeddings.bin")
    speak(repository, model, vocoder, tokenizer, first, cases)
    readings(repository, tokenizer, TEXTS)
    repository.write()


def split() -> None:
    name = "speecht5-split"
    repository = Repository(name, "text-to-speech")
    file = characters(name, own_rules=False)
    tokenizer = tf.SpeechT5Tokenizer(str(file), model_max_length=96)
    model, vocoder = voice(name)
    # It would go on for ever.
    model.speech_decoder_postnet.prob_out.bias.data.fill_(-30)
    places = {
        "encoder_model": "encoder_model.onnx", "decoder_model": "decoder_model.onnx",
        "decoder_with_past_model": "decoder_with_past_model.onnx", "decoder_postnet_and_vocoder": "vocoder/onnx/model.onnx",
    }
    put(repository, export(name, model, vocoder), places)
    model.config.speech_decoder_prenet_dropout = 0.0
    repository.save(model.config, model.generation_config, tokenizer)
    vocab.write_json(repository.model / "tokenizer.json", plain_tokenizer(file))
    (repository.model / "speakers").mkdir()
    np.save(repository.model / "speakers/awb.npy", speaker(3))
    repository.extra = {"engine": {"speaker_embeddings": "speakers/awb.npy", "maxlenratio": 1.3, "minlenratio": 0.5}}
    cases = {"bounded": {"text": "a small boat"}, "unknown": {"text": "the ship 🙂🙂 lies"}}
    speak(repository, model, vocoder, tokenizer, speaker(3), cases, maxlenratio=1.3, minlenratio=0.5)
    # A tokenizer.json alone takes any white space for a space.
    readings(repository, tokenizer, [text for text in TEXTS if not text.startswith("tab")])
    repository.write()


FAMILIES: dict[str, Callable[[], None]] = {"speecht5": merged, "speecht5-split": split}
