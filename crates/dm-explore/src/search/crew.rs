//! A depth-first search by several threads, and the merging of their results.

use dm_sync::thread::scope;

use super::dfs::{Dfs, Job};
use super::pool::{Pool, StopAll};
use super::table::Table;
use super::{End, Search, Walk};
use crate::fp::{Fp, FpSet};
use crate::model::Rules;
use crate::runner::{Runner, Source};

/// The data that all threads share.
struct Crew<'c> {
    source: &'c dyn Source,
    rules: &'c Rules,
    search: Search,
    table: &'c Table,
    pool: &'c Pool<Job>,
    sleep: bool,
}

/// The result of one thread.
#[derive(Default)]
struct Part {
    end: Option<End>,
    open: Vec<(u32, u32)>,
    unmet: Vec<(u32, Fp)>,
    ends: FpSet,
    depth: u32,
    /// The numbers of steps taken, steps that saved states made unnecessary, executions, and stored outcomes.
    counts: [u64; 4],
}

/// Explores all states, and returns whether several threads took part. With `cache`, states are distinguished by
/// fingerprints, and each state is explored once, or again when its sleep set shrinks (Godefroid's state-space caching
/// with sleep sets).
pub(super) fn search(walk: &mut Walk<'_>, source: &dyn Source, cache: bool, sleep: bool) -> (End, bool) {
    let threads = if cache { walk.search.threads_used() } else { 1 };
    let table = if threads > 1 {
        Table::shared(threads)
    } else {
        Table::alone()
    };
    let pool = Pool::new(threads);
    let (search, rules) = (walk.search, walk.runner.rules);
    let mut dfs = Dfs::new(walk, &table, cache, sleep);
    let mut several = false;
    let mut parts = Vec::new();
    let first = if threads > 1 {
        dfs.explore_some(search.alone)
    } else {
        Some(dfs.explore_all())
    };
    let mut end = first.unwrap_or_else(|| {
        several = true;
        let crew = Crew {
            source,
            rules,
            search,
            table: &table,
            pool: &pool,
            sleep,
        };
        let end;
        (end, parts) = together(&mut dfs, &crew, threads);
        end
    });
    let (mut open, mut unmet) = (core::mem::take(&mut dfs.open), core::mem::take(&mut dfs.unmet));
    for part in parts {
        let Part {
            end: other,
            open: mut more,
            unmet: mut others,
            ends,
            depth,
            counts,
        } = part;
        open.append(&mut more);
        unmet.append(&mut others);
        walk.ends.extend(ends);
        walk.depth = walk.depth.max(depth);
        let [steps, spared, executions, outcomes] = counts;
        walk.runner.steps += steps;
        walk.runner.spared += spared;
        walk.runner.executions += executions;
        walk.runner.forgotten += outcomes;
        end = worse(end, other);
    }
    if !cache {
        return (end, several);
    }
    (walk.states, walk.others) = (table.count().0, 0);
    if matches!(end, End::Done) {
        open.extend(
            unmet
                .iter()
                .filter_map(|&(from, to)| Some((from, table.get(to)?.number))),
        );
        if !table.spread(open) {
            end = End::Unproven;
        }
    }
    (end, several)
}

/// Returns the worse of two ends: a failure outweighs a limit, and both outweigh finding nothing.
fn worse(one: End, other: Option<End>) -> End {
    let weight = |end: &End| match end {
        End::Found(_) => 2,
        End::Cut(_) => 1,
        End::Done | End::Unproven => 0,
    };
    match other {
        Some(other) if weight(&other) > weight(&one) => other,
        _ => one,
    }
}

/// Continues this thread's search with the help of other threads.
fn together<'w>(dfs: &mut Dfs<'w, '_>, crew: &Crew<'w>, threads: usize) -> (End, Vec<Part>) {
    let begun = dfs.walk.begun;
    scope(|scope| {
        let _stop = StopAll(crew.pool);
        let helpers: Vec<_> = (1..threads).map(|_| scope.spawn(|| help(crew, begun))).collect();
        let end = dfs.explore_shared(crew.pool);
        let parts = helpers.into_iter().map(|helper| match helper.join() {
            Ok(part) => part,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        (end, parts.collect())
    })
}

/// Handles the work that other threads give away, until no thread has any left.
fn help(crew: &Crew<'_>, begun: std::time::Instant) -> Part {
    let _stop = StopAll(crew.pool);
    let Some(job) = crew.pool.take() else {
        return Part::default();
    };
    let (machine, program) = crew.source.make();
    let mut walk = super::walk(Runner::new(machine, &*program, crew.rules), crew.search);
    walk.begun = begun;
    walk.runner.spare_clients(true);
    let mut dfs = Dfs::new(&mut walk, crew.table, true, crew.sleep);
    dfs.begin(job);
    let end = dfs.explore_shared(crew.pool);
    let (open, unmet) = (core::mem::take(&mut dfs.open), core::mem::take(&mut dfs.unmet));
    let runner = &walk.runner;
    let counts = [runner.steps, runner.spared, runner.executions, runner.outcomes()];
    Part {
        end: Some(end),
        open,
        unmet,
        ends: core::mem::take(&mut walk.ends),
        depth: walk.depth,
        counts,
    }
}
