//! The seam: one-sided RDMA verbs, chains, tickets, capabilities, errors, environment, meter
