//! Encodes sounds that arrive one after the other as one file.

use std::io::Cursor;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use mp3lame_encoder::{
    Bitrate, BuildError, Builder, EncodeError, FlushGap, Mode, MonoPcm, max_required_buffer_size,
};
use opus_pure::{Application, MAX_PACKET_BYTES, OggOpusWriter, OpusEncoder, OpusHead};
use rubato::{Fft, FixedSync, Resampler as _, WindowFunction, audioadapter_buffers::direct::SequentialSlice};
use serde_json::Value;

/// Samples per second of `pcm`, which has no header that states it.
const PCM_RATE: u32 = 24_000;
/// Rates that Opus encodes.
const OPUS_RATES: [u32; 4] = [12_000, 16_000, 24_000, 48_000];
/// Bits per second of Opus; for speech, more makes no audible difference.
const OPUS_BITRATE: i32 = 48_000;
/// Rates that MP3 encodes.
const MP3_RATES: [u32; 9] = [8_000, 11_025, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000];
const MP3_BITRATE: Bitrate = Bitrate::Kbps64;
/// The most bytes that LAME writes at the end.
const MP3_END: usize = 7_200;
/// Silence between pieces of a text, milliseconds.
const PAUSE_MS: u32 = 150;
/// Rates of sounds that are accepted.
const RATES: std::ops::RangeInclusive<u32> = 8_000..=48_000;

/// The form of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Mp3,
    /// In an Ogg file.
    Opus,
    Wav,
    /// Samples without a header.
    Pcm,
}

impl Format {
    /// The format of this name; MP3 without a name.
    pub(super) fn named(name: Option<&str>) -> Self {
        match name {
            Some("opus") => Self::Opus,
            Some("wav") => Self::Wav,
            Some("pcm") => Self::Pcm,
            _ => Self::Mp3,
        }
    }

    pub(super) fn media_type(self) -> &'static str {
        match self {
            Self::Mp3 => "audio/mpeg",
            Self::Opus => "audio/ogg",
            Self::Wav => "audio/wav",
            Self::Pcm => "audio/pcm",
        }
    }
}

/// Why a sound was not read or encoded.
#[derive(Debug, thiserror::Error)]
pub(super) enum SoundError {
    #[error("the output has no sound in base64")]
    Absent,
    #[error("the sound of the output is not a wav file")]
    Wav(#[from] hound::Error),
    #[error("the sound of the output must have one channel of 16 bits and {RATES:?} samples per second")]
    Kind,
    #[error("cannot change the rate of a sound")]
    Resample(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("cannot encode MP3 with these settings")]
    Mp3Settings(#[source] BuildError),
    #[error("cannot encode MP3")]
    Mp3(#[from] EncodeError),
    #[error("no memory for an encoder")]
    Memory,
    #[error("cannot encode Opus")]
    Opus(#[from] opus_pure::Error),
}

/// A sound of one channel.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Sound {
    /// Samples per second.
    pub rate: u32,
    /// In -1..1.
    pub samples: Vec<f32>,
}

impl Sound {
    /// The sound in the output of a job.
    pub(super) fn of(output: &Value) -> Result<Self, SoundError> {
        let file = output.get("audio").and_then(Value::as_str).and_then(|text| STANDARD.decode(text).ok());
        let mut reader = hound::WavReader::new(Cursor::new(file.ok_or(SoundError::Absent)?))?;
        let spec = reader.spec();
        let is_plain = spec.sample_format == hound::SampleFormat::Int && spec.bits_per_sample == 16;
        if !is_plain || spec.channels != 1 || !RATES.contains(&spec.sample_rate) {
            return Err(SoundError::Kind);
        }
        let samples = reader.samples::<i16>().map(|sample| sample.map(|level| f32::from(level) / 32_768.0));
        Ok(Self { rate: spec.sample_rate, samples: samples.collect::<Result<_, _>>()? })
    }

    /// The same sound with another number of samples per second.
    fn at(&self, rate: u32) -> Result<Vec<f32>, SoundError> {
        if self.rate == rate || self.samples.is_empty() {
            return Ok(self.samples.clone());
        }
        let failed = |error: Box<dyn std::error::Error + Send + Sync>| SoundError::Resample(error);
        // An even number of periods of both rates; otherwise the filter's delay is not a whole sample.
        let period = (self.rate / greatest_common_divisor(self.rate, rate)) as usize * 2;
        let chunk = period * 1024_usize.div_ceil(period);
        let (from, to, window) = (self.rate as usize, rate as usize, WindowFunction::BlackmanHarris2);
        let resampler = Fft::<f32>::new_custom(from, to, chunk, 1, 1, window, FixedSync::Input);
        let mut resampler = resampler.map_err(|error| failed(error.into()))?;
        let count = self.samples.len();
        let input = SequentialSlice::new(&self.samples, 1, count).map_err(|error| failed(error.into()))?;
        let output = resampler.process_all(&input, count, None).map_err(|error| failed(error.into()))?;
        Ok(output.take_data())
    }
}

fn greatest_common_divisor(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

/// Encodes sounds; their parts together are the file.
pub(super) struct Encoder {
    /// Samples per second of the file.
    rate: u32,
    /// Whether a sound was encoded.
    has_begun: bool,
    kind: Kind,
}

enum Kind {
    Wav {
        /// Whether more sounds may follow the first one.
        is_open: bool,
    },
    Pcm,
    Mp3(mp3lame_encoder::Encoder),
    Opus(Box<Opus>),
}

struct Opus {
    encoder: OpusEncoder,
    writer: OggOpusWriter<Vec<u8>>,
    /// Samples that do not fill a packet yet.
    waiting: Vec<f32>,
    /// Samples of all sounds.
    total: u64,
    /// Samples of the encoder's delay.
    delay: usize,
    /// At 48,000 per second.
    pre_skip: u64,
    packet: Vec<u8>,
}

impl Encoder {
    /// An encoder for sounds of which the first has this rate, and others follow if `is_long`.
    pub(super) fn new(format: Format, rate: u32, is_long: bool) -> Result<Self, SoundError> {
        let (rate, kind) = match format {
            Format::Wav => (rate, Kind::Wav { is_open: is_long }),
            Format::Pcm => (PCM_RATE, Kind::Pcm),
            Format::Mp3 => {
                let rate = nearest(&MP3_RATES, rate);
                (rate, Kind::Mp3(mp3(rate)?))
            }
            Format::Opus => {
                let rate = nearest(&OPUS_RATES, rate);
                let mut encoder = OpusEncoder::new(rate as i32, 1, Application::Audio)?;
                encoder.bitrate_bps = OPUS_BITRATE;
                let head = OpusHead::for_encoder(&encoder, rate);
                let pre_skip = u64::from(head.pre_skip);
                let delay = pre_skip.div_ceil(u64::from(48_000 / rate)) as usize;
                let writer = OggOpusWriter::new(Vec::new(), head)?;
                let packet = vec![0; MAX_PACKET_BYTES];
                let opus = Opus { encoder, writer, waiting: Vec::new(), total: 0, delay, pre_skip, packet };
                (rate, Kind::Opus(Box::new(opus)))
            }
        };
        Ok(Self { rate, has_begun: false, kind })
    }

    /// The next part of the file: a sound, after a pause if it is not the first.
    pub(super) fn push(&mut self, sound: &Sound) -> Result<Vec<u8>, SoundError> {
        let mut samples = sound.at(self.rate)?;
        let is_first = !std::mem::replace(&mut self.has_begun, true);
        if !is_first {
            let pause = (self.rate / 1000 * PAUSE_MS) as usize;
            samples.splice(0..0, std::iter::repeat_n(0.0, pause));
        }
        match &mut self.kind {
            Kind::Pcm => Ok(levels(&samples).flat_map(i16::to_le_bytes).collect()),
            Kind::Wav { is_open } => {
                let bytes = samples.len() as u32 * 2;
                let mut part =
                    if is_first { wav_header(self.rate, (!*is_open).then_some(bytes)) } else { Vec::new() };
                part.extend(levels(&samples).flat_map(i16::to_le_bytes));
                Ok(part)
            }
            Kind::Mp3(encoder) => {
                let mut part = Vec::with_capacity(max_required_buffer_size(samples.len()));
                let levels: Vec<i16> = levels(&samples).collect();
                encoder.encode_to_vec(MonoPcm(&levels), &mut part)?;
                Ok(part)
            }
            Kind::Opus(opus) => opus.push(&samples, self.rate),
        }
    }

    /// The end of the file.
    pub(super) fn finish(self) -> Result<Vec<u8>, SoundError> {
        match self.kind {
            Kind::Wav { .. } | Kind::Pcm => Ok(Vec::new()),
            Kind::Mp3(mut encoder) => {
                let mut end = Vec::with_capacity(MP3_END);
                encoder.flush_to_vec::<FlushGap>(&mut end)?;
                Ok(end)
            }
            Kind::Opus(opus) => opus.finish(self.rate),
        }
    }
}

impl Opus {
    fn push(&mut self, samples: &[f32], rate: u32) -> Result<Vec<u8>, SoundError> {
        self.total += samples.len() as u64;
        self.waiting.extend(samples);
        let frame = rate as usize / 50;
        let whole = self.waiting.len() / frame * frame;
        let waiting = self.waiting.split_off(whole);
        let ready = std::mem::replace(&mut self.waiting, waiting);
        for block in ready.chunks_exact(frame) {
            let bytes = self.encoder.encode(block, frame, &mut self.packet)?;
            self.writer.write_packet(&self.packet[..bytes])?;
        }
        Ok(self.writer.get_mut().map(std::mem::take).unwrap_or_default())
    }

    /// Encodes the rest and as much silence as the encoder is late, and marks where the sound ends.
    fn finish(mut self: Box<Self>, rate: u32) -> Result<Vec<u8>, SoundError> {
        let frame = rate as usize / 50;
        let length = (self.waiting.len() + self.delay).next_multiple_of(frame);
        self.waiting.resize(length, 0.0);
        let end = self.pre_skip + self.total * u64::from(48_000 / rate);
        let last = length / frame - 1;
        for (index, block) in self.waiting.chunks_exact(frame).enumerate() {
            let bytes = self.encoder.encode(block, frame, &mut self.packet)?;
            if index == last {
                let left = end.saturating_sub(self.writer.granule().unsigned_abs());
                self.writer.write_packet_with_duration(&self.packet[..bytes], left as u32)?;
            } else {
                self.writer.write_packet(&self.packet[..bytes])?;
            }
        }
        Ok(self.writer.finish()?)
    }
}

fn mp3(rate: u32) -> Result<mp3lame_encoder::Encoder, SoundError> {
    let failed = SoundError::Mp3Settings;
    let mut builder = Builder::new().ok_or(SoundError::Memory)?;
    builder.set_sample_rate(rate).map_err(failed)?;
    builder.set_num_channels(1).map_err(failed)?;
    builder.set_mode(Mode::Mono).map_err(failed)?;
    builder.set_brate(MP3_BITRATE).map_err(failed)?;
    // It states the length, which is unknown when the first frame is sent.
    builder.set_to_write_vbr_tag(false).map_err(failed)?;
    builder.build().map_err(failed)
}

/// The lowest of the rates that keeps all of a sound, or the highest.
fn nearest(rates: &[u32], rate: u32) -> u32 {
    let enough = rates.iter().copied().filter(|&one| one >= rate).min();
    enough.or_else(|| rates.iter().copied().max()).unwrap_or(rate)
}

fn levels(samples: &[f32]) -> impl Iterator<Item = i16> + '_ {
    samples.iter().map(|sample| (sample.clamp(-1.0, 1.0) * f32::from(i16::MAX)).round() as i16)
}

/// The header of a wav file with this number of bytes of samples; readers take the highest number for a file whose end is not known.
fn wav_header(rate: u32, bytes: Option<u32>) -> Vec<u8> {
    let size = |extra| bytes.map_or(u32::MAX, |bytes| bytes + extra);
    let mut header = Vec::with_capacity(44);
    header.extend(b"RIFF");
    header.extend(size(36).to_le_bytes());
    header.extend(b"WAVEfmt ");
    header.extend(16_u32.to_le_bytes());
    // PCM, one channel.
    header.extend([1, 0, 1, 0]);
    header.extend(rate.to_le_bytes());
    header.extend((rate * 2).to_le_bytes());
    header.extend([2, 0, 16, 0]);
    header.extend(b"data");
    header.extend(size(0).to_le_bytes());
    header
}

#[cfg(test)]
mod tests {
    use std::f32::consts::TAU;

    use serde_json::json;
    use symphonia::core::{
        codecs::audio::AudioDecoderOptions,
        formats::{FormatOptions, probe::Hint},
        io::{MediaSourceStream, MediaSourceStreamOptions},
        meta::MetadataOptions,
    };

    use super::*;

    /// A tone of 440 Hz.
    fn tone(rate: u32, seconds: f32) -> Sound {
        let count = (rate as f32 * seconds) as usize;
        let samples = (0..count).map(|at| 0.5 * (TAU * 440.0 * at as f32 / rate as f32).sin()).collect();
        Sound { rate, samples }
    }

    fn file(format: Format, sounds: &[Sound]) -> Vec<u8> {
        let mut encoder = Encoder::new(format, sounds[0].rate, sounds.len() > 1).expect("an encoder");
        let parts = sounds.iter().map(|sound| encoder.push(sound).expect("encoded"));
        let mut file = parts.collect::<Vec<_>>().concat();
        file.extend(encoder.finish().expect("ended"));
        file
    }

    /// How strong a frequency is in samples, 1 for a pure tone.
    fn share(samples: &[f32], rate: u32, frequency: f32) -> f32 {
        let angle = |at: usize| TAU * frequency * at as f32 / rate as f32;
        let (mut real, mut imaginary, mut energy) = (0.0, 0.0, 0.0);
        for (at, sample) in samples.iter().enumerate() {
            real += sample * angle(at).cos();
            imaginary += sample * angle(at).sin();
            energy += sample * sample;
        }
        2.0 * (real * real + imaginary * imaginary) / (energy * samples.len() as f32)
    }

    /// Decodes a file with another library than the one that encoded it.
    fn decode(file: Vec<u8>) -> (u32, Vec<f32>) {
        let stream = MediaSourceStream::new(Box::new(Cursor::new(file)), MediaSourceStreamOptions::default());
        let probe = symphonia::default::get_probe();
        let mut format = probe
            .probe(&Hint::new(), stream, FormatOptions::default(), MetadataOptions::default())
            .expect("a format");
        let track = format.tracks().first().expect("a track").clone();
        let parameters = track.codec_params.as_ref().and_then(|all| all.audio()).expect("a codec");
        let codecs = symphonia::default::get_codecs();
        let mut decoder =
            codecs.make_audio_decoder(parameters, &AudioDecoderOptions::default()).expect("a decoder");
        let (mut samples, mut rate) = (Vec::new(), 0);
        while let Ok(Some(packet)) = format.next_packet() {
            let decoded = decoder.decode(&packet).expect("a sound");
            rate = decoded.spec().rate();
            let mut part = Vec::new();
            decoded.copy_to_vec_interleaved::<f32>(&mut part);
            samples.extend(part);
        }
        (rate, samples)
    }

    #[test]
    fn an_mp3_contains_the_sound() {
        for (given, rate) in [(16_000, 16_000), (22_050, 22_050), (44_100, 44_100), (20_000, 22_050)] {
            let (found, samples) = decode(file(Format::Mp3, &[tone(given, 1.0)]));
            assert_eq!(found, rate);
            let seconds = samples.len() as f32 / rate as f32;
            assert!((1.0..1.2).contains(&seconds), "{seconds} s of {given} Hz");
            let middle = &samples[samples.len() / 4..samples.len() * 3 / 4];
            assert!(share(middle, rate, 440.0) > 0.98, "{given}: {}", share(middle, rate, 440.0));
        }
    }

    #[test]
    fn an_opus_file_has_the_exact_length() {
        for rate in [16_000, 22_050, 24_000, 44_100] {
            let bytes = file(Format::Opus, &[tone(rate, 0.5), tone(rate, 0.5)]);
            let mut reader = opus_pure::OggOpusReader::new(Cursor::new(bytes)).expect("an Ogg file");
            let mut decoder = reader.head().decoder(48_000).expect("a decoder");
            let mut trim = opus_pure::Trim::new(reader.head(), 48_000, 1).expect("a trim");
            let mut samples = Vec::new();
            let mut buffer = vec![0.0; opus_pure::MAX_PACKET_SAMPLES];
            while let Some(packet) = reader.read_packet().expect("a packet") {
                let count = decoder.decode(&packet.data, 5760, &mut buffer).expect("a sound");
                samples.extend(trim.keep(&packet, &buffer[..count]));
            }
            let expected = 48 * (1000 + PAUSE_MS) as usize;
            assert!(samples.len().abs_diff(expected) < 48, "{rate}: {} instead of {expected}", samples.len());
            let first = &samples[4800..19_200];
            assert!(share(first, 48_000, 440.0) > 0.98, "{rate}: {}", share(first, 48_000, 440.0));
        }
    }

    #[test]
    fn a_wav_file_states_its_length_if_it_is_known() {
        let (sound, more) = (tone(16_000, 0.1), tone(16_000, 0.1));
        let whole = file(Format::Wav, std::slice::from_ref(&sound));
        let read = Sound::of(&json!({"audio": STANDARD.encode(&whole)})).expect("a sound");
        assert_eq!((read.rate, read.samples.len()), (16_000, 1600));
        let open = file(Format::Wav, &[sound.clone(), more]);
        assert_eq!((&open[40..44], open.len()), (&[0xff; 4][..], 44 + 2 * (3200 + 2400)));
        let pcm = file(Format::Pcm, &[sound]);
        assert_eq!(pcm.len(), 2 * 2400, "24,000 samples per second");
    }

    #[test]
    fn invalid_sounds_are_refused() {
        for output in [json!({}), json!({"audio": 7}), json!({"audio": "aGk="}), json!({"audio": "?"})] {
            assert!(Sound::of(&output).is_err(), "{output}");
        }
        let mut file = wav_header(96_000, Some(4));
        file.extend([0; 4]);
        let error =
            Sound::of(&json!({"audio": STANDARD.encode(file)})).expect_err("too many samples per second");
        assert!(matches!(error, SoundError::Kind));
    }
}
