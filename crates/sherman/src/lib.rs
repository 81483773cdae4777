//! Sherman: a write-optimised B-link tree on disaggregated memory (SIGMOD 2022)
