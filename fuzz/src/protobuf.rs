//! Changes of messages that leave the lengths around the change right.

use island_runtimes_graph::fields::{self, Field};
use rand::{RngExt as _, rngs::StdRng};

use crate::edits::number;

/// Changes one field of a message, at any depth. What is not a message is changed as bytes.
pub(crate) fn change(
    message: &[u8],
    other: &[u8],
    random: &mut StdRng,
    bytes: fn(&mut Vec<u8>, &[u8], &mut StdRng),
) -> Vec<u8> {
    let as_bytes = |random: &mut StdRng| {
        let mut changed = message.to_vec();
        bytes(&mut changed, other, random);
        changed
    };
    let Some(mut found) = fields::all(message).filter(|found| !found.is_empty()) else {
        return as_bytes(random);
    };
    let at = random.random_range(0..found.len());
    let mut inner = None;
    match (random.random_range(0..12), found[at].1) {
        (0, _) => {
            found.remove(at);
        }
        (1, _) => found.insert(random.random_range(0..=found.len()), found[at]),
        (2, _) => {
            let with = random.random_range(0..found.len());
            found.swap(at, with);
        }
        (3, _) => found[at].0 = random.random_range(1..40),
        (4, _) => {
            // A field of another message, of the same kind or not.
            let place = random.random_range(0..found.len());
            let given = fields::all(other).filter(|given| !given.is_empty());
            if let Some(given) = given {
                found[place] = given[random.random_range(0..given.len())];
            }
        }
        (_, Field::Number(_)) => found[at].1 = Field::Number(number(random)),
        (_, Field::Fixed(fixed)) => inner = Some(fixed.iter().map(|_| random.random()).collect::<Vec<u8>>()),
        (5, Field::Bytes(content)) => {
            let mut content = content.to_vec();
            bytes(&mut content, other, random);
            inner = Some(content);
        }
        (_, Field::Bytes(content)) => inner = Some(change(content, other, random, bytes)),
    }
    let mut out = Vec::with_capacity(message.len() + 64);
    for (index, (name, field)) in found.iter().enumerate() {
        match (field, inner.as_deref().filter(|_| index == at)) {
            (Field::Number(number), _) => {
                varint(name << 3, &mut out);
                varint(*number, &mut out);
            }
            (Field::Fixed(fixed), changed) => {
                varint(name << 3 | if fixed.len() == 8 { 1 } else { 5 }, &mut out);
                out.extend(changed.unwrap_or(fixed));
            }
            (Field::Bytes(content), changed) => {
                let content = changed.unwrap_or(content);
                varint(name << 3 | 2, &mut out);
                varint(content.len() as u64, &mut out);
                out.extend(content);
            }
        }
    }
    out
}

fn varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}
