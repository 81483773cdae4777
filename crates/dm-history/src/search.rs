//! The search for one sequential order of one key's operations.
//!
//! A configuration is the set of operations that have a place in the order, and the state that they leave. An operation
//! may be placed next if no unplaced operation returned before it was invoked. Two kinds of moves are made without
//! alternatives (`settle`), because if any order exists, an order that begins with such a move exists too:
//!
//! * An operation that never changes the state and is possible now is placed now.
//! * An overwrite is placed now, together with its readers (the operations that must see its state), if all its
//!   readers have been invoked and no other operation must still see the current state.
//!
//! All other moves are tried in order of urgency. The search backtracks if it would leave a state that some operation
//! must still see and that no operation can restore. It stores each configuration that failed.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use crate::history::Operation;
use crate::spec::{Effect, Spec};

use crate::links::Links;

/// An operation in the search. It has no result if it is pending, or if it returned after the end of a cut history.
pub(crate) struct Item<'a, S: Spec> {
    /// The position of the operation in the history.
    pub(crate) position: usize,
    pub(crate) source: &'a Operation<S::Op, S::Ret>,
    pub(crate) ret: Option<&'a S::Ret>,
    /// `u64::MAX` for a pending operation, which has no `ret`.
    pub(crate) returned: u64,
}

// This is written by hand, because a derive would require `S: Clone`.
impl<S: Spec> Clone for Item<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<S: Spec> Copy for Item<'_, S> {}

impl<'a, S: Spec> Item<'a, S> {
    pub(crate) fn new(position: usize, source: &'a Operation<S::Op, S::Ret>) -> Self {
        match &source.returned {
            Some((at, ret)) => Self {
                position,
                source,
                ret: Some(ret),
                returned: *at,
            },
            None => Self {
                position,
                source,
                ret: None,
                returned: u64::MAX,
            },
        }
    }

    /// Returns the same operation without its result, as if it had not returned.
    pub(crate) fn pending(self) -> Self {
        Self {
            ret: None,
            returned: u64::MAX,
            ..self
        }
    }

    pub(crate) fn effect(&self, spec: &S) -> Effect<S::State> {
        spec.effect(&self.source.op, self.ret)
    }
}

/// The remaining steps of the check of one key, or of all attempts to cut down one counterexample.
#[derive(Debug)]
pub(crate) struct Budget {
    left: u64,
}

/// The error that the limit of steps was reached.
#[derive(Debug)]
pub(crate) struct OutOfSteps;

impl Budget {
    pub(crate) fn new(steps: u64) -> Self {
        Self { left: steps }
    }

    fn spend(&mut self) -> Result<(), OutOfSteps> {
        self.left = self.left.checked_sub(1).ok_or(OutOfSteps)?;
        Ok(())
    }

    pub(crate) fn left(&self) -> u64 {
        self.left
    }
}

/// The known properties of one operation.
#[derive(Clone, Copy)]
struct Known {
    pure: bool,
    overwrites: bool,
    /// The index of the state that the operation must see.
    needs: Option<u32>,
    /// The index of the state that the operation leaves.
    makes: Option<u32>,
    /// The earliest return of this operation and of those that must see its state.
    urgency: u64,
    /// The last operation of the same client that ended at the time at which this one began. The times do not order the
    /// two operations, but the order of recording does.
    after: Option<u32>,
    /// Another operation of the same client that ended at the same time.
    twin: Option<u32>,
}

/// The operations that must see one state, and how many unplaced operations see or leave it.
#[derive(Clone, Default)]
struct StateUse {
    viewers: Vec<u32>,
    viewers_left: u32,
    makers_left: u32,
    last_viewer_invoked: u64,
    first_viewer_returned: u64,
}

struct Frame<S: Spec> {
    state: S::State,
    state_index: Option<u32>,
    placed: usize,
    /// The length of the shared stack below this frame's candidates. The candidates that are still on the stack were
    /// not tried yet; the one to try next is on top.
    candidates_from: usize,
    set_hash: u128,
}

/// Returns whether the specification allows an order of `items` (sorted by invocation) that starts in `initial`.
pub(crate) fn explains<S: Spec>(
    spec: &S,
    items: &[Item<'_, S>],
    initial: S::State,
    budget: &mut Budget,
) -> Result<bool, OutOfSteps> {
    Search::new(spec, items, initial).run(budget)
}

struct Search<'a, S: Spec> {
    spec: &'a S,
    items: &'a [Item<'a, S>],
    known: Vec<Known>,
    uses: Vec<StateUse>,
    indices: HashMap<S::State, u32>,
    /// Whether the specification gave an effect for every operation of the key.
    advised: bool,
    by_invocation: Links,
    by_return: Links,
    pending: Links,
    is_placed: Vec<bool>,
    placed: Vec<u32>,
    returned_left: usize,
    set_hash: u128,
    state: S::State,
    state_index: Option<u32>,
    failed: HashSet<(u128, S::State)>,
    candidates: Vec<u32>,
}

impl<'a, S: Spec> Search<'a, S> {
    fn new(spec: &'a S, items: &'a [Item<'a, S>], initial: S::State) -> Self {
        let count = u32::try_from(items.len()).expect("a key has fewer than 2^32 operations");
        let mut by_return: Vec<u32> = (0..count)
            .filter(|&at| items[at as usize].ret.is_some())
            .collect();
        let returned_left = by_return.len();
        by_return.sort_by_key(|&at| items[at as usize].returned);
        let mut search = Self {
            spec,
            items,
            known: Vec::with_capacity(items.len()),
            uses: Vec::new(),
            indices: HashMap::new(),
            advised: true,
            by_invocation: Links::new(count, (0..count).filter(|&at| items[at as usize].ret.is_some())),
            by_return: Links::new(count, by_return.into_iter()),
            pending: Links::new(count, (0..count).filter(|&at| items[at as usize].ret.is_none())),
            is_placed: vec![false; items.len()],
            placed: Vec::with_capacity(items.len()),
            returned_left,
            set_hash: 0,
            state: initial,
            state_index: None,
            failed: HashSet::new(),
            candidates: Vec::new(),
        };
        search.learn();
        search
    }

    /// Stores the effects that the specification declares.
    fn learn(&mut self) {
        let mut ended: HashMap<(u32, u64), u32> = HashMap::new();
        for (at, item) in (0_u32..).zip(self.items) {
            let effect = item.effect(self.spec);
            self.advised &= effect != Effect::Unknown;
            let mut known = Known {
                pure: false,
                overwrites: false,
                needs: None,
                makes: None,
                urgency: item.returned,
                after: None,
                twin: None,
            };
            match effect {
                Effect::Unknown => {}
                Effect::Pure => known.pure = true,
                Effect::PureIn(state) => {
                    known.pure = true;
                    let needs = self.index_of(state);
                    let used = &mut self.uses[needs as usize];
                    used.viewers.push(at);
                    used.viewers_left += 1;
                    used.last_viewer_invoked = used.last_viewer_invoked.max(item.source.invoked);
                    used.first_viewer_returned = used.first_viewer_returned.min(item.returned);
                    known.needs = Some(needs);
                }
                Effect::Sets(state) => known.makes = Some(self.index_of(state)),
                Effect::Overwrites(state) => {
                    known.overwrites = true;
                    known.makes = Some(self.index_of(state));
                }
            }
            if let Some(makes) = known.makes {
                self.uses[makes as usize].makers_left += 1;
            }
            let client = item.source.client;
            known.after = ended.get(&(client, item.source.invoked)).copied();
            if item.ret.is_some() {
                known.twin = ended.insert((client, item.returned), at);
            }
            self.known.push(known);
        }
        for known in &mut self.known {
            if let Some(makes) = known.makes {
                known.urgency = known.urgency.min(self.uses[makes as usize].first_viewer_returned);
            }
        }
        self.state_index = self.indices.get(&self.state).copied();
    }

    fn index_of(&mut self, state: S::State) -> u32 {
        let next = u32::try_from(self.uses.len()).expect("a key has fewer than 2^32 states");
        let index = *self.indices.entry(state).or_insert(next);
        if index == next {
            self.uses.push(StateUse {
                first_viewer_returned: u64::MAX,
                ..StateUse::default()
            });
        }
        index
    }

    fn run(&mut self, budget: &mut Budget) -> Result<bool, OutOfSteps> {
        let unreachable = |index: u32, used: &StateUse| {
            used.viewers_left > 0 && used.makers_left == 0 && self.state_index != Some(index)
        };
        if self.advised
            && (0..)
                .zip(&self.uses)
                .any(|(index, used)| unreachable(index, used))
        {
            return Ok(false); // an operation saw a value that no operation wrote
        }
        let mut frames: Vec<Frame<S>> = Vec::new();
        loop {
            self.settle(budget)?;
            if self.returned_left == 0 {
                return Ok(true);
            }
            if !self.failed.contains(&(self.set_hash, self.state.clone())) {
                frames.push(Frame {
                    state: self.state.clone(),
                    state_index: self.state_index,
                    placed: self.placed.len(),
                    candidates_from: self.candidates.len(),
                    set_hash: self.set_hash,
                });
                self.find_candidates(budget)?;
            }
            loop {
                let Some(frame) = frames.last() else {
                    return Ok(false);
                };
                while self.placed.len() > frame.placed {
                    self.undo();
                }
                self.state.clone_from(&frame.state);
                self.state_index = frame.state_index;
                if self.candidates.len() == frame.candidates_from {
                    self.failed.insert((frame.set_hash, frame.state.clone()));
                    frames.pop();
                    continue;
                }
                let at = self.candidates.pop().expect("the frame has a candidate left");
                budget.spend()?;
                let next = self
                    .step(at)
                    .expect("candidates are possible in their frame's state");
                self.place(at, Some(next));
                break;
            }
        }
    }

    /// Makes every move that needs no choice.
    fn settle(&mut self, budget: &mut Budget) -> Result<(), OutOfSteps> {
        if !self.advised {
            return Ok(());
        }
        let end = self.end();
        let mut moved = true;
        while moved && self.returned_left > 0 {
            moved = false;
            let deadline = self.deadline();
            let mut at = self.by_invocation.first();
            while at != end && self.items[at as usize].source.invoked <= deadline {
                let known = self.known[at as usize];
                let is_free = known.pure || (known.overwrites && self.is_free_overwrite(known, deadline));
                if is_free && self.in_turn(at) {
                    budget.spend()?;
                    if let Some(next) = self.step(at) {
                        self.place(at, (!known.pure).then_some(next));
                        moved = true;
                    }
                }
                at = self.by_invocation.after(at);
            }
        }
        Ok(())
    }

    /// Returns whether this overwrite may be placed at once: no operation needs the current state, and all operations
    /// that need the new state have been invoked.
    fn is_free_overwrite(&self, known: Known, deadline: u64) -> bool {
        let Some(makes) = known.makes else { return false };
        if self
            .state_index
            .is_some_and(|now| self.uses[now as usize].viewers_left > 0)
        {
            return false;
        }
        let used = &self.uses[makes as usize];
        used.viewers_left == 0
            || (used.last_viewer_invoked <= deadline
                && used
                    .viewers
                    .iter()
                    .all(|&at| self.is_placed[at as usize] || self.in_turn(at)))
    }

    /// Pushes the operations that may be placed next, the most urgent one last.
    fn find_candidates(&mut self, budget: &mut Budget) -> Result<(), OutOfSteps> {
        let stuck = self.advised
            && self.state_index.is_some_and(|now| {
                let used = &self.uses[now as usize];
                used.viewers_left > 0 && used.makers_left == 0
            });
        if stuck {
            return Ok(()); // an operation must see this state, and it cannot be restored
        }
        let (end, deadline) = (self.end(), self.deadline());
        let mut found = Vec::new();
        for links in [&self.by_invocation, &self.pending] {
            let mut at = links.first();
            while at != end && self.items[at as usize].source.invoked <= deadline {
                if !self.known[at as usize].pure && self.in_turn(at) {
                    budget.spend()?;
                    let next = self.step(at);
                    if next.is_some_and(|next| !self.is_useless(at, &next)) {
                        found.push(at);
                    }
                }
                at = links.after(at);
            }
        }
        if self.advised {
            self.keep_one_of_a_kind(&mut found);
        }
        found.sort_by_key(|&at| Reverse((self.known[at as usize].urgency, self.items[at as usize].returned)));
        self.candidates.append(&mut found);
        Ok(())
    }

    /// Returns whether this is a pending operation whose effect no other operation can see.
    fn is_useless(&self, at: u32, next: &S::State) -> bool {
        self.advised
            && self.items[at as usize].ret.is_none()
            && self.unseen(at)
            && self.spec.alike(&self.state, next)
    }

    /// Returns whether no operation is left that must see the state that `at` makes.
    fn unseen(&self, at: u32) -> bool {
        self.known[at as usize]
            .makes
            .is_none_or(|makes| self.uses[makes as usize].viewers_left == 0)
    }

    /// Of interchangeable candidates, keeps only the one that returns first. If an order begins with another of them,
    /// the two can be exchanged. If several candidates return at this time, all of them are kept, because a client's
    /// next operation may depend on one of them.
    fn keep_one_of_a_kind(&self, found: &mut Vec<u32>) {
        let kind = |at: u32| {
            let item = &self.items[at as usize];
            let makes = if self.unseen(at) {
                None
            } else {
                self.known[at as usize].makes
            };
            self.spec
                .class(&item.source.op, item.ret)
                .map(|class| (class, makes))
        };
        let mut first: HashMap<(u8, Option<u32>), (u64, u32)> = HashMap::new();
        for &at in found.iter() {
            if let Some(kind) = kind(at) {
                let rank = (self.items[at as usize].returned, at);
                first
                    .entry(kind)
                    .and_modify(|first| *first = rank.min(*first))
                    .or_insert(rank);
            }
        }
        found.retain(|&at| {
            let item = &self.items[at as usize];
            let Some(&(returned, chosen)) = kind(at).and_then(|kind| first.get(&kind)) else {
                return true;
            };
            at == chosen || (item.ret.is_some() && item.returned == returned)
        });
    }

    /// Returns the earliest return among unplaced operations. Operations that were invoked later must wait for this
    /// one.
    fn deadline(&self) -> u64 {
        let first = self.by_return.first();
        if first == self.end() {
            u64::MAX
        } else {
            self.items[first as usize].returned
        }
    }

    /// Returns whether the client's earlier operations that returned at the time of this invocation have all been
    /// placed.
    fn in_turn(&self, at: u32) -> bool {
        let before = std::iter::successors(self.known[at as usize].after, |&at| self.known[at as usize].twin);
        before.into_iter().all(|at| self.is_placed[at as usize])
    }

    fn end(&self) -> u32 {
        u32::try_from(self.items.len()).expect("checked at the start")
    }

    fn step(&self, at: u32) -> Option<S::State> {
        let item = &self.items[at as usize];
        self.spec.step(&self.state, &item.source.op, item.ret)
    }

    /// Places operation `at`. `next` is the state that it leaves, or `None` if it did not change the state.
    fn place(&mut self, at: u32, next: Option<S::State>) {
        let known = self.known[at as usize];
        if self.items[at as usize].ret.is_some() {
            self.by_invocation.take(at);
            self.by_return.take(at);
            self.returned_left -= 1;
        } else {
            self.pending.take(at);
        }
        if let Some(needs) = known.needs {
            self.uses[needs as usize].viewers_left -= 1;
        }
        if let Some(makes) = known.makes {
            self.uses[makes as usize].makers_left -= 1;
        }
        if let Some(next) = next {
            self.state = next;
            self.state_index = known.makes;
        }
        self.is_placed[at as usize] = true;
        self.set_hash ^= member_hash(at);
        self.placed.push(at);
    }

    /// Removes the operation that was placed last. The caller restores the state.
    fn undo(&mut self) {
        let Some(at) = self.placed.pop() else { return };
        let known = self.known[at as usize];
        self.set_hash ^= member_hash(at);
        self.is_placed[at as usize] = false;
        if let Some(makes) = known.makes {
            self.uses[makes as usize].makers_left += 1;
        }
        if let Some(needs) = known.needs {
            self.uses[needs as usize].viewers_left += 1;
        }
        if self.items[at as usize].ret.is_some() {
            self.returned_left += 1;
            self.by_return.put_back(at);
            self.by_invocation.put_back(at);
        } else {
            self.pending.put_back(at);
        }
    }
}

/// Returns a pseudo-random word for operation `at`. The hash of a set is the exclusive or of its members' words
/// (Zobrist).
fn member_hash(at: u32) -> u128 {
    let half = |salt: u64| crate::stamp::mix(u64::from(at).wrapping_mul(2).wrapping_add(1) ^ salt);
    (u128::from(half(0x6a09_e667_f3bc_c908)) << 64) | u128::from(half(0xbb67_ae85_84ca_a73b))
}
