//! Writes an initial file system for the kernel: a cpio archive in the "new" portable format.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

/// Files by their absolute path. Parent directories are added automatically.
#[derive(Debug, Default)]
pub(super) struct Archive {
    bytes: Vec<u8>,
    known: BTreeSet<PathBuf>,
}

const DIRECTORY: u32 = 0o040_755;
const FILE: u32 = 0o100_644;
const PROGRAM: u32 = 0o100_755;
const LINK: u32 = 0o120_777;

impl Archive {
    /// Adds a directory and its parents.
    pub(super) fn dir(&mut self, path: &Path) {
        let mut above: Vec<_> = path.ancestors().filter(|dir| dir.parent().is_some()).collect();
        above.reverse();
        for dir in above {
            self.entry(dir, DIRECTORY, &[]);
        }
    }

    /// Adds a file. If a path is added twice, the first file counts.
    pub(super) fn file(&mut self, path: &Path, content: &[u8], program: bool) {
        self.above(path);
        self.entry(path, if program { PROGRAM } else { FILE }, content);
    }

    /// Adds a symbolic link.
    pub(super) fn link(&mut self, path: &Path, to: &str) {
        self.above(path);
        self.entry(path, LINK, to.as_bytes());
    }

    /// Returns the archive's bytes.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.header("TRAILER!!!", 0, 0);
        self.bytes
    }

    fn above(&mut self, path: &Path) {
        if let Some(parent) = path.parent() {
            self.dir(parent);
        }
    }

    fn entry(&mut self, path: &Path, mode: u32, content: &[u8]) {
        if !self.known.insert(path.to_path_buf()) {
            return;
        }
        let name = path.to_string_lossy();
        self.header(name.trim_start_matches('/'), mode, content.len());
        self.bytes.extend_from_slice(content);
        self.align();
    }

    fn header(&mut self, name: &str, mode: u32, size: usize) {
        let inode = self.known.len();
        let name_size = name.len() + 1;
        // inode, mode, user, group, links, time, size, device (2), special device (2), name's size, check
        let fields = [inode, mode as usize, 0, 0, 1, 0, size, 0, 0, 0, 0, name_size, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08X}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.align();
    }

    fn align(&mut self) {
        let padded = self.bytes.len().next_multiple_of(4);
        self.bytes.resize(padded, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_aligned_and_parents_come_first_and_once() {
        let mut archive = Archive::default();
        archive.file(Path::new("/a/b/one"), b"12345", true);
        archive.file(Path::new("/a/b/two"), b"", false);
        archive.file(Path::new("/a/b/one"), b"other", false);
        archive.link(Path::new("/a/three"), "b/one");
        let bytes = archive.finish();
        let mut rest = &bytes[..];
        let mut names = Vec::new();
        while !rest.is_empty() {
            let field = |i: usize| {
                let digits = std::str::from_utf8(&rest[6 + 8 * i..14 + 8 * i]).unwrap();
                usize::from_str_radix(digits, 16).unwrap()
            };
            assert_eq!(&rest[..6], b"070701");
            let (size, name_size) = (field(6), field(11));
            let name = String::from_utf8(rest[110..110 + name_size - 1].to_vec()).unwrap();
            let body = (110 + name_size).next_multiple_of(4);
            names.push((name, rest[body..body + size].to_vec()));
            rest = &rest[(body + size).next_multiple_of(4)..];
        }
        let names: Vec<_> = names
            .iter()
            .map(|(name, content)| (name.as_str(), content.as_slice()))
            .collect();
        assert_eq!(
            names,
            [
                ("a", &b""[..]),
                ("a/b", b""),
                ("a/b/one", b"12345"),
                ("a/b/two", b""),
                ("a/three", b"b/one"),
                ("TRAILER!!!", b""),
            ]
        );
    }
}
