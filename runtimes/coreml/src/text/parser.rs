//! Functions and operations.

use std::collections::BTreeMap;

use super::lexer::{Lexer, Token};
use crate::program::{Argument, Block, Function, Named, Operation, Program, types::Element, value::Value};

/// A parser with one token of lookahead.
#[derive(Debug)]
pub struct Parser<'t> {
    lexer: Lexer<'t>,
    ahead: Option<Token<'t>>,
    line: usize,
}

impl<'t> Parser<'t> {
    /// From the beginning of a text.
    pub fn new(text: &'t str) -> Self {
        Self { lexer: Lexer::new(text), ahead: None, line: 1 }
    }

    /// The line of the last token.
    pub fn line(&self) -> usize {
        self.line
    }

    pub(super) fn peek(&mut self) -> Result<&Token<'t>, String> {
        if self.ahead.is_none() {
            let token = self.lexer.token();
            self.line = self.lexer.line();
            self.ahead = Some(token?);
        }
        Ok(self.ahead.as_ref().unwrap_or(&Token::End))
    }

    pub(super) fn next(&mut self) -> Result<Token<'t>, String> {
        self.peek()?;
        Ok(self.ahead.take().unwrap_or(Token::End))
    }

    /// Takes a mark if it is next.
    pub(super) fn takes(&mut self, mark: char) -> Result<bool, String> {
        let comes = self.peek()? == &Token::Mark(mark);
        if comes {
            self.ahead = None;
        }
        Ok(comes)
    }

    pub(super) fn mark(&mut self, mark: char) -> Result<(), String> {
        match self.next()? {
            Token::Mark(found) if found == mark => Ok(()),
            found => Err(format!("expected {mark:?}, found {found:?}")),
        }
    }

    pub(super) fn word(&mut self) -> Result<&'t str, String> {
        match self.next()? {
            Token::Word(word) => Ok(word),
            found => Err(format!("expected a name, found {found:?}")),
        }
    }

    pub(super) fn number(&mut self) -> Result<&'t str, String> {
        match self.next()? {
            Token::Number(number) => Ok(number),
            found => Err(format!("expected a number, found {found:?}")),
        }
    }

    fn keyword(&mut self, wanted: &str) -> Result<(), String> {
        let word = self.word()?;
        if word == wanted { Ok(()) } else { Err(format!("expected {wanted:?}, found {word:?}")) }
    }

    /// A whole program.
    pub(super) fn program(&mut self) -> Result<Program, String> {
        self.keyword("program")?;
        self.mark('(')?;
        self.number()?;
        self.mark(')')?;
        self.skip_notes()?;
        self.mark('{')?;
        let mut program = Program::default();
        while !self.takes('}')? {
            let (name, function) = self.function()?;
            if program.functions.insert(name.clone(), function).is_some() {
                return Err(format!("there are two functions {name:?}"));
            }
        }
        match self.next()? {
            Token::End => Ok(program),
            found => Err(format!("unexpected {found:?} after the program")),
        }
    }

    /// Attributes in brackets that do not affect the computation.
    fn skip_notes(&mut self) -> Result<(), String> {
        if self.peek()? != &Token::Mark('[') {
            return Ok(());
        }
        let mut depth = 0_usize;
        loop {
            match self.next()? {
                Token::Mark('[' | '(' | '{') => depth += 1,
                Token::Mark(']' | ')' | '}') => depth -= 1,
                Token::End => return Err("attributes in brackets do not end".to_owned()),
                _ => {}
            }
            if depth == 0 {
                return Ok(());
            }
        }
    }

    fn function(&mut self) -> Result<(String, Function), String> {
        self.keyword("func")?;
        let name = self.word()?.to_owned();
        self.mark('<')?;
        let opset = self.word()?.to_owned();
        self.mark('>')?;
        self.mark('(')?;
        let mut inputs = Vec::new();
        while !self.takes(')')? {
            if !inputs.is_empty() {
                self.mark(',')?;
            }
            inputs.push(self.named()?);
        }
        self.skip_notes()?;
        self.mark('{')?;
        let mut operations = Vec::new();
        while !self.takes('}')? {
            operations.push(self.operation()?);
        }
        if self.next()? != Token::Arrow {
            return Err("a function has no results".to_owned());
        }
        let outputs = self.names()?;
        self.mark(';')?;
        Ok((name, Function { opset, inputs, block: Block { inputs: Vec::new(), operations, outputs } }))
    }

    fn named(&mut self) -> Result<Named, String> {
        let word = self.word()?;
        let ty = self.value_type(word, 0)?;
        Ok(Named { ty, name: self.word()?.to_owned() })
    }

    /// Names in parentheses.
    fn names(&mut self) -> Result<Vec<String>, String> {
        self.mark('(')?;
        let mut names = Vec::new();
        while !self.takes(')')? {
            if !names.is_empty() {
                self.mark(',')?;
            }
            names.push(self.word()?.to_owned());
        }
        Ok(names)
    }

    /// `type name, type name = kind(parameter = argument)[attribute = value];`; an operation that only changes a state has no results.
    fn operation(&mut self) -> Result<Operation, String> {
        let (mut outputs, mut kind) = (Vec::new(), None);
        loop {
            let word = self.word()?;
            if outputs.is_empty() && self.peek()? == &Token::Mark('(') && Element::of_name(word).is_none() {
                kind = Some(word);
                break;
            }
            let ty = self.value_type(word, 0)?;
            outputs.push(Named { ty, name: self.word()?.to_owned() });
            if !self.takes(',')? {
                self.mark('=')?;
                break;
            }
        }
        let kind = match kind {
            Some(kind) => kind,
            None => self.word()?,
        };
        let inputs = self.arguments()?;
        let attributes = self.attributes()?;
        if self.peek()? == &Token::Mark('{') || self.peek()? == &Token::Mark('(') {
            return Err(format!(
                "branches and loops ({kind}) are supported in packages only, not from compiled models"
            ));
        }
        self.mark(';')?;
        Ok(Operation { kind: kind.to_owned(), inputs, outputs, attributes, blocks: Vec::new() })
    }

    fn arguments(&mut self) -> Result<BTreeMap<String, Vec<Argument>>, String> {
        self.mark('(')?;
        let mut arguments = BTreeMap::new();
        while !self.takes(')')? {
            if !arguments.is_empty() {
                self.mark(',')?;
            }
            let name = self.word()?.to_owned();
            self.mark('=')?;
            let mut given = Vec::new();
            if self.takes('(')? {
                while !self.takes(')')? {
                    if !given.is_empty() {
                        self.mark(',')?;
                    }
                    given.push(self.argument()?);
                }
            } else {
                given.push(self.argument()?);
            }
            arguments.insert(name, given);
        }
        Ok(arguments)
    }

    fn argument(&mut self) -> Result<Argument, String> {
        let word = self.word()?;
        let is_value = matches!(self.peek()?, Token::Mark('<' | '('));
        if is_value {
            self.typed_value(word, 0).map(Argument::Value)
        } else {
            Ok(Argument::Name(word.to_owned()))
        }
    }

    fn attributes(&mut self) -> Result<BTreeMap<String, Value>, String> {
        let mut attributes = BTreeMap::new();
        if !self.takes('[')? {
            return Ok(attributes);
        }
        while !self.takes(']')? {
            if !attributes.is_empty() {
                self.mark(',')?;
            }
            let name = self.word()?.to_owned();
            self.mark('=')?;
            let word = self.word()?;
            attributes.insert(name, self.typed_value(word, 0)?);
        }
        Ok(attributes)
    }
}
