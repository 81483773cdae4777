//! The clients of compute nodes that are killed, and their successors.

use dm_history::{LOADER, Monotone, Stamp};
use dm_index::{IndexError, RangeIndex};
use dm_verbs::{ControlError, Env, VerbErrorKind};

use super::{Client, Kind, after};
use crate::kills::Life;
use crate::stress::{DOUBTFUL, HotHistory, LOADED};
use crate::{Report, Rng, TestKey};

/// A key whose last write was not answered, because its client was killed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Doubt {
    pub(super) key: u64,
    /// The numbers of the writes that the key may contain; 0 means that the key is absent. Empty for a hot key.
    contents: Vec<u32>,
    /// The number of the write that the key contains if the last write was applied.
    applied: u32,
}

/// The state of a client when it was killed. Its successor continues with it.
pub(crate) struct Past {
    pub(crate) me: usize,
    rng: Rng,
    report: Report,
    own: Vec<u32>,
    hot: HotHistory,
    seen: Monotone<u64>,
    made: u64,
    doubt: Option<Doubt>,
}

impl<'r, E: Env> Client<'r, E> {
    /// Returns this client with the state of its predecessor, if there is one. This client may be killed too.
    pub(crate) fn succeeding(self, past: Option<Past>, life: Life<'r>) -> Self {
        let life = Some(life);
        let Some(past) = past else {
            return Self { life, ..self };
        };
        Self {
            life,
            rng: past.rng,
            report: past.report,
            own: past.own,
            hot: past.hot,
            seen: past.seen,
            made: past.made,
            doubt: past.doubt,
            ..self
        }
    }

    /// Returns the state of a client that was killed, for its successor.
    pub(crate) fn killed(mut self) -> Past {
        if let Some((kind, key, sequence)) = self.running {
            self.report.killed.unanswered += 1;
            let mut doubt = self.doubt.take().unwrap_or(Doubt {
                key,
                contents: Vec::new(),
                applied: 0,
            });
            if self.is_own(key) {
                let last = *self.last(key);
                if last != DOUBTFUL {
                    doubt.contents.push(last);
                }
                let after = |before: &u32| after(kind, *before, sequence).1;
                let after: Vec<u32> = doubt.contents.iter().map(after).collect();
                doubt.applied = after.last().copied().unwrap_or(0);
                doubt.contents.extend(after);
                doubt.contents.sort_unstable();
                doubt.contents.dedup();
                *self.last(key) = DOUBTFUL;
            }
            self.doubt = Some(doubt);
        }
        self.report.meter += self.env.meter().counters();
        Past {
            me: self.me,
            rng: self.rng,
            report: self.report,
            own: self.own,
            hot: self.hot,
            seen: self.seen,
            made: self.made,
            doubt: self.doubt,
        }
    }

    /// Determines the content of the key whose last write was not answered because of the predecessor's death. From
    /// now on, the key must have this content.
    ///
    /// A value that was half written stays torn until it is written again. So if a get takes too long, this writes the
    /// key. A hot key is written without a get, because other clients may be waiting until its torn value is
    /// overwritten.
    pub(super) async fn settle<I>(&mut self, index: &I, read: &mut Vec<u8>) -> Result<(), IndexError>
    where
        I: RangeIndex,
        I::Key: TestKey,
    {
        let (Some(doubt), Some(life)) = (self.doubt.clone(), &self.life) else {
            return Ok(());
        };
        let Doubt {
            key,
            contents,
            applied,
        } = doubt;
        let looked = match self.is_own(key) {
            true => life.within(self.env, index.get(&I::Key::nth(key), read)).await,
            false => None,
        };
        self.lives().await;
        let Some(present) = looked.transpose()? else {
            self.report.killed.torn += u64::from(self.is_own(key));
            self.write(index, Kind::Upsert, key).await?;
            self.lives().await;
            self.doubt = None;
            return Ok(());
        };
        let found = match present {
            false => 0,
            true => match self.judge::<I::Key>(key, read) {
                Ok(Stamp { client: LOADER, .. }) => LOADED,
                Ok(found) => found.sequence,
                Err(e) => {
                    self.wrong(key, &format_args!("in doubt: {e}"));
                    DOUBTFUL
                }
            },
        };
        if found != DOUBTFUL && !contents.contains(&found) {
            self.wrong(
                key,
                &format_args!("in doubt: write {found}, which is none of {contents:?}"),
            );
        }
        self.report.killed.applied += u64::from(applied == found);
        *self.last(key) = found;
        self.doubt = None;
        Ok(())
    }

    /// Waits for ever if the error says that the other members have expelled this client's compute node. Does the same
    /// if the compute node was suspended, because then they may have expelled it.
    pub(super) async fn unless_expelled(&self, e: &IndexError) {
        if let Some(life) = &self.life
            && (is_fenced(e) || life.was_suspended())
        {
            life.expelled().await;
        }
    }
}

/// Returns whether the error says that the other members have expelled this client's compute node.
fn is_fenced(e: &IndexError) -> bool {
    match e {
        IndexError::Control(e) => *e == ControlError::Fenced,
        IndexError::Verb(e) => e.kind == VerbErrorKind::Fenced,
        _ => false,
    }
}
