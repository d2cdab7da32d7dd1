//! Programs under test.
