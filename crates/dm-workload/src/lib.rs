//! Workloads: YCSB mixes, exact Zipf, uniform, latest, stamped values
