//! A histogram of durations in microseconds, its percentiles, and its encoding in result files.

use std::{io::Read, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use flate2::read::ZlibDecoder;
use hdrhistogram::{
    Histogram as Hdr,
    serialization::{Deserializer, Serializer, V2DeflateSerializer},
};

use crate::result::Percentiles;

/// Durations above one hour count as one hour.
pub const MAX_DURATION_US: u64 = 3_600_000_000;

/// Three significant digits bound the error of a value to 0.1%.
const SIGNIFICANT_DIGITS: u8 = 3;

/// Bound of a histogram that is read, in bytes, before and after inflation. A histogram with all counts takes less.
const MAX_ENCODED_BYTES: usize = 1 << 20;
/// First word of HdrHistogram's deflated format, and the bits of it that give the size of a word.
const DEFLATED_COOKIE: u32 = 0x1c84_9304;
const WORD_SIZE_BITS: u32 = 0xf0;
const DEFLATED_HEAD_BYTES: usize = 8;
const HEAD_BYTES: usize = 40;

/// Most values that the correction adds for one measured value.
const MAX_ADDED_VALUES: u64 = 1000;

/// Grows with the longest duration, to about 200 kB.
#[derive(Clone, PartialEq, Debug)]
pub struct Histogram {
    counts: Hdr<u64>,
    /// Number of durations above [`MAX_DURATION_US`].
    too_long: u64,
}

/// The reason why a stored histogram cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a histogram cannot be read: {0}")]
pub struct BadHistogram(&'static str);

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl Histogram {
    pub fn new() -> Self {
        let mut counts = Hdr::new_with_bounds(1, 2048, SIGNIFICANT_DIGITS).expect("bounds that a histogram can have");
        counts.auto(true);
        Self { counts, too_long: 0 }
    }

    #[inline]
    pub fn record(&mut self, duration: Duration) {
        let micros = (duration.as_nanos() as u64).saturating_add(500) / 1000;
        if micros > MAX_DURATION_US {
            self.too_long += 1;
        }
        self.counts.record(micros.min(MAX_DURATION_US)).expect("it grows up to the longest");
    }

    pub fn add(&mut self, other: &Self) {
        self.counts.add(&other.counts).expect("it grows up to the longest");
        self.too_long += other.too_long;
    }

    pub fn clear(&mut self) {
        self.counts.clear();
        self.too_long = 0;
    }

    pub fn len(&self) -> u64 {
        self.counts.len()
    }

    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    pub fn too_long(&self) -> u64 {
        self.too_long
    }

    /// The duration in milliseconds that this share of the durations (0 to 1) does not exceed. `None` if empty.
    pub fn quantile_ms(&self, quantile: f64) -> Option<f64> {
        (!self.is_empty()).then(|| self.counts.value_at_quantile(quantile) as f64 / 1e3)
    }

    /// Each duration and its count, in ascending order.
    pub fn counted(&self) -> impl Iterator<Item = (Duration, u64)> + '_ {
        let all = self.counts.iter_recorded();
        all.map(|at| (Duration::from_micros(at.value_iterated_to()), at.count_at_value()))
    }

    pub fn max_ms(&self) -> Option<f64> {
        self.quantile_ms(1.0)
    }

    /// `keep`: with the encoded histogram. `None` if empty.
    pub fn percentiles(&self, keep: bool) -> Option<Percentiles> {
        if self.is_empty() {
            return None;
        }
        let at = |quantile| self.counts.value_at_quantile(quantile) as f64 / 1e3;
        Some(Percentiles {
            count: self.len(),
            min: self.counts.min() as f64 / 1e3,
            mean: self.counts.mean() / 1e3,
            p50: at(0.5),
            p90: at(0.9),
            p95: at(0.95),
            p99: at(0.99),
            p999: at(0.999),
            max: at(1.0),
            histogram: keep.then(|| self.encode()),
        })
    }

    /// Adds the operations that a closed loop did not start while it waited for a long answer: for each duration d
    /// above the median m, also d - m, d - 2m, and so on (Tene's correction for coordinated omission).
    pub fn corrected(&self) -> Self {
        let usual = self.counts.value_at_quantile(0.5).max(self.counts.max() / MAX_ADDED_VALUES).max(1);
        Self { counts: self.counts.clone_correct(usual), too_long: self.too_long }
    }

    /// HdrHistogram's V2 encoding, deflated, in base64, which its libraries for other languages read.
    pub fn encode(&self) -> String {
        let mut bytes = Vec::new();
        V2DeflateSerializer::new().serialize(&self.counts, &mut bytes).expect("memory takes whatever is written");
        STANDARD.encode(bytes)
    }

    /// Reads the text of [`Self::encode`], or one that is not deflated, as in results before version 0.2.
    pub fn decode(text: &str) -> Result<Self, BadHistogram> {
        if text.len() > MAX_ENCODED_BYTES {
            return Err(BadHistogram("it is too large"));
        }
        let bytes = STANDARD.decode(text).map_err(|_| BadHistogram("it is not in base64"))?;
        let bytes = inflate(bytes)?;
        let mut counts: Hdr<u64> = Deserializer::new()
            .deserialize(&mut bytes.as_slice())
            .map_err(|_| BadHistogram("it is not in HdrHistogram's V2 encoding"))?;
        if counts.sigfig() != SIGNIFICANT_DIGITS || counts.low() != 1 || counts.high() > 2 * MAX_DURATION_US {
            return Err(BadHistogram("it is not one of microseconds up to an hour with three digits"));
        }
        counts.auto(true);
        Ok(Self { counts, too_long: 0 })
    }
}

/// A big-endian number at an offset.
fn read_word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// Inflates the encoding if it is deflated, and checks its stated length, for which the reader allocates memory.
fn inflate(bytes: Vec<u8>) -> Result<Vec<u8>, BadHistogram> {
    let bytes = match read_word(&bytes, 0) {
        Some(cookie) if cookie & !WORD_SIZE_BITS == DEFLATED_COOKIE => {
            let mut inflated = Vec::new();
            let deflated = bytes.get(DEFLATED_HEAD_BYTES..).unwrap_or_default();
            let read = ZlibDecoder::new(deflated).take(MAX_ENCODED_BYTES as u64).read_to_end(&mut inflated);
            read.map_err(|_| BadHistogram("it cannot be inflated"))?;
            inflated
        }
        _ => bytes,
    };
    match read_word(&bytes, 4) {
        Some(length) if length as usize <= bytes.len().saturating_sub(HEAD_BYTES) => Ok(bytes),
        _ => Err(BadHistogram("it is cut short, or too large")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hdrhistogram::serialization::V2Serializer;
    use proptest::prelude::*;

    fn of(micros: impl IntoIterator<Item = u64>) -> Histogram {
        let mut histogram = Histogram::new();
        micros.into_iter().for_each(|n| histogram.record(Duration::from_micros(n)));
        histogram
    }

    #[test]
    fn percentiles_are_those_of_the_sorted_values() {
        let shown = of(1..=1000).percentiles(false).unwrap();
        assert_eq!((shown.count, shown.min, shown.p50, shown.p99, shown.max), (1000, 0.001, 0.5, 0.99, 1.0));
        assert!((shown.mean - 0.5005).abs() < 1e-9);
        assert_eq!(shown.histogram, None);
    }

    #[test]
    fn an_empty_histogram_has_no_percentiles() {
        assert_eq!(Histogram::new().percentiles(true), None);
        assert_eq!(Histogram::new().max_ms(), None);
    }

    #[test]
    fn a_duration_above_an_hour_counts_as_an_hour_and_as_too_long() {
        let histogram = of([1, 2 * MAX_DURATION_US]);
        assert_eq!((histogram.len(), histogram.too_long()), (2, 1));
        assert!((histogram.max_ms().unwrap() - 3_600_000.0).abs() < 3_600.0);
    }

    #[test]
    fn a_long_answer_is_corrected_for_operations_that_were_not_started() {
        // 99 answers of 10 ms, then one of a second.
        let histogram = of(std::iter::repeat_n(10_000, 99).chain([1_000_000]));
        assert!(histogram.quantile_ms(0.95).unwrap() < 11.0);
        let corrected = histogram.corrected();
        assert!(corrected.len() > 190, "{}", corrected.len());
        assert!(corrected.quantile_ms(0.95).unwrap() > 800.0);
        // Where nothing stands out, nothing is added.
        assert_eq!(of(std::iter::repeat_n(10_000, 99)).corrected().len(), 99);
    }

    #[test]
    fn an_encoding_that_is_not_deflated_is_read_as_well() {
        let histogram = of([3, 70, 70, 5_000_000]);
        let mut plain = Vec::new();
        V2Serializer::new().serialize(&histogram.counts, &mut plain).unwrap();
        assert_eq!(
            Histogram::decode(&STANDARD.encode(plain)).unwrap().percentiles(false),
            histogram.percentiles(false)
        );
        assert!(histogram.encode().starts_with("HISTF"), "the beginning of a deflated encoding");
    }

    #[test]
    fn a_small_text_that_would_become_large_is_refused() {
        let mut bomb = 0x1c84_9314_u32.to_be_bytes().to_vec();
        bomb.extend([0; 4]);
        let mut deflate = flate2::write::ZlibEncoder::new(bomb, flate2::Compression::best());
        let mut inner = 0x1c84_9313_u32.to_be_bytes().to_vec();
        inner.extend(200_000_000_u32.to_be_bytes());
        inner.resize(50_000_000, 0);
        std::io::Write::write_all(&mut deflate, &inner).unwrap();
        let text = STANDARD.encode(deflate.finish().unwrap());
        assert!(text.len() < 100_000 && Histogram::decode(&text) == Err(BadHistogram("it is cut short, or too large")));
    }

    #[test]
    fn other_text_is_refused() {
        for text in ["", "%", "AAAA", "HISTFAAAAA=="] {
            assert!(Histogram::decode(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_histogram_survives_being_kept_and_added(a in proptest::collection::vec(0u64..10_000_000, 0..200),
                                                     b in proptest::collection::vec(0u64..10_000_000, 1..200)) {
            let kept = Histogram::decode(&of(a.clone()).encode()).unwrap();
            prop_assert_eq!(kept.percentiles(false), of(a.clone()).percentiles(false));
            let mut sum = kept;
            sum.add(&of(b.clone()));
            prop_assert_eq!(sum.percentiles(false), of(a.into_iter().chain(b)).percentiles(false));
        }

        #[test]
        fn no_text_makes_the_reader_panic(text in "[A-Za-z0-9+/]{0,80}") {
            let _ = Histogram::decode(&text);
        }
    }
}
