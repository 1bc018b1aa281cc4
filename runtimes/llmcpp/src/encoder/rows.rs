//! Tokens of texts to embed or rank. A text never becomes control tokens.

use island_protocol::job::{Failure, FailureCode};
use llama_cpp_2::token::LlamaToken;

use super::Request;
use crate::model::Model;

/// Tokenizes the texts of requests for a model.
#[derive(Debug)]
pub struct Rows<'m> {
    model: &'m Model,
    /// How a query and a document are joined, if the model's file has a template for it.
    template: Option<String>,
    /// Maximum number of tokens of one row.
    limit: usize,
}

impl<'m> Rows<'m> {
    /// Rows of at most `limit` tokens for a model.
    pub fn new(model: &'m Model, limit: usize) -> Self {
        // Not by `chat_template`, which frees the name before llama.cpp reads it.
        let template = model.llama.meta_val_str("tokenizer.chat_template.rerank").ok();
        Self { model, template, limit }
    }

    /// The tokens of each text or pair. What does not fit is cut off at the end of the text; of a pair at the end of the longer one, or of
    /// the document where a template joins them.
    pub fn of(&self, request: &Request) -> Result<Vec<Vec<LlamaToken>>, Failure> {
        let rows: Vec<Vec<LlamaToken>> = match request {
            Request::Embed { texts, .. } => texts.iter().map(|text| self.text(text)).collect(),
            Request::Rank { query, documents } => {
                documents.iter().map(|document| self.pair(query, document)).collect()
            }
        };
        match rows.iter().find(|row| row.is_empty() || row.len() > self.limit) {
            None => Ok(rows),
            Some(row) if row.is_empty() => {
                Err(Failure::of_job(FailureCode::InvalidInput, "a text has no tokens"))
            }
            Some(_) => {
                let message = format!("the frame of a pair alone has more than {} tokens", self.limit);
                Err(Failure::of_job(FailureCode::ContextLengthExceeded, message))
            }
        }
    }

    fn text(&self, text: &str) -> Vec<LlamaToken> {
        let mut row = self.model.llama.vocab().tokenize(text.as_bytes(), true, false);
        if row.len() > self.limit {
            // The token that ends a text is part of what the model was trained with.
            let ends = self.ends();
            let end = row.last().copied().filter(|last| ends.contains(last));
            row.truncate(self.limit - end.map_or(0, |_| 1));
            row.extend(end);
        }
        row
    }

    /// Tokens that the vocabulary puts at the end of a text.
    fn ends(&self) -> Vec<LlamaToken> {
        let vocab = self.model.llama.vocab();
        let eos = vocab.should_add_eos().then(|| vocab.eos());
        // The vocabularies of BERT end a text with the token that separates two.
        eos.into_iter().chain([vocab.sep()]).filter(|token| token.0 >= 0).collect()
    }

    /// The tokens of a pair: as the template has them, or with the tokens that the vocabulary puts around texts.
    fn pair(&self, query: &str, document: &str) -> Vec<LlamaToken> {
        let Some(template) = &self.template else { return self.framed(query, document) };
        let row = self.filled(template, query, document);
        if row.len() <= self.limit {
            return row;
        }
        // The longest beginning of the document that fits.
        let ends: Vec<usize> = document.char_indices().map(|(at, _)| at).collect();
        let row_of = |at: usize| self.filled(template, query, &document[..at]);
        let fitting = ends.partition_point(|&at| row_of(at).len() <= self.limit);
        fitting.checked_sub(1).map_or(row, |place| row_of(ends[place]))
    }

    fn filled(&self, template: &str, query: &str, document: &str) -> Vec<LlamaToken> {
        let vocab = self.model.llama.vocab();
        let is_harmless = |text: &str| {
            vocab.tokenize(text.as_bytes(), false, true) == vocab.tokenize(text.as_bytes(), false, false)
        };
        let pieces = pieces(template, query, document);
        if is_harmless(query) && is_harmless(document) {
            // As one text, because tokens may reach from a piece into the next.
            let text: String = pieces.iter().map(|(text, _)| *text).collect();
            return vocab.tokenize(text.as_bytes(), false, true);
        }
        pieces.iter().flat_map(|&(text, is_own)| vocab.tokenize(text.as_bytes(), false, is_own)).collect()
    }

    fn framed(&self, query: &str, document: &str) -> Vec<LlamaToken> {
        let vocab = self.model.llama.vocab();
        let present = |is_added: bool, token: LlamaToken| (is_added && token.0 >= 0).then_some(token);
        // Not every vocabulary has a token for the end; that of BERT has one that separates.
        let end = if vocab.eos().0 >= 0 { vocab.eos() } else { vocab.sep() };
        let end = present(vocab.should_add_eos(), end);
        let separator = present(vocab.should_add_sep(), vocab.sep());
        let begin = present(vocab.should_add_bos(), vocab.bos());
        // BERT's tokenizer ends a pair with what separates it; llama.cpp's server omits that.
        let last = end.or(separator);
        let frame = [begin, end, separator, last].iter().flatten().count();
        let (mut query, mut document) = (self.plain(query), self.plain(document));
        let kept = longest_first(query.len(), document.len(), self.limit.saturating_sub(frame));
        query.truncate(kept.0);
        document.truncate(kept.1);
        let query = begin.into_iter().chain(query).chain(end).chain(separator);
        query.chain(document).chain(last).collect()
    }

    fn plain(&self, text: &str) -> Vec<LlamaToken> {
        self.model.llama.vocab().tokenize(text.as_bytes(), false, false)
    }
}

const QUERY: &str = "{query}";
const DOCUMENT: &str = "{document}";

/// Numbers of tokens that are kept of two texts, at most `limit` together: tokens are taken from the longer one first.
fn longest_first(one: usize, other: usize, limit: usize) -> (usize, usize) {
    if one + other <= limit {
        return (one, other);
    }
    let short = one.min(other);
    let (short, long) =
        if 2 * short <= limit { (short, limit - short) } else { (limit / 2, limit - limit / 2) };
    if one <= other { (short, long) } else { (long, short) }
}

/// The parts of a template, which are its own (`true`), and of the texts in place of their names.
fn pieces<'t>(template: &'t str, query: &'t str, document: &'t str) -> Vec<(&'t str, bool)> {
    let mut pieces = Vec::new();
    let mut rest = template;
    let names = [(QUERY, query), (DOCUMENT, document)];
    while let Some((at, name, text)) =
        names.iter().filter_map(|&(name, text)| Some((rest.find(name)?, name, text))).min()
    {
        pieces.extend([(&rest[..at], true), (text, false)]);
        rest = &rest[at + name.len()..];
    }
    pieces.push((rest, true));
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longer_text_is_cut_first() {
        assert_eq!(longest_first(3, 4, 7), (3, 4));
        assert_eq!(longest_first(3, 40, 10), (3, 7));
        assert_eq!(longest_first(40, 3, 10), (7, 3));
        assert_eq!(longest_first(40, 30, 11), (6, 5));
        assert_eq!(longest_first(30, 40, 11), (5, 6));
    }

    #[test]
    fn a_template_is_filled_once() {
        let joined: String =
            pieces("<q>{query}</q> {document}!", "{document}", "d").iter().map(|(text, _)| *text).collect();
        assert_eq!(joined, "<q>{document}</q> d!");
        let expected = [("a", true), ("d", false), ("b", true), ("q", false), ("", true)];
        assert_eq!(pieces("a{document}b{query}", "q", "d"), expected);
    }
}
