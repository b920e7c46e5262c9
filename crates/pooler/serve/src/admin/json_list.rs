//! A JSON text around one long list, in pieces: the whole text, and a tree of its values all the more, would take many
//! times the memory of what it tells of. Knows no entry.

use serde::Serialize;

use super::body::PIECE;

/// The pieces of a JSON text around a list. Each entry is written when its piece is wanted.
pub struct JsonList<T, W> {
    /// What stands before the entries, until it is given.
    begin: Vec<u8>,
    entries: std::vec::IntoIter<T>,
    write: W,
    /// An entry has been written.
    follows: bool,
    /// What stands behind the entries, until it is given.
    end: Option<Vec<u8>>,
}

impl<T, W: Fn(&mut Vec<u8>, T)> JsonList<T, W> {
    /// `write` writes an entry behind what is there.
    pub fn new(begin: Vec<u8>, entries: Vec<T>, write: W, end: Vec<u8>) -> Self {
        Self { begin, entries: entries.into_iter(), write, follows: false, end: Some(end) }
    }

    /// An object that has the list alone.
    pub fn alone(name: &str, entries: Vec<T>, write: W) -> Self {
        Self::new(format!("{{\"{name}\":[").into_bytes(), entries, write, b"]}".to_vec())
    }
}

impl<T, W: Fn(&mut Vec<u8>, T)> Iterator for JsonList<T, W> {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        self.end.as_ref()?;
        let mut piece = std::mem::take(&mut self.begin);
        while piece.len() < PIECE {
            let Some(entry) = self.entries.next() else {
                piece.append(&mut self.end.take().unwrap_or_default());
                break;
            };
            if std::mem::replace(&mut self.follows, true) {
                piece.push(b',');
            }
            (self.write)(&mut piece, entry);
        }
        Some(piece)
    }
}

/// Writes a value behind what is there.
pub fn write(text: &mut Vec<u8>, shown: &impl Serialize) {
    serde_json::to_writer(text, shown).expect("names are text, and memory takes all that is written");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(count: u32) -> Vec<Vec<u8>> {
        JsonList::alone("numbers", (0..count).collect(), |text, number: u32| write(text, &number)).collect()
    }

    #[test]
    fn it_is_json_with_no_entry_one_and_many_in_pieces_of_which_none_is_empty() {
        assert_eq!(pieces(0).concat(), b"{\"numbers\":[]}");
        assert_eq!(pieces(1).concat(), b"{\"numbers\":[0]}");
        let many = pieces(100_000);
        assert!((5..50).contains(&many.len()), "{}", many.len());
        assert!(many.iter().all(|piece| (1..PIECE + 20).contains(&piece.len())));
        let tree: serde_json::Value = serde_json::from_slice(&many.concat()).unwrap();
        assert_eq!(tree["numbers"].as_array().map(Vec::len), Some(100_000));
        assert_eq!(tree["numbers"][99_999], 99_999);
    }
}
