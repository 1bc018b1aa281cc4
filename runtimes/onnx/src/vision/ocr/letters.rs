//! Character probabilities to text: the most likely character of each column, without repetitions and blanks.

use island_runtimes_graph::Graph;
use island_runtimes_kit::{
    error::{EngineError, invalid_model},
    repository::Repository,
    text::scores::argmax,
};
use ndarray::ArrayView2;

/// Maximum number of characters of an alphabet.
const MAX_LETTERS: usize = 100_000;
/// The blank in lists that have one, as their first line.
const BLANK: &str = "blank";

/// The characters of a graph, the blank first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alphabet(Vec<String>);

impl Alphabet {
    /// From the repository's list, one character per line, or from the graph's metadata.
    pub fn load(repository: &Repository, reader: &Graph) -> Result<Self, EngineError> {
        let is_list = |name: &&str| {
            let is_text = std::path::Path::new(name).extension().is_some_and(|ending| ending == "txt");
            is_text && ["dict", "keys"].iter().any(|word| name.contains(word))
        };
        let list = match repository.names().find(is_list) {
            Some(name) => String::from_utf8(repository.bytes(name)?.unwrap_or_default())
                .map_err(|_| invalid_model(format!("{name} is not UTF-8")))?,
            None => reader.metadata("character").ok_or_else(|| {
                let wanted = "…dict….txt or …keys….txt";
                invalid_model(format!("no list of characters: neither {wanted} nor in {}", reader.name()))
            })?,
        };
        let alphabet = Self::of(&list);
        let letters = alphabet.0.len() - 1;
        if letters == 0 || letters > MAX_LETTERS {
            return Err(invalid_model(format!(
                "the list of characters has {letters}, not 1 to {MAX_LETTERS}"
            )));
        }
        Ok(alphabet)
    }

    /// From a list.
    pub fn of(list: &str) -> Self {
        // Some lists have the blank themselves.
        let letters = list.lines().skip_while(|line| *line == BLANK).map(str::to_owned);
        Self(std::iter::once(String::new()).chain(letters).collect())
    }

    /// The text of `[T, characters]` probabilities, and the mean probability of its characters.
    pub fn read(&self, probabilities: ArrayView2<'_, f32>) -> Result<(String, f32), EngineError> {
        let given = probabilities.ncols();
        let known = self.0.len();
        // Graphs with a space have it last, though lists do not contain it.
        if given != known && given != known + 1 {
            return Err(invalid_model(format!(
                "the graph has {given} characters, its list {known} with the blank"
            )));
        }
        let mut text = String::new();
        let (mut sum, mut count, mut before) = (0.0, 0, 0);
        for column in probabilities.rows() {
            let letter = argmax(column.iter().copied());
            if letter != 0 && letter != before {
                text.push_str(self.0.get(letter).map_or(" ", String::as_str));
                sum += column[letter];
                count += 1;
            }
            before = letter;
        }
        Ok((text, if count == 0 { 0.0 } else { sum / count as f32 }))
    }
}

#[cfg(test)]
mod tests {
    use ndarray::Array2;

    use super::*;

    fn probabilities(letters: &[usize], classes: usize) -> Array2<f32> {
        Array2::from_shape_fn(
            (letters.len(), classes),
            |(at, letter)| if letter == letters[at] { 0.8 } else { 0.0 },
        )
    }

    #[test]
    fn repetitions_and_blanks_are_removed() {
        let alphabet = Alphabet::of("a\nb\n");
        let (text, score) =
            alphabet.read(probabilities(&[0, 1, 1, 0, 1, 2, 3, 2, 0], 4).view()).expect("read");
        assert_eq!(text, "aab b");
        assert!((score - 0.8).abs() < 1e-6);
        assert_eq!(alphabet.read(probabilities(&[0, 0], 3).view()).expect("read"), (String::new(), 0.0));
    }

    #[test]
    fn a_list_with_the_blank_is_read_without_it() {
        assert_eq!(Alphabet::of("blank\na\nb\n \n"), Alphabet::of("a\nb\n \n"));
        let (text, _) =
            Alphabet::of("blank\r\na\r\nb\r\n ").read(probabilities(&[0, 1, 3, 2], 4).view()).expect("read");
        assert_eq!(text, "a b");
    }

    #[test]
    fn list_of_another_graph_is_rejected() {
        assert!(Alphabet::of("a\nb\n").read(probabilities(&[0], 9).view()).is_err());
    }
}
