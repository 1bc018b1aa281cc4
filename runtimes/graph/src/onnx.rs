//! ONNX graphs as messages. Only what this project writes is declared; the numbers are those of `onnx.proto`.

pub use messages::*;

/// Attributes of a node.
#[derive(Debug, Clone)]
pub enum Attr {
    /// An integer.
    Int(&'static str, i64),
    /// A real number.
    Float(&'static str, f32),
    /// A string.
    Text(&'static str, String),
    /// Integers.
    Ints(&'static str, Vec<i64>),
    /// Real numbers.
    Floats(&'static str, Vec<f32>),
    /// Strings.
    Texts(&'static str, Vec<&'static str>),
    /// A graph inside.
    Graph(&'static str, Graph),
}

impl Attr {
    /// The attribute as a message.
    pub fn attribute(self) -> Attribute {
        let named = |name: &str, kind| Attribute {
            name: Some(name.to_owned()),
            kind: Some(kind),
            ..Attribute::default()
        };
        match self {
            Self::Float(name, f) => Attribute { f: Some(f), ..named(name, 1) },
            Self::Int(name, i) => Attribute { i: Some(i), ..named(name, 2) },
            Self::Text(name, text) => Attribute { s: Some(text.into_bytes()), ..named(name, 3) },
            Self::Graph(name, graph) => Attribute { g: Some(graph), ..named(name, 5) },
            Self::Floats(name, floats) => Attribute { floats, ..named(name, 6) },
            Self::Ints(name, ints) => Attribute { ints, ..named(name, 7) },
            Self::Texts(name, texts) => {
                let strings = texts.into_iter().map(|text| text.as_bytes().to_vec()).collect();
                Attribute { strings, ..named(name, 8) }
            }
        }
    }
}

impl Model {
    /// The model as a file contains it.
    pub fn to_bytes(&self) -> Vec<u8> {
        prost::Message::encode_to_vec(self)
    }
}

/// A string attribute.
pub fn text(name: &'static str, text: &str) -> Attr {
    Attr::Text(name, text.to_owned())
}

#[expect(missing_docs, reason = "the names are those of the published format")]
mod messages {
    use prost::{Message, Oneof};

    #[derive(Clone, PartialEq, Message)]
    pub struct Model {
        #[prost(int64, optional, tag = "1")]
        pub ir_version: Option<i64>,
        #[prost(string, optional, tag = "2")]
        pub producer_name: Option<String>,
        #[prost(message, optional, tag = "7")]
        pub graph: Option<Graph>,
        #[prost(message, repeated, tag = "8")]
        pub opset_import: Vec<OperatorSet>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct OperatorSet {
        #[prost(string, optional, tag = "1")]
        pub domain: Option<String>,
        #[prost(int64, optional, tag = "2")]
        pub version: Option<i64>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct Graph {
        #[prost(message, repeated, tag = "1")]
        pub nodes: Vec<Node>,
        #[prost(string, optional, tag = "2")]
        pub name: Option<String>,
        #[prost(message, repeated, tag = "5")]
        pub initializers: Vec<Tensor>,
        #[prost(message, repeated, tag = "11")]
        pub inputs: Vec<ValueInfo>,
        #[prost(message, repeated, tag = "12")]
        pub outputs: Vec<ValueInfo>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct Node {
        #[prost(string, repeated, tag = "1")]
        pub inputs: Vec<String>,
        #[prost(string, repeated, tag = "2")]
        pub outputs: Vec<String>,
        #[prost(string, optional, tag = "3")]
        pub name: Option<String>,
        #[prost(string, optional, tag = "4")]
        pub op_type: Option<String>,
        #[prost(message, repeated, tag = "5")]
        pub attributes: Vec<Attribute>,
        #[prost(string, optional, tag = "7")]
        pub domain: Option<String>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct Attribute {
        #[prost(string, optional, tag = "1")]
        pub name: Option<String>,
        #[prost(float, optional, tag = "2")]
        pub f: Option<f32>,
        #[prost(int64, optional, tag = "3")]
        pub i: Option<i64>,
        #[prost(bytes = "vec", optional, tag = "4")]
        pub s: Option<Vec<u8>>,
        #[prost(message, optional, tag = "6")]
        pub g: Option<Graph>,
        #[prost(float, repeated, packed = "false", tag = "7")]
        pub floats: Vec<f32>,
        #[prost(int64, repeated, packed = "false", tag = "8")]
        pub ints: Vec<i64>,
        #[prost(bytes = "vec", repeated, tag = "9")]
        pub strings: Vec<Vec<u8>>,
        /// 1 float, 2 int, 3 string, 5 graph, 6 floats, 7 ints, 8 strings.
        #[prost(int32, optional, tag = "20")]
        pub kind: Option<i32>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct Tensor {
        #[prost(int64, repeated, packed = "false", tag = "1")]
        pub dims: Vec<i64>,
        /// 1 float, 7 int64, 9 bool, 10 float16.
        #[prost(int32, optional, tag = "2")]
        pub data_type: Option<i32>,
        #[prost(string, optional, tag = "8")]
        pub name: Option<String>,
        #[prost(bytes = "vec", optional, tag = "9")]
        pub raw_data: Option<Vec<u8>>,
        #[prost(message, repeated, tag = "13")]
        pub external_data: Vec<Entry>,
        /// 1 for external data.
        #[prost(int32, optional, tag = "14")]
        pub data_location: Option<i32>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct Entry {
        #[prost(string, optional, tag = "1")]
        pub key: Option<String>,
        #[prost(string, optional, tag = "2")]
        pub value: Option<String>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct ValueInfo {
        #[prost(string, optional, tag = "1")]
        pub name: Option<String>,
        #[prost(message, optional, tag = "2")]
        pub r#type: Option<Type>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct Type {
        #[prost(message, optional, tag = "1")]
        pub tensor: Option<TensorType>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct TensorType {
        #[prost(int32, optional, tag = "1")]
        pub element: Option<i32>,
        #[prost(message, optional, tag = "2")]
        pub shape: Option<Shape>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct Shape {
        #[prost(message, repeated, tag = "1")]
        pub dims: Vec<Dimension>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct Dimension {
        #[prost(oneof = "Size", tags = "1, 2")]
        pub size: Option<Size>,
    }

    #[derive(Clone, PartialEq, Oneof)]
    pub enum Size {
        #[prost(int64, tag = "1")]
        Fixed(i64),
        #[prost(string, tag = "2")]
        Named(String),
    }
}
