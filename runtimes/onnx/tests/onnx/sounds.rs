//! Audio in every format is decoded as by other libraries.

use std::fs;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use island_runtimes_kit::media::sound;
use island_runtimes_onnx_fixtures::{Fixture, npy};

/// The difference of two signals, the second shifted by this number of samples.
fn apart(ours: &[f32], theirs: &[f32], shift: isize) -> f32 {
    // The filters of two resamplers differ at the start and the end.
    let inner = 400..theirs.len() - 400;
    let at = |place: usize| ours.get(place.checked_add_signed(shift)?).copied();
    inner.map(|place| at(place).map_or(1.0, |ours| (ours - theirs[place]).abs())).fold(0.0, f32::max)
}

#[test]
fn every_format_is_decoded_as_by_other_libraries() {
    let fixture = Fixture::named("audio-decoding");
    for case in &fixture.cases {
        let file = case.input["audio"]["file"].as_str().expect("a file");
        let bytes = fs::read(fixture.folder.join(file)).expect("readable");
        let ours = sound::decode(&STANDARD.encode(bytes), 16_000)
            .unwrap_or_else(|why| panic!("{file}: {}", why.message()));
        let theirs = npy(&fixture.folder.join(case.output["samples"]["file"].as_str().expect("a file")));
        // Decoders of mp3 differ in how much of its padding they drop.
        let most = if file.ends_with(".mp3") { 2500 } else { 1 };
        let best = (-most..=most).map(|shift| apart(&ours, &theirs, shift)).fold(f32::INFINITY, f32::min);
        assert!(
            best < case.tolerance as f32,
            "{file}: {best} apart, {} and {} samples",
            ours.len(),
            theirs.len()
        );
    }
}
