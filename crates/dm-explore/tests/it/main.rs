//! Tests of the explorer against itself, and of its verdicts on small protocols.

mod cross_check;
mod failures;
mod knobs;
mod liveness;
mod progress;
mod protocols;
mod retries;
mod world;
