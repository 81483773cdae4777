//! Latencies in HdrHistogram's interval log format, which HdrHistogram's tools read and draw.

use std::fs::File;
use std::io::{self, Write};
use std::time::Duration;

use hdrhistogram::Histogram;
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};

use super::Row;

/// The log gives maxima in milliseconds, and the histograms are in nanoseconds.
const MAX_DIVISOR: f64 = 1e6;

/// A log with one interval for each point, whose tag is the point's name.
#[derive(Debug)]
pub(crate) struct HistogramLog(File);

impl HistogramLog {
    /// Starts a log at the end of `file`, which is empty or holds a log.
    pub(crate) fn new(mut file: File) -> io::Result<Self> {
        if file.metadata()?.len() == 0 {
            file.write_all(
                b"#[Histogram log format version 1.3]\n#[Values are nanoseconds, and the maxima of lines milliseconds]\n\
                #[MaxValueDivisor: 1000000.000]\n",
            )?;
        }
        Ok(Self(file))
    }

    /// Returns the log's line that holds a point's latencies.
    ///
    /// # Errors
    /// Returns an error if the histogram cannot be encoded.
    pub(crate) fn interval(row: &Row, latency: &Histogram<u64>) -> io::Result<Vec<u8>> {
        let tag = tag(row);
        let tag = Tag::new(&tag).expect("a tag without separators");
        let length = Duration::try_from_secs_f64(row.seconds).unwrap_or_default();
        let (mut line, mut serializer) = (Vec::new(), V2DeflateSerializer::new());
        IntervalLogWriterBuilder::new()
            .with_max_value_divisor(MAX_DIVISOR)
            .begin_log_with(&mut line, &mut serializer)?
            .write_histogram(latency, Duration::ZERO, length, Some(tag))
            .map_err(|e| io::Error::other(e.to_string()))?;
        // The writer begins with a header, which `new` has written already.
        let interval = line
            .split_inclusive(|byte| *byte == b'\n')
            .find(|line| !line.starts_with(b"#"));
        Ok(interval.unwrap_or_default().to_vec())
    }

    /// Adds a line.
    pub(crate) fn add(&mut self, interval: &[u8]) -> io::Result<()> {
        self.0.write_all(interval)
    }
}

/// Returns the name of a row without the characters that separate fields.
fn tag(row: &Row) -> String {
    let name = row.name().replace(", ", "/");
    name.replace(|c: char| c.is_whitespace() || c == ',', "_")
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek};

    use hdrhistogram::serialization::Deserializer;
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

    use super::super::samples::samples;
    use super::*;

    #[test]
    fn the_log_can_be_read_by_hdrhistograms_own_reader() {
        let path = std::env::temp_dir().join(format!("dmkit-histogram-{}", std::process::id()));
        let options = || {
            std::fs::OpenOptions::new()
                .create(true)
                .read(true)
                .append(true)
                .open(&path)
                .unwrap()
        };
        let mut latency = Histogram::<u64>::new(3).unwrap();
        (1..=1000).for_each(|i| latency.record(i * 100).unwrap());
        let mut rows = samples();
        rows[1].workload = "get:50,upsert:50".to_owned();
        // The second log begins at the end of the first one, as with --resume.
        for row in &rows[..2] {
            let interval = HistogramLog::interval(row, &latency).unwrap();
            HistogramLog::new(options()).unwrap().add(&interval).unwrap();
        }
        let (mut file, mut text) = (options(), Vec::new());
        file.rewind().unwrap();
        file.read_to_end(&mut text).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(text.starts_with(b"#[Histogram log format version 1.3]\n"));
        assert_eq!(text.iter().filter(|byte| **byte == b'#').count(), 3, "one head");
        let mut found = Vec::new();
        for entry in IntervalLogIterator::new(&text) {
            let LogEntry::Interval(interval) = entry.unwrap() else {
                continue;
            };
            let bytes = decoded(interval.encoded_histogram());
            let read: Histogram<u64> = Deserializer::new().deserialize(&mut bytes.as_slice()).unwrap();
            assert_eq!((read.len(), read.max()), (1000, latency.max()));
            assert_eq!(read.value_at_quantile(0.99), latency.value_at_quantile(0.99));
            assert!((interval.max() - latency.max() as f64 / 1e6).abs() < 1e-3);
            found.push(interval.tag().unwrap().as_str().to_owned());
        }
        assert_eq!(
            found,
            [
                "sherman/c/16_clients/cache_0_MB/seed_7",
                "sherman/get:50_upsert:50/32_clients/cache_0_MB/seed_7"
            ]
        );
    }

    /// Decodes base64 as RFC 4648 defines it.
    fn decoded(text: &str) -> Vec<u8> {
        let digits = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let (mut bits, mut count, mut bytes) = (0_u32, 0, Vec::new());
        for digit in text.bytes().filter(|digit| *digit != b'=') {
            let value = digits.iter().position(|d| *d == digit).unwrap() as u32;
            (bits, count) = (bits << 6 | value, count + 6);
            if count >= 8 {
                count -= 8;
                bytes.push((bits >> count & 0xff) as u8);
            }
        }
        bytes
    }
}
