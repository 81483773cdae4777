//! Runs test programs until one notices the mutant.

use super::{outcomes::Outcome, switch};
use crate::Result;
use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::mpsc,
    time::{Duration, Instant, UNIX_EPOCH},
};

/// A test program.
#[derive(Debug)]
pub(crate) struct Program {
    /// The executable file.
    pub(crate) executable: PathBuf,
    /// The working directory: the directory of the program's crate.
    pub(crate) dir: PathBuf,
    /// Run only tests whose names contain one of these; empty for all tests.
    pub(crate) filter: &'static [&'static str],
    /// The full names of tests that are left out.
    pub(crate) skip: &'static [&'static str],
}

/// The time limit of a program whose time without a mutant is not known.
const UNKNOWN: Duration = Duration::from_secs(120);

/// Returns the time at which the newest of the programs was built, in milliseconds since 1970; 0 if it is not known.
pub(crate) fn stamp(programs: &[Program]) -> u128 {
    let built = |p: &Program| p.executable.metadata().and_then(|data| data.modified()).ok();
    let newest = programs.iter().filter_map(built).max();
    newest
        .and_then(|at| at.duration_since(UNIX_EPOCH).ok())
        .map_or(0, |since| since.as_millis())
}

/// Runs every program without a mutant. Returns the time limit of each program with a mutant: three times its time plus
/// 10 seconds. The measured time is wall time, and the limit applies to CPU time (a run may take three times as much
/// wall time), so a slow run on a busy machine rarely counts as a hang.
pub(crate) fn baseline(programs: &[Program]) -> Result<BTreeMap<usize, Duration>> {
    let mut limits = BTreeMap::new();
    let mut tests = 0;
    for (at, program) in programs.iter().enumerate() {
        let start = Instant::now();
        let ran = program.run(program.filter, 0, Duration::from_secs(3600))?;
        if ran.outcome != Outcome::Survived {
            return Err(format!(
                "without a mutant: {} {}",
                program.executable.display(),
                ran.outcome
            )
            .into());
        }
        tests += ran.tests;
        limits.insert(at, start.elapsed() * 3 + Duration::from_secs(10));
    }
    if tests == 0 {
        return Err("the programs contain no test that matches the filter".into());
    }
    let usual: Duration = limits
        .values()
        .map(|limit| (*limit - Duration::from_secs(10)) / 3)
        .sum();
    eprintln!(
        "== {tests} tests in {:.1} s without a mutant",
        usual.as_secs_f64()
    );
    Ok(limits)
}

/// The tests that noticed the last mutants, the latest first, each with the number of its program. They are tried
/// first, because the same test often notices neighbouring mutants.
#[derive(Debug, Default)]
pub(crate) struct Likely(Vec<(usize, String)>);

impl Likely {
    fn of(&self, program: usize) -> Vec<&str> {
        let own = self.0.iter().filter(|(at, _)| *at == program);
        own.map(|(_, test)| test.as_str()).collect()
    }

    fn remember(&mut self, program: usize, test: &str) {
        self.0
            .retain(|(at, known)| (*at, known.as_str()) != (program, test));
        self.0.insert(0, (program, test.to_owned()));
        self.0.truncate(6);
    }
}

/// Runs the programs until one of them notices the mutant.
pub(crate) fn first_kill(
    programs: &[Program],
    id: usize,
    limits: &BTreeMap<usize, Duration>,
    likely: &mut Likely,
) -> Result<Outcome> {
    for likely_ones in [true, false] {
        for (at, program) in programs.iter().enumerate() {
            // A program with a filter has few tests, so their order does not matter.
            let known = if program.filter.is_empty() {
                likely.of(at)
            } else {
                Vec::new()
            };
            let mut args: Vec<&str> = program.filter.to_vec();
            match (likely_ones, known.is_empty()) {
                (true, true) => continue,
                (true, false) => args.extend(["--exact"].into_iter().chain(known)),
                (false, true) => {}
                (false, false) => {
                    args.extend(
                        ["--exact"]
                            .into_iter()
                            .chain(known.into_iter().flat_map(|t| ["--skip", t])),
                    );
                }
            }
            let ran = program.run(&args, id, *limits.get(&at).unwrap_or(&UNKNOWN))?;
            if ran.outcome != Outcome::Survived {
                if let (Outcome::Killed(test), true) = (&ran.outcome, ran.by_test) {
                    likely.remember(at, test);
                }
                return Ok(ran.outcome);
            }
        }
    }
    Ok(Outcome::Survived)
}

struct Ran {
    outcome: Outcome,
    /// Whether a single test failed, and not the whole program.
    by_test: bool,
    tests: usize,
}

impl Program {
    /// Runs the program until it ends, a test fails, or the limit is reached.
    fn run(&self, args: &[&str], id: usize, limit: Duration) -> Result<Ran> {
        let mut child = self.start(args, id, limit)?;
        let stdout = child.stdout.take().ok_or("the child has no output")?;
        let (tell, told) = mpsc::channel();
        // The thread ends with the child, whose output it reads.
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(std::result::Result::ok) {
                if tell.send(line).is_err() {
                    break;
                }
            }
        });
        // On a busy machine, the wall time is longer than the child's CPU time.
        let until = Instant::now() + limit * 3;
        let mut ran = Ran {
            outcome: Outcome::Survived,
            by_test: false,
            tests: 0,
        };
        let mut last = self.name();
        loop {
            match told.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    if let Some(test) = failed(&line) {
                        end(&mut child)?;
                        ran.outcome = Outcome::Killed(test.to_owned());
                        ran.by_test = true;
                        return Ok(ran);
                    }
                    ran.tests += running(&line).unwrap_or(0);
                    if line.ends_with("... ok") {
                        last = format!("{}, after {line}", self.name());
                    }
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    end(&mut child)?;
                    ran.outcome = Outcome::Hung(last);
                    return Ok(ran);
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
            }
        }
        let status = child.wait()?;
        if !status.success() {
            ran.outcome = if out_of_time(status) {
                Outcome::Hung(last)
            } else {
                Outcome::Killed(format!("{} ({status})", self.name()))
            };
        }
        Ok(ran)
    }

    fn start(&self, args: &[&str], id: usize, limit: Duration) -> Result<Child> {
        // The shell sets the limits of CPU time and memory, and then executes the program.
        let script = format!("ulimit -t {} -v 16000000; exec \"$@\"", limit.as_secs());
        Ok(Command::new("bash")
            .args(["-c", &script, "limited"])
            .arg(&self.executable)
            .args(args)
            .args(self.skip.iter().flat_map(|part| ["--skip", part]))
            .current_dir(&self.dir)
            .env(switch::VARIABLE, id.to_string())
            // Shrinking or storing a failure would only take time.
            .env("PROPTEST_MAX_SHRINK_ITERS", "0")
            .env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "1")
            .env("RUST_BACKTRACE", "0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?)
    }

    fn name(&self) -> String {
        let stem = self.executable.file_stem().unwrap_or_default().to_string_lossy();
        stem.rsplit_once('-')
            .map_or(stem.as_ref(), |(name, _)| name)
            .to_owned()
    }
}

fn end(child: &mut Child) -> Result<()> {
    child.kill()?;
    child.wait()?;
    Ok(())
}

/// Returns whether the program was killed at its CPU time limit.
fn out_of_time(status: std::process::ExitStatus) -> bool {
    use std::os::unix::process::ExitStatusExt;
    // SIGXCPU, or SIGKILL if the hard limit is reached first.
    matches!(status.signal(), Some(24 | 9))
}

/// Returns the test that failed according to this line.
fn failed(line: &str) -> Option<&str> {
    line.strip_prefix("test ")?.strip_suffix(" ... FAILED")
}

/// Returns the number of tests that this line announces, if it announces one.
fn running(line: &str) -> Option<usize> {
    let rest = line.strip_prefix("running ")?;
    rest.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a program from a shell script that prints what a test program prints.
    fn script(name: &str, text: &str) -> Program {
        use std::os::unix::fs::PermissionsExt;
        let dir = std::env::temp_dir().join(format!("xtask-mutants-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let executable = dir.join(name);
        std::fs::write(&executable, format!("#!/bin/bash\n{text}\n")).unwrap();
        std::fs::set_permissions(&executable, std::fs::Permissions::from_mode(0o755)).unwrap();
        Program {
            executable,
            dir,
            filter: &[],
            skip: &[],
        }
    }

    const TESTS: &str = "echo running 2 tests; echo test a ... ok";

    #[test]
    fn the_first_failed_test_ends_the_run() {
        let text = format!(
            "{TESTS}; [ $DMKIT_MUTANT = 3 ] && {{ echo test b ... FAILED; while :; do :; done; }}; exit 0"
        );
        let programs = [script("fails", &text)];
        let limits = baseline(&programs).unwrap();
        let mut likely = Likely::default();
        assert_eq!(
            first_kill(&programs, 3, &limits, &mut likely).unwrap(),
            Outcome::Killed("b".to_owned())
        );
        assert_eq!(
            first_kill(&programs, 4, &limits, &mut likely).unwrap(),
            Outcome::Survived
        );
    }

    #[test]
    fn a_program_that_ends_badly_or_never_is_noticed() {
        let ends_badly = script("ends-badly", &format!("{TESTS}; exit 101"));
        assert!(matches!(
            ends_badly.run(&[], 1, UNKNOWN).unwrap().outcome,
            Outcome::Killed(_)
        ));
        let never = script("never", &format!("{TESTS}; while :; do :; done"));
        let outcome = never.run(&[], 1, Duration::from_secs(1)).unwrap().outcome;
        assert_eq!(outcome, Outcome::Hung("never, after test a ... ok".to_owned()));
    }

    #[test]
    fn tests_that_fail_without_a_mutant_or_are_not_there_prove_nothing() {
        assert!(
            baseline(&[script(
                "broken",
                "echo running 1 tests; echo test a ... FAILED; exit 101"
            )])
            .is_err()
        );
        assert!(baseline(&[script("empty", "echo running 0 tests")]).is_err());
    }
}
