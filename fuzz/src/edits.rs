//! Changes seeds at random.

use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};

use crate::{Form, MAX_INPUT, SEPARATOR, Target, corpus::Seed, protobuf};

/// Numbers at which sizes and counts overflow.
const NUMBERS: [u64; 20] = [
    0,
    1,
    2,
    7,
    0x7f,
    0x80,
    0xff,
    0x100,
    0x7fff,
    0x8000,
    0xffff,
    0x1_0000,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x1_0000_0000,
    i64::MAX as u64,
    i64::MAX as u64 + 1,
    u64::MAX - 1,
    u64::MAX,
];
/// Numbers as text.
const WORDS: [&str; 22] = [
    "0",
    "-1",
    "1",
    "255",
    "65536",
    "2147483648",
    "-2147483649",
    "4294967295",
    "9223372036854775807",
    "18446744073709551615",
    "18446744073709551616",
    "1e308",
    "1e999",
    "-0.0",
    "null",
    "true",
    "\"\"",
    "[]",
    "{}",
    "\u{0}",
    "\u{fffd}",
    "é",
];
/// Beginnings of values that contain others: many of them nest deeper than a stack is high.
const OPENINGS: [&str; 8] = ["[", "{", "(", "{\"a\":", "{{", "<", "\"", "-"];

/// Makes changed inputs from seeds.
#[derive(Debug)]
pub struct Editor<'s> {
    form: Form,
    seeds: &'s [Seed],
    random: StdRng,
}

impl<'s> Editor<'s> {
    /// Creates one; the same target and seeds give the same inputs.
    pub fn new(target: &Target, seeds: &'s [Seed]) -> Self {
        let number = target.name.bytes().fold(0_u64, |number, byte| number.rotate_left(8) ^ u64::from(byte));
        Self { form: target.form, seeds, random: StdRng::seed_from_u64(number) }
    }

    /// The next input.
    pub fn input(&mut self) -> Vec<u8> {
        let mut input = self.seed().to_vec();
        // Few changes reach far, many reach states that few do not.
        let changes = 1 << self.random.random_range(0..5);
        for _ in 0..self.random.random_range(1..=changes) {
            self.change(&mut input);
        }
        input.truncate(MAX_INPUT);
        if self.form == Form::Tar && self.random.random_range(0..8) > 0 {
            sum_headers(&mut input);
        }
        input
    }

    fn seed(&mut self) -> &'s [u8] {
        &self.seeds[self.random.random_range(0..self.seeds.len())].bytes
    }

    fn change(&mut self, input: &mut Vec<u8>) {
        if self.form == Form::Protobuf && self.random.random_range(0..8) > 0 {
            let end = input.windows(SEPARATOR.len()).position(|window| window == SEPARATOR);
            let rest = input.split_off(end.unwrap_or(input.len()));
            let other = self.seed();
            if self.random.random_range(0..6) > 0 || rest.is_empty() {
                *input = protobuf::change(input, other, &mut self.random, change_bytes);
                input.extend(rest);
            } else {
                let mut rest = rest;
                change_bytes(&mut rest, other, &mut self.random);
                input.extend(rest);
            }
            return;
        }
        let other = self.seed();
        change_bytes(input, other, &mut self.random);
    }
}

/// A number from the list, or near one.
pub(crate) fn number(random: &mut StdRng) -> u64 {
    let number = NUMBERS[random.random_range(0..NUMBERS.len())];
    match random.random_range(0..4) {
        0 => number.wrapping_add(random.random_range(0..64)),
        1 => random.random_range(0..300),
        _ => number,
    }
}

fn range(length: usize, most: usize, random: &mut StdRng) -> std::ops::Range<usize> {
    let start = random.random_range(0..=length);
    start..(start + random.random_range(0..=most)).min(length)
}

/// Changes one place; `other` is an input to take bytes from.
fn change_bytes(input: &mut Vec<u8>, other: &[u8], random: &mut StdRng) {
    let at = random.random_range(0..=input.len());
    match random.random_range(0..12) {
        0 | 1 => {
            if let Some(byte) = input.get_mut(at) {
                *byte ^= 1 << random.random_range(0..8);
            }
        }
        2 => {
            if let Some(byte) = input.get_mut(at) {
                *byte = random.random();
            }
        }
        3 => overwrite(input, at, random),
        4 => {
            input.drain(range(input.len(), 32, random));
        }
        5 => {
            let repeated = input[range(input.len(), 64, random)].to_vec();
            let times = 1 << random.random_range(0..10);
            let times = times.min(MAX_INPUT / repeated.len().max(1));
            input.splice(at..at, repeated.repeat(times));
        }
        6 => {
            let taken = other[range(other.len(), 256, random)].to_vec();
            let replaced = range(input.len(), 64, random);
            input.splice(replaced, taken);
        }
        7 | 8 => {
            let word = WORDS[random.random_range(0..WORDS.len())];
            // Digits are replaced as a whole: a number next to another one is a longer number.
            let digits = input[at..].iter().position(u8::is_ascii_digit).map(|found| at + found);
            let place = digits.map_or(at..at, |start| {
                let length = input[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
                start..start + length
            });
            input.splice(place, word.bytes());
        }
        9 => {
            let opening = OPENINGS[random.random_range(0..OPENINGS.len())];
            let times = 1 << random.random_range(0..13);
            input.splice(at..at, opening.repeat(times).bytes());
        }
        10 => input.truncate(at),
        _ => {
            let moved: Vec<u8> = input.drain(range(input.len(), 64, random)).collect();
            let at = at.min(input.len());
            input.splice(at..at, moved);
        }
    }
}

/// Writes a number of any width in either order of bytes.
fn overwrite(input: &mut [u8], at: usize, random: &mut StdRng) {
    let number = number(random);
    let width = 1 << random.random_range(0..4);
    let bytes =
        if random.random() { number.to_le_bytes() } else { number.rotate_right(width * 8).to_be_bytes() };
    for (byte, new) in input.iter_mut().skip(at).zip(&bytes[..width as usize]) {
        *byte = *new;
    }
}

/// Corrects the checksums of what can be headers of a tar, so that its reader goes on to their fields.
fn sum_headers(input: &mut [u8]) {
    for block in input.as_chunks_mut::<512>().0 {
        if &block[257..262] != b"ustar" {
            continue;
        }
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }
}
