//! Types and values.

use super::{lexer::Token, number, parser::Parser};
use crate::{
    package::weights::count,
    program::{
        types::{Class, Element, MAX_ELEMENTS, TensorType, ValueType},
        value::{Data, Value},
    },
};

/// Maximum nesting of types and values.
const MAX_DEPTH: usize = 24;
/// Maximum number of dimensions of a tensor.
const MAX_RANK: usize = 16;

impl Parser<'_> {
    /// A type whose first word was read.
    pub(super) fn value_type(&mut self, word: &str, depth: usize) -> Result<ValueType, String> {
        if depth > MAX_DEPTH {
            return Err(format!("types are nested deeper than {MAX_DEPTH}"));
        }
        if let Some(element) = Element::of_name(word) {
            return Ok(ValueType::Tensor(TensorType::scalar(element)));
        }
        match word {
            "tensor" => {
                self.mark('<')?;
                let element = self.element()?;
                self.mark(',')?;
                let shape = self.dimensions()?;
                self.mark('>')?;
                Ok(ValueType::Tensor(TensorType { element, shape }))
            }
            "state" => match self.inner(depth)? {
                ValueType::Tensor(tensor) => {
                    self.mark('>')?;
                    Ok(ValueType::State(tensor))
                }
                _ => Err("a state is not a tensor".to_owned()),
            },
            "list" => {
                let item = self.inner(depth)?;
                // Its length follows.
                if self.takes(',')? && !self.takes('?')? {
                    self.number()?;
                }
                self.mark('>')?;
                Ok(ValueType::List(Box::new(item)))
            }
            "tuple" => {
                let mut items = vec![self.inner(depth)?];
                while self.takes(',')? {
                    items.push(self.named_type(depth)?);
                }
                self.mark('>')?;
                Ok(ValueType::Tuple(items))
            }
            "dict" => {
                let key = self.inner(depth)?;
                self.mark(',')?;
                let value = self.named_type(depth)?;
                self.mark('>')?;
                Ok(ValueType::Dictionary(Box::new((key, value))))
            }
            _ => Err(format!("{word:?} is not a type")),
        }
    }

    fn inner(&mut self, depth: usize) -> Result<ValueType, String> {
        self.mark('<')?;
        self.named_type(depth)
    }

    fn named_type(&mut self, depth: usize) -> Result<ValueType, String> {
        let word = self.word()?;
        self.value_type(word, depth + 1)
    }

    fn element(&mut self) -> Result<Element, String> {
        let word = self.word()?;
        Element::of_name(word).ok_or_else(|| format!("unknown element type {word:?}"))
    }

    fn dimensions(&mut self) -> Result<Vec<Option<u64>>, String> {
        self.mark('[')?;
        let mut shape = Vec::new();
        if self.takes(']')? {
            return Ok(shape);
        }
        loop {
            if shape.len() == MAX_RANK {
                return Err(format!("a tensor has more than {MAX_RANK} dimensions"));
            }
            if self.takes('?')? {
                shape.push(None);
            } else {
                let text = self.number()?;
                let size = text.parse().ok().filter(|&size| size <= MAX_ELEMENTS);
                shape.push(Some(size.ok_or_else(|| format!("{text:?} is not a size up to {MAX_ELEMENTS}"))?));
            }
            if !self.takes(',')? {
                self.mark(']')?;
                return Ok(shape);
            }
        }
    }

    /// A value with its type in front, whose first word was read.
    pub(super) fn typed_value(&mut self, word: &str, depth: usize) -> Result<Value, String> {
        let ty = self.value_type(word, depth)?;
        self.mark('(')?;
        let value = self.content(ty, depth)?;
        self.mark(')')?;
        Ok(value)
    }

    /// A value of a known type.
    fn content(&mut self, ty: ValueType, depth: usize) -> Result<Value, String> {
        if depth > MAX_DEPTH {
            return Err(format!("values are nested deeper than {MAX_DEPTH}"));
        }
        let data = match &ty {
            ValueType::Tensor(tensor) => self.tensor(tensor, depth)?,
            ValueType::State(_) => return Err("a state has no value".to_owned()),
            ValueType::List(item) => self.many(std::iter::repeat(item.as_ref()), depth)?,
            ValueType::Tuple(items) => self.many(items.iter(), depth)?,
            ValueType::Dictionary(pair) => self.pairs(&pair.0, &pair.1, depth)?,
        };
        Ok(Value { ty, data })
    }

    fn many<'v>(&mut self, types: impl Iterator<Item = &'v ValueType>, depth: usize) -> Result<Data, String> {
        let closing = match self.next()? {
            Token::Mark('(') => ')',
            Token::Mark('[') => ']',
            Token::Mark('{') => '}',
            other => return Err(format!("expected a list, found {other:?}")),
        };
        let mut values = Vec::new();
        for ty in types {
            if self.takes(closing)? {
                return Ok(Data::Many(values));
            }
            if !values.is_empty() {
                self.mark(',')?;
            }
            values.push(self.content(ty.clone(), depth + 1)?);
        }
        self.mark(closing)?;
        Ok(Data::Many(values))
    }

    fn pairs(&mut self, key: &ValueType, value: &ValueType, depth: usize) -> Result<Data, String> {
        self.mark('{')?;
        let mut pairs = Vec::new();
        while !self.takes('}')? {
            if !pairs.is_empty() {
                self.mark(',')?;
            }
            self.mark('{')?;
            let key = self.content(key.clone(), depth + 1)?;
            self.mark(',')?;
            pairs.push((key, self.content(value.clone(), depth + 1)?));
            self.mark('}')?;
        }
        Ok(Data::Pairs(pairs))
    }

    fn tensor(&mut self, ty: &TensorType, depth: usize) -> Result<Data, String> {
        if self.peek()? == &Token::Word("BLOBFILE") {
            self.next()?;
            return self.blob(depth);
        }
        let mut data = match ty.element.class() {
            Class::Float => Data::Floats(Vec::new()),
            Class::Int => Data::Ints(Vec::new()),
            Class::Bool => Data::Bools(Vec::new()),
            Class::Text => Data::Texts(Vec::new()),
        };
        self.elements(&mut data, 0)?;
        let expected =
            ty.shape.iter().map(|size| size.unwrap_or(data.len().unwrap_or(0) as u64)).collect::<Vec<_>>();
        let expected = count(&expected).ok_or("a tensor is too large")?;
        match data.len() {
            Some(length) if length as u64 == expected => Ok(data),
            length => Err(format!("expected {expected} elements, found {}", length.unwrap_or(0))),
        }
    }

    fn elements(&mut self, data: &mut Data, depth: usize) -> Result<(), String> {
        if depth > MAX_RANK {
            return Err(format!("values are nested deeper than {MAX_RANK}"));
        }
        if self.takes('[')? {
            if self.takes(']')? {
                return Ok(());
            }
            loop {
                self.elements(data, depth + 1)?;
                if !self.takes(',')? {
                    return self.mark(']');
                }
            }
        }
        let token = self.next()?;
        let wrong = || format!("{token:?} is not an element");
        match (data, &token) {
            (Data::Floats(all), Token::Number(text) | Token::Word(text)) => {
                all.push(number::real(text).ok_or_else(wrong)?);
            }
            (Data::Ints(all), Token::Number(text)) => all.push(number::whole(text).ok_or_else(wrong)?),
            (Data::Bools(all), Token::Word("true")) => all.push(true),
            (Data::Bools(all), Token::Word("false")) => all.push(false),
            (Data::Texts(all), Token::Text(text)) => all.push(text.clone()),
            _ => return Err(wrong()),
        }
        Ok(())
    }

    /// The location of a value in a file: a path and an offset, both with their types.
    fn blob(&mut self, depth: usize) -> Result<Data, String> {
        self.mark('(')?;
        let (mut file, mut offset) = (None, None);
        loop {
            let name = self.word()?;
            self.mark('=')?;
            let word = self.word()?;
            let value = self.typed_value(word, depth + 1)?;
            match (name, value.data) {
                ("path", Data::Texts(texts)) => file = texts.into_iter().next(),
                ("offset", Data::Ints(ints)) => offset = ints.first().and_then(|&at| u64::try_from(at).ok()),
                _ => return Err(format!("unknown part {name:?} of a location")),
            }
            if !self.takes(',')? {
                break;
            }
        }
        self.mark(')')?;
        let (Some(file), Some(offset)) = (file, offset) else {
            return Err("a location lacks its path or offset".to_owned());
        };
        Ok(Data::Blob { file, offset })
    }
}
