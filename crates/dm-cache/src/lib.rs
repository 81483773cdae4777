//! Index caches of a compute node, with pinned top levels and exact byte accounting.
//!
//! [`IndexCache`] holds copies of a B-link tree's inner nodes, so that most operations go straight to a leaf. It caches
//! the parents of leaves up to a budget, and keeps the levels above them with priority (Sherman §4.2.3, its types 1 and
//! 2). All threads of a compute node share it. It posts no verbs: a client reads nodes, offers them to the cache, and
//! reports stale ones.
//!
//! ```text
//!   lookup(key) ──▶ directory of level 1 ──▶ slot ──▶ image  [low ───────────────── high)
//!        │ not covered    firsts, pages       │          keys      k0=low  k1  k2 … kn
//!        ▼                                    │          children  c0      c1  c2 … cn    3 or 4 bytes each, if near
//!        directory of level 2, 3, …           │
//!                                             └─ slots are reused: an image's identity shows which image is meant
//! ```
//!
//! [`Hotspots`] stores the slots in which hot entries are in their leaves (CHIME §4.3), in a fixed number of bytes.
//!
//! [`Sketch`] stores approximately where leaves begin, in six bytes per leaf (eight if leaves are far apart).
//!
//! [`PrefixCache`] is the index cache for a radix tree (SMART §4.3): a connected partial copy of the tree,
//! which needs no other index. For comparison, it can find nodes by a hash of their prefixes instead ([`PrefixIndex`]).
//!
//! # Invariants
//! * **I1** The cache gives hints only. Its content was true when the node was read. The fence keys, level
//!   and incarnation of the child show whether it still is.
//! * **I2** Images of one level never overlap. The newest image of a range wins, whatever its node's address. An older
//!   image of another node keeps only the part below it, and one of the same node is removed ([`IndexCache::admit`]).
//!   So a run of children has no duplicates.
//! * **I3** An [`Origin`] identifies one image permanently, by address, level, low and a hash of the content.
//!   So a reader notices if a slot holds another image by now, and invalidation removes only the image that
//!   was found stale. Memory is never freed while a reader uses it.
//! * **I4** [`IndexCache::bytes`] is the size of the cache's struct and of all requested allocations, including slack.
//!   No admission makes it exceed the budget: images are evicted, or the new image is refused.
//! * **I5** Eviction changes only which nodes are cached. Each admission makes a bounded number of draws and
//!   evicts a bounded number of images, for any keys; no image is evicted for one of a lower level.
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
//! // The leaf has been split, so this removes the image, unless a newer one has replaced it.
//! assert!(cache.invalidate(hit.origin));
//! assert!(cache.lookup(&70).is_none());
//! ```
//!
//! # Published flaws
//! `CacheFlaws::recycled_slot` (feature `study`) is T-S7: a delayed reader uses a slot that was reused, without a
//! check. The published eviction draws keys, and can loop for ever if the keys are not spread over the range from which
//! it draws. This crate draws images instead, and does not reproduce that flaw.
//!
//! # Limits
//! If a node's address is reused for a different range, its image stays until it is found stale or evicted.
//! The memory of slots is freed only by [`IndexCache::clear`]; its bytes are counted.
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
#[cfg_attr(
    not(feature = "study"),
    expect(unreachable_pub, reason = "public only with the feature `study`")
)]
mod study;
mod types;

pub use cache::IndexCache;
pub use hotspots::Hotspots;
pub use prefix::{Apart, CachedSlot, PrefixCache, PrefixHit, PrefixImage, PrefixIndex, Seen, Since};
pub use sketch::Sketch;
#[cfg(feature = "study")]
pub use study::{CacheFlaws, HotspotFlaws};
pub use types::{Addition, Admitted, CacheBytes, CacheKey, CachedNode, Hit, NodeImage, Origin};

#[doc = include_str!("../README.md")]
#[cfg(doctest)]
struct ReadmeDoctests;
