//! Index caches of a compute node: level-1 cache, pinned top levels, exact byte accounting.
//!
//! [`IndexCache`] holds copies of a B-link tree's inner nodes, so that most operations go straight to a leaf: the
//! parents of leaves up to a budget, the levels above before them (Sherman §4.2.3, its types 1 and 2). It is shared by all
//! threads of a compute node, and knows nothing of verbs: its user reads nodes, offers them, and reports what was stale.
//!
//! ```text
//!   lookup(key) ──▶ directory of level 1 ──▶ slot ──▶ image  [low ───────────────── high)
//!        │ not covered    firsts, pages       │          keys      k0=low  k1  k2 … kn
//!        ▼                                    │          children  c0      c1  c2 … cn    3 or 4 bytes each, if near
//!        directory of level 2, 3, …           │
//!                                             └─ a slot is used again: an image's identity tells which is meant
//! ```
//!
//! [`Hotspots`] remembers where hot entries lie in their leaves (CHIME §4.3), in bytes that are fixed when it is made.
//!
//! [`Sketch`] remembers roughly where leaves begin, in six bytes a leaf or less.
//!
//! [`PrefixCache`] is the same for a radix tree (SMART §4.3): a connected partial copy of it, indexed by itself.
//!
//! # Invariants
//! * **I1** A hint is only that. What the cache says was true when the node was read; the child proves by its own
//!   fences, level and incarnation that it still is.
//! * **I2** Images of one level never overlap. The newest image of a range is believed, whichever address it has, and
//!   an older one keeps only what lies below it ([`IndexCache::admit`]). So a run of children has no duplicates.
//! * **I3** An [`Origin`] names one image for ever: address, level, low and a hash of the content. A slot that has been
//!   used for another image is recognised, memory is never freed under a reader, and what is invalidated is what was
//!   found stale.
//! * **I4** [`IndexCache::bytes`] is the sum of all allocations as asked for, slack included, and no admission takes it
//!   beyond the budget: what does not fit evicts, or is refused.
//! * **I5** Evicting changes nothing but what is remembered: a bounded number of draws, and of images, per admission,
//!   whatever the keys are; no image of a higher level goes for one of a lower.
//!
//! # Example
//! ```
//! use dm_cache::{Admitted, IndexCache, NodeImage};
//! use dm_verbs::{NodeId, RemotePtr};
//! # fn at(offset: u64) -> RemotePtr { RemotePtr::new(NodeId(0), offset).unwrap() }
//!
//! let cache = IndexCache::new(1 << 20);
//! // A level-1 node for the keys below 100, with two leaves.
//! let entries = [(0u64, at(0x4000)), (50, at(0x4400))];
//! let image = NodeImage { at: at(0x1000), level: 1, low: 0, high: Some(100), incarnation: 0, entries: entries.into_iter() };
//! assert_eq!(cache.admit(image), Admitted::New);
//!
//! let hit = cache.lookup(&70).expect("it is covered");
//! assert_eq!((hit.child, hit.child_level), (at(0x4400), 0));
//! assert_eq!((hit.low, hit.high), (50, Some(100)));
//! assert!(cache.lookup(&100).is_none(), "nothing is known of what lies above");
//!
//! // The leaf turned out to have split: this image goes, unless a fresher one has come in the meantime.
//! assert!(cache.invalidate(hit.origin));
//! assert!(cache.lookup(&70).is_none());
//! ```
//!
//! # Published mistakes
//! [`CacheFlaws::recycled_slot`] is T-S7: a held-up reader trusts a slot that has been used again. Not reproduced: an
//! eviction that draws keys, and can spin for ever where they are not spread over the range drawn from (here images are
//! drawn).
//!
//! # Limits
//! An image whose node's address is used again for quite another range stays until it is found stale, or evicted. Slots
//! are given back only by [`IndexCache::clear`]; what they take is counted.
#![forbid(unsafe_code)]

mod cache;
mod directory;
mod evict;
mod hotspots;
mod image;
mod prefix;
mod search;
mod sketch;
mod slab;
mod state;
mod types;

pub use cache::IndexCache;
pub use hotspots::{HotspotFlaws, Hotspots};
pub use prefix::{Apart, CachedSlot, PrefixCache, PrefixHit, PrefixImage, Seen, Since};
pub use sketch::Sketch;
pub use types::{Addition, Admitted, CacheBytes, CacheFlaws, CacheKey, CachedNode, Hit, NodeImage, Origin};

#[doc = include_str!("../README.md")]
#[cfg(doctest)]
struct ReadmeDoctests;
