//! Tests a tree in a pool file. A second process opens the file, reads the tree, and writes while this process writes
//! too.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::common::Tree;
use dm_index::{Applied, RangeIndex};
use dm_loopback::{Loopback, block_on};
use dm_testkit::{IndexUnderTest, Model, Op, TestKey, apply, check_all, connect};
use sherman::{Key8, NodeSize, OpenError, Options, Sherman};

const FILE: &str = "SHERMAN_TEST_POOL";

/// Number of keys of each process. The parent's keys are even, the child's are odd.
const KEYS: u64 = 5_000;
/// Number of keys that are written before the other process starts.
const BEFORE: u64 = 1_000;

struct TempPath(PathBuf);

impl Drop for TempPath {
    fn drop(&mut self) {
        // The file does not exist if the test failed to create it.
        let _ = std::fs::remove_file(&self.0);
    }
}

fn options() -> Options {
    Options {
        node: NodeSize::Bytes(256),
        chunk_bytes: 1 << 20,
        ..Options::new(16)
    }
}

async fn fill<I: RangeIndex<Key = Key8>>(
    client: &I,
    model: &mut Model<Key8>,
    numbers: impl Iterator<Item = u64>,
) {
    for n in numbers {
        for op in [
            Op::Insert(Key8::nth(n), n),
            Op::Get(Key8::nth(n)),
            Op::Update(Key8::nth(n), n + 1),
        ] {
            apply(client, model, &op)
                .await
                .expect("nobody else writes these keys");
        }
    }
}

fn model(numbers: impl Iterator<Item = u64>) -> Model<Key8> {
    let mut model = Model::new(16);
    for n in numbers {
        assert_eq!(
            model.write(&Op::Insert(Key8::nth(n), n + 1)),
            Some(Applied::Inserted)
        );
    }
    model
}

/// This is not a separate test: the second process runs it when the test below starts that process.
#[test]
fn child_process() {
    let Ok(path) = std::env::var(FILE) else { return };
    let world = Loopback::open(&path).expect("the parent's pool");
    // The pool gives this client an id that the parent does not have.
    let v = connect(&world, 1);
    block_on(async {
        let tree = Sherman::<Key8>::open(&v, &options())
            .await
            .expect("the parent's tree");
        let client = tree.client(&v);
        let mut value = Vec::new();
        for n in 0..BEFORE {
            assert_eq!(client.get(&Key8::nth(2 * n), &mut value).await, Ok(true));
            assert_eq!(value, dm_testkit::value_of(2 * n + 1, 16));
        }
        fill(&client, &mut Model::new(16), (0..KEYS).map(|n| 2 * n + 1)).await;
    });
}

fn start(path: &Path) -> std::process::Child {
    Command::new(std::env::current_exe().expect("this test's binary"))
        .args(["--exact", "processes::child_process"])
        .env(FILE, path)
        .stdout(Stdio::null())
        .spawn()
        .expect("a second process")
}

#[test]
fn two_processes_share_a_tree() {
    let path = TempPath(std::env::temp_dir().join(format!("sherman-processes-{}", std::process::id())));
    let world = Loopback::builder()
        .nodes(2)
        .host_bytes(64 << 20)
        .file(&path.0)
        .build()
        .expect("a new file");
    let v = connect(&world, 0);
    block_on(async {
        let missing = Sherman::<Key8>::open(&v, &options()).await;
        assert!(
            matches!(missing, Err(OpenError::Pool(_))),
            "nobody has created it yet"
        );
        let tree = Tree::<Key8>::new(options())
            .open(&v)
            .await
            .expect("an empty pool");
        let client = tree.client(&v);
        fill(&client, &mut Model::new(16), (0..BEFORE).map(|n| 2 * n)).await;
        let mut child = start(&path.0);
        fill(&client, &mut Model::new(16), (BEFORE..KEYS).map(|n| 2 * n)).await;
        let status = child.wait().expect("the child's end");
        assert!(status.success(), "the child found something wrong: {status}");
        check_all(&client, &model(0..2 * KEYS))
            .await
            .expect("both processes' keys");
    });
    // The last check runs after all clients have ended.
    drop((v, world));
    let world = Loopback::open(&path.0).expect("the pool file");
    let v = connect(&world, 0);
    block_on(async {
        let tree = Sherman::<Key8>::open(&v, &options()).await.expect("the tree");
        check_all(&tree.client(&v), &model(0..2 * KEYS))
            .await
            .expect("both processes' keys");
    });
}
