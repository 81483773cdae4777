//! Tests of a pool in a file: several processes, and files that are not pools.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use dm_loopback::{BuildError, Loopback, block_on};
use dm_verbs::{Control, ControlReply, ControlRequest, Env, NodeId, RemotePtr, VerbErrorKind, Verbs};

const ROLE: &str = "DM_LOOPBACK_TEST_ROLE";
const FILE: &str = "DM_LOOPBACK_TEST_FILE";

struct TempPath(PathBuf);

impl TempPath {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("dm-loopback-{name}-{}", std::process::id())))
    }
}

impl Drop for TempPath {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn at(offset: u64) -> RemotePtr {
    RemotePtr::new(NodeId(1), offset).expect("48 bits")
}

fn child(role: &str, path: &Path) -> Child {
    Command::new(std::env::current_exe().expect("this test's binary"))
        .args(["--exact", "pool_file::child_process"])
        .env(ROLE, role)
        .env(FILE, path)
        .stdout(Stdio::null())
        .spawn()
        .expect("a second process")
}

/// The second process of the tests below runs this. It is not a test of its own.
#[test]
fn child_process() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let world = Loopback::open(std::env::var(FILE).expect("set with the role")).expect("the parent's pool");
    match role.as_str() {
        "add" => add(&world),
        "be fenced" => be_fenced(&world),
        "leave without a word" => {
            let v = world.connect(2).expect("an id");
            block_on(v.write(at(4096), &v.client().0.to_le_bytes())).expect("no faults");
            std::process::exit(0);
        }
        other => panic!("unknown role {other}"),
    }
}

const ROUNDS: u64 = 5_000;

fn add(world: &Loopback) {
    let v = world.connect(0).expect("an id");
    block_on(async {
        for round in 0..ROUNDS {
            v.faa(at(4096), 1).await.expect("no faults");
            v.write(at(8192), &[round as u8; 128]).await.expect("no faults");
            let lease = v.read(at(8192), 128).await.expect("no faults");
            assert!(
                lease.chunks(64).all(|line| line.iter().all(|b| *b == line[0])),
                "torn: {lease:?}"
            );
        }
        for _ in 0..4 {
            let chunk = v.chunk(NodeId(0), 4096).await.expect("room");
            assert_eq!(
                v.faa(chunk, 1).await,
                Ok(0),
                "chunks of two processes overlap at {chunk}"
            );
        }
    });
}

/// Writes its client's id into the pool, and then adds to a counter until it gets the error that the client was fenced.
fn be_fenced(world: &Loopback) {
    let v = world.connect(0).expect("an id");
    block_on(async {
        v.write(at(4104), &u64::from(v.client().0).to_le_bytes())
            .await
            .expect("not fenced yet");
        let error = loop {
            if let Err(error) = v.faa(at(4096), 1).await {
                break error;
            }
        };
        assert_eq!(error.kind, VerbErrorKind::Fenced);
    });
}

#[test]
fn two_processes_open_one_pool() {
    let path = TempPath::new("shared");
    let world = Loopback::builder()
        .nodes(3)
        .host_bytes(1 << 20)
        .file(&path.0)
        .build()
        .expect("a new file");
    let mut other = child("add", &path.0);
    add(&world);
    assert!(other.wait().expect("a child to wait for").success());
    drop(world);
    // The pool still exists after its worlds were dropped.
    let world = Loopback::open(&path.0).expect("still a pool");
    assert_eq!(world.memory_nodes(), 3);
    assert_eq!(world.caps(NodeId(2)).host_bytes, 1 << 20);
    let v = world.connect(0).expect("an id");
    assert_eq!(block_on(v.word(at(4096))), Ok(2 * ROUNDS));
    let described = block_on(v.call(ControlRequest::Describe { node: NodeId(0) }));
    assert_eq!(
        described,
        Ok(ControlReply::Region(dm_verbs::Region {
            bytes: 1 << 20,
            used: 9 * 4096
        }))
    );
}

#[test]
fn a_client_of_another_process_is_fenced() {
    let path = TempPath::new("fence");
    let world = Loopback::builder()
        .host_bytes(1 << 20)
        .file(&path.0)
        .build()
        .expect("a new file");
    let v = world.connect(0).expect("an id");
    let mut other = child("be fenced", &path.0);
    let victim = loop {
        match block_on(v.word(at(4104))).expect("no faults") {
            0 => std::thread::yield_now(),
            id => break dm_verbs::ClientId(id as u16),
        }
    };
    assert_eq!(
        block_on(v.call(ControlRequest::Fence { client: victim })),
        Ok(ControlReply::Done)
    );
    let after = block_on(v.word(at(4096))).expect("no faults");
    assert!(other.wait().expect("a child to wait for").success());
    assert_eq!(block_on(v.word(at(4096))), Ok(after));
}

#[test]
fn a_dead_process_s_clients_can_be_fenced() {
    let path = TempPath::new("dead");
    let world = Loopback::builder()
        .host_bytes(1 << 20)
        .file(&path.0)
        .build()
        .expect("a new file");
    let v = world.connect(0).expect("an id");
    assert!(
        child("leave without a word", &path.0)
            .wait()
            .expect("a child to wait for")
            .success()
    );
    let id = block_on(v.word(at(4096))).expect("no faults");
    assert_ne!(id, u64::from(v.client().0));
    let dead = dm_verbs::ClientId(id as u16);
    assert!(
        world.connect_as(0, dead).is_err(),
        "nobody else may use its id before"
    );
    assert_eq!(
        block_on(v.call(ControlRequest::Fence { client: dead })),
        Ok(ControlReply::Done)
    );
}

#[test]
fn files_that_are_not_pools_are_refused_with_a_reason() {
    let path = TempPath::new("refused");
    let open = || Loopback::open(&path.0).expect_err("no pool");
    assert!(matches!(
        open(),
        BuildError::Io {
            kind: std::io::ErrorKind::NotFound,
            ..
        }
    ));

    std::fs::write(&path.0, b"SQLite format 3\0").expect("a small file");
    let format = u64::from_le_bytes(*b"SQLite f");
    assert_eq!(
        open(),
        BuildError::NotAPool {
            path: path.0.clone(),
            format
        }
    );
    std::fs::write(&path.0, b"").expect("a small file");
    assert_eq!(
        open(),
        BuildError::NotAPool {
            path: path.0.clone(),
            format: 0
        }
    );

    // An existing file is never overwritten.
    let built = Loopback::builder().file(&path.0).build();
    assert!(matches!(
        built,
        Err(BuildError::Io {
            kind: std::io::ErrorKind::AlreadyExists,
            ..
        })
    ));
    std::fs::remove_file(&path.0).expect("made above");

    drop(
        Loopback::builder()
            .host_bytes(1 << 16)
            .file(&path.0)
            .build()
            .expect("a new file"),
    );
    let patch = |offset: u64, word: u64| {
        use std::os::unix::fs::FileExt;
        let file = std::fs::File::options()
            .write(true)
            .open(&path.0)
            .expect("the pool");
        file.write_all_at(&word.to_le_bytes(), offset)
            .expect("in the header");
    };
    let refused_with = |offset: u64, word: u64, right: u64| {
        patch(offset, word);
        let error = open();
        patch(offset, right);
        error
    };
    let version = refused_with(8, 77, 1);
    assert_eq!(
        version,
        BuildError::OtherVersion {
            path: path.0.clone(),
            found: 77,
            known: 1
        }
    );
    assert!(version.to_string().contains("version 77"), "{version}");
    for (offset, word, right) in [(16, 0, 2), (16, 1 << 20, 2), (24, u64::MAX, 1 << 16), (40, 9, 0)] {
        let error = refused_with(offset, word, right);
        assert!(
            matches!(error, BuildError::Corrupt { .. }),
            "{error} for {word} at {offset}"
        );
    }
    assert!(matches!(
        refused_with(24, 1 << 40, 1 << 16),
        BuildError::Corrupt {
            reason: "the file was cut short",
            ..
        }
    ));
    assert!(Loopback::open(&path.0).is_ok(), "mended");
}

#[test]
fn impossible_worlds_are_refused() {
    let error = Loopback::builder().nodes(0).build().expect_err("no nodes");
    assert_eq!(error, BuildError::BadNodeCount { nodes: 0 });
    assert!(matches!(
        Loopback::builder().host_bytes(4096).build(),
        Err(BuildError::BadSize { .. })
    ));
    assert!(matches!(
        Loopback::builder().host_bytes(u64::MAX).build(),
        Err(BuildError::BadSize { .. })
    ));
}
