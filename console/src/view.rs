//! The frame of the console's pages around the blocks that they share with other pages.

use askama::Template;
use island_protocol::credits::MicroCredits;

use crate::posted::Refusal;

pub(crate) use island_console_blocks::block::{
    Block, Card, Cell, Field, Form, Kind, Live, Media, Pager, Plot, Shown, Tab, Table, Tile, Tone, enter,
};

/// Address and text of a page in the menu.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub href: &'static str,
    pub text: &'static str,
    pub is_current: bool,
    /// How many things need attention there.
    pub count: usize,
}

/// Entries of the menu under one name.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    pub name: &'static str,
    pub entries: Vec<Entry>,
}

/// The frame of all pages.
#[derive(Debug, Clone)]
pub(crate) struct Frame {
    pub title: String,
    /// What the page is about, for programs that list pages; or empty.
    pub description: String,
    /// Folder of the assets, which changes with them.
    pub assets: &'static str,
    pub groups: Vec<Group>,
    /// Address and credits of who is signed in.
    pub account: Option<(String, MicroCredits)>,
    pub notices: Vec<(Tone, String)>,
    /// What the API refused, if the page is shown again because of it.
    pub refusal: Option<Refusal>,
    pub scripts: Vec<&'static str>,
    pub has_plots: bool,
    pub has_htmx: bool,
    pub is_wide: bool,
}

impl Frame {
    /// How many things need attention on all pages of the menu.
    pub(crate) fn attention(&self) -> usize {
        self.groups.iter().flat_map(|group| &group.entries).map(|entry| entry.count).sum()
    }
}

/// A page that consists of blocks.
#[derive(Debug, Template)]
#[template(path = "page.html")]
pub(crate) struct BlocksPage {
    pub frame: Frame,
    pub lead: String,
    pub blocks: Vec<Block>,
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    #[test]
    fn no_template_turns_escaping_off() {
        island_console_blocks::check::escaping(Path::new("templates"));
    }
}
