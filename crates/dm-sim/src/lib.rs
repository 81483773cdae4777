//! Deterministic simulated NIC: a virtual-time model of an RDMA testbed behind the verbs seam
