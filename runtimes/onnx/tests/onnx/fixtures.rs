//! Every fixture gets the output of the Python pipelines.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use island_runtimes_graph::tensor_trace::TensorTrace;
use island_runtimes_onnx::runtime::Onnx;
use island_runtimes_onnx_fixtures::{Case, Fixture, agree, all, npy, tensors_differ};

#[tokio::test]
async fn outputs_equal_the_reference() {
    let mut wrong = Vec::new();
    let fixtures = all();
    assert!(!fixtures.is_empty(), "there are no fixtures");
    for fixture in &fixtures {
        for task in fixture.tasks() {
            // Not a task but decoding of audio, which `sounds.rs` tests.
            if task == "audio-decoding" {
                continue;
            }
            let (engine, watch) = match fixture.load_watched(&task).await {
                Ok(loaded) => loaded,
                Err(failure) => {
                    wrong.push(format!("{}: does not load: {}", fixture.name, failure.message));
                    continue;
                }
            };
            for case in fixture.cases.iter().filter(|case| fixture.task_of(case) == task) {
                wrong.extend(differences(fixture, case, &engine, &watch).await);
            }
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

async fn differences(fixture: &Fixture, case: &Case, engine: &Onnx, watch: &TensorTrace) -> Vec<String> {
    let at = format!("{}/{}", fixture.name, case.name);
    let answered = fixture.answer(engine, case).await;
    let mut wrong = tensors_differ(fixture, case, &watch.take());
    match answered {
        Ok(output) => wrong.extend(agree(fixture, case, &output)),
        Err(failure) => wrong.push(format!("{} {}", failure.code, failure.message)),
    }
    wrong.into_iter().map(|why| format!("{at}: {why}")).collect()
}

#[test]
fn silence_and_broken_files_differ_from_the_expected_audio() {
    let fixture = Fixture::named("mms-tts");
    let case = fixture.cases.first().expect("a case");
    let file = case.output["audio"]["file"].as_str().expect("a file of samples");
    let length = npy(&fixture.folder.join(file)).len() as u32 * 2;
    let mut header = Vec::new();
    for part in
        [b"RIFF".as_slice(), &(36 + length).to_le_bytes(), b"WAVEfmt ", &16_u32.to_le_bytes(), &[1, 0, 1, 0]]
    {
        header.extend_from_slice(part);
    }
    for part in
        [16_000_u32.to_le_bytes(), 32_000_u32.to_le_bytes(), [2, 0, 16, 0], *b"data", length.to_le_bytes()]
    {
        header.extend_from_slice(&part);
    }
    let silence = vec![0; length as usize];
    for (wav, why) in [
        (Vec::new(), "0 bytes are not a wav file"),
        ([header.as_slice(), &silence].concat(), "samples are"),
        ([[0; 44].as_slice(), &silence].concat(), "unexpected wav header"),
    ] {
        let mut output = case.output.clone();
        output["audio"] = STANDARD.encode(wav).into();
        let wrong = agree(&fixture, case, &output);
        assert!(wrong.len() == 1 && wrong[0].contains(why), "{why:?}: {wrong:?}");
    }
}
