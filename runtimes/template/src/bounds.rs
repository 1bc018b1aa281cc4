//! Bounds of the values that a template computes. The renderer limits how many instructions run, not how large or how deeply nested their
//! results are: a text that is doubled thirty times is a gigabyte, and a list in a list, 90,000 times, overflows the stack when it is dropped.
//!
//! The template's instructions are rewritten so that every result is checked before the next instruction. What is printed is checked by the
//! formatter, because it may go into a variable.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use minijinja::{
    Environment, Error, ErrorKind, Value, escape_formatter,
    machinery::{Instruction, Instructions},
    value::{DynObject, ObjectRepr, Tuple, ValueOrKwargs},
};

/// Names of the checks. A template cannot call them, because names in templates have no such characters.
const RESULT: &str = "result!";
const ATTRIBUTE: &str = "attribute!";
/// A filter that is looked up at each call.
const NOT_CACHED: u8 = u8::MAX;
/// Maximum depth of nested values. JSON of a request has at most 128.
pub(super) const MAX_DEPTH: usize = 200;
/// Bytes that count for each value, in addition to its text.
const VALUE_BYTES: u64 = 16;

/// Limits of one rendering.
#[derive(Debug)]
pub(super) struct Bounds {
    /// Bytes of one value, with all that it contains.
    pub(super) value: u64,
    /// Bytes of all results together that are left.
    pub(super) produced: AtomicU64,
    /// Values that may still be looked at.
    pub(super) visits: AtomicU64,
}

impl Bounds {
    /// Makes an environment check what code that was [`guarded`] computes and prints.
    pub(super) fn install(self, environment: &mut Environment<'_>) {
        let bounds = Arc::new(self);
        let result = Arc::clone(&bounds);
        environment.add_filter(RESULT, move |value: ValueOrKwargs| result.result(value.into_value()));
        let attribute = Arc::clone(&bounds);
        environment.add_filter(ATTRIBUTE, move |value: Value| attribute.attribute(value));
        environment.set_formatter(move |output, state, value| {
            bounds.charge(bounds.size(value, 0)?)?;
            escape_formatter(output, state, value)
        });
    }

    /// Checks the result of an instruction. A lazy sequence becomes a list: each would otherwise keep the one before it.
    fn result(&self, value: Value) -> Result<Value, Error> {
        let is_lazy = value.as_object().is_some_and(|object| match object.repr() {
            ObjectRepr::Iterable => true,
            ObjectRepr::Seq => !object.is::<Vec<Value>>() && !object.is::<Tuple>(),
            _ => false,
        });
        if !is_lazy {
            self.charge(self.size(&value, 0)?)?;
            return Ok(value);
        }
        let (mut items, mut sum) = (Vec::new(), VALUE_BYTES);
        for item in value.try_iter()? {
            sum = self.sum(sum, self.size(&item, 1)?)?;
            items.push(item);
        }
        self.charge(sum)?;
        Ok(Value::from(items))
    }

    /// Checks what becomes an attribute of a namespace: data only, so that no namespace contains itself.
    fn attribute(&self, value: Value) -> Result<Value, Error> {
        if value.as_object().is_some_and(is_namespace) {
            return Err(exceeded("a namespace becomes a part of a namespace"));
        }
        self.size(&value, 1)?;
        Ok(value)
    }

    /// Bytes of a value. An error if it is larger or deeper than a value may be.
    fn size(&self, value: &Value, depth: usize) -> Result<u64, Error> {
        if take(&self.visits, 1) {
            return Err(exceeded("too many values are looked at"));
        }
        if depth > MAX_DEPTH {
            return Err(exceeded("a value is nested too deeply"));
        }
        if let Some(text) = value.as_bytes() {
            return self.sum(VALUE_BYTES, text.len() as u64);
        }
        let Some(object) = value.as_object() else { return Ok(VALUE_BYTES) };
        if depth > 0 && is_namespace(object) {
            return Err(exceeded("a namespace becomes a part of another value"));
        }
        let mut sum = VALUE_BYTES;
        match object.repr() {
            ObjectRepr::Seq | ObjectRepr::Iterable => {
                for item in object.try_iter().into_iter().flatten() {
                    sum = self.sum(sum, self.size(&item, depth + 1)?)?;
                }
            }
            ObjectRepr::Map => {
                let is_call = value.is_kwargs();
                for (key, item) in object.try_iter_pairs().into_iter().flatten() {
                    sum = self.sum(sum, self.size(&key, depth + 1)?)?;
                    // A namespace may be the argument of a macro.
                    if !(is_call && item.as_object().is_some_and(is_namespace)) {
                        sum = self.sum(sum, self.size(&item, depth + 1)?)?;
                    }
                }
            }
            _ => {}
        }
        Ok(sum)
    }

    fn sum(&self, one: u64, other: u64) -> Result<u64, Error> {
        let sum = one.saturating_add(other);
        if sum > self.value { Err(exceeded("a value is too large")) } else { Ok(sum) }
    }

    fn charge(&self, bytes: u64) -> Result<(), Error> {
        if take(&self.produced, bytes) {
            return Err(exceeded("the values are too large together"));
        }
        Ok(())
    }
}

/// Takes from what is left; returns whether it is not enough.
fn take(left: &AtomicU64, count: u64) -> bool {
    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(count)).is_err()
}

/// Its type is private to the renderer.
fn is_namespace(object: &DynObject) -> bool {
    object.type_name().ends_with("::Namespace")
}

fn exceeded(what: &'static str) -> Error {
    Error::new(ErrorKind::OutOfFuel, what)
}

/// The same code with a check after each instruction whose result may be larger than its operands.
pub(super) fn guarded<'s>(code: &Instructions<'s>) -> Instructions<'s> {
    let original: Vec<&Instruction<'s>> = (0..).map_while(|place| code.get(place)).collect();
    // Where each instruction begins; a jump may lead behind the last one.
    let mut starts = Vec::with_capacity(original.len() + 1);
    let mut length = 0;
    for instruction in &original {
        starts.push(length);
        length += with_checks(instruction).len() as u32;
    }
    starts.push(length);
    let moved = |target: &u32| starts.get(*target as usize).copied().unwrap_or(length);
    let mut guarded = Instructions::new(code.name(), code.source());
    for (place, instruction) in original.iter().enumerate() {
        let line = code.get_line(place as u32).and_then(|line| u16::try_from(line).ok());
        for instruction in with_checks(instruction) {
            let instruction = match &instruction {
                Instruction::Iterate(target) => Instruction::Iterate(moved(target)),
                Instruction::Jump(target) => Instruction::Jump(moved(target)),
                Instruction::JumpIfFalse(target) => Instruction::JumpIfFalse(moved(target)),
                Instruction::JumpIfFalseOrPop(target) => Instruction::JumpIfFalseOrPop(moved(target)),
                Instruction::JumpIfTrueOrPop(target) => Instruction::JumpIfTrueOrPop(moved(target)),
                Instruction::BuildMacro(name, begin, flags) => {
                    Instruction::BuildMacro(name, moved(begin), *flags)
                }
                _ => instruction,
            };
            match line {
                Some(line) => guarded.add_with_line(instruction, line),
                None => guarded.add(instruction),
            };
        }
    }
    guarded
}

fn with_checks<'s>(instruction: &Instruction<'s>) -> Vec<Instruction<'s>> {
    let check = |name| Instruction::ApplyFilter(name, Some(1), NOT_CACHED);
    match instruction {
        // The formatter does not see raw text.
        Instruction::EmitRaw(text) => vec![Instruction::LoadConst(Value::from(*text)), Instruction::Emit],
        // The namespace is above the value.
        Instruction::SetAttr(_) => {
            vec![Instruction::Swap, check(ATTRIBUTE), Instruction::Swap, instruction.clone()]
        }
        Instruction::Add
        | Instruction::Mul
        | Instruction::StringConcat
        | Instruction::Slice
        | Instruction::BuildMap(_)
        | Instruction::BuildKwargs(_)
        | Instruction::MergeKwargs(_)
        | Instruction::BuildList(_)
        | Instruction::BuildTuple(_)
        | Instruction::ApplyFilter(..)
        | Instruction::CallFunction(..)
        | Instruction::CallMethod(..)
        | Instruction::CallObject(_)
        | Instruction::EndCapture => vec![instruction.clone(), check(RESULT)],
        _ => vec![instruction.clone()],
    }
}
