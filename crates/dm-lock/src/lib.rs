//! Lock words, global and local lock tables, handover, lock-and-read, lock sets
