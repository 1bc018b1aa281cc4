//! Messages of protocol buffers, field by field: as much of the format as graphs and tokenisers are looked into with.

/// What a field holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field<'b> {
    /// A whole number or a flag.
    Number(u64),
    /// A text, bytes, or another message.
    Bytes(&'b [u8]),
    /// Four or eight bytes of a number.
    Fixed(&'b [u8]),
}

/// Takes the next field, with its number, off a message that has one. Nothing where the message is cut off or none.
pub fn next<'b>(bytes: &mut &'b [u8]) -> Option<(u64, Field<'b>)> {
    let tag = varint(bytes)?;
    let field = match tag & 7 {
        0 => Field::Number(varint(bytes)?),
        1 => Field::Fixed(take(bytes, 8)?),
        2 => {
            let length = varint(bytes)?;
            Field::Bytes(take(bytes, length)?)
        }
        5 => Field::Fixed(take(bytes, 4)?),
        _ => return None,
    };
    Some((tag >> 3, field))
}

/// All fields of a message.
pub fn all(mut bytes: &[u8]) -> Option<Vec<(u64, Field<'_>)>> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        fields.push(next(&mut bytes)?);
    }
    Some(fields)
}

fn take<'b>(bytes: &mut &'b [u8], length: u64) -> Option<&'b [u8]> {
    let (taken, rest) = bytes.split_at_checked(usize::try_from(length).ok()?)?;
    *bytes = rest;
    Some(taken)
}

/// Takes a whole number off.
pub fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for place in 0..10 {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << (7 * place);
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}
