//! Packages to compiled models, which alone the library loads.
#![expect(unsafe_code, reason = "Objective-C is asked")]

use std::{
    path::{Path, PathBuf},
    sync::mpsc,
};

use block2::RcBlock;
use objc2::rc::Retained;
use objc2_core_ml::MLModel;
use objc2_foundation::{NSError, NSURL};

use super::{files::Laid, system::words};

/// A file or folder as the library names it.
pub(super) fn url(path: &Path) -> Result<Retained<NSURL>, String> {
    let url = if path.is_dir() { NSURL::from_directory_path(path) } else { NSURL::from_file_path(path) };
    url.ok_or_else(|| format!("{} is no path that the system's library takes", path.display()))
}

/// The compiled model in what was laid out: as it came, or else made of it and put beside it, so that it goes with it.
pub(super) fn compiled(laid: &mut Laid) -> Result<PathBuf, String> {
    if laid.model().extension().is_some_and(|extension| extension == "mlmodelc") {
        return Ok(laid.model().to_owned());
    }
    let made = compile(&*url(laid.model())?)?;
    Ok(laid.take_in(made))
}

/// Compiles what lies there into a temporary folder, and waits for it.
fn compile(url: &NSURL) -> Result<PathBuf, String> {
    let (sender, given) = mpsc::channel();
    let handler = RcBlock::new(move |made: *mut NSURL, error: *mut NSError| {
        // SAFETY: both are null or live at least as long as this call.
        let (made, error) = unsafe { (made.as_ref(), error.as_ref()) };
        let why = || error.map_or_else(|| "it does not say why".to_owned(), words);
        // Nobody waits any more if the receiver is gone.
        let _ = sender.send(made.and_then(NSURL::to_file_path).ok_or_else(why));
    });
    // SAFETY: the handler may be called on any thread: what it holds may go to any.
    unsafe { MLModel::compileModelAtURL_completionHandler(url, &handler) };
    // The library has its own hold on the handler: once it lets go without a call, there is nothing to wait for.
    drop(handler);
    let given = given.recv().unwrap_or_else(|_| Err("it gave up without a word".to_owned()));
    given.map_err(|why| format!("Core ML does not compile it: {why}"))
}
