//! Programs as text: `model.mil` of a compiled model.
//!
//! Up to iOS 17 every value is a tensor, `tensor<string, []>("x")`; from iOS 18 on scalars have their own types, `string("x")`.
//! Both forms give the same program.
//!
//! | module | content |
//! | --- | --- |
//! | [`lexer`] | characters to tokens |
//! | [`number`] | printed numbers |
//! | [`types`] | types and values |
//! | [`parser`] | functions and operations |

pub mod lexer;
pub mod number;
pub mod parser;
pub mod types;

use crate::program::Program;

/// Why a text is not a program.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct TextError {
    /// Position, counted from 1.
    pub line: usize,
    /// The reason.
    pub why: String,
}

/// Parses a program.
pub fn parse(text: &str) -> Result<Program, TextError> {
    let mut parser = parser::Parser::new(text);
    parser.program().map_err(|why| TextError { line: parser.line(), why })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::{
        Argument,
        types::{Element, TensorType, ValueType},
        value::Data,
    };

    const OLD: &str = r#"program(1.0)
[buildInfo = dict<tensor<string, []>, tensor<string, []>>({{"a", "b"}, {"c", "d"}})]
{
    func main<ios16>(tensor<fp16, [1, ?]> x, tensor<int32, [2]> y) {
            tensor<fp16, []> two = const()[name = tensor<string, []>("two"), val = tensor<fp16, []>(0x1p+1)];
            tensor<fp32, [2, 3]> w = const()[name = tensor<string, []>("w"), val = tensor<fp32, [2, 3]>(BLOBFILE(path = tensor<string, []>("@model_path/weights/weight.bin"), offset = tensor<uint64, []>(64)))];
            tensor<int32, [2, 2]> m = const()[name = tensor<string, []>("m"), val = tensor<int32, [2, 2]>([[1, -2], [3, 4]])];
            tensor<fp16, [1, ?]> a, tensor<fp16, [1, ?]> b = split(axis = m, x = x)[name = tensor<string, []>("s")];
            tensor<fp16, [1, ?]> z = concat(values = (a, b, two), interleave = tensor<bool, []>(false))[name = tensor<string, []>("call \"z\"\n")];
        } -> (z, a);
}"#;

    #[test]
    fn both_forms_give_the_same_program() {
        let new = OLD.replace("tensor<string, []>", "string").replace("tensor<fp16, []>", "fp16");
        let new = new.replace("tensor<uint64, []>", "uint64").replace("tensor<bool, []>", "bool");
        let (old, new) = (parse(OLD).expect("the older"), parse(&new).expect("the newer"));
        assert_eq!(old, new);
        let main = &old.functions["main"];
        assert_eq!(
            (main.opset.as_str(), main.block.outputs.as_slice()),
            ("ios16", ["z", "a"].map(str::to_owned).as_slice())
        );
        assert_eq!(
            main.inputs[0].ty,
            ValueType::Tensor(TensorType { element: Element::F16, shape: vec![Some(1), None] })
        );
        let operations = &main.block.operations;
        assert_eq!(operations[0].attributes["val"].data, Data::Floats(vec![2.0]));
        let blob = Data::Blob { file: "@model_path/weights/weight.bin".to_owned(), offset: 64 };
        assert_eq!(operations[1].attributes["val"].data, blob);
        assert_eq!(operations[2].attributes["val"].data, Data::Ints(vec![1, -2, 3, 4]));
        assert_eq!(operations[3].outputs.len(), 2);
        assert_eq!(operations[4].inputs["values"].len(), 3);
        assert_eq!(operations[4].inputs["values"][2], Argument::Name("two".to_owned()));
        assert_eq!(operations[4].attributes["name"].as_text(), Some("call \"z\"\n"));
    }

    #[test]
    fn errors_have_the_line() {
        let why = |from: &str, to: &str| parse(&OLD.replacen(from, to, 1)).expect_err("refused").to_string();
        assert!(why("program", "pogrom").contains("line 1"));
        assert!(
            why("[[1, -2], [3, 4]]", "[[1, -2], [3]]").starts_with("line 7: expected 4 elements, found 3")
        );
        assert!(why("0x1p+1", "\"x\"").contains("line 5"));
        assert!(why("tensor<fp16, []> two", "tensor<fp99, []> two").contains("fp99"));
        assert!(why("-> (z, a);", "").contains("line"));
        assert!(why("\"two\"", "\"two").contains("line"));
        let deep = format!("program(1.0)\n{{ func main<ios16>({}", "list<".repeat(100_000));
        assert!(parse(&deep).expect_err("refused").why.contains("deeper"));
    }
}
