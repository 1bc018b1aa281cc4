//! Compiles packages: the library loads only compiled models.
#![expect(unsafe_code, reason = "calls of Objective-C")]

use std::{
    path::{Path, PathBuf},
    sync::mpsc,
};

use block2::RcBlock;
use objc2::rc::Retained;
use objc2_core_ml::MLModel;
use objc2_foundation::{NSError, NSURL};

use super::{files::Laid, system::words};

/// A file or folder as the library's URL.
pub(super) fn url(path: &Path) -> Result<Retained<NSURL>, String> {
    let url = if path.is_dir() { NSURL::from_directory_path(path) } else { NSURL::from_file_path(path) };
    url.ok_or_else(|| format!("{} is not a path of the system's library", path.display()))
}

/// The compiled model of a folder: as it is, or compiled and moved next to it, so that it is removed with it.
pub(super) fn compiled(laid: &mut Laid) -> Result<PathBuf, String> {
    if laid.model().extension().is_some_and(|extension| extension == "mlmodelc") {
        return Ok(laid.model().to_owned());
    }
    let made = compile(&*url(laid.model())?)?;
    Ok(laid.take_in(made))
}

/// Compiles a model into a temporary folder, and waits for it.
fn compile(url: &NSURL) -> Result<PathBuf, String> {
    let (sender, given) = mpsc::channel();
    let handler = RcBlock::new(move |made: *mut NSURL, error: *mut NSError| {
        // SAFETY: both are null or outlive this call.
        let (made, error) = unsafe { (made.as_ref(), error.as_ref()) };
        let why = || error.map_or_else(|| "without a reason".to_owned(), words);
        // The receiver is gone if the caller stopped waiting.
        let _ = sender.send(made.and_then(NSURL::to_file_path).ok_or_else(why));
    });
    // SAFETY: the handler may be called on any thread: everything it captures is `Send`.
    unsafe { MLModel::compileModelAtURL_completionHandler(url, &handler) };
    // The library retains the handler: once it releases it without a call, there is nothing to wait for.
    drop(handler);
    let given = given.recv().unwrap_or_else(|_| Err("it gave up without a word".to_owned()));
    given.map_err(|why| format!("Core ML cannot compile it: {why}"))
}
