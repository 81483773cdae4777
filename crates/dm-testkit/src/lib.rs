//! Operation scripts, reference model and the conformance macro
