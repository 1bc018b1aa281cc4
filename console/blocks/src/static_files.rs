//! The style, scripts and pictures of pages.

/// Media type of scripts.
pub const SCRIPT: &str = "text/javascript; charset=utf-8";
/// Media type of styles.
pub const STYLE: &str = "text/css; charset=utf-8";

/// Scripts and styles come from the address of the page only, and never from within a page. Pictures and sound may be in a page, since a
/// person shows their own before they are sent.
pub const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; \
     media-src 'self' data: blob:; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// A file: its name, media type and content.
pub type File = (&'static str, &'static str, &'static [u8]);

/// Files of all pages.
pub const FILES: &[File] = &[
    ("page.js", SCRIPT, include_bytes!("../static/page.js")),
    ("live.js", SCRIPT, include_bytes!("../static/live.js")),
    ("uPlot.iife.min.js", SCRIPT, include_bytes!("../static/vendor/uPlot.iife.min.js")),
    ("uPlot.min.css", STYLE, include_bytes!("../static/vendor/uPlot.min.css")),
    ("pages.css", STYLE, include_bytes!("../static/pages.css")),
    ("island.svg", "image/svg+xml", include_bytes!("../static/island.svg")),
];

/// htmx, for pages whose tables refresh.
pub const HTMX: File = ("htmx.min.js", SCRIPT, include_bytes!("../static/vendor/htmx.min.js"));
