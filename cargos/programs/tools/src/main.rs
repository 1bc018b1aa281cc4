//! The entry program of the container Cargos: `island-tools <cargo>` reads a job's input and runs the tool it is for.
//!
//! The tools come from Debian and read untrusted files, each as a process of its own that gets no environment and no
//! other files; what has a good crate is done in this program instead. Everything is written into a folder in `/tmp`,
//! the one place where a container may write.

use std::process::ExitCode;

use island_cargo::run;

mod document;
mod media;
mod picture;
mod process;
mod scratch;
mod text;

fn main() -> ExitCode {
    let name = std::env::args().nth(1).unwrap_or_default();
    match name.as_str() {
        "video-transcode" => run(media::transcode::transcode),
        "video-compress" => run(media::compress::compress),
        "video-clip" => run(media::clip::clip),
        "video-thumbnail" => run(media::thumbnail::thumbnail),
        "gif-maker" => run(media::gif::make),
        "audio-convert" => run(media::audio::convert),
        "audio-normalize" => run(media::loudness::normalize),
        "audio-merge" => run(media::merge::merge),
        "image-resize" => run(picture::resize::resize),
        "image-compress" => run(picture::convert::compress),
        "image-convert" => run(picture::convert::convert),
        "image-watermark" => run(picture::watermark::watermark),
        "image-metadata" => run(picture::metadata::read),
        "svg-to-png" => run(picture::svg::to_png),
        "svg-optimize" => run(picture::svg::optimize),
        "pdf-extract" => run(document::pdf::extract),
        "pdf-merge" => run(document::pdf::merge),
        "html-to-pdf" => run(document::print::html),
        "markdown-to-pdf" => run(document::print::markdown),
        "docx-extract" => run(document::docx::extract),
        "xlsx-parse" => run(document::xlsx::parse),
        "ocr" => run(document::ocr::recognise),
        "barcode" => run(picture::barcode::draw),
        "format-code" => run(text::format::format),
        "template" => run(text::template::render),
        "language-detect" => run(text::language::detect),
        _ => {
            eprintln!("usage: island-tools <cargo>, with the job's input on standard input");
            ExitCode::from(64)
        }
    }
}
