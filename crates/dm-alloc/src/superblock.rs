//! The superblock: one client creates it, all others open it.

use dm_verbs::{ChipPtr, Control, NodeId, Place, RemotePtr, Verbs, Why};

use crate::AllocError;
use crate::members::{self, MemberArea};
use crate::page::{self, MEMORY_NODES_MAX, PAGE_BYTES, ROOT_AT, STATE_AT, State};

/// Default number of locks per memory node: 8-byte words that fill 256 KiB of on-chip memory.
pub const DEFAULT_LOCKS_PER_NODE: u32 = 32_768;
/// Number of READs of the state word before [`AllocError::CreationStuck`].
pub const CREATE_BUDGET: u32 = 1 << 20;
/// Chunks of host memory are multiples of this many bytes.
pub(crate) const PAGE: u64 = 4096;

/// The memory for a pool's lock tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LockHome {
    /// On-chip memory. It is an error if a memory node has too little of it.
    Chip,
    /// On-chip memory on each memory node that has some, and otherwise host memory. It is an error if a
    /// memory node has on-chip memory, but too little.
    #[default]
    ChipIfAny,
    /// Host memory.
    Host,
}

impl LockHome {
    /// Returns [`LockHome::ChipIfAny`] if `on_chip`, else [`LockHome::Host`].
    pub const fn chip_if(on_chip: bool) -> Self {
        match on_chip {
            true => Self::ChipIfAny,
            false => Self::Host,
        }
    }
}

/// The number and the place of a new pool's locks. A client that opens a pool uses the locks that the pool has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockPlan {
    /// Memory for the lock tables.
    pub home: LockHome,
    /// Lock words (8 bytes each) per memory node. A pool cannot be created with 0 of them ([`AllocError::NoLocks`]).
    pub per_node: u32,
}

impl Default for LockPlan {
    fn default() -> Self {
        Self {
            home: LockHome::default(),
            per_node: DEFAULT_LOCKS_PER_NODE,
        }
    }
}

/// The parameters of a pool. The pool is created with them, and every client that opens the pool must use the same
/// ones, except for fields that are marked as not compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Descriptor {
    /// Kind of index, usually four letters.
    pub kind: u32,
    /// Description of the index (geometry, bytes of keys and values, flaws that change the layout).
    pub bytes: [u8; 64],
    /// Locks of a new pool. Not compared when a pool is opened.
    pub locks: LockPlan,
    /// Maximum number of compute nodes that can be members of a new pool at one time; 0 if the pool reclaims
    /// nothing. Not compared when a pool is opened.
    pub members: u16,
    /// Maximum number of memory nodes of a new pool, at most [`MEMORY_NODES_MAX`]. The addresses of the index
    /// must be able to distinguish so many nodes. Not compared when a pool is opened.
    pub nodes_max: u16,
}

impl Descriptor {
    /// Makes a descriptor from the four letters of the kind and the numbers that describe the index. It has the
    /// default locks, allows as many memory nodes as possible, and reclaims nothing.
    ///
    /// ```
    /// use dm_alloc::Descriptor;
    ///
    /// // A list of 8-byte keys, 32 in each node, in a pool that 15 compute nodes can use at once.
    /// let list = Descriptor { members: 15, ..Descriptor::of(b"list", [8, 32]) };
    /// assert_eq!((list.bytes[0], list.bytes[8]), (8, 32));
    /// ```
    pub fn of<const N: usize>(kind: &[u8; 4], numbers: [u64; N]) -> Self {
        const { assert!(N <= 8, "a superblock has room for eight numbers") };
        let mut bytes = [0; 64];
        for (place, number) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(numbers) {
            *place = number.to_le_bytes();
        }
        Self {
            kind: u32::from_le_bytes(*kind),
            bytes,
            locks: LockPlan::default(),
            members: 0,
            nodes_max: MEMORY_NODES_MAX,
        }
    }
}

/// The fixed parameters of a pool, from the reserved page of memory node 0.
///
/// Any number of clients on any number of compute nodes may call `create_or_open` at once: one creates the pool,
/// the others wait for it. The state word goes EMPTY → CREATING → READY by CAS alone. Everything else in the page
/// is written and awaited before READY and never changes afterwards, except for the root word, which the index
/// changes by CAS.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Superblock {
    /// The word that holds the index's root pointer. It is on node 0, 8-byte aligned, alone in its line, and 0 at
    /// first.
    pub root_word: RemotePtr,
    /// Start of each memory node's lock table, by node number. Each is on its own memory node, 8-byte aligned, and zero
    /// when the pool is created.
    pub lock_tables: Box<[Place]>,
    /// Lock words of 8 bytes in each table, at least 1.
    pub locks_per_node: u32,
    /// The area in which compute nodes announce their running operations; `None` if the pool reclaims nothing.
    pub members: Option<MemberArea>,
    /// Kind of index.
    pub kind: u32,
    /// Description of the index.
    pub descriptor: [u8; 64],
    /// Whether this call created the pool.
    pub created: bool,
}

impl Superblock {
    /// The place of [`Superblock::root_word`], which is the same in every pool.
    pub const ROOT_WORD: RemotePtr = page::at(ROOT_AT);

    /// Returns the number of memory nodes of the pool.
    pub fn memory_nodes(&self) -> u16 {
        // The cast loses nothing: there are at most `MEMORY_NODES_MAX`.
        self.lock_tables.len() as u16
    }

    /// Checks that kind and description are those of `wanted`. The other fields are not compared.
    ///
    /// # Errors
    /// Returns [`AllocError::OtherKind`] if the kinds differ, and [`AllocError::OtherDescriptor`] if the descriptions
    /// differ.
    pub fn matches(&self, wanted: &Descriptor) -> Result<(), AllocError> {
        if self.kind != wanted.kind {
            return Err(AllocError::OtherKind {
                found: self.kind,
                wanted: wanted.kind,
            });
        }
        if self.descriptor != wanted.bytes {
            return Err(AllocError::OtherDescriptor {
                found: self.descriptor.into(),
                wanted: wanted.bytes.into(),
            });
        }
        Ok(())
    }

    /// Creates the pool, opens an existing one, or waits for the client that creates it and then opens it.
    ///
    /// Lock tables must be zero when a pool is created. A host table is a new chunk, which is zero. On-chip memory is
    /// zero when its memory node starts. A creation that fails or is dropped posts a CAS that sets the state back to
    /// EMPTY.
    ///
    /// # Errors
    /// Returns every [`AllocError`] except [`AllocError::BadSize`], [`AllocError::Exhausted`] and
    /// [`AllocError::NoSlot`]. If a memory node has no room, the error is [`AllocError::Control`].
    /// [`AllocError::CreationStuck`] has the address of the state word and the client that did not finish.
    pub async fn create_or_open<V: Verbs + Control>(v: &V, wanted: &Descriptor) -> Result<Self, AllocError> {
        Self::create_or_open_within(v, wanted, CREATE_BUDGET).await
    }

    /// Creates or opens the pool like [`Superblock::create_or_open`], and reads the state word at most `budget`
    /// times.
    ///
    /// # Errors
    /// Returns the errors of [`Superblock::create_or_open`].
    pub async fn create_or_open_within<V: Verbs + Control>(
        v: &V,
        wanted: &Descriptor,
        budget: u32,
    ) -> Result<Self, AllocError> {
        let state_at = page::at(STATE_AT);
        node_count(v)?;
        let mut retry = v.retry(budget);
        loop {
            let (why, creator) = match State::unpack(v.word(state_at).await?) {
                State::Ready => return open_ready(v, wanted).await,
                State::Empty => match Creation::begin(v).await? {
                    Some(creation) => return creation.run(wanted).await,
                    None => (Why::Raced, None),
                },
                State::Creating { creator } => (Why::Changing, Some(creator)),
                State::Foreign(word) => return Err(AllocError::NotFormatted { at: state_at, word }),
            };
            if let Err(e) = retry.again(state_at, why).await {
                return Err(match creator {
                    Some(creator) => AllocError::CreationStuck {
                        at: state_at,
                        creator,
                        attempts: e.attempts,
                    },
                    None => AllocError::Contended(e),
                });
            }
        }
    }

    /// Opens an existing pool.
    ///
    /// # Errors
    /// Returns [`AllocError::NotFormatted`] if there is no pool or its creation is not finished. Otherwise returns the
    /// errors with which [`Superblock::create_or_open`] opens an existing pool.
    pub async fn open<V: Verbs + Control>(v: &V, wanted: &Descriptor) -> Result<Self, AllocError> {
        ready(v).await?;
        open_ready(v, wanted).await
    }

    /// Returns the superblock of the pool, whatever its kind and geometry.
    ///
    /// # Errors
    /// Returns the errors of [`Superblock::open`], except for [`AllocError::OtherKind`] and
    /// [`AllocError::OtherDescriptor`].
    pub async fn inspect<V: Verbs + Control>(v: &V) -> Result<Self, AllocError> {
        ready(v).await?;
        read_page(v).await
    }
}

fn node_count<C: Control>(c: &C) -> Result<u16, AllocError> {
    match c.memory_nodes() {
        0 => Err(AllocError::NoMemoryNodes),
        listed if listed > MEMORY_NODES_MAX => Err(AllocError::TooManyNodes {
            listed,
            most: MEMORY_NODES_MAX,
        }),
        listed => Ok(listed),
    }
}

async fn ready<V: Verbs + Control>(v: &V) -> Result<(), AllocError> {
    node_count(v)?;
    let at = page::at(STATE_AT);
    match v.word(at).await? {
        word if State::unpack(word) == State::Ready => Ok(()),
        word => Err(AllocError::NotFormatted { at, word }),
    }
}

async fn read_page<V: Verbs + Control>(v: &V) -> Result<Superblock, AllocError> {
    // READY was seen before this READ. Since then only the root word can change, and it is not decoded.
    let sb = page::decode(&v.read(page::at(0), PAGE_BYTES as u32).await?)?;
    let listed = node_count(v)?;
    if sb.memory_nodes() > listed {
        return Err(AllocError::NodesMissing {
            created_with: sb.memory_nodes(),
            listed,
        });
    }
    Ok(sb)
}

async fn open_ready<V: Verbs + Control>(v: &V, wanted: &Descriptor) -> Result<Superblock, AllocError> {
    let sb = read_page(v).await?;
    sb.matches(wanted)?;
    Ok(sb)
}

/// The right to create the pool, held from the change EMPTY → CREATING on. Dropping it before READY sets the
/// state back to EMPTY.
struct Creation<'v, V: Verbs> {
    v: &'v V,
    armed: bool,
}

impl<'v, V: Verbs + Control> Creation<'v, V> {
    /// Tries to start the creation. Returns `None` if another client was faster.
    async fn begin(v: &'v V) -> Result<Option<Self>, AllocError> {
        // The undo is armed before the CAS is awaited, so that it is posted even if the future is dropped in between.
        // It then follows the CAS on the same queue pair. It expects the word with this client's id, so it has no
        // effect if the CAS found another word.
        let mut creation = Self { v, armed: true };
        let old = v
            .cas(page::at(STATE_AT), State::Empty.pack(), creation.mine())
            .await?;
        creation.armed = old == State::Empty.pack();
        Ok(creation.armed.then_some(creation))
    }

    fn mine(&self) -> u64 {
        State::Creating {
            creator: self.v.client().0,
        }
        .pack()
    }

    async fn run(mut self, wanted: &Descriptor) -> Result<Superblock, AllocError> {
        let v = self.v;
        let (nodes, most) = (node_count(v)?, wanted.nodes_max);
        if nodes > most {
            return Err(AllocError::TooManyNodes { listed: nodes, most });
        }
        if wanted.locks.per_node == 0 {
            return Err(AllocError::NoLocks);
        }
        let mut lock_tables = Vec::with_capacity(usize::from(nodes));
        for node in 0..nodes {
            lock_tables.push(place_table(v, NodeId(node), wanted.locks).await?);
        }
        let sb = Superblock {
            root_word: page::at(ROOT_AT),
            lock_tables: lock_tables.into(),
            locks_per_node: wanted.locks.per_node,
            members: place_members(v, wanted.members).await?,
            kind: wanted.kind,
            descriptor: wanted.bytes,
            created: true,
        };
        let bytes = page::encode(&sb);
        let head = page::HEAD_AT as usize;
        // This is awaited before READY is written, so that a client that sees READY, on any queue pair, sees
        // the whole page.
        v.write(page::at(page::HEAD_AT), &bytes[head..]).await?;
        // If this request ends in an error, the state may be READY or not, and the destructor tries to set it back.
        // Both states are consistent.
        v.cas(page::at(STATE_AT), self.mine(), State::Ready.pack())
            .await?;
        self.armed = false;
        Ok(sb)
    }
}

impl<V: Verbs> Drop for Creation<'_, V> {
    fn drop(&mut self) {
        if self.armed {
            let mine = State::Creating {
                creator: self.v.client().0,
            }
            .pack();
            self.v.cas(page::at(STATE_AT), mine, State::Empty.pack()).detach();
        }
    }
}

/// Allocates an area for `slots` members. All bytes of a new chunk are zero, which means that all slots are free.
async fn place_members<V: Verbs + Control>(v: &V, slots: u16) -> Result<Option<MemberArea>, AllocError> {
    if slots == 0 {
        return Ok(None);
    }
    let bytes = members::area_bytes(slots, node_count(v)?).next_multiple_of(PAGE);
    let at = v.chunk(NodeId(0), bytes).await?;
    Ok(Some(MemberArea { at, slots }))
}

async fn place_table<V: Verbs + Control>(v: &V, node: NodeId, plan: LockPlan) -> Result<Place, AllocError> {
    let wanted = 8 * u64::from(plan.per_node);
    let has = v.caps(node).chip_bytes;
    let on_chip = match plan.home {
        LockHome::Chip => true,
        LockHome::ChipIfAny => has > 0,
        LockHome::Host => false,
    };
    if !on_chip {
        return Ok(v.chunk(node, wanted.next_multiple_of(PAGE)).await?.into());
    }
    match ChipPtr::new(node, 0) {
        Some(table) if wanted <= has => Ok(table.into()),
        _ => Err(AllocError::ChipTooSmall { node, wanted, has }),
    }
}
