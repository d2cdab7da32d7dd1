//! The overload-aware caller as a tower Layer: the one loop that sleeps and sends.
