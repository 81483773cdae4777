//! A thread's records of its chains: owner, destination and waiting task. The work requests are in `ffi::Port`.

use std::rc::Rc;
use std::task::Waker;

use core::cell::Cell;
use dm_verbs::{Effect, Place, VerbError, VerbErrorKind};

use crate::ffi::Fault;

/// The state of a chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    Free,
    Building,
    /// The doorbell was rung, and the chain waits for room in its queue pair.
    Queued,
    Flying,
    Completed,
}

/// A request that was pushed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pushed {
    pub(crate) at: Place,
    /// The kind of the request's answer.
    pub(crate) answers: Answers,
}

/// The kind of a request's answer: a word, bytes, or none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answers {
    Nothing,
    Word,
    Bytes,
}

/// A client's error that was not reported yet, if there is one.
pub(crate) type Deferred = Rc<Cell<Option<VerbError>>>;

/// The record of a chain. It has the same number as the chain's work list.
#[derive(Debug)]
pub(crate) struct Chain {
    pub(crate) phase: Phase,
    /// The memory node's number.
    pub(crate) node: usize,
    pub(crate) pushed: Vec<Pushed>,
    pub(crate) error: Option<VerbError>,
    /// Whether the result of the chain was returned to the client.
    pub(crate) told: bool,
    /// Whether the ticket was dropped before the chain completed. The chain is then closed when it completes.
    pub(crate) orphan: bool,
    pub(crate) waker: Option<Waker>,
    pub(crate) owner: Option<Deferred>,
}

impl Default for Chain {
    fn default() -> Self {
        Self {
            phase: Phase::Free,
            node: 0,
            pushed: Vec::new(),
            error: None,
            told: false,
            orphan: false,
            waker: None,
            owner: None,
        }
    }
}

impl Chain {
    /// Prepares the record for a new use by `owner`, towards `node`.
    pub(crate) fn begin(&mut self, node: usize, owner: &Deferred) {
        self.phase = Phase::Building;
        self.node = node;
        self.owner = Some(Rc::clone(owner));
    }

    /// Clears everything except the buffers. If the chain was rung and its error was not reported yet, passes the error
    /// to the owner, unless the owner already has one.
    pub(crate) fn end(&mut self) {
        let rung = self.phase == Phase::Completed;
        if let (Some(owner), Some(error), false, true) = (self.owner.take(), self.error, self.told, rung)
            && owner.get().is_none()
        {
            owner.set(Some(error));
        }
        self.phase = Phase::Free;
        self.pushed.clear();
        self.error = None;
        self.told = false;
        self.orphan = false;
        self.waker = None;
    }

    /// Refuses the whole chain before it is sent, unless it was refused before.
    pub(crate) fn refuse(&mut self, kind: VerbErrorKind, at: Place) {
        self.error.get_or_insert(VerbError::refused(kind, at));
    }

    /// Fails the chain. None of its requests was sent, and none will be.
    pub(crate) fn cut_off(&mut self) {
        if let Some(first) = self.pushed.first() {
            let at = first.at;
            self.refuse(VerbErrorKind::Unreachable, at);
        }
    }

    /// Records that request `number` failed.
    pub(crate) fn fail(&mut self, number: u16, fault: Fault) {
        let Some(pushed) = self.pushed.get(usize::from(number)) else {
            return;
        };
        let (kind, effect) = match fault {
            Fault::Refused => (VerbErrorKind::Refused, Effect::None),
            Fault::Malformed => (VerbErrorKind::ConnectionLost, Effect::None),
            Fault::Unknown => (VerbErrorKind::ConnectionLost, Effect::Unknown),
        };
        self.error.get_or_insert(VerbError {
            kind,
            at: pushed.at,
            index: number,
            effect,
            rest: effect,
        });
    }

    /// Returns the index and the kind of the request that gives the `i`-th answer.
    pub(crate) fn answer(&self, i: u16) -> Option<(usize, Answers)> {
        let answering = self
            .pushed
            .iter()
            .enumerate()
            .filter(|(_, pushed)| pushed.answers != Answers::Nothing);
        answering
            .map(|(number, pushed)| (number, pushed.answers))
            .nth(usize::from(i))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dm_verbs::{NodeId, RemotePtr};

    fn chain(owner: &Deferred) -> Chain {
        let at = RemotePtr::new(NodeId(0), 4096).unwrap().into();
        let mut chain = Chain::default();
        chain.begin(0, owner);
        for answers in [Answers::Word, Answers::Nothing, Answers::Bytes] {
            chain.pushed.push(Pushed { at, answers });
        }
        chain
    }

    #[test]
    fn an_unreported_error_goes_to_its_owner_once() {
        let owner = Deferred::default();
        for (rung, told, deferred) in [(true, false, true), (true, true, false), (false, false, false)] {
            let mut chain = chain(&owner);
            chain.fail(1, Fault::Unknown);
            chain.phase = if rung { Phase::Completed } else { Phase::Building };
            chain.told = told;
            chain.end();
            assert_eq!(owner.take().is_some(), deferred, "{rung} {told}");
            assert_eq!((chain.phase, chain.error), (Phase::Free, None));
        }
    }

    #[test]
    fn the_first_failure_determines_the_error_and_its_effect() {
        let mut chain = chain(&Deferred::default());
        chain.fail(1, Fault::Refused);
        chain.fail(2, Fault::Unknown);
        let error = chain.error.unwrap();
        assert_eq!(
            (error.kind, error.index, error.effect, error.rest),
            (VerbErrorKind::Refused, 1, Effect::None, Effect::None)
        );
        assert_eq!(chain.answer(1), Some((2, Answers::Bytes)));
        assert_eq!(chain.answer(2), None);
    }
}
