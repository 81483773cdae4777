//! The constants that were fitted to published figures, a function that varies each of them, and the values that the
//! other papers' figures would give them.

use dm_sim::{CostModel, Parameter, Provenance};

use super::setup::Resolved;

/// The client CPU time of a tree's operations. It is fitted, but it is not a field of the cost model.
const CLIENT_CPU: &str = "client_cpu";

/// All fitted constants by name: the cost model's, and the client's CPU time.
pub(crate) const FITTED: [&str; 11] = [
    "requester_ns",
    "responder_read_ns",
    "responder_line_ns",
    "responder_write_ns",
    "responder_atomic_ns",
    "bucket_cas_ns",
    "bucket_faa_ns",
    "bucket_chip_ns",
    "wire_ns",
    "hand_off_ns",
    CLIENT_CPU,
];

fn field<'m>(model: &'m mut CostModel, name: &str) -> Option<&'m mut f64> {
    Some(match name {
        "requester_ns" => &mut model.requester_ns,
        "responder_read_ns" => &mut model.responder_read_ns,
        "responder_line_ns" => &mut model.responder_line_ns,
        "responder_write_ns" => &mut model.responder_write_ns,
        "responder_atomic_ns" => &mut model.responder_atomic_ns,
        "bucket_cas_ns" => &mut model.bucket_cas_ns,
        "bucket_faa_ns" => &mut model.bucket_faa_ns,
        "bucket_chip_ns" => &mut model.bucket_chip_ns,
        "wire_ns" => &mut model.wire_ns,
        "hand_off_ns" => &mut model.hand_off_ns,
        _ => return None,
    })
}

/// The published figure that the client's CPU time was fitted to.
const CLIENT_CPU_SOURCE: &str = "Sherman Table 1: latency of uniform reads";

/// A value that a fitted constant has if the figures of one paper are left out.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Other {
    pub(crate) constant: &'static str,
    /// The paper that is left out.
    pub(crate) without: &'static str,
    pub(crate) value: f64,
    /// The figure of another paper that gives the value.
    pub(crate) source: &'static str,
}

/// The values from other papers. A constant without an entry has only one source.
pub(crate) const OTHERS: [Other; 7] = [
    Other {
        constant: "requester_ns",
        without: "Sherman",
        value: 22.2,
        source: "SMART §3: 45 M messages per second",
    },
    Other {
        constant: "responder_read_ns",
        without: "SMART",
        value: 17.4,
        source: "Sherman Fig. 3: 50 M messages per second, less the time of one line",
    },
    Other {
        constant: "responder_line_ns",
        without: "Sherman",
        value: 3.3,
        source: "CHIME Fig. 4c alone: one entry is read 1.3 times as fast as eight",
    },
    Other {
        constant: "responder_line_ns",
        without: "CHIME",
        value: 3.0,
        source: "Sherman Fig. 3 alone: 50 M WRITEs of two lines per second",
    },
    Other {
        constant: "responder_write_ns",
        without: "Sherman",
        value: 20.0,
        source: "SMART §3: 45 M messages per second, less the time of one line",
    },
    Other {
        constant: "responder_atomic_ns",
        without: "Sherman",
        value: 22.2,
        source: "SMART §3: 45 M messages per second",
    },
    Other {
        constant: "wire_ns",
        without: "Sherman",
        value: 475.0,
        source: "a round trip of about 2 µs",
    },
];

/// Returns whether a constant was fitted to a paper's figure or taken from a paper.
pub(crate) fn is_input(name: &str) -> bool {
    let from_paper = |p: &Parameter| p.name == name && p.provenance == Provenance::Paper;
    FITTED.contains(&name) || CostModel::cx5_ib().parameters().iter().any(from_paper)
}

/// Returns the names of the constants that were fitted to figures of `paper`.
pub(crate) fn fitted_to(paper: &str) -> Vec<&'static str> {
    let parameters = CostModel::cx5_ib().parameters();
    let source = |name: &str| {
        let found = parameters.iter().find(|p| p.name == name);
        found.map_or(CLIENT_CPU_SOURCE, |p| p.source)
    };
    FITTED
        .into_iter()
        .filter(|name| source(name).contains(paper))
        .collect()
}

/// Returns the values that replace the fits to figures of `paper`, and the constants that have no other source.
pub(crate) fn others_for(paper: &str) -> (Vec<Other>, Vec<&'static str>) {
    let here: Vec<Other> = OTHERS
        .into_iter()
        .filter(|other| other.without == paper)
        .collect();
    let mut alone = fitted_to(paper);
    alone.retain(|name| here.iter().all(|other| other.constant != *name));
    (here, alone)
}

/// Returns `setup` with the fits to figures of one paper replaced by `others`.
///
/// # Panics
/// Panics if there is no such constant.
pub(crate) fn replaced(setup: &Resolved, others: &[Other]) -> Resolved {
    let mut setup = setup.clone();
    for other in others {
        *field(&mut setup.model, other.constant).expect("a constant of the list") = other.value;
    }
    setup
}

/// Returns `setup` with one constant multiplied by `by`.
///
/// # Panics
/// Panics if there is no such constant.
pub(crate) fn turned(setup: &Resolved, name: &str, by: f64) -> Resolved {
    let mut setup = setup.clone();
    if name == CLIENT_CPU {
        setup.cpu_scale *= by;
    } else {
        *field(&mut setup.model, name).expect("a constant of the list") *= by;
    }
    setup
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A value replaces only a fit to the paper that is left out, and its source is another paper's figure.
    #[test]
    fn other_values_come_from_other_papers() {
        for other in OTHERS {
            assert!(fitted_to(other.without).contains(&other.constant), "{other:?}");
            assert!(!other.source.contains(other.without), "{other:?}");
        }
        let (others, alone) = others_for("SMART");
        assert_eq!((others.len(), alone), (1, Vec::new()));
        let (_, alone) = others_for("Sherman");
        assert_eq!(
            alone,
            [
                "bucket_cas_ns",
                "bucket_faa_ns",
                "bucket_chip_ns",
                "hand_off_ns",
                CLIENT_CPU
            ]
        );
        assert!(is_input("link_ns_per_byte") && is_input(CLIENT_CPU) && !is_input("pcie_ns"));
    }

    /// Every constant that the model calls fitted can be varied here, and varying it changes no other constant.
    #[test]
    fn the_list_is_the_models() {
        let model = CostModel::cx5_ib();
        let mut fitted: Vec<&str> = model
            .parameters()
            .iter()
            .filter(|p| p.provenance == Provenance::Fit)
            .map(|p| p.name)
            .collect();
        fitted.push(CLIENT_CPU);
        assert_eq!(fitted, FITTED);
        for name in &FITTED[..FITTED.len() - 1] {
            let mut turned = model.clone();
            *field(&mut turned, name).unwrap() *= 2.0;
            let changed: Vec<&str> = turned
                .parameters()
                .iter()
                .zip(model.parameters())
                .filter(|(new, old)| new.value != old.value)
                .map(|(new, _)| new.name)
                .collect();
            assert_eq!(changed, [*name]);
        }
    }
}
