//! Reads callgrind's output: instructions by function and source file, and the calls between functions.
//!
//! The format is described in Valgrind's manual, "Callgrind Format Specification": `fl=`/`fi=`/`fe=` name the source
//! file (the latter two while inlined code runs), `fn=` names the function, and a line of numbers has a position and a
//! cost. `calls=` announces that the next line has the cost of a call to `cfn=`, including its callees. A name is
//! written once, and is then replaced by a number in brackets. A position may be relative to the previous line.

use crate::Result;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Code of one function that came from one source file. Inlined code keeps the file in which it was written. Before
/// [`Profile::place`], a site of the measured program is one instruction of such code.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Site {
    /// The demangled name of the function in the symbol table.
    pub(super) function: String,
    /// The source file, or "???".
    pub(super) file: String,
    /// The name of the function in that file, after [`Profile::place`]; empty if it is not known.
    pub(super) within: String,
    /// The address of the instruction in the measured program, as in its symbol table; 0 for other programs.
    pub(super) address: u64,
}

/// A function of a source file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    pub(super) file: String,
    pub(super) function: String,
}

/// The counts of one run, or the difference of two runs, which may be negative.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Profile {
    /// Instructions of each site itself, without callees.
    pub(super) own: BTreeMap<Site, i64>,
    /// Instructions of each call from a site to a function, including its callees.
    pub(super) calls: BTreeMap<(Site, String), i64>,
    /// The file in which each function itself was written.
    pub(super) homes: BTreeMap<String, String>,
}

impl Profile {
    /// Reads one callgrind output file. Addresses are kept for the object file named `program`.
    pub(super) fn parse(text: &str, program: &str) -> Result<Self> {
        let mut reader = Reader {
            program: program.to_owned(),
            ..Reader::default()
        };
        for (index, line) in text.lines().enumerate() {
            reader
                .line(line)
                .map_err(|error| format!("callgrind output, line {}: {error}", index + 1))?;
        }
        reader.check()?;
        Ok(reader.profile)
    }

    /// Returns the sum of all sites.
    pub(super) fn total(&self) -> i64 {
        self.own.values().sum()
    }

    /// Returns the counts of `self` minus those of `less`.
    pub(super) fn minus(&self, less: &Self) -> Self {
        Self {
            own: difference(&self.own, &less.own),
            calls: difference(&self.calls, &less.calls),
            homes: self.homes.clone(),
        }
    }

    /// Returns every address with a count or a call.
    pub(super) fn addresses(&self) -> BTreeSet<u64> {
        let sites = self.own.keys().chain(self.calls.keys().map(|(site, _)| site));
        sites
            .map(|site| site.address)
            .filter(|address| *address != 0)
            .collect()
    }

    /// Assigns each address to the function that `origins` names for it, if there is one, and drops the addresses.
    pub(super) fn place(&self, origins: &BTreeMap<u64, Origin>) -> Self {
        let place = |site: &Site| {
            let origin = origins.get(&site.address);
            Site {
                function: site.function.clone(),
                file: origin.map_or(&site.file, |origin| &origin.file).clone(),
                within: origin.map_or_else(String::new, |origin| origin.function.clone()),
                address: 0,
            }
        };
        let mut placed = Self {
            homes: self.homes.clone(),
            ..Self::default()
        };
        for (site, count) in &self.own {
            *placed.own.entry(place(site)).or_default() += count;
        }
        for ((site, callee), count) in &self.calls {
            *placed.calls.entry((place(site), callee.clone())).or_default() += count;
        }
        placed
    }
}

fn difference<K: Ord + Clone>(more: &BTreeMap<K, i64>, less: &BTreeMap<K, i64>) -> BTreeMap<K, i64> {
    let mut result = more.clone();
    for (key, count) in less {
        *result.entry(key.clone()).or_default() -= count;
    }
    result.retain(|_, count| *count != 0);
    result
}

#[derive(Debug, Default)]
struct Reader {
    profile: Profile,
    files: HashMap<String, String>,
    functions: HashMap<String, String>,
    objects: HashMap<String, String>,
    /// The file name of the measured program.
    program: String,
    object: String,
    function: String,
    file: String,
    callee: String,
    /// Set between a `calls=` line and the line with its cost.
    in_call: bool,
    /// Number of positions at the start of a cost line.
    positions: usize,
    /// Whether the first position is an instruction's address.
    has_addresses: bool,
    /// The address of the last cost line.
    address: u64,
    /// Index of the instruction count among the numbers after the positions.
    event: usize,
    /// The sum that callgrind printed.
    summary: Option<i64>,
}

impl Reader {
    fn line(&mut self, line: &str) -> Result<()> {
        let first = line.as_bytes().first().copied().unwrap_or(b'#');
        if first.is_ascii_digit() || matches!(first, b'+' | b'-' | b'*') {
            return self.cost(line);
        }
        if let Some((key, value)) = line.split_once('=') {
            match key {
                "fl" | "fi" | "fe" => self.file = named(&mut self.files, value)?,
                "fn" => {
                    self.function = named(&mut self.functions, value)?;
                    self.profile
                        .homes
                        .insert(self.function.clone(), self.file.clone());
                }
                "cfn" => self.callee = named(&mut self.functions, value)?,
                // The callee's file is not needed, but this may be the line that defines the number of its name.
                "cfl" | "cfi" => drop(named(&mut self.files, value)?),
                "ob" => self.object = named(&mut self.objects, value)?,
                "cob" => drop(named(&mut self.objects, value)?),
                "calls" => self.in_call = true,
                // Jumps are not needed, because only functions are counted.
                _ => {}
            }
            return Ok(());
        }
        if let Some((key, value)) = line.split_once(':') {
            match key {
                "positions" => {
                    self.positions = value.split_whitespace().count();
                    self.has_addresses = value.split_whitespace().next() == Some("instr");
                }
                "events" => {
                    let at = value.split_whitespace().position(|event| event == "Ir");
                    self.event = at.ok_or("no instruction counts (event Ir) in this file")?;
                }
                "summary" | "totals" => {
                    let count = value.split_whitespace().nth(self.event).ok_or("an empty sum")?;
                    self.summary = Some(count.parse()?);
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn cost(&mut self, line: &str) -> Result<()> {
        let numbers: Vec<_> = line.split_whitespace().collect();
        if self.has_addresses {
            self.address = step(self.address, numbers[0])?;
        }
        // Trailing zero counts are left out.
        let count = numbers
            .get(self.positions.max(1) + self.event)
            .map_or(Ok(0), |count| count.parse::<i64>())?;
        let in_program = self.object.rsplit('/').next() == Some(&self.program);
        let site = Site {
            function: self.function.clone(),
            file: self.file.clone(),
            within: String::new(),
            address: if in_program { self.address } else { 0 },
        };
        if std::mem::take(&mut self.in_call) {
            *self.profile.calls.entry((site, self.callee.clone())).or_default() += count;
        } else {
            *self.profile.own.entry(site).or_default() += count;
        }
        Ok(())
    }

    /// Compares the sum with callgrind's sum. They differ if the file is incomplete, or if this reader misinterprets
    /// it.
    fn check(&self) -> Result<()> {
        let total = self.profile.total();
        match self.summary {
            None => Err("callgrind output without a sum: the run was cut short".into()),
            Some(summary) if summary != total => Err(format!(
                "callgrind output says {summary} instructions, its lines add up to {total}"
            )
            .into()),
            Some(_) => Ok(()),
        }
    }
}

/// Reads a position: a number, or `+n`, `-n` or `*` relative to the previous position.
fn step(from: u64, position: &str) -> Result<u64> {
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    Ok(match position.split_at_checked(1) {
        Some(("*", _)) => from,
        Some(("+", by)) => from.wrapping_add(number(by)?),
        Some(("-", by)) => from.wrapping_sub(number(by)?),
        _ => number(position)?,
    })
}

/// Reads a name: `(7) name` defines number 7, `(7)` refers to it, and a bare name stands for itself.
fn named(names: &mut HashMap<String, String>, value: &str) -> Result<String> {
    let value = value.trim();
    let Some((number, name)) = value.strip_prefix('(').and_then(|rest| rest.split_once(')')) else {
        return Ok(value.to_owned());
    };
    let name = name.trim();
    // A function's name may start with a bracket itself, so only digits count as a number.
    if !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(value.to_owned());
    }
    if name.is_empty() {
        return names
            .get(number)
            .cloned()
            .ok_or_else(|| format!("name ({number}) is used before it is defined").into());
    }
    names.insert(number.to_owned(), name.to_owned());
    Ok(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str = "# callgrind format
version: 1
positions: line
events: Ir
summary: 1150

ob=(1) /bin/x
fl=(1) crates/sherman/src/tree.rs
fn=(1) sherman::get
10 100
+2 20
fi=(2) crates/dm-sync/src/region.rs
5 30
cfn=(2) memcpy
calls=3 0
6 900
fe=(1)
12 100

fl=(3) ???
fn=(2)
0 900
totals: 1150
";

    fn site(function: &str, file: &str) -> Site {
        Site {
            function: function.to_owned(),
            file: file.to_owned(),
            within: String::new(),
            address: 0,
        }
    }

    #[test]
    fn own_cost_and_calls_stand_apart_and_inlined_code_keeps_its_file() {
        let profile = Profile::parse(RUN, "x").unwrap();
        let tree = site("sherman::get", "crates/sherman/src/tree.rs");
        let region = site("sherman::get", "crates/dm-sync/src/region.rs");
        assert_eq!(
            profile.own,
            BTreeMap::from([(tree, 220), (region.clone(), 30), (site("memcpy", "???"), 900)])
        );
        assert_eq!(
            profile.calls,
            BTreeMap::from([((region, "memcpy".to_owned()), 900)])
        );
    }

    #[test]
    fn a_file_cut_short_is_refused() {
        let cut = RUN.replace("fn=(2)\n0 900\n", "");
        assert!(
            Profile::parse(&cut, "x")
                .unwrap_err()
                .to_string()
                .contains("add up to 250")
        );
        assert!(
            Profile::parse("events: Ir\nfn=(1) a\n1 1\n", "x")
                .unwrap_err()
                .to_string()
                .contains("cut short")
        );
        assert!(
            Profile::parse("events: Ir\nfn=(1)\n", "x")
                .unwrap_err()
                .to_string()
                .contains("line 2")
        );
    }

    #[test]
    fn the_instruction_count_is_found_among_other_events() {
        let profile = Profile::parse(
            "positions: instr line\nevents: Dr Ir\nfn=a\n0x0 1\n0 1 7 9\ntotals: 7 9\n",
            "x",
        )
        .unwrap();
        assert_eq!(profile.total(), 9);
    }

    #[test]
    fn addresses_of_the_program_tell_the_file_better_than_the_line_does() {
        let run = "positions: instr line\nevents: Ir\ncob=(2) /lib/libc.so\nob=(1) /bin/x\nfl=core/atomic.rs\nfn=main\n\
                   0x1000 4 5\n+0x10 +1 7\n* * 1\ncfn=memcpy\ncalls=1 0x9 0\n-8 * 90\nob=(2)\nfn=memcpy\n0x10 0 90\ntotals: 103\n";
        let profile = Profile::parse(run, "x").unwrap();
        assert_eq!(profile.addresses(), BTreeSet::from([0x1000, 0x1008, 0x1010]));
        let origin = |file: &str, function: &str| Origin {
            file: file.to_owned(),
            function: function.to_owned(),
        };
        let origins = [
            (0x1010, origin("region.rs", "load")),
            (0x1008, origin("leaf.rs", "get")),
        ];
        let placed = profile.place(&BTreeMap::from(origins));
        let within = |function: &str, file: &str, name: &str| Site {
            within: name.to_owned(),
            ..site(function, file)
        };
        let expected = [
            (site("main", "core/atomic.rs"), 5),
            (within("main", "region.rs", "load"), 8),
            (site("memcpy", "core/atomic.rs"), 90),
        ];
        assert_eq!(placed.own, BTreeMap::from(expected));
        assert_eq!(
            placed.calls,
            BTreeMap::from([((within("main", "leaf.rs", "get"), "memcpy".to_owned()), 90)])
        );
    }

    #[test]
    fn a_difference_keeps_only_what_changed() {
        let profile = Profile::parse(RUN, "x").unwrap();
        let nothing = profile.minus(&profile);
        assert!(nothing.own.is_empty() && nothing.calls.is_empty());
        let more = Profile::parse(&RUN.replace("10 100", "10 140").replace("1150", "1190"), "x").unwrap();
        let difference = more.minus(&profile);
        assert_eq!((difference.total(), difference.own.len()), (40, 1));
    }
}
