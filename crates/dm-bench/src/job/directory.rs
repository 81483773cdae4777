//! The directory of a run. Each row is written to disk as soon as its point ends.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::origin::Utc;
use crate::report::{Column, Row, RowError, read_json_lines, write_json_lines};

/// The name of the file of rows.
pub(super) const ROWS: &str = "rows.jsonl";
/// The name of the link to the directory of the latest run.
pub const LATEST: &str = "latest";

/// The directory of a run, and its file of rows, which only this process may write.
#[derive(Debug)]
pub(super) struct RunDirectory {
    path: PathBuf,
    rows: File,
    /// The length of the file up to the end of its last row.
    length: u64,
}

/// Adds the path of a file to an error.
fn named(path: &Path, e: &dyn fmt::Display) -> io::Error {
    io::Error::other(format!("{}: {e}", path.display()))
}

impl RunDirectory {
    /// Creates a directory in `out` that no other run has, and checks that it can be written.
    ///
    /// # Errors
    /// Returns an error that names the path if the directory or the file cannot be created, locked or written.
    pub(super) fn create(out: &Path, name: &str) -> io::Result<Self> {
        let mut run = Self::locked(new_directory(out, name)?, true)?;
        // A full disk may still accept a new file but no data, so write a byte to find out.
        let written = run.rows.write_all(b"\n").and_then(|()| run.rows.set_len(0));
        written.map_err(|e| named(&run.path.join(ROWS), &e))?;
        run.link(out);
        Ok(run)
    }

    /// Opens the directory of an earlier run, and returns its rows. If the process was killed while it wrote the last
    /// line, that line is dropped.
    ///
    /// # Errors
    /// Returns an error that names the path if the file cannot be opened, locked, read or shortened, or holds an
    /// invalid row.
    pub(super) fn resume(out: &Path, which: &str) -> io::Result<(Self, Vec<Row>)> {
        let path = out.join(which);
        // Resolve the link now, because it may point to another run later.
        let path = path.canonicalize().map_err(|e| named(&path, &e))?;
        let mut run = Self::locked(path, false)?;
        let file = run.path.join(ROWS);
        let mut bytes = fs::read(&file).map_err(|e| named(&file, &e))?;
        bytes.truncate(
            bytes
                .iter()
                .rposition(|byte| *byte == b'\n')
                .map_or(0, |end| end + 1),
        );
        run.length = bytes.len() as u64;
        run.rows.set_len(run.length).map_err(|e| named(&file, &e))?;
        let earlier = read_json_lines(bytes.as_slice()).map_err(|e| named(&file, &e))?;
        Ok((run, earlier))
    }

    /// Opens the file of rows, and locks it against other processes.
    fn locked(path: PathBuf, new: bool) -> io::Result<Self> {
        let file = path.join(ROWS);
        let rows = OpenOptions::new().append(true).create_new(new).open(&file);
        let rows = rows.map_err(|e| named(&file, &e))?;
        let locked = rows.try_lock();
        locked.map_err(|e| {
            named(
                &path,
                &format_args!("another dmkit writes to this directory ({e})"),
            )
        })?;
        Ok(Self {
            path,
            rows,
            length: 0,
        })
    }

    /// Makes this run the latest run.
    fn link(&self, out: &Path) {
        let Some(name) = self.path.file_name() else {
            return;
        };
        // The rename replaces the link in one step. If two runs begin together, the link names one of them.
        let new = out.join(format!(".{LATEST}-{}", std::process::id()));
        let linked = std::os::unix::fs::symlink(name, &new).and_then(|()| fs::rename(&new, out.join(LATEST)));
        if let Err(e) = linked {
            let _ = fs::remove_file(&new);
            // The run does not need the link: without it, --resume must name the directory.
            let _unheard = writeln!(io::stderr(), "{}: {e}", out.join(LATEST).display());
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Adds a row. If this fails, removes what was written of the row, as far as the system allows it.
    ///
    /// # Errors
    /// Returns an error that names the file and the row if the row cannot be written.
    pub(super) fn append(&mut self, row: &Row) -> io::Result<()> {
        let mut line = Vec::new();
        let written = write_json_lines(std::slice::from_ref(row), &mut line)
            .and_then(|()| self.rows.write_all(&line).map_err(RowError::from));
        match written {
            Ok(()) => {
                self.length += line.len() as u64;
                Ok(())
            }
            Err(e) => {
                // If this fails too, a later run drops the incomplete line.
                let _ = self.rows.set_len(self.length);
                let why = format!(
                    "the row of {} could not be written: {e}; make room, then --resume runs what is missing",
                    row.name()
                );
                Err(named(&self.path.join(ROWS), &why))
            }
        }
    }
}

/// Creates a directory in `out` whose name begins with the time.
pub(super) fn new_directory(out: &Path, name: &str) -> io::Result<PathBuf> {
    fs::create_dir_all(out).map_err(|e| named(out, &e))?;
    let stem = format!("{}-{name}", Utc::now().compact());
    for number in 1_u32.. {
        let path = match number {
            1 => out.join(&stem),
            _ => out.join(format!("{stem}-{number}")),
        };
        match fs::create_dir(&path) {
            Ok(()) => return Ok(path),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(named(&path, &e)),
        }
    }
    Err(named(out, &"it has a directory of every name"))
}

/// Assigns each row of an earlier run to its planned point.
///
/// # Errors
/// Returns a message about the first row that belongs to no point.
pub(super) fn assign(earlier: Vec<Row>, planned: &[Row]) -> Result<Vec<Option<Row>>, String> {
    let mut rows = vec![None; planned.len()];
    for (at, row) in earlier.into_iter().enumerate() {
        let same = |planned: &Row| row.difference(planned, Column::identifies).is_none();
        if let Some(point) = planned.iter().position(same) {
            rows[point] = Some(row);
            continue;
        }
        let difference = row.nearest_difference(planned.iter(), Column::identifies);
        return Err(format!(
            "row {} ({}) belongs to no point of this run{}; --resume needs the parameters of the earlier run",
            at + 1,
            row.name(),
            difference.map_or_else(String::new, |d| {
                let [was, is] = d.values;
                format!(": `{}` was {was} and is {is}", d.column)
            })
        ));
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::samples;

    fn out(name: &str) -> PathBuf {
        let out = std::env::temp_dir().join(format!("dmkit-directory-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&out);
        out
    }

    #[test]
    fn two_runs_have_two_directories_and_the_link_leads_to_the_later_one() {
        let out = out("two");
        let runs = [(); 2].map(|()| RunDirectory::create(&out, "bench").unwrap());
        assert_ne!(runs[0].path, runs[1].path);
        let latest = out.join(LATEST).canonicalize().unwrap();
        assert_eq!(latest, runs[1].path.canonicalize().unwrap());
        let name = runs[0].path.file_name().unwrap().to_str().unwrap();
        assert!(name.ends_with("-bench") && name.as_bytes()[8] == b'T', "{name}");
        // If another process still writes a run, the run cannot be resumed.
        let refused = RunDirectory::resume(&out, LATEST).unwrap_err().to_string();
        assert!(refused.contains("another dmkit writes"), "{refused}");
        fs::remove_dir_all(&out).unwrap();
    }

    #[test]
    fn rows_are_on_disk_at_once_and_half_a_line_is_dropped() {
        let (out, rows) = (out("half"), samples::samples());
        let mut run = RunDirectory::create(&out, "bench").unwrap();
        let file = run.path.join(ROWS);
        for row in &rows[..2] {
            run.append(row).unwrap();
        }
        let whole = fs::read(&file).unwrap();
        assert_eq!(whole.iter().filter(|byte| **byte == b'\n').count(), 2);
        drop(run);
        // The process was killed in the middle of a line.
        fs::write(&file, [&whole[..], &whole[..100]].concat()).unwrap();
        let (mut run, earlier) = RunDirectory::resume(&out, LATEST).unwrap();
        assert!(earlier == rows[..2]);
        run.append(&rows[2]).unwrap();
        drop(run);
        assert!(RunDirectory::resume(&out, LATEST).unwrap().1 == rows[..3]);
        fs::remove_dir_all(&out).unwrap();
    }

    #[test]
    fn a_place_that_cannot_be_written_is_named_before_the_run() {
        let file = out("file");
        fs::write(&file, "").unwrap();
        let refused = RunDirectory::create(&file.join("in a file"), "bench").unwrap_err();
        assert!(refused.to_string().contains("in a file"), "{refused}");
        fs::remove_file(&file).unwrap();
        let missing = RunDirectory::resume(Path::new("/no/such"), "latest").unwrap_err();
        assert!(missing.to_string().starts_with("/no/such/latest: "), "{missing}");
    }

    #[test]
    fn rows_of_other_parameters_are_not_continued() {
        let planned = samples::samples();
        let done = assign(planned[3..5].to_vec(), &planned).unwrap();
        assert_eq!(done.iter().filter(|row| row.is_some()).count(), 2);
        assert!(done[3].is_some() && done[4].is_some());
        let mut other = planned[3].clone();
        other.cache_limit_bytes = 7;
        let refused = assign(vec![planned[2].clone(), other], &planned).unwrap_err();
        assert!(
            refused.starts_with(
                "row 2 (sherman, c, 128 clients, cache 0.000007 MB, seed 7) belongs to no point"
            ) && refused.contains("`cache_limit_bytes` was 7 and is 0"),
            "{refused}"
        );
    }
}
