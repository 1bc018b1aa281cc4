"""Forms of Cargos, with files, and what their jobs make."""

import base64
import hashlib
import math
import os
import subprocess
import tempfile
import wave

from harness import RED, completed, expect, submit


def every_kind_of_cargo_runs_from_its_form(browser, network):
    page = browser.signed_in(network.consumer)
    # A picture.
    submit(page, "tiny-paint", {"prompt": "a fox in the snow", "seed": "7"})
    completed(page)
    image = page.locator("figure.media img")
    expect(image).to_have_count(1)
    image.evaluate("image => image.decode()")
    assert image.evaluate("image => image.naturalWidth") == 64
    assert image.get_attribute("alt") == "Picture 1"
    with page.expect_download() as download:
        page.locator("figure.media a").click()
    assert download.value.suggested_filename.endswith("-1.png"), download.value.suggested_filename
    # Sound.
    submit(page, "tiny-onnx-text-to-speech", {"text": "The sea is calm."})
    completed(page)
    sound = page.locator("figure.media audio")
    expect(sound).to_have_count(1)
    sound.evaluate("audio => audio.readyState > 0 || new Promise((done, fail) => { audio.onloadedmetadata = done; audio.onerror = () => fail('no sound'); audio.load(); })")
    assert sound.evaluate("audio => audio.duration") > 0
    # A file in, here the example's.
    submit(page, "tiny-onnx-image-classification")
    completed(page)
    expect(page.locator("table")).not_to_have_count(0)
    # A program.
    submit(page, "wasm-hash", {"text": "abc"})
    completed(page)
    expect(page.locator("main")).to_contain_text("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")
    # A mistake is shown at its field, with what was entered.
    page.goto("/console/cargos/tiny-paint")
    page.locator("section.panel form details.fold > summary").click()
    page.locator('section.panel [name="prompt"]').fill("kept")
    width = page.locator('section.panel [name="width"]')
    width.evaluate("field => { field.removeAttribute('min'); field.removeAttribute('max'); }")
    width.fill("65")
    page.locator("section.panel form").get_by_role("button", name="Run", exact=True).click()
    expect(page.locator("label.wrong .error")).to_contain_text("multiple of 8")
    expect(page.locator('section.panel [name="prompt"]')).to_have_value("kept")
    # A file is lost by a refusal, and the example does not take its place.
    page.goto("/console/cargos/tiny-onnx-automatic-speech-recognition")
    form = page.locator("section.panel form", has=page.locator("input[type=file]")).first
    form.locator("input[type=file]").first.set_input_files(RED)
    form.locator("details.fold > summary").click()
    priority = form.locator('[name=".priority"]')
    priority.evaluate("field => field.removeAttribute('max')")
    priority.fill("101")
    form.get_by_role("button", name="Run", exact=True).click()
    expect(page.locator("label.wrong .error")).to_contain_text("Choose the file again")
    assert not page.locator('[name$=".example"]').is_checked(), "the example would be run in its place"
    # A file of one's own.
    page.goto("/console/cargos/wasm-hash")
    form = page.locator("section.panel form", has=page.locator("input[type=file]")).first
    form.locator('[name$="text"]').first.fill("")
    form.locator("input[type=file]").first.set_input_files(RED)
    form.get_by_role("button", name="Run", exact=True).click()
    completed(page)
    with open(RED, "rb") as file:
        expect(page.locator("main")).to_contain_text(hashlib.sha256(file.read()).hexdigest())
    # The whole input as JSON.
    page.goto("/console/cargos/sim-chat")
    page.get_by_text("Input as JSON").click()
    page.locator('[name=".json"]').fill('{"prompt": "as JSON", "max_tokens": 2, "delay_ms": 0}')
    page.locator("form", has=page.locator('[name=".json"]')).get_by_role("button", name="Run").click()
    completed(page)


def calls_of_a_page_work(browser, network, agent):
    """What the page of a Cargo offers for programs is copied into a shell."""
    page = browser.signed_in(network.consumer)
    page.goto("/console/cargos/wasm-hash")
    variables, curl, python, island = page.locator("figure.copy pre").all_text_contents()
    variables = variables.replace("ak_…", network.consumer)
    environment = {**os.environ, "PATH": os.path.dirname(agent) + os.pathsep + os.environ["PATH"]}
    for command in [curl.replace("curl ", "curl --silent --fail ", 1), island]:
        script = f"{variables}\n{command}"
        result = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True)
        assert result.returncode == 0 and result.stdout, (command, result)
    compile(python, "the call in Python", "exec")


def a_picture_is_seen_while_it_is_painted(browser, network):
    page = browser.signed_in(network.consumer)
    page.add_init_script(
        "window.seen = new Set(); new MutationObserver(() => {"
        " for (const image of document.querySelectorAll('#pictures img.preview')) window.seen.add(image.src);"
        " if (window.seen.size) sessionStorage.seen = window.seen.size; })"
        ".observe(document, {subtree: true, childList: true, attributes: true});"
    )
    # Previews need not be requested: the form does.
    submit(page, "tiny-paint", {"prompt": "a lighthouse"}, {"width": "256", "height": "256", "num_inference_steps": "12"})
    completed(page)
    assert int(page.evaluate("sessionStorage.seen ?? 0")) >= 1, "no preview was shown"


def tone(path):
    """Writes a second of sound, as a recorder does."""
    with wave.open(path, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16000)
        samples = (int(8000 * math.sin(at / 8)) for at in range(16000))
        file.writeframes(b"".join(sample.to_bytes(2, "little", signed=True) for sample in samples))


def files_of_ones_own_are_read(browser, network):
    """Pictures and sounds that a person chooses are the input, and not those of the example."""
    page = browser.signed_in(network.consumer)
    with tempfile.TemporaryDirectory(prefix="isl") as folder:
        sound = os.path.join(folder, "tone.wav")
        tone(sound)
        for slug, name, path, accepted in [
            ("tiny-onnx-image-classification", "image", RED, "image/*"),
            ("tiny-coreml-image-classification", "image", RED, "image/*"),
            ("tiny-onnx-automatic-speech-recognition", "audio", sound, "audio/*,video/mp4"),
        ]:
            page.goto(f"/console/cargos/{slug}")
            expect(page.locator(f'section.panel [name="{name}"]')).to_have_attribute("accept", accepted)
            job = submit(page, slug, {name: path})
            completed(page)
            with open(path, "rb") as file:
                chosen = base64.b64encode(file.read()).decode()
            assert network.data("GET", f"/jobs/{job}", network.consumer)["input"][name] == chosen, slug
    # Run again, the form begins with what was entered.
    submit(page, "wasm-hash", {"text": "land ahoy, once more"})
    completed(page)
    page.get_by_role("link", name="Run this Cargo again").click()
    expect(page.locator('section.panel [name="text"]')).to_have_value("land ahoy, once more")
    page.get_by_text("This job as a call from a program").click()
    expect(page.locator("figure.copy", has_text="island jobs submit")).to_contain_text("land ahoy, once more")
    # A picture that a Cargo does not require.
    submit(page, "tiny-paint", {"prompt": "a red sea"}, {"image": RED, "width": "64", "height": "64"})
    completed(page)
    expect(page.locator("figure.media img")).to_have_count(1)


def models_of_every_engine_run_from_their_forms(browser, network):
    page = browser.signed_in(network.consumer)
    examples = ["tiny-onnx-feature-extraction", "tiny-onnx-text-ranking", "tiny-llmcpp-feature-extraction", "tiny-coreml-text-generation"]
    for slug in examples:
        submit(page, slug)
        completed(page)
    # Depths are a picture.
    submit(page, "tiny-coreml-depth-estimation")
    completed(page)
    expect(page.locator("figure.media img").first).to_be_visible()
    # A language model.
    job = submit(page, "llm-chat", {"prompt": "What is Island?", "max_tokens": "8"})
    completed(page)
    assert 0 < network.data("GET", f"/jobs/{job}", network.consumer)["usage"]["completion_tokens"] <= 8
    # A container, on machines that have them.
    engines = network.data("GET", f"/hosts/{network.host}", network.consumer)["capabilities"]["runtimes"]
    if any(engine["kind"] == "container" and engine["available"] for engine in engines):
        submit(page, "image-metadata", {"image": RED})
        completed(page)
        expect(page.locator("figure.media img")).to_have_count(1)
