//! Characters to tokens.

/// A token.
#[derive(Debug, Clone, PartialEq)]
pub enum Token<'t> {
    /// A name, a keyword, a type.
    Word(&'t str),
    /// A number in its printed form.
    Number(&'t str),
    /// A string without escapes.
    Text(String),
    /// `->`.
    Arrow,
    /// Any other punctuation.
    Mark(char),
    /// The end.
    End,
}

/// Splits a text into tokens.
#[derive(Debug, Clone)]
pub struct Lexer<'t> {
    text: &'t str,
    at: usize,
    line: usize,
}

impl<'t> Lexer<'t> {
    /// From the beginning.
    pub fn new(text: &'t str) -> Self {
        Self { text, at: 0, line: 1 }
    }

    /// The current line, counted from 1.
    pub fn line(&self) -> usize {
        self.line
    }

    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn take(&mut self, length: usize) -> &'t str {
        let taken = &self.rest()[..length];
        self.at += length;
        taken
    }

    /// The next token.
    pub fn token(&mut self) -> Result<Token<'t>, String> {
        let space = self.rest().len() - self.rest().trim_start().len();
        self.line += self.take(space).bytes().filter(|&byte| byte == b'\n').count();
        let rest = self.rest();
        let Some(first) = rest.chars().next() else { return Ok(Token::End) };
        if first == '"' {
            return self.quoted().map(Token::Text);
        }
        if rest.starts_with("->") {
            self.take(2);
            return Ok(Token::Arrow);
        }
        let second = rest[first.len_utf8()..].chars().next().unwrap_or(' ');
        if first.is_ascii_digit()
            || ((first == '-' || first == '+' || first == '.') && second.is_ascii_alphanumeric())
        {
            return Ok(Token::Number(self.take(number_length(rest))));
        }
        if is_word(first) {
            let length = rest.find(|letter| !is_word(letter)).unwrap_or(rest.len());
            return Ok(Token::Word(self.take(length)));
        }
        self.take(first.len_utf8());
        Ok(Token::Mark(first))
    }

    fn quoted(&mut self) -> Result<String, String> {
        self.take(1);
        let mut text = String::new();
        loop {
            let rest = self.rest();
            let Some(end) = rest.find(['"', '\\']) else { return Err("a string does not end".to_owned()) };
            let plain = self.take(end);
            self.line += plain.bytes().filter(|&byte| byte == b'\n').count();
            text.push_str(plain);
            if self.take(1) == "\"" {
                return Ok(text);
            }
            let Some(escaped) = self.rest().chars().next() else {
                return Err("a string does not end".to_owned());
            };
            self.take(escaped.len_utf8());
            text.push(match escaped {
                'n' => '\n',
                't' => '\t',
                'r' => '\r',
                '0' => '\0',
                other => other,
            });
        }
    }
}

fn is_word(letter: char) -> bool {
    letter.is_alphanumeric() || matches!(letter, '_' | '.' | '@' | '$' | '~' | '#' | '/' | ':')
}

/// A sign belongs to a number at its start and after the mark of an exponent.
fn number_length(text: &str) -> usize {
    let bytes = text.as_bytes();
    let is_hex = text.trim_start_matches(['-', '+']).starts_with("0x");
    let mut length = 1;
    while let Some(&byte) = bytes.get(length) {
        let before = bytes[length - 1].to_ascii_lowercase();
        let in_exponent = (byte == b'-' || byte == b'+') && (before == b'p' || (before == b'e' && !is_hex));
        if !(byte.is_ascii_alphanumeric() || byte == b'.' || in_exponent) {
            break;
        }
        length += 1;
    }
    length
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_end_at_the_right_character() {
        for (text, number) in [
            ("0x1.8p-3,", "0x1.8p-3"),
            ("-1e-5)", "-1e-5"),
            ("12]", "12"),
            ("-inf ", "-inf"),
            ("0x1e+1", "0x1e"),
        ] {
            assert_eq!(Lexer::new(text).token(), Ok(Token::Number(number)), "{text}");
        }
    }

    #[test]
    fn escapes_in_strings_are_replaced() {
        assert_eq!(Lexer::new(r#""a\"\\ü\n""#).token(), Ok(Token::Text("a\"\\ü\n".to_owned())));
        assert!(Lexer::new("\"a\\").token().is_err());
    }
}
