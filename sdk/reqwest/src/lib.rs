//! The overload-aware caller with reqwest's manners.
