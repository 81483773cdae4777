//! Bytes of nodes on disaggregated memory: consistency guards, fence keys, headers, states, incarnations
