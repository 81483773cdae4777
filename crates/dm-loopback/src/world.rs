//! The state that all clients share: the memory nodes, and the control region.

use std::fs::File;
use std::path::Path;
use std::time::Instant;

use dm_sync::Mutex;
use dm_sync::atomic::{AtomicU64, Ordering};
use dm_sync::region::{AtomicUnit, Region, RegionError};
use dm_verbs::{Caps, Nanos, NodeId, Place, Space};

use crate::builder::{BuildError, Builder, Knobs};
use crate::format::{self, CONTROL_BYTES, MAGIC, NODES_MAX, Shape, VERSION, header};

/// One memory node.
pub(crate) struct Node {
    pub(crate) host: Region,
    pub(crate) chip: Region,
    pub(crate) caps: Caps,
}

impl Node {
    #[inline]
    pub(crate) fn space(&self, at: Place) -> &Region {
        match at.space() {
            Space::Host => &self.host,
            Space::Chip => &self.chip,
        }
    }
}

pub(crate) struct World {
    pub(crate) control: Region,
    pub(crate) nodes: Box<[Node]>,
    pub(crate) knobs: Knobs,
    /// A lock that is held during an atomic if atomics race with WRITEs, so that atomics still exclude each other. Its
    /// content counts atomics.
    pub(crate) atomics: Mutex<u32>,
    born: Instant,
    /// Counts the queries of a counted clock, which advances with each query.
    asked: AtomicU64,
}

impl World {
    pub(crate) fn in_memory(builder: &Builder) -> Result<Self, BuildError> {
        let shape = shape(builder)?;
        let control = Region::anonymous(CONTROL_BYTES, AtomicUnit::Word)?;
        shape.store(&control)?;
        Self::over(control, shape, builder.knobs.clone(), |_, bytes| {
            Region::anonymous(bytes, shape.unit)
        })
    }

    pub(crate) fn create(builder: &Builder, path: &Path) -> Result<Self, BuildError> {
        let shape = shape(builder)?;
        let (bytes, _) = shape
            .file_offsets(shape.nodes)
            .ok_or(BuildError::BadSize { bytes: u64::MAX })?;
        // The file is made under another name and then linked. So every process that opens the file finds a complete
        // header, and no existing file is overwritten.
        let mut draft = path.as_os_str().to_owned();
        draft.push(format!(".{}.new", std::process::id()));
        let draft = Path::new(&draft);
        let made = || -> Result<Self, BuildError> {
            let failed = |e: std::io::Error| BuildError::Io {
                path: path.to_owned(),
                kind: e.kind(),
            };
            let mut options = File::options();
            let file = options
                .read(true)
                .write(true)
                .create(true)
                .truncate(true)
                .open(draft)
                .map_err(failed)?;
            file.set_len(bytes).map_err(failed)?;
            let control = Region::in_file(&file, 0, CONTROL_BYTES, AtomicUnit::Word)?;
            shape.store(&control)?;
            let world = Self::in_file(&file, control, shape, builder.knobs.clone())?;
            std::fs::hard_link(draft, path).map_err(failed)?;
            Ok(world)
        };
        let world = made();
        // If the draft could not be made, there is nothing to remove, and this call fails. The process id in the
        // draft's name keeps the drafts of different processes apart.
        let _ = std::fs::remove_file(draft);
        world
    }

    pub(crate) fn open(mut knobs: Knobs, path: &Path) -> Result<Self, BuildError> {
        let failed = |e: std::io::Error| BuildError::Io {
            path: path.to_owned(),
            kind: e.kind(),
        };
        let corrupt = |reason| BuildError::Corrupt {
            path: path.to_owned(),
            reason,
        };
        let file = File::options()
            .read(true)
            .write(true)
            .open(path)
            .map_err(failed)?;
        let [magic, found] = first_words(&file).map_err(failed)?;
        if magic != MAGIC {
            return Err(BuildError::NotAPool {
                path: path.to_owned(),
                format: magic,
            });
        }
        if found != VERSION {
            return Err(BuildError::OtherVersion {
                path: path.to_owned(),
                found,
                known: VERSION,
            });
        }
        let short = |e| match e {
            RegionError::FileTooShort { .. } => corrupt("the file was cut short"),
            e => e.into(),
        };
        let control = Region::in_file(&file, 0, CONTROL_BYTES, AtomicUnit::Word).map_err(short)?;
        let shape = Shape::load(&control).map_err(corrupt)?;
        knobs.unit = match shape.unit {
            AtomicUnit::Line => dm_verbs::AtomicUnit::Line,
            AtomicUnit::Word => dm_verbs::AtomicUnit::Word,
        };
        Self::in_file(&file, control, shape, knobs).map_err(|e| match e {
            BuildError::Memory(e) => short(e),
            e => e,
        })
    }

    fn in_file(file: &File, control: Region, shape: Shape, knobs: Knobs) -> Result<Self, BuildError> {
        Self::over(control, shape, knobs, |at, bytes| {
            Region::in_file(file, at, bytes, shape.unit)
        })
    }

    /// Makes a world around the control region. `region(offset, bytes)` makes one region of a node; the offset matters
    /// only if the pool is in a file.
    fn over(
        control: Region,
        shape: Shape,
        knobs: Knobs,
        region: impl Fn(u64, u64) -> Result<Region, RegionError>,
    ) -> Result<Self, BuildError> {
        let caps = knobs.caps(shape.host_bytes, shape.chip_bytes);
        let nodes: Result<_, BuildError> = (0..shape.nodes)
            .map(|node| {
                let too_big = BuildError::BadSize {
                    bytes: shape.host_bytes,
                };
                let (host_at, chip_at) = shape.file_offsets(node).ok_or(too_big)?;
                let host = region(host_at, shape.host_bytes)?;
                Ok(Node {
                    host,
                    chip: region(chip_at, shape.chip_bytes)?,
                    caps,
                })
            })
            .collect();
        Ok(Self {
            control,
            nodes: nodes?,
            knobs,
            atomics: Mutex::new(0),
            born: Instant::now(),
            asked: AtomicU64::new(0),
        })
    }

    /// Returns the time since this process built or opened the world. With a counted clock, this is the clock's step
    /// times the number of queries, including this one.
    pub(crate) fn now(&self) -> Nanos {
        match self.knobs.clock_step {
            None => Nanos(u64::try_from(self.born.elapsed().as_nanos()).unwrap_or(u64::MAX)),
            // Relaxed: the clock orders nothing else, and each client sees its own queries in order.
            Some(step) => Nanos(
                step.0
                    .saturating_mul(self.asked.fetch_add(1, Ordering::Relaxed) + 1),
            ),
        }
    }

    #[inline]
    pub(crate) fn node(&self, node: NodeId) -> Option<&Node> {
        self.nodes.get(usize::from(node.0))
    }

    /// Loads a word of the control region. The callers take the offset from the module `format`, so the word exists.
    #[inline]
    pub(crate) fn word(&self, offset: u64) -> u64 {
        self.control.read_word(offset).unwrap_or_default()
    }

    /// Stores a word of the control region. The word exists, as in `word`.
    #[inline]
    pub(crate) fn set_word(&self, offset: u64, value: u64) {
        let stored = self.control.write_word(offset, value);
        debug_assert!(stored.is_ok(), "the control region has no word at {offset:#x}");
    }

    /// Returns whether clients must make the slow checks.
    #[inline]
    pub(crate) fn alarmed(&self) -> bool {
        self.word(header::ALARM) != 0
    }

    pub(crate) fn trouble(&self, node: NodeId) -> Option<crate::Trouble> {
        crate::Trouble::from_word(self.word(format::node_trouble(node.0)))
    }
}

fn shape(builder: &Builder) -> Result<Shape, BuildError> {
    if !(1..=NODES_MAX).contains(&builder.nodes) {
        return Err(BuildError::BadNodeCount { nodes: builder.nodes });
    }
    let unit = match builder.knobs.unit {
        dm_verbs::AtomicUnit::Line => AtomicUnit::Line,
        dm_verbs::AtomicUnit::Word => AtomicUnit::Word,
    };
    Shape::new(builder.nodes, builder.host_bytes, builder.chip_bytes, unit).ok_or(BuildError::BadSize {
        bytes: builder.host_bytes.max(builder.chip_bytes),
    })
}

/// Returns the file's first two words, with zeroes beyond its end.
fn first_words(file: &File) -> std::io::Result<[u64; 2]> {
    use std::io::Read;
    let mut bytes = Vec::new();
    file.take(16).read_to_end(&mut bytes)?;
    bytes.resize(16, 0);
    let (words, _) = bytes.as_chunks::<8>();
    Ok([words[0], words[1]].map(u64::from_le_bytes))
}
