//! The constants that were fitted to published figures, and a function that varies each of them.

use dm_sim::CostModel;

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
    use dm_sim::Provenance;

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
