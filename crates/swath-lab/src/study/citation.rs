//! The citation of a paper, as every report shows it.

/// A paper as a reader would cite it.
#[derive(Clone, Copy, Debug)]
pub struct Citation {
    /// The key by which documents cite it, as in `docs/papers.md`: "Duong and Hur 2023".
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
}

impl Citation {
    /// Authors, title, venue, year, DOI.
    pub fn text(&self) -> String {
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
