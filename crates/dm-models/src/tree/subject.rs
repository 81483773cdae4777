//! Builds the model of a script for any index.

use dm_alloc::Superblock;
use dm_assemble::{Handle, Parts};
use dm_explore::{Client, End, Endpoint, Model};
use dm_history::{KvMap, scan};
use dm_index::{IndexError, Key8, RangeIndex, Scan};
use dm_sync::{Arc, Fingerprint, Mutex};
use dm_testkit::perform;
use dm_verbs::{ClientId, Control, Env, NodeId, VerbErrorKind};

use super::memory::{FAILED, as_written};
use super::world::{Do, LIMIT, LOCKS, MEMORY, Script, Spec, loaded, number_of};
use crate::crash::sweep::sweep;

/// An index for scripts. The clients of one compute node share it.
pub(crate) trait Subject: Sized + 'static {
    type Options: Copy + Send + Sync + 'static;

    /// Returns the options that create and load the pool: `options` without the flaws that would disturb this.
    fn sound(options: Self::Options) -> Self::Options;

    /// Creates the index in an empty pool.
    async fn create(v: &Endpoint, options: &Self::Options) -> Self;

    /// Opens an existing index for another compute node.
    async fn open(v: &Endpoint, options: &Self::Options, superblock: &Superblock) -> Self;

    /// Reads all inner nodes into the cache.
    async fn warm(&self, v: &Endpoint);

    /// Runs a housekeeping visit, if the index has one.
    async fn visit(&self, _v: &Endpoint) -> Result<(), IndexError> {
        Ok(())
    }

    fn client<'h>(&'h self, v: &'h Endpoint) -> impl RangeIndex<Key = Key8>;

    fn state(&self) -> u64;

    /// Returns all entries in memory, in any order, or a description of an error that was found.
    fn contents(end: &End<'_>, options: &Self::Options) -> Result<Vec<(u64, u64)>, String>;

    /// Returns an error if a leaf is in the middle of a change. If no script of the index has a survivor, this need
    /// not check.
    fn at_rest(_end: &End<'_>, _options: &Self::Options) -> Result<(), String> {
        Ok(())
    }
}

/// Parts of an index for which [`Handle`] implements [`Subject`]. The methods are those of a subject.
pub(crate) trait SubjectParts:
    Parts<Key = Key8, Options: Copy + Send + Sync + 'static> + Fingerprint + 'static
{
    fn sound(options: Self::Options) -> Self::Options;

    fn contents(end: &End<'_>, options: &Self::Options) -> Result<Vec<(u64, u64)>, String>;

    async fn visit(&self, _v: &Endpoint) -> Result<(), IndexError> {
        Ok(())
    }

    fn at_rest(_end: &End<'_>, _options: &Self::Options) -> Result<(), String> {
        Ok(())
    }
}

impl<P: SubjectParts> Subject for Handle<P> {
    type Options = P::Options;

    fn sound(options: P::Options) -> P::Options {
        P::sound(options)
    }

    async fn create(v: &Endpoint, options: &P::Options) -> Self {
        Self::create_or_open(v, options).await.expect("an empty pool")
    }

    async fn open(v: &Endpoint, options: &P::Options, superblock: &Superblock) -> Self {
        Self::from_superblock(v, options, superblock)
            .await
            .expect("the same options")
    }

    async fn warm(&self, v: &Endpoint) {
        Self::warm(self, v).await.expect("no faults");
    }

    async fn visit(&self, v: &Endpoint) -> Result<(), IndexError> {
        P::visit(self, v).await
    }

    fn client<'h>(&'h self, v: &'h Endpoint) -> impl RangeIndex<Key = Key8> {
        Self::client(self, v)
    }

    fn state(&self) -> u64 {
        self.fingerprint()
    }

    fn contents(end: &End<'_>, options: &P::Options) -> Result<Vec<(u64, u64)>, String> {
        P::contents(end, options)
    }

    fn at_rest(end: &End<'_>, options: &P::Options) -> Result<(), String> {
        P::at_rest(end, options)
    }
}

impl Script {
    /// Builds the model. It checks that all operations are linearizable, that none fails unless its chain has failed,
    /// that memory holds what was written, and that the last survivor leaves nothing unfinished.
    pub(crate) fn model<S: Subject>(self, title: String, options: S::Options) -> Model<S, Spec> {
        let found: Arc<Mutex<Option<Superblock>>> = Arc::default();
        let keep = Arc::clone(&found);
        let mut model = Model::new(title)
            .memory_nodes(self.memory_nodes)
            .memory(MEMORY, 256)
            .setup(move |v: Endpoint| {
                let keep = Arc::clone(&keep);
                async move {
                    let tree = S::create(&v, &S::sound(options)).await;
                    self.set_up(&tree.client(&v)).await.expect("room, and no faults");
                    if self.first_is_full {
                        while v.chunk(NodeId(0), 4096).await.is_ok() {}
                    }
                    let superblock = Superblock::inspect(&v).await.expect("a pool");
                    keep.with(|keep| *keep = Some(superblock));
                }
            })
            .shared_opened(move |v: Endpoint, node| {
                let found = Arc::clone(&found);
                async move {
                    let superblock = found.with(|found| found.clone()).expect("set up before");
                    let tree = S::open(&v, &options, &superblock).await;
                    if !self.cold.contains(&node) {
                        tree.warm(&v).await;
                    }
                    tree
                }
            })
            .fingerprint(S::state)
            .spec(KvMap::loaded(self.present().map(|k| (k, loaded(k)))))
            .invariant("memory holds what was written", move |end| {
                as_written(end, &self, &S::contents(end, &options)?)
            })
            .invariant("the survivor leaves nothing unfinished", move |end| {
                match self.survivor && end.finished(self.clients.len() - 1) {
                    true => S::at_rest(end, &options),
                    false => Ok(()),
                }
            });
        for (i, &(on, does)) in self.clients.iter().enumerate() {
            let name = char::from(b'A' + i as u8).to_string();
            let last = i + 1 == self.clients.len();
            let survives = self.survivor && last || self.second_survivor && i + 2 == self.clients.len();
            let program = move |c: Client<S, Spec>| async move {
                if survives {
                    sweep(&c, self.clients.len(), (self.memory_nodes, LOCKS), self.doubt).await;
                    c.forget();
                }
                for (number, what) in does.iter().enumerate() {
                    self.run(&c, *what, number).await;
                    c.forget();
                }
            };
            model = match survives {
                true => model
                    .survivor(name, on, program)
                    .after_deaths(if last && self.second_survivor { 2 } else { 1 }),
                false => model.client(name, on, program),
            };
        }
        model
    }

    async fn set_up(self, client: &impl RangeIndex<Key = Key8>) -> Result<(), IndexError> {
        for &key in self.preload {
            client.insert(&Key8(key), &loaded(key).to_le_bytes()).await?;
        }
        for &key in self.removed {
            client.remove(&Key8(key)).await?;
        }
        Ok(())
    }

    async fn run<S: Subject>(self, c: &Client<S, Spec>, what: Do, number: usize) {
        let ClientId(me) = c.verbs().client();
        // If an operation fails, the model fails, unless a failed chain is the cause.
        let fail = |e: IndexError| match e {
            IndexError::Verb(e) if e.kind == VerbErrorKind::ConnectionLost => c.output(FAILED),
            e => c.check(false, || format!("client {me}: {e}")),
        };
        let tree = c.shared().client(c.verbs());
        if let Some(op) = what.op(c.verbs().client(), number) {
            let done = c.try_op(op.clone(), async { perform(&tree, &op).await.map_err(fail).ok() });
            done.await;
            return;
        }
        let Do::Scan(from) = what else {
            if let Err(e) = Box::pin(c.shared().visit(c.verbs())).await {
                fail(e);
            }
            return;
        };
        let mut out = Scan::new();
        if let Err(e) = Box::pin(tree.scan(&Key8(from), LIMIT, &mut out)).await {
            fail(e);
            return;
        }
        let items: Vec<(u64, u64)> = out.iter().map(|(k, v)| (k.0, number_of(v))).collect();
        // All values of a key k lie between 1000 k and 1000 k + 999.
        let legal = |key: &u64, value: &u64| match value / 1000 == *key {
            true => Ok(()),
            false => Err("another key's value"),
        };
        let fault = scan::check_items(&from, None, LIMIT, &items, legal)
            .and_then(|()| scan::check_complete(&from, None, LIMIT, &items, self.always));
        c.check(fault.is_ok(), || format!("{fault:?} in {items:?}"));
    }
}
