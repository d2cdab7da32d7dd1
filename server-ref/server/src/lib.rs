//! The reference admission server: bounded queues, honest refusals, a profile in YAML.
