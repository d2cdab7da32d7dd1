//! Command line of the conformance runner.

fn main() {}
