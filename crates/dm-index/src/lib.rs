//! Range index traits, key and value types, and the joint between an inner structure and a leaf
