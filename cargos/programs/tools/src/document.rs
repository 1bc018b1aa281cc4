//! Documents: PDF, Word, Excel, and letters on pictures.

pub(crate) mod docx;
pub(crate) mod ocr;
pub(crate) mod pdf;
pub(crate) mod print;
pub(crate) mod xlsx;
