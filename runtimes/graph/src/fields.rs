//! Protocol buffer messages field by field: the part of the format that reading graphs and tokenizers needs.

/// The value of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field<'b> {
    /// An integer or a flag.
    Number(u64),
    /// A string, bytes, or a message.
    Bytes(&'b [u8]),
    /// A number of four or eight bytes.
    Fixed(&'b [u8]),
}

/// Removes the next field from a message, and returns its number and value. Returns `None` if the message is truncated or invalid.
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

/// Removes an integer.
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
