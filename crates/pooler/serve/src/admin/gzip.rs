//! Pieces of text, compressed for clients that accept gzip. Nothing is kept but the compressor's window.

use std::io::Write;

use axum::http::{HeaderMap, header::ACCEPT_ENCODING};
use flate2::{Compression, write::GzEncoder};

/// Whether a request accepts answers in gzip.
pub fn accepts_gzip(headers: &HeaderMap) -> bool {
    let said = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    said.flat_map(|value| value.split(',')).any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, "q=1"));
        let weight = weight.trim().strip_prefix("q=").and_then(|weight| weight.trim().parse::<f32>().ok());
        name.trim().eq_ignore_ascii_case("gzip") && weight.is_some_and(|weight| weight > 0.0)
    })
}

/// The same pieces, packed. A piece of these is empty where the packer keeps for later what it was given.
pub struct Packed<I> {
    pieces: I,
    packer: Option<GzEncoder<Vec<u8>>>,
}

impl<I> Packed<I> {
    /// Packs in the fastest way: the same names again and again become small in any.
    pub fn new(pieces: I) -> Self {
        Self { pieces, packer: Some(GzEncoder::new(Vec::new(), Compression::fast())) }
    }
}

impl<I: Iterator<Item = Vec<u8>>> Iterator for Packed<I> {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        let Some(piece) = self.pieces.next() else {
            let end = self.packer.take()?.finish();
            return Some(end.expect("memory takes all that is written"));
        };
        let packer = self.packer.as_mut()?;
        packer.write_all(&piece).expect("memory takes all that is written");
        Some(std::mem::take(packer.get_mut()))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::GzDecoder;

    use super::*;

    #[test]
    fn it_is_taken_by_who_names_it_and_does_not_refuse_it() {
        let taken = |values: &[&'static str]| {
            let pairs = values.iter().map(|value| (ACCEPT_ENCODING, value.parse().unwrap()));
            accepts_gzip(&pairs.collect::<HeaderMap>())
        };
        for one in ["gzip", "GZIP", "deflate, gzip", "gzip;q=0.5", "br;q=1.0, gzip ; q=0.8, *;q=0.1"] {
            assert!(taken(&[one]), "{one}");
        }
        for none in ["", "identity", "gzip;q=0", "gzip; q=0.000", "gzip;q=x", "*", "x-gzip2", "gzipped"] {
            assert!(!taken(&[none]), "{none}");
        }
        assert!(taken(&["deflate", "gzip"]));
        assert!(!taken(&[]));
    }

    #[test]
    fn what_is_unpacked_are_all_pieces_and_none_is_packed_before_it_is_asked_for() {
        let piece = |n: u32| format!("poolhouse_waiters{{user=\"u{n}\"}} 0\n").repeat(1_000).into_bytes();
        let made = std::cell::Cell::new(0);
        let mut packed = Packed::new((0..200).map(piece).inspect(|_| made.set(made.get() + 1)));
        let first = packed.next().unwrap();
        assert_eq!((made.get(), &first[..2]), (1, &[0x1f, 0x8b][..]), "the head, at once");
        let rest: Vec<Vec<u8>> = packed.by_ref().collect();
        assert_eq!(packed.next(), None);
        let packed = [first, rest.concat()].concat();
        let mut text = Vec::new();
        GzDecoder::new(&*packed).read_to_end(&mut text).unwrap();
        assert!(text == (0..200).flat_map(piece).collect::<Vec<u8>>());
        assert!(packed.len() * 20 < text.len(), "{} of {}", packed.len(), text.len());
    }
}
