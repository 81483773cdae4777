//! Histories, linearizability checking and stamped values for tests of concurrent indexes
