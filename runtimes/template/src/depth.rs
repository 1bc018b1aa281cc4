//! The depth of a template's syntax. The compiler limits how deep it nests, but not how many operators follow each other, each of which
//! takes a frame of the stack: a few kilobytes of `-` end the process.

use minijinja::{
    machinery::{Token, tokenize},
    syntax::SyntaxConfig,
};

/// Maximum number of operators and names in one tag.
const MAX_OPERATORS: usize = 500;
/// Maximum number of further branches of all conditions: each is nested in the one before.
const MAX_BRANCHES: usize = 200;

/// Whether a template can be compiled on any stack. Text that has no tokens is left to the compiler's message.
pub(super) fn is_bounded(source: &str, syntax: &SyntaxConfig) -> bool {
    let (mut operators, mut branches) = (0, 0);
    for token in tokenize(source, false, syntax.clone()) {
        match token {
            Ok((Token::VariableStart | Token::BlockStart | Token::TemplateData(_), _)) => operators = 0,
            // Literals and what separates them make no level of their own.
            Ok((
                Token::Comma
                | Token::Colon
                | Token::Str(_)
                | Token::String(_)
                | Token::Int(_)
                | Token::Int128(_)
                | Token::Float(_),
                _,
            )) => {}
            Ok((token, _)) => {
                operators += 1;
                branches += usize::from(matches!(token, Token::Ident("elif")));
            }
            Err(_) => return true,
        }
        if operators > MAX_OPERATORS || branches > MAX_BRANCHES {
            return false;
        }
    }
    true
}
