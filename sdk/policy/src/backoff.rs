//! Growth and jitter: pure functions of attempt number and `rng`.
