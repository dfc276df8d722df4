//! A paper: its citation, once, and its studies.

use crate::study::registry::Entry;

/// A paper that the laboratory reproduces.
#[derive(Clone, Copy)]
pub struct Paper {
    /// The key by which documents cite it, as in `docs/papers.md`: "Duong and Hur 2020".
    pub key: &'static str,
    /// Authors as the paper names them.
    pub authors: &'static str,
    /// The title.
    pub title: &'static str,
    /// Journal, conference or occasion.
    pub venue: &'static str,
    /// The year of publication; `None` where the paper gives none.
    pub year: Option<u16>,
    /// The digital object identifier, if there is one.
    pub doi: Option<&'static str>,
    /// Its studies in the order of the report.
    pub studies: &'static [Entry],
}

impl Paper {
    /// The paper as a reader would cite it: authors, title, venue, year, DOI.
    pub fn citation(&self) -> String {
        let mut text = format!("{}, {}, {}", self.authors, self.title, self.venue);
        if let Some(year) = self.year {
            text.push_str(&format!(", {year}"));
        }
        if let Some(doi) = self.doi {
            text.push_str(&format!(", doi:{doi}"));
        }
        text
    }
}
