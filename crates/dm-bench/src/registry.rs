//! Indexes by name, with the way to run each of them. Command lines, experiments and tables use these names.

use std::fmt;
use std::sync::Arc; // std's `Arc`, because registries are built before any thread starts, and no model runs them

use dm_verbs::Caps;

use crate::driver::{Drive, Driver, Trips};
use crate::{BenchIndex, RunError, Setting};

/// The indexes that can be measured, in the order in which they are listed.
#[derive(Debug, Clone, Default)]
pub struct Registry {
    entries: Vec<IndexEntry>,
    titles: Titles,
}

/// An index with its variants.
#[derive(Debug, Clone)]
pub struct IndexEntry {
    name: String,
    help: String,
    knobs: Vec<(String, String)>,
    variants: Vec<VariantEntry>,
}

/// An index with certain techniques switched on or off.
#[derive(Debug, Clone)]
pub struct VariantEntry {
    name: String,
    help: String,
    series: Option<String>,
    probed: bool,
    drivers: Vec<Arc<dyn Drive>>,
}

/// One point of a measurement: an index in a setting.
#[derive(Debug, Clone)]
pub struct Point {
    /// The index's name.
    pub index: String,
    /// The variant's name.
    pub variant: String,
    /// The panel of a figure to which the point belongs, if it is not the workload's panel.
    pub panel: String,
    /// All other parameters.
    pub setting: Setting,
    pub(crate) driver: Arc<dyn Drive>,
}

/// An error: no index, variant, series or knob has the given name, or the variant does not run with keys of the given
/// size.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnknownIndex {
    /// No index has this name.
    Index {
        /// The name that was given.
        name: String,
        /// The existing names.
        known: Vec<String>,
    },
    /// The index has no variant of this name.
    Variant {
        /// The index.
        index: String,
        /// The name that was given.
        name: String,
        /// The existing names.
        known: Vec<String>,
    },
    /// No variant has this name in experiments.
    Series {
        /// The name that was given.
        name: String,
        /// The existing names.
        known: Vec<String>,
    },
    /// The variant does not run with keys of this size.
    KeyBytes {
        /// The index and its variant.
        index: String,
        /// The size of a key in bytes.
        bytes: usize,
        /// The sizes with which the variant runs.
        known: Vec<usize>,
    },
    /// The index has no such knob.
    Knob {
        /// The index.
        index: String,
        /// The name that was given.
        name: String,
        /// The existing names.
        known: Vec<String>,
    },
}

/// Lists the names. If one of them is similar to `name`, asks first whether it was meant.
fn choice(name: &str, known: &[String]) -> String {
    if known.is_empty() {
        return "there are none".to_owned();
    }
    match nearest(name, known) {
        Some(like) => format!("did you mean {like:?}? there are {}", known.join(", ")),
        None => format!("there are {}", known.join(", ")),
    }
}

/// Returns the name that differs from `name` in the fewest letters, if at most half of the letters differ.
fn nearest<'a>(name: &str, known: &'a [String]) -> Option<&'a String> {
    let edits = |other: &str| {
        // This computes the Levenshtein distance, row by row.
        let other: Vec<char> = other.chars().collect();
        let mut row: Vec<usize> = (0..=other.len()).collect();
        for (i, letter) in name.chars().enumerate() {
            let mut diagonal = std::mem::replace(&mut row[0], i + 1);
            for (j, its) in other.iter().enumerate() {
                let changed = diagonal + usize::from(letter != *its);
                diagonal = row[j + 1];
                row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
            }
        }
        row[other.len()]
    };
    let best = known.iter().min_by_key(|other| edits(other))?;
    (edits(best) * 2 <= name.chars().count()).then_some(best)
}

impl fmt::Display for UnknownIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Index { name, known } => write!(f, "no index {name:?}; {}", choice(name, known)),
            Self::Variant { index, name, known } => {
                write!(f, "{index} has no variant {name:?}; {}", choice(name, known))
            }
            Self::Series { name, known } => write!(f, "no series {name:?}; {}", choice(name, known)),
            Self::KeyBytes { index, bytes, known } => {
                write!(
                    f,
                    "{index} does not run with keys of {bytes} bytes, but of {known:?}"
                )
            }
            Self::Knob { index, name, known } => {
                write!(f, "{index} has no knob {name:?}; {}", choice(name, known))
            }
        }
    }
}

impl std::error::Error for UnknownIndex {}

impl Registry {
    /// Returns a registry without an index.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an index. If the registry has an index of the same name, replaces it.
    #[must_use]
    pub fn with(mut self, entry: IndexEntry) -> Self {
        self.entries.retain(|other| other.name != entry.name);
        self.entries.push(entry);
        self
    }

    /// Returns the indexes in the order in which they were added.
    pub fn entries(&self) -> &[IndexEntry] {
        &self.entries
    }

    /// Returns the index with this name.
    ///
    /// # Errors
    /// Returns [`UnknownIndex`], which lists the existing names, if there is no such index.
    pub fn find(&self, name: &str) -> Result<&IndexEntry, UnknownIndex> {
        let found = self.entries.iter().find(|entry| entry.name == name);
        found.ok_or_else(|| UnknownIndex::Index {
            name: name.to_owned(),
            known: self.entries.iter().map(|entry| entry.name.clone()).collect(),
        })
    }

    /// Returns the point of an index and variant in a setting.
    ///
    /// # Errors
    /// Returns [`UnknownIndex`] if there is no such index, variant or knob, or if the variant does not run with the
    /// setting's key size.
    pub fn point(&self, index: &str, variant: &str, setting: Setting) -> Result<Point, UnknownIndex> {
        let entry = self.find(index)?;
        let unknown = |name: &&str| !entry.knobs.iter().any(|(knob, _)| knob == name);
        if let Some(name) = setting.knobs.names().find(unknown) {
            return Err(UnknownIndex::Knob {
                index: entry.name.clone(),
                name: name.to_owned(),
                known: entry.knobs.iter().map(|(knob, _)| knob.clone()).collect(),
            });
        }
        entry.variant_named(variant)?.point(&entry.name, setting)
    }

    /// Returns the point of a series in a setting. A series is a variant under the name that experiments use. Knobs
    /// that the index does not have are ignored, because an experiment sets its knobs for all of its series.
    ///
    /// # Errors
    /// Returns [`UnknownIndex`] if there is no such series, or if it does not run with the setting's key size.
    pub fn series_point(&self, series: &str, setting: Setting) -> Result<Point, UnknownIndex> {
        let (entry, variant) = self.series(series)?;
        variant.point(&entry.name, setting)
    }

    /// Returns the index and variant of a series.
    ///
    /// # Errors
    /// Returns [`UnknownIndex::Series`], which lists the existing names, if there is no such series.
    pub fn series(&self, series: &str) -> Result<(&IndexEntry, &VariantEntry), UnknownIndex> {
        let all = || {
            let pairs = |entry| Self::pairs(entry);
            self.entries.iter().flat_map(pairs)
        };
        let found = all().find(|(entry, variant)| variant.series_name(entry) == series);
        found.ok_or_else(|| UnknownIndex::Series {
            name: series.to_owned(),
            known: all().map(|(entry, variant)| variant.series_name(entry)).collect(),
        })
    }

    /// Sets the name that pages of results use for a variant of an index.
    #[must_use]
    pub fn titled(mut self, index: &str, variant: &str, words: &str) -> Self {
        self.titles.add(index, variant, words);
        self
    }

    /// Returns the names that pages of results use.
    pub fn titles(&self) -> &Titles {
        &self.titles
    }

    /// Returns the name that pages of results use for a series, or the series itself if it has none.
    pub fn series_title<'a>(&'a self, series: &'a str) -> &'a str {
        let found = self.series(series).ok();
        let title = found.and_then(|(entry, variant)| self.titles.of(&entry.name, &variant.name));
        title.unwrap_or(series)
    }

    fn pairs(entry: &IndexEntry) -> impl Iterator<Item = (&IndexEntry, &VariantEntry)> {
        entry.variants.iter().map(move |variant| (entry, variant))
    }
}

/// The words that pages of results use, as the papers write them: the names of variants, and for a panel the figure of
/// a paper with the same axes.
#[derive(Debug, Clone, Default)]
pub struct Titles {
    variants: Vec<Title>,
    figures: Vec<(String, String)>,
}

#[derive(Debug, Clone)]
struct Title {
    index: String,
    variant: String,
    words: String,
}

impl Titles {
    /// Adds the name of a variant of an index.
    pub fn add(&mut self, index: &str, variant: &str, words: &str) {
        self.variants.push(Title {
            index: index.to_owned(),
            variant: variant.to_owned(),
            words: words.to_owned(),
        });
    }

    /// Returns the name of a variant of an index, if it has one.
    pub fn of(&self, index: &str, variant: &str) -> Option<&str> {
        let mut all = self.variants.iter();
        let found = all.find(|title| title.index == index && title.variant == variant);
        found.map(|title| title.words.as_str())
    }

    /// Adds the figure of a paper that a panel resembles.
    pub fn add_figure(&mut self, panel: &str, figure: &str) {
        self.figures.push((panel.to_owned(), figure.to_owned()));
    }

    /// Returns the figure that a panel resembles, if there is one.
    pub fn figure(&self, panel: &str) -> Option<&str> {
        let found = self.figures.iter().find(|(known, _)| known == panel);
        found.map(|(_, figure)| figure.as_str())
    }
}

impl IndexEntry {
    /// The name of the variant that is measured if the user names none.
    pub const DEFAULT: &str = "default";

    /// Makes an entry without variants. `help` is one line.
    pub fn new(name: &str, help: &str) -> Self {
        Self {
            name: name.to_owned(),
            help: help.to_owned(),
            knobs: Vec::new(),
            variants: Vec::new(),
        }
    }

    /// Adds a variant.
    #[must_use]
    pub fn variant(mut self, variant: VariantEntry) -> Self {
        self.variants.push(variant);
        self
    }

    /// Adds a way to run the variant [`IndexEntry::DEFAULT`], for an index without other variants. Call it once for
    /// each key type.
    #[must_use]
    pub fn runs<I: BenchIndex>(mut self, driver: Driver<I>) -> Self {
        let at = self
            .variants
            .iter()
            .position(|variant| variant.name == Self::DEFAULT);
        let variant = match at {
            Some(at) => self.variants.remove(at),
            None => VariantEntry::new(Self::DEFAULT, "as its options are by default"),
        };
        self.variants.insert(0, variant.runs(driver));
        self
    }

    /// Declares a parameter that only some indexes have; see [`Knobs`](crate::Knobs).
    #[must_use]
    pub fn knob(mut self, name: &str, help: &str) -> Self {
        self.knobs.push((name.to_owned(), help.to_owned()));
        self
    }

    /// Declares the parameters that every index with remote locks and leaves has: [`Setting::LOCK_AND_READ`] and
    /// [`Setting::RDWC_LOCKS`].
    #[must_use]
    pub fn common_knobs(self) -> Self {
        let one_chain = "1: the lock's CAS and the leaf's READ are in one chain; 0: the CAS is awaited first";
        let locks = "number of local locks for shared gets, and as many for shared writes";
        self.knob(Setting::LOCK_AND_READ, one_chain)
            .knob(Setting::RDWC_LOCKS, locks)
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the line that describes the index.
    pub fn help(&self) -> &str {
        &self.help
    }

    /// Returns the index's knobs, each with a line that describes it.
    pub fn knobs(&self) -> &[(String, String)] {
        &self.knobs
    }

    /// Returns the index's variants.
    pub fn variants(&self) -> &[VariantEntry] {
        &self.variants
    }

    /// Returns the variant with this name.
    ///
    /// # Errors
    /// Returns [`UnknownIndex::Variant`], which lists the existing names, if there is no such variant.
    pub fn variant_named(&self, name: &str) -> Result<&VariantEntry, UnknownIndex> {
        let found = self.variants.iter().find(|variant| variant.name == name);
        found.ok_or_else(|| UnknownIndex::Variant {
            index: self.name.clone(),
            name: name.to_owned(),
            known: self.variants.iter().map(|variant| variant.name.clone()).collect(),
        })
    }
}

impl VariantEntry {
    /// Makes a variant without a driver. `help` is one line.
    pub fn new(name: &str, help: &str) -> Self {
        Self {
            name: name.to_owned(),
            help: help.to_owned(),
            series: None,
            probed: name == IndexEntry::DEFAULT,
            drivers: Vec::new(),
        }
    }

    /// Adds a driver. Call this once for each key type.
    #[must_use]
    pub fn runs<I: BenchIndex>(mut self, driver: Driver<I>) -> Self {
        self.drivers.push(Arc::new(driver));
        self
    }

    /// Sets the name that experiments and their charts use. The default is the index's name for the variant
    /// [`IndexEntry::DEFAULT`], and both names for any other variant.
    #[must_use]
    pub fn series(mut self, series: &str) -> Self {
        self.series = Some(series.to_owned());
        self
    }

    /// Marks the variant as one that `dmkit doctor` tries with a device's promises. The default variant is always
    /// tried. Mark another variant if it may run on devices on which the default variant does not.
    #[must_use]
    pub fn probed(mut self) -> Self {
        self.probed = true;
        self
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the line that describes the variant.
    pub fn help(&self) -> &str {
        &self.help
    }

    /// Returns whether `dmkit doctor` tries the variant with a device's promises.
    pub fn is_probed(&self) -> bool {
        self.probed
    }

    /// Returns the sizes of keys with which the variant runs.
    pub fn key_bytes(&self) -> Vec<usize> {
        self.drivers.iter().map(|driver| driver.key_bytes()).collect()
    }

    /// Returns the name that experiments and their charts use.
    pub fn series_name(&self, entry: &IndexEntry) -> String {
        match &self.series {
            Some(series) => series.clone(),
            None if self.name == IndexEntry::DEFAULT => entry.name.clone(),
            None => format!("{} {}", entry.name, self.name),
        }
    }

    fn point(&self, index: &str, setting: Setting) -> Result<Point, UnknownIndex> {
        let fits = |driver: &&Arc<dyn Drive>| driver.key_bytes() == setting.key_bytes;
        let driver = self.drivers.iter().find(fits).cloned();
        let driver = driver.ok_or_else(|| UnknownIndex::KeyBytes {
            index: format!("{index} ({})", self.name),
            bytes: setting.key_bytes,
            known: self.key_bytes(),
        })?;
        Ok(Point {
            index: index.to_owned(),
            variant: self.name.clone(),
            panel: String::new(),
            setting,
            driver,
        })
    }
}

impl Point {
    /// Makes the point of an index that is in no registry.
    pub fn of<I: BenchIndex>(name: &str, driver: Driver<I>, setting: Setting) -> Self {
        Self {
            index: name.to_owned(),
            variant: IndexEntry::DEFAULT.to_owned(),
            panel: String::new(),
            setting,
            driver: Arc::new(driver),
        }
    }

    /// Returns the size of the block that each item has outside of the leaves, or 0 if items have no blocks.
    pub fn block_bytes(&self) -> u64 {
        self.driver.block_bytes(&self.setting)
    }

    /// Measures the round trips of a get, an update and an insert on a simulated RNIC that promises `caps`, with one
    /// client and no contention.
    ///
    /// # Errors
    /// Returns [`RunError`] if the index cannot be loaded, for example because it needs a missing promise, or if an
    /// operation fails.
    pub fn trips(&self, caps: Caps) -> Result<Trips, RunError> {
        self.driver.trips(&self.setting, caps)
    }
}
