//! Tests of valid and invalid cluster files.

use super::*;

/// A directory with different secret files. It is removed at the end of the test.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("dmkit-cluster-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let dir = Self(dir);
        dir.write("good.secret", b"53c7f0b4a1d26e98d3b05f7c8e6a9d14\n", 0o600);
        dir.write("empty.secret", b"", 0o600);
        dir.write("open.secret", b"53c7f0b4a1d26e98d3b05f7c8e6a9d14\n", 0o666);
        dir.write("long.secret", &[b'x'; 1 << 16], 0o600);
        dir
    }

    fn write(&self, name: &str, content: &[u8], mode: u32) {
        std::fs::write(self.0.join(name), content).unwrap();
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(self.0.join(name), mode).unwrap();
        }
    }

    fn read(&self, text: &[u8]) -> Result<ClusterFile, String> {
        self.write("cluster.toml", text, 0o644);
        ClusterFile::read(&self.0.join("cluster.toml"))
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_small_file_is_enough_and_a_secret_lies_beside_it() {
    let dir = Dir::new("small");
    let file = dir
        .read(b"nodes = [\"127.0.0.1:7471\"]\nsecret_file = \"good.secret\"")
        .unwrap();
    assert_eq!((file.nodes.len(), file.slower, file.gid), (1, 1, None));
    let secret = file.secret_file.unwrap();
    assert_eq!(secret, dir.0.join("good.secret"));
    let absolute = format!("nodes = [\"a:1\", \"[::1]:1\", \"b-c.d:1\", \"a:2\"]\nsecret_file = {secret:?}");
    assert_eq!(dir.read(absolute.as_bytes()).unwrap().secret_file, Some(secret));
    let full =
        b"nodes = [\"a:1\"]\ndevice = \"mlx5_0\"\nport = 2\ngid = 0\nassume = [\"lines\"]\nslower = 64\n";
    let file = dir.read(full).unwrap();
    assert_eq!((file.port, file.gid, file.slower), (Some(2), Some(0), 64));
}

#[test]
fn bad_files_are_refused_by_file_line_and_key() {
    let dir = Dir::new("bad");
    // Each entry is a file, the line and the key of its error, and words of the message.
    let table: &[(&[u8], usize, &str, &str)] = &[
        (b"", 1, "nodes", "is missing"),
        (b"device = \"mlx5_0\"", 1, "nodes", "is missing"),
        (b"nodes = []", 1, "nodes", "no memory node"),
        (b"\nnodes = \"a:1\"", 2, "nodes", "expected a sequence"),
        (b"nodes = [1]", 1, "nodes", "expected a string"),
        (
            b"nodes = [\n  \"a:1\",\n  \"10.0.0.1\",\n]",
            3,
            "nodes",
            "no port",
        ),
        (b"nodes = [\"fd00::1\"]", 1, "nodes", "no port"),
        (b"nodes = [\"fd00::1:7471x\"]", 1, "nodes", "not a port"),
        (b"nodes = [\"[fd00]:1\"]", 1, "nodes", "no IPv6 address"),
        (b"nodes = [\"a:\"]", 1, "nodes", "not a port from 1"),
        (b"nodes = [\"a:0\"]", 1, "nodes", "not a port from 1"),
        (b"nodes = [\"a:99999\"]", 1, "nodes", "not a port from 1"),
        (b"nodes = [\"a:-1\"]", 1, "nodes", "not a port from 1"),
        (b"nodes = [\"a:+1\"]", 1, "nodes", "not a port from 1"),
        (b"nodes = [\":1\"]", 1, "nodes", "is not a host"),
        (b"nodes = [\"a b:1\"]", 1, "nodes", "is not a host"),
        (
            b"nodes = [\"a:1\",\n\"a:1\"]",
            2,
            "nodes",
            "nodes 0 and 1 are the same",
        ),
        (
            b"nodes = [\"a:1\", \"A:01\"]",
            1,
            "nodes",
            "nodes 0 and 1 are the same",
        ),
        (
            b"nodes = [\"[::1]:1\", \"[0::1]:1\"]",
            1,
            "nodes",
            "nodes 0 and 1 are the same",
        ),
        (
            b"nodes = [\"a:1\"]\nsecret_file = \"none\"",
            2,
            "secret_file",
            "No such file",
        ),
        (
            b"nodes = [\"a:1\"]\nsecret_file = \"\"",
            2,
            "secret_file",
            "empty",
        ),
        (
            b"nodes = [\"a:1\"]\nsecret_file = \"empty.secret\"",
            2,
            "secret_file",
            "this one 0",
        ),
        (
            b"nodes = [\"a:1\"]\nsecret_file = \"open.secret\"",
            2,
            "secret_file",
            "0666",
        ),
        (
            b"nodes = [\"a:1\"]\nsecret_file = \"long.secret\"",
            2,
            "secret_file",
            "at most 4096 bytes",
        ),
        (
            b"nodes = [\"a:1\"]\nsecret_file = 7",
            2,
            "secret_file",
            "expected path string",
        ),
        (b"nodes = [\"a:1\"]\n\nnote = 1", 3, "note", "unknown field"),
        (
            b"nodes = [\"a:1\"]\nnodes = [\"b:1\"]",
            2,
            "nodes",
            "duplicate key",
        ),
        (b"nodes = [\"a:1\"]\nassume = [\"luck\"]", 2, "assume", "cas-read"),
        (b"nodes = [\"a:1\"]\ndevice = \"\"", 2, "device", "empty"),
        (b"nodes = [\"a:1\"]\nport = 0", 2, "port", "begin with 1"),
        (b"nodes = [\"a:1\"]\nport = 300", 2, "port", "expected u8"),
        (b"nodes = [\"a:1\"]\ngid = -1", 2, "gid", "expected u8"),
        (b"nodes = [\"a:1\"]\nslower = 0", 2, "slower", "at least 1"),
        (b"nodes = [\"a:1\"]\nslower = 1.5", 2, "slower", "expected u32"),
        (b"nodes = [\"a:1\"\nport = 1", 2, "port", ""),
    ];
    for (text, line, key, words) in table {
        let error = dir.read(text).unwrap_err();
        let place = format!("{}:{line}: {key}: ", dir.0.join("cluster.toml").display());
        let shown = String::from_utf8_lossy(text);
        assert!(error.starts_with(&place), "{shown}\n{error}");
        assert!(error.contains(words), "{shown}\n{error}");
    }
    let error = dir.read(b"nodes = [\"a:1\"]\n# \xff").unwrap_err();
    assert!(
        error.ends_with("cluster.toml:2: this line is not UTF-8"),
        "{error}"
    );
}

#[test]
fn no_message_repeats_more_than_a_short_line() {
    let dir = Dir::new("long");
    let long = |n: usize| "x".repeat(n);
    for n in [200, 500_000] {
        for text in [
            format!("nodes = [\"{}\"]", long(n)),
            format!("nodes = [\"a:{}\"]", long(n)),
            format!("nodes = [\"{}:1\", \"{}:1\"]", long(n), long(n)),
            format!("nodes = [\"a:1\"]\n{} = 1", long(n)),
            format!("nodes = [\"a:1\"]\nassume = [\"{}\"]", long(n)),
            format!("nodes = {}", long(n)),
            format!("nodes = [\"a:1\"]\nport = \"{}\"", long(n)),
            format!("nodes = [\"a:1\"]\nsecret_file = \"{}\"", long(n)),
            long(n),
        ] {
            let error = dir.read(text.as_bytes()).unwrap_err();
            assert!(
                error.len() < 1000 && error.lines().count() == 1,
                "{} bytes",
                error.len()
            );
        }
    }
    // A file of 30 MiB is refused because of its size, before it is parsed.
    let error = dir.read(long(30 << 20).as_bytes()).unwrap_err();
    assert!(
        error.ends_with("a cluster file has at most 1048576 bytes"),
        "{error}"
    );
}

#[test]
fn two_names_of_one_address_are_found_when_they_are_resolved() {
    let dir = Dir::new("twice");
    let file = dir.read(b"nodes = [\"127.0.0.1:1\", \"127.0.0.1:2\"]").unwrap();
    assert_eq!(file.addresses().unwrap().len(), 2);
    let file = dir.read(b"nodes = [\"127.0.0.1:1\", \"localhost:1\"]").unwrap();
    let error = file.addresses().unwrap_err();
    assert!(error.contains("node 0's address too"), "{error}");
}
