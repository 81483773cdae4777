//! Assigns each instruction to the client, to the world that carries its bytes, or to the benchmark itself.
//!
//! 1. Code of a crate of this workspace counts for that crate, even if the compiler inlined it elsewhere. But code that
//!    was inlined into a world counts for the world, because a world calls no code of an index.
//! 2. Code of the standard library or of a foreign crate counts for the crate of ours into which it was inlined,
//!    according to the debug information. Without that information it counts for the first of our crates that the
//!    function's name contains, or otherwise for the file of its function.
//! 3. A foreign function that was called and not inlined (`memcpy`, a hash) counts for its callers, in proportion to
//!    the cost of their calls. The callers may be several foreign functions away.
//! 4. Allocation is counted separately, because an operation should not allocate in its steady state.

use super::callgrind::{Profile, Site};
use std::collections::BTreeMap;

/// The part of the system to which an instruction belongs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    /// Index code and the crates that it uses, by crate. A client's CPU does this work on any testbed.
    Client(String),
    /// A crate that carries bytes, such as the simulator or the loopback, or the part of dm-sync that is remote memory.
    /// On a real testbed, the RNIC and the memory node do this work.
    World(String),
    /// Drawing keys, checking values, and the benchmark program itself.
    Harness(String),
    /// `malloc` and related functions, for all callers.
    Allocator,
    /// Foreign code that no crate of ours is known to have called.
    Rest,
}

impl Part {
    /// Returns the heading under which the part is summed.
    pub(super) fn group(&self) -> &'static str {
        match self {
            Self::Client(_) => "client",
            Self::World(_) => "world",
            Self::Harness(_) => "harness",
            Self::Allocator => "allocator",
            Self::Rest => "rest",
        }
    }

    /// Returns the crate's name, or an empty string if no crate is known.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Client(name) | Self::World(name) | Self::Harness(name) => name,
            Self::Allocator | Self::Rest => "",
        }
    }
}

/// Crates that carry bytes between clients and memory nodes.
const WORLDS: &[&str] = &["dm-loopback", "dm-sim", "dm-ib"];

/// The part of dm-sync that is the memory of memory nodes. It belongs to the world, unlike the rest of that crate.
const REMOTE_MEMORY: &str = "crates/dm-sync/src/region";

/// Crates that run workloads and check results.
const HARNESS: &[&str] = &["dm-workload", "dm-history", "dm-testkit", "xtask"];

/// Names of the allocator's functions in glibc and Rust.
const ALLOCATOR: &[&str] = &[
    "malloc",
    "free",
    "calloc",
    "realloc",
    "aligned_alloc",
    "posix_memalign",
    "memalign",
];

/// Maximum number of foreign functions between an instruction and the crate for which it counts.
const HOPS_MAX: usize = 32;

/// Returns the instructions by part. `crates` has the names of our crates, which distinguish our code from foreign
/// code.
pub(super) fn split(profile: &Profile, crates: &[String]) -> BTreeMap<Part, f64> {
    let mut parts = BTreeMap::new();
    for ((part, _), count) in split_functions(profile, crates) {
        *parts.entry(part).or_default() += count;
    }
    parts
}

/// A function of the program, and the function of the source to which its instructions belong. The two differ for
/// inlined code. Both names are empty for allocation and for the rest.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Function {
    /// The function as compiled: its name in the symbol table without generic arguments. The body of an async function
    /// has the name of the function.
    pub(super) compiled: String,
    /// The function in the source, with its crate and module, as in `dm_layout::hopscotch::near::marks`.
    pub(super) source: String,
}

/// Returns the instructions by part and function. Foreign code counts for the function into which it was inlined, or
/// which called it.
pub(super) fn split_functions(profile: &Profile, crates: &[String]) -> BTreeMap<(Part, Function), f64> {
    let part_of = |site: &Site| {
        let home = profile.homes.get(&site.function).map_or("", String::as_str);
        let part = part_of(site, home, crates)?;
        let function = function_of(site, &part, crates);
        Some((part, function))
    };
    let rest = || (Part::Rest, Function::default());
    let mut parts: BTreeMap<(Part, Function), f64> = BTreeMap::new();
    let mut foreign: BTreeMap<&str, f64> = BTreeMap::new();
    for (site, count) in &profile.own {
        match part_of(site) {
            Some(part) => *parts.entry(part).or_default() += *count as f64,
            None => *foreign.entry(&site.function).or_default() += *count as f64,
        }
    }
    let mut callers: BTreeMap<&str, Vec<(&Site, f64)>> = BTreeMap::new();
    for ((site, callee), count) in profile.calls.iter().filter(|(_, count)| **count > 0) {
        if site.function != *callee {
            callers.entry(callee).or_default().push((site, *count as f64));
        }
    }
    for _ in 0..HOPS_MAX {
        if foreign.is_empty() {
            break;
        }
        for (function, count) in std::mem::take(&mut foreign) {
            let from = callers.get(function).map_or(&[][..], Vec::as_slice);
            if from.is_empty() {
                *parts.entry(rest()).or_default() += count;
            }
            let whole: f64 = from.iter().map(|(_, weight)| weight).sum();
            for (site, weight) in from {
                let share = count * weight / whole;
                match part_of(site) {
                    Some(part) => *parts.entry(part).or_default() += share,
                    None => *foreign.entry(&site.function).or_default() += share,
                }
            }
        }
    }
    // Some instructions may remain in foreign functions, for example if functions call each other in a circle.
    if !foreign.is_empty() {
        *parts.entry(rest()).or_default() += foreign.values().sum::<f64>();
    }
    parts
}

/// Returns the names of a site's function.
fn function_of(site: &Site, part: &Part, crates: &[String]) -> Function {
    if *part == Part::Allocator {
        return Function::default();
    }
    let compiled = plain(&site.function);
    let source = match own_path(&site.file, crates) {
        Some(path) if !site.within.is_empty() => format!("{}::{}", module(path), site.within),
        // No function of ours is known, for example because the compiler made these instructions to save registers.
        _ => compiled.clone(),
    };
    Function { compiled, source }
}

/// Returns the module of a file, as in `dm_layout::hopscotch::near` for `crates/dm-layout/src/hopscotch/near.rs`.
fn module(path: &str) -> String {
    let path = path.trim_start_matches("crates/").trim_end_matches(".rs");
    let (name, inner) = path.split_once("/src/").unwrap_or((path, ""));
    let inner = inner.split('/').filter(|part| !["", "lib", "mod"].contains(part));
    [name.replace('-', "_").as_str()]
        .into_iter()
        .chain(inner)
        .collect::<Vec<_>>()
        .join("::")
}

/// Removes generic arguments and closures from a name: `<a::X<K> as b::Y>::z::{{closure}}` becomes `a::X::z`.
fn plain(name: &str) -> String {
    // Callgrind appends the depth of a recursive call.
    let name = name.split('\'').next().unwrap_or(name);
    let (own, rest) = match name.strip_prefix('<') {
        Some(inner) => {
            let end = end_of_brackets(inner);
            let own = inner[..end].split(" as ").next().unwrap_or_default();
            (own, inner.get(end + 1..).unwrap_or_default())
        }
        None => ("", name),
    };
    let mut depth = 0;
    let outside = |c: &char| {
        depth += i32::from(*c == '<');
        let is_outside = depth == 0;
        depth -= i32::from(*c == '>');
        is_outside
    };
    let text: String = own.chars().chain(rest.chars()).filter(outside).collect();
    text.replace("::{{closure}}", "").replace("::::", "::")
}

/// Returns the position of the bracket that closes one before `text`.
fn end_of_brackets(text: &str) -> usize {
    let mut depth = 1;
    let closes = |(_, c): &(usize, char)| {
        depth += i32::from(*c == '<') - i32::from(*c == '>');
        depth == 0
    };
    text.char_indices().find(closes).map_or(text.len(), |(at, _)| at)
}

/// Returns the part of a site, or `None` for foreign code, which counts for its callers.
fn part_of(site: &Site, home: &str, crates: &[String]) -> Option<Part> {
    if is_allocator(&site.function) {
        return Some(Part::Allocator);
    }
    if let Some(path) = own_path(&site.file, crates) {
        return Some(part_of_path(path));
    }
    let of_name = crate_in(&site.function, crates).map(|name| {
        let in_region = name == "dm-sync" && site.function.contains("dm_sync::region");
        if in_region {
            remote_memory()
        } else {
            part_of_crate(name)
        }
    });
    of_name.or_else(|| own_path(home, crates).map(part_of_path))
}

/// Returns whether code of this file is a world's.
pub(super) fn is_world(path: &str) -> bool {
    matches!(part_of_path(path), Part::World(_))
}

fn part_of_path(path: &str) -> Part {
    let name = path
        .trim_start_matches("crates/")
        .split('/')
        .next()
        .unwrap_or_default();
    if path.starts_with(REMOTE_MEMORY) {
        remote_memory()
    } else if path.contains("/examples/") {
        Part::Harness(format!("{name} example"))
    } else {
        part_of_crate(name)
    }
}

fn remote_memory() -> Part {
    Part::World("dm-sync region".to_owned())
}

fn part_of_crate(name: &str) -> Part {
    if WORLDS.contains(&name) {
        Part::World(name.to_owned())
    } else if HARNESS.contains(&name) {
        Part::Harness(name.to_owned())
    } else {
        Part::Client(name.to_owned())
    }
}

fn is_allocator(function: &str) -> bool {
    let name = function.split('\'').next().unwrap_or(function);
    ALLOCATOR.contains(&name)
        || name.starts_with("_int_")
        || name.starts_with("malloc_consolidate")
        || name.starts_with("unlink_chunk")
        || [
            "__rust_alloc",
            "__rust_dealloc",
            "__rust_realloc",
            "__rdl_",
            "alloc::alloc::",
        ]
        .iter()
        .any(|part| name.contains(part))
}

/// Returns the path from `crates/` or `xtask/` on, if the file is one of ours.
pub(super) fn own_path<'a>(file: &'a str, crates: &[String]) -> Option<&'a str> {
    if file.contains("/registry/") || file.contains("/rustc/") {
        return None;
    }
    let starts = file.match_indices("crates/").map(|(at, _)| &file[at..]);
    let ours = |path: &&str| {
        crates
            .iter()
            .any(|name| path["crates/".len()..].starts_with(&format!("{name}/")))
    };
    starts
        .into_iter()
        .find(ours)
        .or_else(|| file.find("xtask/").map(|at| &file[at..]))
}

/// Returns the first of our crates that a demangled name contains, as in `<sherman::Tree as
/// core::future::Future>::poll`.
fn crate_in<'a>(function: &str, crates: &'a [String]) -> Option<&'a str> {
    let mentions = |name: &&'a String| {
        let prefix = format!("{}::", name.replace('-', "_"));
        function.match_indices(&prefix).map(|(at, _)| at).find(|at| {
            let before = function[..*at].chars().next_back();
            before.is_none_or(|c| !c.is_alphanumeric() && c != '_' && c != ':')
        })
    };
    crates
        .iter()
        .filter_map(|name| Some((mentions(&name)?, name.as_str())))
        .min()
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crates() -> Vec<String> {
        ["sherman", "dm-leaf", "dm-sync", "dm-loopback", "dm-workload"]
            .map(str::to_owned)
            .to_vec()
    }

    fn site(function: &str, file: &str) -> Site {
        Site {
            function: function.to_owned(),
            file: file.to_owned(),
            within: String::new(),
            address: 0,
        }
    }

    fn profile(own: &[(Site, i64)], calls: &[(Site, &str, i64)]) -> Profile {
        Profile {
            own: own.iter().cloned().collect(),
            calls: calls
                .iter()
                .map(|(site, callee, n)| ((site.clone(), (*callee).to_owned()), *n))
                .collect(),
            homes: BTreeMap::new(),
        }
    }

    const STD: &str = "/rustc/abc/library/core/src/slice/mod.rs";

    #[test]
    fn inlined_code_counts_for_the_crate_it_was_written_in() {
        let own = [
            (
                site(
                    "<sherman::Get as core::future::Future>::poll",
                    "crates/sherman/src/tree.rs",
                ),
                10,
            ),
            (
                site(
                    "<sherman::Get as core::future::Future>::poll",
                    "/x/crates/dm-leaf/src/leaf.rs",
                ),
                20,
            ),
            (site("<sherman::Get as core::future::Future>::poll", STD), 30),
            (site("sherman::get", "crates/dm-sync/src/region/bytes.rs"), 40),
            (
                site("client::main", "crates/sherman/examples/sherman_client.rs"),
                50,
            ),
            (site("dm_workload::zipf", STD), 60),
        ];
        let parts = split(&profile(&own, &[]), &crates());
        let expected = [
            (Part::Client("dm-leaf".to_owned()), 20.0),
            (Part::Client("sherman".to_owned()), 40.0),
            (Part::World("dm-sync region".to_owned()), 40.0),
            (Part::Harness("dm-workload".to_owned()), 60.0),
            (Part::Harness("sherman example".to_owned()), 50.0),
        ];
        assert_eq!(parts, BTreeMap::from(expected));
    }

    #[test]
    fn code_inlined_from_std_counts_for_the_home_of_its_function() {
        let mut profile = profile(&[(site("client::main", STD), 10)], &[]);
        assert_eq!(split(&profile, &crates()), BTreeMap::from([(Part::Rest, 10.0)]));
        profile.homes.insert(
            "client::main".to_owned(),
            "/x/crates/sherman/examples/sherman_client.rs".to_owned(),
        );
        let harness = Part::Harness("sherman example".to_owned());
        assert_eq!(split(&profile, &crates()), BTreeMap::from([(harness, 10.0)]));
    }

    #[test]
    fn a_called_foreign_function_counts_for_its_callers_by_what_they_spent() {
        let leaf = site("dm_leaf::scan", "crates/dm-leaf/src/leaf.rs");
        let region = site("dm_loopback::serve", "crates/dm-sync/src/region.rs");
        let wrapper = site("core::wrapper", STD);
        let own = [(site("memcpy", "???"), 100), (site("orphan", "???"), 7)];
        let calls = [
            (leaf, "memcpy", 30),
            (wrapper, "memcpy", 90),
            (region, "core::wrapper", 90),
        ];
        let parts = split(&profile(&own, &calls), &crates());
        let expected = [
            (Part::Client("dm-leaf".to_owned()), 25.0),
            (Part::World("dm-sync region".to_owned()), 75.0),
            (Part::Rest, 7.0),
        ];
        assert_eq!(parts, BTreeMap::from(expected));
    }

    #[test]
    fn nothing_is_lost_in_a_circle_of_foreign_calls() {
        let own = [(site("a", "???"), 8), (site("b", "???"), 4)];
        let calls = [(site("a", "???"), "b", 4), (site("b", "???"), "a", 8)];
        let parts = split(&profile(&own, &calls), &crates());
        assert_eq!(parts.values().sum::<f64>(), 12.0);
    }

    #[test]
    fn allocation_stands_apart_whoever_called() {
        let own = [
            (site("malloc", "???"), 5),
            (site("_int_free", "malloc.c"), 6),
            (site("__rdl_alloc", STD), 1),
        ];
        let calls = [(site("sherman::get", "crates/sherman/src/tree.rs"), "malloc", 11)];
        assert_eq!(
            split(&profile(&own, &calls), &crates()),
            BTreeMap::from([(Part::Allocator, 12.0)])
        );
    }

    #[test]
    fn names_have_no_arguments_and_no_closures() {
        let names = [
            (
                "dm_leaf::write::<impl dm_leaf::nodes::Nodes<K,F>>::write_entry::{{closure}}",
                "dm_leaf::write::write_entry",
            ),
            (
                "<dm_layout::slotted::Slotted<K> as dm_layout::format::NodeRead<K>>::judge'2",
                "dm_layout::slotted::Slotted::judge",
            ),
            ("core::ptr::drop_in_place<a::B<c::D>>", "core::ptr::drop_in_place"),
            ("main", "main"),
        ];
        for (name, expected) in names {
            assert_eq!(plain(name), expected);
        }
    }

    #[test]
    fn inlined_code_has_the_name_of_its_source() {
        let mut inlined = site(
            "<sherman::Get<V> as core::future::Future>::poll",
            "crates/dm-leaf/src/read/near.rs",
        );
        inlined.within = "marks".to_owned();
        let function = function_of(&inlined, &Part::Client("dm-leaf".to_owned()), &crates());
        let expected = Function {
            compiled: "sherman::Get::poll".to_owned(),
            source: "dm_leaf::read::near::marks".to_owned(),
        };
        assert_eq!(function, expected);
        assert_eq!(
            function_of(&inlined, &Part::Allocator, &crates()),
            Function::default()
        );
    }

    #[test]
    fn crates_are_matched_by_their_whole_names() {
        assert_eq!(
            crate_in("core::ptr::drop_in_place<dm_leaf::Leaf<sherman::X>>", &crates()),
            Some("dm-leaf")
        );
        assert_eq!(crate_in("not_sherman::get", &crates()), None);
        assert_eq!(crate_in("other::sherman::get", &crates()), None);
    }

    #[test]
    fn foreign_sources_are_not_ours_for_a_directory_name() {
        assert_eq!(
            own_path("/c/registry/src/x/crates/dm-sync/src/lib.rs", &crates()),
            None
        );
        assert_eq!(own_path("/other/crates/matcher/src/lib.rs", &crates()), None);
    }
}
