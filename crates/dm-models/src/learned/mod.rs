//! Models of learned inner levels: tables of leaves that are replaced.

mod tables;
mod world;

use crate::Entry;

/// The entries of this module, in the order of the page.
pub(crate) const ENTRIES: &[Entry] = &[tables::ENTRY];
