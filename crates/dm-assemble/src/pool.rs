//! The pool over which the parts of an index are assembled.

use dm_alloc::{Allocator, Superblock};
use dm_leaf::OpenError;
use dm_lock::{GlobalLockTable, LockOptions, Locks};
use dm_sync::Arc;
use dm_verbs::{Capability, NodeId, RemotePtr, Verbs};

/// A pool that is being opened: its superblock, this compute node's allocator and locks.
#[derive(Debug)]
pub struct Pool<'p, V> {
    v: &'p V,
    superblock: &'p Superblock,
    alloc: Arc<Allocator>,
    locks: Vec<Arc<Locks>>,
}

impl<'p, V: Verbs> Pool<'p, V> {
    pub(crate) fn new(v: &'p V, superblock: &'p Superblock, alloc: Arc<Allocator>) -> Self {
        Self {
            v,
            superblock,
            alloc,
            locks: Vec::new(),
        }
    }

    /// Returns the connection through which the pool is opened.
    pub fn verbs(&self) -> &'p V {
        self.v
    }

    /// Returns the allocator of all parts. A dead block is reused only for blocks of its size and kind, so parts with
    /// different node formats need different kinds.
    pub fn alloc(&self) -> &Arc<Allocator> {
        &self.alloc
    }

    /// Returns the address of the word that leads to the index: 8 bytes, zero in a new pool.
    pub fn root_word(&self) -> RemotePtr {
        self.superblock.root_word
    }

    /// Returns locks in the pool's lock tables. Each call makes new local tables, so parts that use the same locks must
    /// share the returned `Arc`.
    ///
    /// # Errors
    /// Returns [`OpenError`] if a memory node lacks a capability that such locks need.
    pub fn locks(&mut self, options: LockOptions) -> Result<Arc<Locks>, OpenError> {
        let tables = self.superblock.lock_tables.clone();
        let table = GlobalLockTable::new(tables, self.superblock.locks_per_node);
        self.checked(Locks::new(options, table))
    }

    /// Returns locks inside nodes: each node's lock word is at offset `at` of the node.
    ///
    /// # Errors
    /// Returns the same errors as [`Pool::locks`].
    pub fn locks_in_nodes(&mut self, at: usize, options: LockOptions) -> Result<Arc<Locks>, OpenError> {
        let table = GlobalLockTable::in_nodes(self.superblock.memory_nodes(), at as u32);
        self.checked(Locks::new(options, table))
    }

    fn checked(&mut self, locks: Locks) -> Result<Arc<Locks>, OpenError> {
        for node in (0..self.superblock.memory_nodes()).map(NodeId) {
            locks.check(&self.v.caps(node))?;
        }
        let locks = Arc::new(locks.in_roster(self.alloc.roster().clone()));
        self.locks.push(locks.clone());
        Ok(locks)
    }

    /// Returns an error if the world may tear a line, because nodes with a version in each line need atomic
    /// lines.
    ///
    /// # Errors
    /// Returns [`OpenError::Refused`], which names the capability.
    pub fn whole_lines(&self) -> Result<(), OpenError> {
        for node in (0..self.superblock.memory_nodes()).map(NodeId) {
            let caps = self.v.caps(node);
            caps.require("a line-versioned node", &[Capability::LineAtomicity])?;
        }
        Ok(())
    }

    pub(crate) fn into_locks(self) -> Vec<Arc<Locks>> {
        self.locks
    }
}
