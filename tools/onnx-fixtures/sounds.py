"""Models that read or write samples: wav2vec2, Moonshine, MMS voices, SpeechT5."""

from __future__ import annotations

import numpy as np
import torch
import transformers as tf
from transformers import pipeline

import media
import vocab
from cached import check_decoders
from common import Repository, capture, close, demand, randomise, steady
from scratch import folder
from seq2seq import DECODERS, lively
from speech import sound


def wav2vec2() -> None:
    name = "wav2vec2"
    letters = ["<pad>", "<s>", "</s>", "<unk>", "|", *"ETAONIHSRDLUMWCFGYPBVK'XJQZ"]
    file = vocab.write_json(folder(name) / "vocab.json", {letter: index for index, letter in enumerate(letters)})
    tokenizer = tf.Wav2Vec2CTCTokenizer(str(file))
    extractor = tf.Wav2Vec2FeatureExtractor(return_attention_mask=False, do_normalize=True)
    config = tf.Wav2Vec2Config(
        vocab_size=len(letters), hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        conv_dim=[8] * 7, num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4, pad_token_id=0,
    )
    model = randomise(tf.Wav2Vec2ForCTC(config), name, gain=2.0)
    model.lm_head.weight.data *= 3
    model.lm_head.bias.data[1:4] -= 30  # the library would write these tokens out
    repository = Repository(name, "automatic-speech-recognition")
    repository.export(model, "automatic-speech-recognition")
    repository.save(tokenizer, extractor)
    vocab.write_json(repository.model / "vocab.json", {letter: index for index, letter in enumerate(letters)})
    run = pipeline("automatic-speech-recognition", model=model, tokenizer=tokenizer, feature_extractor=extractor)
    for index, (file, seconds) in enumerate({"short.wav": 1.1, "long.flac": 3.3}.items()):
        samples = sound(repository, file, seconds, seed=index + 2)
        with capture(model) as calls:
            found = steady(model, lambda: run({"raw": samples.copy(), "sampling_rate": media.RATE})["text"])
        demand(len(set(found)) > 4 and " " in found.strip(), f"dull: {found}")
        arrays = {}
        if index == 0:
            raw = repository.session()({"input_values": calls[0]["input_values"]})
            with torch.no_grad():
                close(raw["logits"], model(torch.from_numpy(calls[0]["input_values"])).logits.numpy())
            arrays = {"tensors": {"input_values": calls[0]["input_values"][:, :4000]}, "raw": raw}
        repository.case(file.partition(".")[0], {"audio": {"file": file}}, {"text": found}, **arrays)
    repository.write()


def vits() -> None:
    name = "mms-tts"
    letters = ["k", "'", "z", "y", "u", "d", "h", "e", "s", "w", "–", "3", "c", "p", "-", "1", "j", "m", "i", " ", "f",
               "l", "o", "0", "b", "r", "a", "4", "2", "n", "_", "x", "v", "t", "q", "5", "6", "g"]
    file = vocab.write_json(folder(name) / "vocab.json", {letter: index for index, letter in enumerate(letters)})
    tokenizer = tf.VitsTokenizer(
        str(file), pad_token="k", unk_token=" ", language="eng", add_blank=True, normalize=True, phonemize=False
    )
    config = tf.VitsConfig(
        vocab_size=len(letters), hidden_size=16, num_hidden_layers=2, num_attention_heads=2, ffn_dim=32, flow_size=16,
        spectrogram_bins=17, duration_predictor_flow_bins=4, duration_predictor_filter_channels=16,
        prior_encoder_num_flows=2, prior_encoder_num_wavenet_layers=1, posterior_encoder_num_wavenet_layers=1,
        upsample_initial_channel=32, upsample_rates=[8, 8, 2, 2], upsample_kernel_sizes=[16, 16, 4, 4],
        resblock_kernel_sizes=[3], resblock_dilation_sizes=[[1, 3]], duration_predictor_num_flows=2,
        depth_separable_num_layers=2, noise_scale=0.0, noise_scale_duration=0.0, wavenet_dilation_rate=1,
        sampling_rate=16000, use_stochastic_duration_prediction=False,
    )
    torch.manual_seed(1)
    model = randomise(tf.VitsModel(config), name, gain=1.2)
    for module in model.modules():
        if isinstance(module, torch.nn.Conv1d) and hasattr(module, "parametrizations"):
            torch.nn.utils.parametrize.remove_parametrizations(module, "weight")
    model.decoder.conv_post.weight.data *= 0.4
    repository = Repository(name, "text-to-speech")
    repository.export(model, "text-to-audio")
    repository.save(tokenizer)
    vocab.write_json(repository.model / "vocab.json", {letter: index for index, letter in enumerate(letters)})
    for index, (case, spoken) in enumerate({"plain": "The sea is calm.", "unknown": "Où, 2 boats? 🙂"}.items()):
        inputs = tokenizer(spoken, return_tensors="pt")
        with torch.no_grad():
            wanted = model(**inputs).waveform.numpy()
        feeds = {key: value.numpy() for key, value in inputs.items()}
        raw = repository.session()(feeds)
        close(raw["waveform"], wanted, 2e-3)
        demand(2_000 < wanted.size < 24_000 and wanted.std() > 0.02, f"{wanted.size} samples of {wanted.std()}")
        speech = repository.store(f"{case}.speech", wanted[0])
        arrays = {"tensors": feeds} if index == 0 else {}
        output = {"audio": {"file": speech}, "sample_rate": config.sampling_rate}
        repository.case(case, {"text": spoken}, output, 3e-3, **arrays)
    repository.write()


def moonshine() -> None:
    name = "moonshine"
    trained = vocab.byte_bpe(["<unk>", "<s>", "</s>"], size=320)
    tokenizer = tf.PreTrainedTokenizerFast(
        tokenizer_object=trained, unk_token="<unk>", bos_token="<s>", eos_token="</s>", pad_token="</s>"
    )
    config = tf.MoonshineConfig(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=32, encoder_num_hidden_layers=2,
        decoder_num_hidden_layers=2, encoder_num_attention_heads=2, decoder_num_attention_heads=2,
        max_position_embeddings=64, tie_word_embeddings=False, partial_rotary_factor=0.5,
    )
    model = randomise(tf.MoonshineForConditionalGeneration(config), name, gain=1.2)
    extractor = tf.Wav2Vec2FeatureExtractor(do_normalize=False, return_attention_mask=True, padding_value=0.0)
    example = torch.from_numpy(media.speech(1.0, seed=3))[None]
    lively(model, len(tokenizer), 1.2, {"input_values": example}, unlike=True)
    model.proj_out.weight.data *= 2
    model.generation_config = tf.GenerationConfig(
        bos_token_id=1, eos_token_id=2, decoder_start_token_id=1, pad_token_id=2, max_length=48
    )
    repository = Repository(name, "automatic-speech-recognition")
    repository.export(model, "automatic-speech-recognition-with-past", drop=DECODERS)
    repository.save(tokenizer, extractor)
    for index, (file, seconds) in enumerate({"short.wav": 1.3, "long.flac": 3.1}.items()):
        samples = sound(repository, file, seconds, seed=index + 2)
        inputs = extractor(samples, sampling_rate=media.RATE, return_tensors="pt")
        limit = max(1, int(len(samples) / media.RATE * 6.5))
        say = lambda: tokenizer.decode(model.generate(**inputs, max_length=limit)[0], skip_special_tokens=True)
        found = steady(model, say)
        demand(len(set(found)) > 4, f"dull: {found}")
        arrays = {}
        if index == 0:
            check_decoders(repository, model, dict(inputs))
            feeds = {key: value.numpy() for key, value in inputs.items()}
            feeds["attention_mask"] = feeds["attention_mask"].astype(np.int64)
            raw = repository.session("onnx/encoder_model.onnx")(feeds)
            arrays = {"raw": {"last_hidden_state": raw["last_hidden_state"]}}
        repository.case(file.partition(".")[0], {"audio": {"file": file}}, {"text": found}, max_length=limit, **arrays)
    repository.write()


FAMILIES = {"wav2vec2": wav2vec2, "mms-tts": vits, "moonshine": moonshine}
